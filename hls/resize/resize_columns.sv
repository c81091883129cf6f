// Horizontal interpolation: rows of the source's width in, a word a clock, rows of the output's
// width out, two pixels a clock.
//
// Reference   blend() in resize.cpp: (left * 256 + weight * (right - left)) >> 16 of Q8.8 values
//             that already carry the half that rounds.
// Interface   words of SourcePixels and three channels of 16 bits, `last_i` with the last one of a
//             row, `final_i` with all those of the last row; taps from resize_taps. Beats without
//             back-pressure: `room_i` says that there is space for what is inside (Latency) and one
//             more.
// Throughput  a window of two words; in a clock up to two outputs that lie in it, and one new word
//             if the next ones do not. So a row takes the greater of its words and its beats, words
//             besides that come before the first output or behind the last, and rows follow each
//             other without a gap. Going down, the two outputs of a beat may come from words far
//             apart: the first one waits.
// Latency     six clocks from the word that completes a beat. Data is a clock behind what decides
//             on it, as a decision goes far: to each bit of both words.
module resize_columns
  import headrace_pkg::*;
  import resize_pkg::*;
(
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  word_t                 word_i,
  input  logic                  last_i,
  input  logic                  final_i,
  input  logic                  word_valid_i,
  output logic                  word_ready_o,

  input  number_t               first_word_i,  // of a row, that comes
  input  logic [1:0][ColumnBits-1:0] first_i,
  input  logic [1:0][ColumnBits-1:0] needs_i,
  input  logic [1:0][7:0]       weight_i,
  input  logic                  both_i,
  input  logic                  row_end_i,
  input  logic                  tap_valid_i,
  output logic                  tap_ready_o,

  output pixel_t [1:0]          pixel_o,
  output logic                  both_o,
  output logic                  last_o,  // of the frame
  output logic                  valid_o,
  input  logic                  room_i
);

  // ---- The window: two words, the number of the younger one in its row, and which row it is ----
  word_t                 word_q, old_q, new_q;  // a clock behind the rest
  number_t               number_q, coming_number_q;  // coming: of the word that comes
  logic                  row_q, coming_row_q, final_q;
  logic                  load, load_q;

  assign word_ready_o = load;

  always_ff @(posedge clk_i) begin
    if (load) final_q <= final_i;
    word_q <= word_i;
    load_q <= load;
    if (load_q) {old_q, new_q} <= {new_q, word_q};
  end

  // Before the first word: behind the end of a row that no tap belongs to.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      row_q           <= 1'b1;
      number_q        <= '0;
      coming_row_q    <= 1'b0;
      coming_number_q <= first_word_i;
    end else if (load) begin
      row_q           <= coming_row_q;
      number_q        <= coming_number_q;
      coming_row_q    <= coming_row_q ^ last_i;
      coming_number_q <= last_i ? first_word_i : coming_number_q + number_t'(1);
    end
  end

  // ---- Taps: of the beat at work, of the next, and of the one behind it ----
  // Each tap knows up to which word it wants the row: `reach` is that of its last column with a
  // weight.
  typedef struct packed {
    logic [1:0][ColumnBits-1:0] first;
    logic [1:0][7:0]            weight;
    number_t [1:0]              reach;
    logic                       both;
    logic                       row_end;
    logic                       row;  // which one, as row_q
  } tap_t;

  tap_t tap_q, next_q, behind, tap_in;
  logic tap_valid_q, next_valid_q, behind_valid;
  logic in_row_q;       // of the tap that comes
  logic first_done_q;   // the first lane's output is on its way
  logic fire0, fire1;
  logic advance, shift; // the next beat's tap is at work; the one behind it is the next

  // The word of a column.
  function automatic number_t word_of(logic [ColumnBits-1:0] column);
    return column[ColumnBits-1:SourceLaneBits];
  endfunction

  assign advance = fire1 || !tap_valid_q;
  assign shift   = advance || !next_valid_q;

  assign tap_in = '{first: first_i, weight: weight_i,
                    reach: {word_of(needs_i[1]), word_of(needs_i[0])},
                    both: both_i, row_end: row_end_i, row: in_row_q};

  stream_register #(.Width($bits(tap_t))) u_behind (
    .clk_i,
    .rst_ni,
    .data_i (tap_in),
    .valid_i(tap_valid_i),
    .ready_o(tap_ready_o),
    .data_o (behind),
    .valid_o(behind_valid),
    .ready_i(shift)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      tap_valid_q  <= 1'b0;
      next_valid_q <= 1'b0;
      in_row_q     <= 1'b0;
      first_done_q <= 1'b0;
    end else begin
      if (advance) tap_valid_q <= next_valid_q;
      if (shift) next_valid_q <= behind_valid;
      if (tap_ready_o && tap_valid_i) in_row_q <= in_row_q ^ row_end_i;
      first_done_q <= (first_done_q || fire0) && !fire1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (advance) tap_q <= next_q;
    if (shift) next_q <= behind;
  end

  // ---- Which of them the window covers: both pixels lie in it, or have no weight ----
  // Registers tell, as a word enters by it. They are worked out for the window as it is and with
  // one more word.
  logic [1:0] covered_q, next_covered_q, behind_covered;
  logic [2:0][1:0] with_word;  // of the taps at work, next and behind it

  function automatic logic [1:0] covers(logic row, number_t number, tap_t tap);
    for (int lane = 0; lane < 2; lane++) begin
      covers[lane] = tap.row == row && number >= tap.reach[lane];
    end
  endfunction

  assign behind_covered = covers(row_q, number_q, behind);
  assign with_word      = {covers(coming_row_q, coming_number_q, behind),
                           covers(coming_row_q, coming_number_q, next_q),
                           covers(coming_row_q, coming_number_q, tap_q)};

  always_ff @(posedge clk_i) begin
    if (load) begin
      covered_q      <= advance ? with_word[1] : with_word[0];
      next_covered_q <= shift ? with_word[2] : with_word[1];
    end else begin
      if (advance) covered_q <= next_covered_q;
      if (shift) next_covered_q <= behind_covered;
    end
  end

  assign fire0 = room_i && tap_valid_q && covered_q[0] && !first_done_q;
  assign fire1 = room_i && tap_valid_q && covered_q[1];
  // An output that is covered leaves in the same clock, so a word that is still wanted is never
  // pushed out.
  assign load  = room_i && word_valid_i && tap_valid_q &&
                 (!covered_q[1] || (next_valid_q && !next_covered_q[1]));

  // ---- Interpolation ----
  logic [5:1] fire0_q, fire1_q, both_pipe_q, last_pipe_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      fire0_q <= '0;
      fire1_q <= '0;
    end else begin
      fire0_q <= {fire0_q[4:1], fire0};
      fire1_q <= {fire1_q[4:1], fire1};
    end
  end
  always_ff @(posedge clk_i) begin
    both_pipe_q <= {both_pipe_q[4:1], tap_q.both};
    last_pipe_q <= {last_pipe_q[4:1], tap_q.row_end && final_q};
  end

  pixel_t [1:0] blended;

  // Behind the younger word there is its last pixel once more, for right ones that have no weight.
  logic [2*SourcePixels:0][2:0][15:0] window;
  assign window = {new_q[SourcePixels-1], new_q, old_q};

  for (genvar lane = 0; lane < 2; lane++) begin : gen_lane
    logic [SourceLaneBits:0] at_1;
    logic [2:0][15:0]        left_2, right_2, left_3, left_4;
    logic [7:0]              weight_1, weight_2, weight_3;
    always_ff @(posedge clk_i) begin
      // The word of the left pixel is the younger one or that before it: one bit tells.
      at_1     <= {number_q[0] == tap_q.first[lane][SourceLaneBits],
                   tap_q.first[lane][SourceLaneBits-1:0]};
      weight_1 <= tap_q.weight[lane];
      left_2   <= window[at_1];
      right_2  <= window[(SourceLaneBits+2)'(at_1) + (SourceLaneBits+2)'(1)];
      weight_2 <= weight_1;
      left_3   <= left_2;
      weight_3 <= weight_2;
      left_4   <= left_3;
    end
    for (genvar c = 0; c < 3; c++) begin : gen_channel
      logic signed [16:0] difference_3;
      logic signed [25:0] product_4;
      logic        [23:0] sum_5;
      always_ff @(posedge clk_i) begin
        difference_3 <= $signed({1'b0, right_2[c]}) - $signed({1'b0, left_2[c]});
        product_4    <= difference_3 * $signed({1'b0, weight_3});
        sum_5        <= 24'({left_4[c], 8'd0}) + product_4[23:0];
      end
      // Channel 0 is red, the first field of pixel_t.
      assign blended[lane][8*(2-c)+:8] = sum_5[23:16];
    end
  end

  // ---- Beats ----
  pixel_t waiting_q;
  always_ff @(posedge clk_i) begin
    if (fire0_q[5]) waiting_q <= blended[0];
  end
  assign pixel_o = {blended[1], fire0_q[5] ? blended[0] : waiting_q};
  assign both_o  = both_pipe_q[5];
  assign last_o  = last_pipe_q[5];
  assign valid_o = fire1_q[5];

`ifndef SYNTHESIS
  a_first_lane_in_window: assert property (@(posedge clk_i) disable iff (!rst_ni)
    fire0 |-> word_of(tap_q.first[0]) == number_q
             || word_of(tap_q.first[0]) + number_t'(1) == number_q);
  a_second_lane_in_window: assert property (@(posedge clk_i) disable iff (!rst_ni)
    fire1 |-> word_of(tap_q.first[1]) == number_q
             || word_of(tap_q.first[1]) + number_t'(1) == number_q);
  a_first_lane_not_missed: assert property (@(posedge clk_i) disable iff (!rst_ni)
    fire1 |-> fire0 || first_done_q);
  a_covered: assert property (@(posedge clk_i) disable iff (!rst_ni)
    tap_valid_q |-> covered_q == covers(row_q, number_q, tap_q));
  a_next_covered: assert property (@(posedge clk_i) disable iff (!rst_ni)
    next_valid_q |-> next_covered_q == covers(row_q, number_q, next_q));
`endif

endmodule
