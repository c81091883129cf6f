// The memory of `patches` and nothing else: 16,384 words of eight pixels, in parts side by side.
// The address goes from part to part, a clock each, and nothing but registers is around.
module patch_memory #(
  parameter int unsigned Parts = 3
) (
  input  logic         clk_i,
  input  logic         we_i,
  input  logic [13:0]  write_index_i,
  input  logic [191:0] word_i,
  input  logic [13:0]  index_i,
  output logic [191:0] word_o
);

  localparam int unsigned Width = 192 / Parts;
  logic [Parts-1:0]            we_q;
  logic [Parts-1:0][13:0]      write_index_q, index_q;
  logic [Parts-1:0][Width-1:0] parts, parts_o;

  assign parts  = word_i;
  assign word_o = parts_o;

  always_ff @(posedge clk_i) begin
    we_q          <= Parts'({we_q, we_i});
    write_index_q <= (14 * Parts)'({write_index_q, write_index_i});
    index_q       <= (14 * Parts)'({index_q, index_i});
  end

  for (genvar p = 0; p < Parts; p++) begin : gen_part
    logic [Width-1:0] memory[16384];
    logic [Width-1:0] written_q, read_q;

    always_ff @(posedge clk_i) begin
      written_q <= parts[p];
      if (we_q[p]) memory[write_index_q[p]] <= written_q;
      read_q     <= memory[index_q[p]];
      parts_o[p] <= read_q;
    end
  end

endmodule
