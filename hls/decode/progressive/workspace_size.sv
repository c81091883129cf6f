// How many MCUs an image has, and how many bytes of workspace its coefficients need.
//
// Reference   workspace_bytes_of in progressive.hpp: 128 for each block of the image's whole MCUs,
//             at most 3.22 GB.
// Interface   `start_i` for a clock, with the scan stable from there on; the sizes stand 15 clocks
//             later, until the next start.
module workspace_size
  import headrace_pkg::*;
  import progressive_pkg::*;
(
  input  logic        clk_i,

  input  logic        start_i,
  input  scan_t       scan_i,
  input  logic [31:0] workspace_bytes_i,
  output logic [BlockBits-1:0] mcus_o,
  output logic [31:0] needed_o,
  output logic        too_small_o         // there are fewer
);

  // A bit of the factor in each clock, the upper one first.
  logic [BlockXBits:0]  factor_q;  // MCUs across, shifted out
  logic [12:0]          down_q;
  logic [3:0]           left_q;
  logic [BlockBits-1:0] mcus_q, chroma_q, blocks_q;
  logic [2:0][2:0]      shift_q;   // log2 of the blocks of each component in an MCU

  for (genvar c = 0; c < 3; c++) begin : g_shift
    always_ff @(posedge clk_i) shift_q[c] <= 3'(h_shifts(scan_i)[c]) + 3'(v_shifts(scan_i)[c]);
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      factor_q <= (BlockXBits + 1)'((scan_i.width + (16'd8 << scan_i.h_shift) - 16'd1) >>
                                    (3'd3 + 3'(scan_i.h_shift)));
      left_q   <= 4'(BlockXBits + 1);
      mcus_q   <= '0;
    end else if (left_q != '0) begin
      factor_q <= factor_q << 1;
      left_q   <= left_q - 1'b1;
      mcus_q   <= (mcus_q << 1) + (factor_q[BlockXBits] ? BlockBits'(down_q) : '0);
    end
    down_q      <= 13'((scan_i.height - 16'd1) >> (3'd3 + 3'(scan_i.v_shift))) + 13'd1;
    chroma_q    <= scan_i.color ? (mcus_q << shift_q[1]) + (mcus_q << shift_q[2]) : '0;
    blocks_q    <= (mcus_q << shift_q[0]) + chroma_q;
    too_small_o <= 25'(blocks_q) > workspace_bytes_i[31:7];
  end

  assign mcus_o   = mcus_q;
  assign needed_o = 32'({blocks_q, 7'd0});

endmodule
