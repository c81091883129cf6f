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
  logic [2:0]   other_q; // ~at_q: a register of its own for control, as at_q goes to all of four_o
  logic [29:0]  pass_q;  // words still to be passed over
  logic         passes_q;  // some
  logic [32:0]  skipped_to;
  logic [3:0]   far;     // eight or more: to skip leads to another word
  logic [2:0]   at, taken_to;
  logic         last_taken, used_up;

  assign at         = ~other_q;
  assign skipped_to = 33'(at) + 33'(halves_i);
  assign far        = 4'(at) + 4'(halves_i[2:0]);
  assign taken_to   = at + (two_i ? 3'd1 : 3'd2);

  logic [7:0][15:0] half, half_after;
  assign half       = word_q;
  assign half_after = {word_i[15:0], word_q[127:16]};
  assign four_o     = {half_after[at_q], half[at_q]};
  assign valid_o    = full_q && !passes_q && (at != 3'd7 || two_i || word_valid_i);

  // What is taken is the word's last: of what is left of it, and of the next word.
  assign last_taken   = take_i && at[2:1] == 2'b11 && (at[0] ? two_i || word_valid_i : !two_i);
  assign used_up      = full_q && (passes_q || last_taken);
  assign word_ready_o = on_i && (!full_q || passes_q || last_taken);

  always_ff @(posedge clk_i) begin
    if (word_ready_o) word_q <= word_i;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) begin
      full_q   <= 1'b0;
      at_q     <= '0;
      other_q  <= '1;
      pass_q   <= '0;
      passes_q <= 1'b0;
    end else begin
      if (word_ready_o) full_q <= word_valid_i;
      else if (used_up) full_q <= 1'b0;
      if (skip_i) begin
        {pass_q, at_q} <= skipped_to;
        other_q        <= ~skipped_to[2:0];
      end else if (valid_o && take_i) begin
        at_q    <= taken_to;
        other_q <= ~taken_to;
      end else if (passes_q && full_q) begin
        pass_q <= pass_q - 30'd1;
      end
      if (skip_i) passes_q <= halves_i[31:3] != '0 || far[3];
      else if (full_q && pass_q[29:1] == '0) passes_q <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  a_nothing_taken_while_skipping: assert property (@(posedge clk_i) disable iff (!rst_ni)
    skip_i |-> !take_i && !passes_q);
  a_other: assert property (@(posedge clk_i) disable iff (!rst_ni) other_q == ~at_q);
  a_passes: assert property (@(posedge clk_i) disable iff (!rst_ni) passes_q == (pass_q != '0));
`endif

endmodule
