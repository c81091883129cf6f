// Reads a part of an image of the workspace, and gives it as a frame and its beats.
//
// Reference   read_image() of image_cu.cpp; the image lies as image_keep packs it.
// Interface   `start_i` for a clock while `idle_o`, with the address of the part's first word, and
//             its size; all stay. `pitch_i` is the number of words from one row to the next. With
//             `refuse_i` nothing is read, and the frame is StatusBadArgument.
// Memory      two readers with 256 words each take rows in turn, so that one waits for memory while
//             the other gives.
// Throughput  two pixels a clock.
// Latency     memory's.
// Bad input   an error response sets `error_o` until the next start; pixels are zeros then.
module image_read
  import headrace_pkg::*;
(
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             start_i,
  input  logic             refuse_i,
  input  logic [63:0]      address_i,  // 16-byte aligned
  input  logic [15:0]      pitch_i,
  input  logic [15:0]      width_i,
  input  logic [15:0]      height_i,
  output logic             idle_o,
  output logic             error_o,

  output frame_t           frame_o,
  output logic             frame_valid_o,
  input  logic             frame_ready_i,
  output beat_t            beat_o,
  output logic             beat_valid_o,
  input  logic             beat_ready_i,

  output logic [1:0][63:0] araddr_o,
  output logic [1:0][7:0]  arlen_o,
  output logic [1:0]       arvalid_o,
  input  logic [1:0]       arready_i,
  input  logic [127:0]     rdata_i,
  input  logic [1:0]       rresp_i,
  input  logic             rlast_i,
  input  logic [1:0]       rvalid_i
);

  logic [1:0]        idle, error, begin_row, word_valid, word_ready;
  logic [1:0][127:0] word;
  // What the size says: registers, right from the second clock behind the start on.
  logic [28:0]       row_words_q;
  logic [15:0]       final_row_q;
  logic [14:0]       final_pair_q;  // of a row
  logic              one_pair_q;

  always_ff @(posedge clk_i) begin
    row_words_q  <= 29'((17'(width_i) + 17'd3) >> 2);
    final_row_q  <= height_i - 16'd1;
    final_pair_q <= 15'((width_i - 16'd1) >> 1);
    one_pair_q   <= final_pair_q == '0;
  end

  // ---- Rows to the readers ----
  // The address is counted in two parts, the upper a clock later.
  logic [27:0] next_q;  // word address of the next row
  logic [31:0] upper_q;
  logic        carry_q, pause_q, turn_q, frame_q;
  logic [15:0] asked_q;  // rows that are still to be asked for
  logic        asks_q;   // some
  logic        ask;

  assign ask = asks_q && idle[turn_q] && !pause_q;
  always_comb begin
    begin_row         = '0;
    begin_row[turn_q] = ask;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      asked_q <= '0;
      asks_q  <= 1'b0;
      pause_q <= 1'b0;
      frame_q <= 1'b0;
    end else begin
      if (start_i) asked_q <= refuse_i ? '0 : height_i;
      else if (ask) asked_q <= asked_q - 16'd1;
      if (start_i) asks_q <= !refuse_i && height_i != '0;
      else if (ask) asks_q <= asked_q != 16'd1;
      pause_q <= start_i || ask;
      if (start_i) frame_q <= 1'b1;
      else if (frame_ready_i) frame_q <= 1'b0;
    end
    if (start_i) turn_q <= 1'b0;
    else if (ask) turn_q <= !turn_q;
    carry_q <= 1'b0;
    upper_q <= start_i ? address_i[63:32] : upper_q + 32'(carry_q);
    if (start_i) next_q <= address_i[31:4];
    else if (ask) {carry_q, next_q} <= {1'b0, next_q} + 29'(pitch_i);
  end

  assign frame_valid_o = frame_q;
  assign frame_o       = refuse_i ? '{width: '0, height: '0, status: StatusBadArgument}
                                  : '{width: width_i, height: height_i, status: StatusOk};

  for (genvar r = 0; r < 2; r++) begin : gen_reader
    axi_read #(.Depth(256)) u_read (
      .clk_i,
      .rst_ni,
      .start_i     (begin_row[r]),
      .address_i   ({upper_q, next_q, 4'b0}),
      .words_i     (row_words_q),
      .stop_i      (1'b0),
      .idle_o      (idle[r]),
      .error_o     (error[r]),
      .word_o      (word[r]),
      .word_valid_o(word_valid[r]),
      .word_ready_i(word_ready[r]),
      .araddr_o    (araddr_o[r]),
      .arlen_o     (arlen_o[r]),
      .arsize_o    (),
      .arburst_o   (),
      .arvalid_o   (arvalid_o[r]),
      .arready_i   (arready_i[r]),
      .rdata_i,
      .rresp_i,
      .rlast_i,
      .rvalid_i    (rvalid_i[r]),
      .rready_o    ()
    );
  end

  // ---- Words to beats ----
  logic        from_q, second_q, give, last_pair_q, last_row, word_ends, failed_q;
  logic [15:0] row_q;
  logic [14:0] pair_q;  // of a row
  logic [63:0] half;
  logic [1:0]  begun_q;  // readers that have read a row of this image

  assign last_row      = row_q == final_row_q;
  assign word_ends     = second_q || last_pair_q;
  assign give          = beat_valid_o && beat_ready_i;
  assign half          = second_q ? word[from_q][127:64] : word[from_q][63:0];
  assign beat_valid_o  = word_valid[from_q];
  assign beat_o.pixel  = {{half[39:32], half[47:40], half[55:48]},
                          {half[7:0], half[15:8], half[23:16]}};
  assign beat_o.keep   = {!last_pair_q || !width_i[0], 1'b1};
  assign beat_o.last   = last_pair_q && last_row;
  assign beat_o.status = StatusOk;
  always_comb begin
    word_ready         = '0;
    word_ready[from_q] = give && word_ends;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) begin
      from_q   <= 1'b0;
      second_q <= 1'b0;
      row_q    <= '0;
      pair_q   <= '0;
    end else if (give) begin
      second_q <= !word_ends;
      pair_q   <= last_pair_q ? '0 : pair_q + 15'd1;
      if (last_pair_q) begin
        row_q  <= row_q + 16'd1;
        from_q <= !from_q;
      end
    end
    // A word comes long after the start.
    if (give) last_pair_q <= last_pair_q ? one_pair_q : pair_q + 15'd1 == final_pair_q;
    else last_pair_q <= pair_q == final_pair_q;
    // A reader forgets its error at a new row only, so that of an earlier image may still be there.
    begun_q  <= !rst_ni || start_i ? '0 : begun_q | begin_row;
    failed_q <= rst_ni && !start_i && error_o;
  end

  assign idle_o  = idle == '1 && !asks_q && !frame_q;
  assign error_o = failed_q || (error & begun_q) != '0;

`ifndef SYNTHESIS
  a_asks: assert property (@(posedge clk_i) disable iff (!rst_ni) asks_q == (asked_q != '0));
  a_last_pair: assert property (@(posedge clk_i) disable iff (!rst_ni)
      beat_valid_o |-> last_pair_q == (pair_q == 15'((width_i - 16'd1) >> 1)));
`endif

endmodule
