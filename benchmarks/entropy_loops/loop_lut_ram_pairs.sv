// loop_lut_ram with a table that tells two symbols in a look-up: 512 words.
module loop_lut_ram_pairs (
  input  logic        clk_i,
  input  logic        write_i,
  input  logic [8:0]  write_at_i,
  input  logic [4:0]  write_total_i,
  input  logic [2:0]  table_i,
  input  logic [31:0] next_i,
  output logic [31:0] window_o
);

  loop_lut_ram #(.Bits(8)) u_loop (.*);

endmodule
