// patch_memory in twelve parts of 16 bits.
module patch_memory_12 (
  input  logic         clk_i,
  input  logic         we_i,
  input  logic [13:0]  write_index_i,
  input  logic [191:0] word_i,
  input  logic [13:0]  index_i,
  output logic [191:0] word_o
);

  patch_memory #(.Parts(12)) u_memory (.*);

endmodule
