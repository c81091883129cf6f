// The number of samples at 16 kHz: ceil(count * up / down).
//
// Interface   `start_i` for a clock; `done_o` falls then, and rises when `count_o` is there. It is
//             high while nothing is under way: nobody waits for a count that never began.
// Latency     38 clocks: a multiplication, a division bit by bit.
module resample_count (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  logic [24:0] count_i,
  input  logic [9:0]  up_i,
  input  logic [8:0]  down_i,
  output logic        done_o,
  output logic [23:0] count_o
);

  localparam int unsigned Bits = 35;

  logic [24:0]     factor_q;
  logic [9:0]      up_q;
  logic [8:0]      down_q;
  logic [Bits-1:0] product_q;
  logic [Bits-1:0] quotient_q;   // from the right; what is left of the dividend in front
  logic [8:0]      remainder_q;  // below down
  logic [9:0]      remainder;
  logic            fits;
  logic [Bits+1:0] busy_q;  // one bit moves through it

  assign remainder = {remainder_q, quotient_q[Bits-1]};
  assign fits      = remainder >= {1'b0, down_q};
  assign count_o   = quotient_q[23:0];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= '0;
      done_o <= 1'b1;
    end else begin
      busy_q <= {busy_q[Bits:0], start_i};
      done_o <= !start_i && busy_q[Bits:0] == '0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      factor_q <= count_i;
      up_q     <= up_i;
      down_q   <= down_i;
    end
    product_q <= factor_q * up_q;
    if (busy_q[1]) begin
      quotient_q  <= product_q + Bits'(down_q - 9'd1);
      remainder_q <= '0;
    end else if (busy_q[Bits+1:2] != '0) begin
      quotient_q  <= {quotient_q[Bits-2:0], fits};
      remainder_q <= fits ? 9'(remainder - {1'b0, down_q}) : remainder[8:0];
    end
  end

`ifndef SYNTHESIS
  a_fits: assert property (@(posedge clk_i) disable iff (!rst_ni)
      busy_q[Bits+1] |=> quotient_q[Bits-1:24] == '0);
`endif

endmodule
