// How many bytes of workspace the coefficients of an image need.
//
// Reference   workspace_bytes_of in progressive.hpp: 128 for each block of the image's whole MCUs, at most 3.22 GB.
// Interface   `start_i` for a clock, with the scan stable from there on; the sizes stand 14 clocks later, until the next start.
module workspace_size
  import headrace_pkg::*;
  import progressive_pkg::*;
(
  input  logic        clk_i,

  input  logic        start_i,
  input  scan_t       scan_i,
  input  logic [31:0] workspace_bytes_i,
  output logic [31:0] needed_o,
  output logic        too_small_o         // there are fewer
);

  // A bit of the factor in each clock, the upper one first.
  logic [AcrossBits-1:0] factor_q;  // MCUs across, shifted out
  logic [12:0]           down_q;
  logic [3:0]            left_q;
  logic [BlockBits-1:0]  mcus_q, blocks_q;

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      factor_q <= AcrossBits'((scan_i.width + (16'd8 << scan_i.h_shift) - 16'd1) >> (3'd3 + 3'(scan_i.h_shift)));
      left_q   <= 4'(AcrossBits);
      mcus_q   <= '0;
    end else if (left_q != '0) begin
      factor_q <= factor_q << 1;
      left_q   <= left_q - 1'b1;
      mcus_q   <= (mcus_q << 1) + (factor_q[AcrossBits-1] ? BlockBits'(down_q) : '0);
    end
    down_q      <= 13'((scan_i.height - 16'd1) >> (scan_i.v_shift != '0 ? 4 : 3)) + 13'd1;
    blocks_q    <= (mcus_q << (3'(scan_i.h_shift) + 3'(scan_i.v_shift))) + (scan_i.color ? mcus_q << 1 : '0);
    too_small_o <= 25'(blocks_q) > workspace_bytes_i[31:7];
  end

  assign needed_o = 32'({blocks_q, 7'd0});

endmodule
