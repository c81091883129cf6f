// The file at an even offset: words of 16 bytes in, four bytes or two at a time out.
//
// Interface   `start_i` for a clock before the first word of a file. `four_o` are the next four
//             bytes, the first lowest; with `two_i` only its lower half counts, and the file may
//             end behind it. They go with `take_i` while `valid_o`. `skip_i` for a clock passes
//             over `halves_i` times two bytes, none being taken then; words that are passed over
//             whole go at one a clock. Words are taken while `on_i`.
// Throughput  four bytes a clock.
module wav_words (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic         on_i,
  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output logic [31:0]  four_o,
  output logic         valid_o,
  input  logic         two_i,
  input  logic         take_i,

  input  logic         skip_i,
  input  logic [31:0]  halves_i
);

  logic [127:0] word_q;
  logic         full_q;  // word_q counts
  logic [2:0]   at_q;    // in word_q, or in the next word: of its eight halves
  logic [29:0]  pass_q;  // words still to be passed over
  logic         passes_q;  // some
  logic [32:0]  skipped_to;
  logic [3:0]   taken_to;
  logic         used_up;

  assign skipped_to = 33'(at_q) + 33'(halves_i);
  assign taken_to   = {1'b0, at_q} + (two_i ? 4'd1 : 4'd2);

  logic [7:0][15:0] half, half_after;
  assign half       = word_q;
  assign half_after = {word_i[15:0], word_q[127:16]};
  assign four_o     = {half_after[at_q], half[at_q]};
  assign valid_o = full_q && !passes_q && (at_q != 3'd7 || two_i || word_valid_i);

  assign used_up      = full_q && (passes_q || (valid_o && take_i && taken_to[3]));
  assign word_ready_o = on_i && (!full_q || used_up);

  always_ff @(posedge clk_i) begin
    if (word_ready_o) word_q <= word_i;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) begin
      full_q   <= 1'b0;
      at_q     <= '0;
      pass_q   <= '0;
      passes_q <= 1'b0;
    end else begin
      if (word_ready_o) full_q <= word_valid_i;
      else if (used_up) full_q <= 1'b0;
      if (skip_i) {pass_q, at_q} <= skipped_to;
      else if (valid_o && take_i) at_q <= taken_to[2:0];
      else if (passes_q && full_q) pass_q <= pass_q - 30'd1;
      if (skip_i) passes_q <= skipped_to[32:3] != '0;
      else if (full_q && pass_q[29:1] == '0) passes_q <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  a_nothing_taken_while_skipping: assert property (@(posedge clk_i) disable iff (!rst_ni)
    skip_i |-> !take_i && !passes_q);
  a_passes: assert property (@(posedge clk_i) disable iff (!rst_ni) passes_q == (pass_q != '0));
`endif

endmodule
