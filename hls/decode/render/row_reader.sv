// Reads rows out of the row memories as soon as all that they need is there, and gives free what no
// later row needs.
//
// Reference   render in decode.cpp: which rows may be sent when, and which chroma rows they need.
// Interface   `run_i` as in row_writer. `started_o` marks the clock in which it is sure that there
//             will be pixels. `finished_o`: the whole image has been read. `failed_o`: no more
//             rows, because the image ended with an error; the rows before it have been read.
//             `empty_o`: no words are under way.
// Throughput  eight pixels in two clocks, as each chroma memory is read in two rows: so a row takes
//             two clocks for each of its words, also where its last one has fewer pixels. With two
//             pixels a clock behind it words wait for the pixel path, with four they just suffice.
// Rows        before the first that is sent they pass in a clock.
// Latency     7 clocks from a committed MCU row to the first word. With the triangle filter between
//             rows, the last row of an MCU row needs the chroma row below and is read with the next
//             MCU row, and that one's first row the chroma row above. The last MCU row is read when
//             the image has ended without an error.
module row_reader
  import headrace_pkg::*;
  import render_pkg::*;
(
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  layout_t                       layout_i,
  input  logic                          run_i,

  input  logic                          committed_i,  // an MCU row
  input  logic                          ended_i,
  input  logic                          sound_i,      // ended without an error
  output logic                          release_o,

  output logic                          started_o,
  output logic                          finished_o,
  output logic                          failed_o,
  output logic                          empty_o,

  output logic [LumaAddressWidth-1:0]   luma_address_o,
  input  logic [63:0]                   luma_data_i,   // two clocks later
  output logic [ChromaAddressWidth-1:0] cb_address_o,
  input  logic [63:0]                   cb_data_i,
  output logic [ChromaAddressWidth-1:0] cr_address_o,
  input  logic [63:0]                   cr_data_i,

  output row_words_t                    words_o,
  output logic                          words_valid_o,
  input  logic                          words_ready_i
);

  localparam int unsigned QueueDepth = 8;

  typedef enum logic [1:0] {
    WaitRow,   // for an MCU row
    Read,
    Finished,
    Failed
  } state_e;

  state_e      state_q, state_d;
  logic [12:0] mcu_row_q;
  logic        last_mcu_row_q, next_is_last_q;
  logic [RingBits:0] available_q;  // MCU rows that are complete and not begun
  logic        some_q;             // there are such
  logic        enter;

  // ---- Position ----
  logic        far_phase_q;   // second clock of a word
  logic [WordBits-1:0] word_q;
  logic [15:0] y_q;
  logic [4:0]  y_in_mcu_q, last_in_mcu;
  logic        last_row_q;    // y_q is the last row that is sent
  logic        bottom_row_q;  // the image's
  logic        skip_q;        // before the first that is sent
  logic        word_ends, row_ends, group_ends, mcu_row_ends;
  logic [3:0]  queued_q;      // words in the queue and under way
  logic        begin_word;

  assign begin_word   = state_q == Read && !far_phase_q && !skip_q && !queued_q[3];
  assign word_ends    = state_q == Read && far_phase_q;
  assign row_ends     = (word_ends && word_q == layout_i.last_word) || (state_q == Read && skip_q);
  assign last_in_mcu  = {layout_i.blocks_v[0][1], layout_i.blocks_v[0] != '0, 3'd7};
  assign mcu_row_ends = y_in_mcu_q == last_in_mcu;
  // The rows that are read when an MCU row is complete.
  assign group_ends   = last_mcu_row_q     ? last_row_q
                      : layout_i.row_below ? y_in_mcu_q == {last_in_mcu[4:1], 1'b0}
                                           : mcu_row_ends;

  always_comb begin
    state_d = state_q;
    enter   = 1'b0;
    unique case (state_q)
      WaitRow: begin
        enter = some_q && (!last_mcu_row_q || sound_i);
        if (enter) state_d = Read;
        else if (ended_i && (!some_q || last_mcu_row_q)) state_d = Failed;
      end
      Read: begin
        if (row_ends && group_ends) state_d = last_mcu_row_q ? Finished : WaitRow;
      end
      default: ;  // until run_i falls
    endcase
  end

  assign started_o  = enter && y_q == '0;
  assign finished_o = state_q == Finished;
  assign failed_o   = state_q == Failed;

  // What the next MCU row is, is known before it is asked for: the rows of one take at least seven
  // clocks.
  always_ff @(posedge clk_i) begin
    next_is_last_q <= (run_i ? mcu_row_q + 1'b1 : 13'd0) == layout_i.last_mcu_row;
    if (!run_i || (row_ends && group_ends)) last_mcu_row_q <= next_is_last_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) begin
      state_q        <= WaitRow;
      mcu_row_q      <= '0;
      available_q    <= '0;
      some_q         <= 1'b0;
      far_phase_q    <= 1'b0;
      word_q         <= layout_i.first_word;
      y_q            <= '0;
      y_in_mcu_q     <= '0;
      last_row_q     <= layout_i.last_row == '0;
      bottom_row_q   <= layout_i.bottom_row == '0;
      skip_q         <= layout_i.first_row != '0;
      release_o      <= 1'b0;
    end else begin
      state_q     <= state_d;
      if (committed_i && !enter) begin
        available_q <= available_q + 1'b1;
        some_q      <= 1'b1;
      end else if (enter && !committed_i) begin
        available_q <= available_q - 1'b1;
        some_q      <= available_q != (RingBits+1)'(1);
      end
      if (begin_word) far_phase_q <= 1'b1;
      else if (word_ends) far_phase_q <= 1'b0;
      if (word_ends) word_q <= row_ends ? layout_i.first_word : word_q + 1'b1;
      if (row_ends) begin
        y_q        <= y_q + 1'b1;
        last_row_q <= y_q + 16'd1 == layout_i.last_row;
        bottom_row_q <= y_q + 16'd1 == layout_i.bottom_row;
        if (y_q + 16'd1 == layout_i.first_row) skip_q <= 1'b0;
        y_in_mcu_q <= mcu_row_ends ? '0 : y_in_mcu_q + 1'b1;
        if (group_ends) begin
          mcu_row_q      <= mcu_row_q + 1'b1;
        end
      end
      release_o <= row_ends && (layout_i.row_below ? y_in_mcu_q == '0 && y_q != '0 : mcu_row_ends);
    end
  end

  // ---- Addresses: strides are powers of two, so words are put below the start of a row ----
  logic [LumaAddressWidth-1:0]   luma_row_q;
  logic                          far_is_near;
  logic [1:0][ChromaAddressWidth-1:0] chroma_address_q;

  assign far_is_near = y_q[0] ? bottom_row_q : y_q == '0;  // beyond the edges it repeats

  always_ff @(posedge clk_i) begin
    if (!run_i) luma_row_q <= '0;
    else if (row_ends) luma_row_q <= luma_row_q + (LumaAddressWidth'(1) << layout_i.stride_log2[0]);
    luma_address_o <= luma_row_q | LumaAddressWidth'(word_q);
  end

  for (genvar c = 0; c < 2; c++) begin : gen_chroma
    logic [ChromaAddressWidth-1:0] near_row_q, far_row, stride;

    logic last_of_sample;  // the last row of luma beside this one of chroma

    assign stride  = ChromaAddressWidth'(1) << layout_i.stride_log2[1+c];
    assign last_of_sample = (y_q[0] || layout_i.v_shift[c] == '0) &&
                            (y_q[1] || !layout_i.v_shift[c][1]);
    assign far_row = far_is_near ? near_row_q
                   : y_q[0]      ? near_row_q + stride
                                 : near_row_q - stride;

    always_ff @(posedge clk_i) begin
      if (!run_i) near_row_q <= '0;
      else if (row_ends && last_of_sample) near_row_q <= near_row_q + stride;
      chroma_address_q[c] <= (far_phase_q ? far_row : near_row_q)
                           | ChromaAddressWidth'(word_q >> layout_i.h_shift[c]);
    end
  end
  assign {cr_address_o, cb_address_o} = chroma_address_q;

  // ---- Words out of the memories, all at once ----
  typedef struct packed {
    logic [1:0] part;
    logic       first;
    logic       last;
    logic       last_row;
    logic       odd_row;
  } place_t;

  place_t      place_q, place_q2, place_q3;
  logic        valid_q, valid_q2, valid_q3;
  logic [63:0] cb_near_q, cr_near_q;
  row_words_t  words;

  always_ff @(posedge clk_i) begin
    place_q  <= '{
      part:     word_q[1:0],
      first:    word_q == layout_i.first_word,
      last:     word_q == layout_i.last_word,
      last_row: last_row_q,
      odd_row:  y_q[0]
    };
    place_q2  <= place_q;
    place_q3  <= place_q2;
    cb_near_q <= cb_data_i;
    cr_near_q <= cr_data_i;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      {valid_q, valid_q2, valid_q3} <= '0;
      queued_q                      <= '0;
    end else begin
      {valid_q, valid_q2, valid_q3} <= {word_ends, valid_q, valid_q2};
      queued_q <= queued_q + {3'd0, begin_word} - {3'd0, words_valid_o && words_ready_i};
    end
  end

  assign words = '{
    luma:     luma_data_i,
    cb_near:  cb_near_q,
    cb_far:   cb_data_i,
    cr_near:  cr_near_q,
    cr_far:   cr_data_i,
    part:     place_q3.part,
    first:    place_q3.first,
    last:     place_q3.last,
    last_row: place_q3.last_row,
    odd_row:  place_q3.odd_row
  };

  logic queue_ready;

  stream_fifo #(
    .Width($bits(row_words_t)),
    .Depth(QueueDepth)
  ) u_queue (
    .clk_i, .rst_ni,
    .data_i (words),
    .valid_i(valid_q3),
    .ready_o(queue_ready),
    .data_o (words_o),
    .valid_o(words_valid_o),
    .ready_i(words_ready_i),
    .count_o()
  );

  assign empty_o = queued_q == '0;

`ifndef SYNTHESIS
  a_room_for_all: assert property (@(posedge clk_i) disable iff (!rst_ni) valid_q3 |-> queue_ready);
`endif

endmodule
