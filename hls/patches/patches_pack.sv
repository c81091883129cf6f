// Samples to words of a tensor, and zeros behind them.
//
// Interface   with `valid_i`, the low `count_i` bytes of `bytes_i`, up to 16, which go on where
//             those before ended; the bytes above are 0. With `flush_i` the last word leaves, if
//             there is one. Words leave with `valid_o`; nothing holds them back. `start_i` forgets
//             all.
// Throughput  16 bytes a clock. Latency three clocks.
module patches_pack (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [127:0] bytes_i,
  input  logic [4:0]   count_i,
  input  logic         valid_i,
  input  logic         flush_i,

  output logic [127:0] word_o,
  output logic         valid_o
);

  logic [3:0]   fill_q;      // bytes of the word that are there
  logic [4:0]   filled;
  logic [255:0] shifted_1;
  logic         valid_1, full_1, flush_1;
  logic [127:0] held_2;

  assign filled = 5'(fill_q) + count_i;  // at most 31

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) fill_q <= '0;
    else if (valid_i) fill_q <= filled[3:0];
    else if (flush_i) fill_q <= '0;
    shifted_1 <= valid_i ? 256'(bytes_i) << {fill_q, 3'b0} : '0;
    full_1    <= valid_i && filled[4];
    flush_1   <= flush_i && fill_q != '0;
    valid_1   <= valid_i && rst_ni && !start_i;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) begin
      held_2  <= '0;
      valid_o <= 1'b0;
    end else begin
      valid_o <= (valid_1 && full_1) || flush_1;
      if (valid_1) held_2 <= full_1 ? shifted_1[255:128] : held_2 | shifted_1[127:0];
      if (flush_1) held_2 <= '0;
    end
    word_o <= held_2 | shifted_1[127:0];
  end

endmodule
