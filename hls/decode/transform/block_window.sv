// Which blocks of an image render wants: those of the MCUs across that the window needs, and of the
// last MCU of each row, with which the row is known to be complete.
//
// Interface   `scan_valid_i` with a scan; later, before the first block, `window_valid_i` with the
//             window. Then `wanted_o` is of the first block, and a clock after `next_i` of the one
//             behind it.
// Throughput  a block a clock.
module block_window
  import headrace_pkg::*;
(
  input  logic    clk_i,
  input  logic    rst_ni,

  input  scan_t   scan_i,
  input  logic    scan_valid_i,
  input  window_t window_i,
  input  logic    window_valid_i,

  input  logic    next_i,
  output logic    wanted_o
);

  // Of an MCU: its number of blocks less one. At most ten fit.
  function automatic logic [3:0] blocks_of(logic [1:0] h, logic [1:0] v);
    return 4'd1 << (h + v);
  endfunction

  scan_t               scan_q;
  logic [3:0]          last_block_q, block_q;
  logic [WordBits-1:0] first_q, end_q, last_q;  // MCUs: the window's, and the last of a row
  logic [WordBits-1:0] mcu_q;                   // the one behind that at work
  logic [2:0]          known_q;                 // clocks since the window is known: first_q is
  logic                begins, mcu_ends;

  assign begins   = known_q == 3'b011;
  assign mcu_ends = next_i && block_q == last_block_q;

  always_ff @(posedge clk_i) begin
    if (scan_valid_i) scan_q <= scan_i;
    last_block_q <= !scan_q.color ? '0
                  : blocks_of(scan_q.h_shift, scan_q.v_shift) - 4'd1
                  + blocks_of(scan_q.chroma_h[0], scan_q.chroma_v[0])
                  + blocks_of(scan_q.chroma_h[1], scan_q.chroma_v[1]);
    last_q       <= WordBits'((scan_q.width - 16'd1) >> 3) >> scan_q.h_shift;
    first_q      <= window_i.first_word >> scan_q.h_shift;
    // Beyond the image: all to its end.
    end_q        <= window_i.last_word[WordBits] ? '1
                  : window_i.last_word[WordBits-1:0] >> scan_q.h_shift;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || scan_valid_i) known_q <= '0;
    else known_q <= {known_q[1:0], window_valid_i};
  end

  always_ff @(posedge clk_i) begin
    if (scan_valid_i) begin
      mcu_q   <= '0;
      block_q <= '0;
    end else begin
      if (next_i) block_q <= mcu_ends ? '0 : block_q + 4'd1;
      if (begins || mcu_ends) begin
        mcu_q    <= mcu_q == last_q ? '0 : mcu_q + 1'b1;
        wanted_o <= (mcu_q >= first_q && mcu_q <= end_q) || mcu_q == last_q;
      end
    end
  end

`ifndef SYNTHESIS
  a_known_before: assert property (@(posedge clk_i) disable iff (!rst_ni) next_i |-> known_q == '1);
`endif

endmodule
