// loop_block_ram with a register at the RAM's output: a step in two clocks.
module loop_block_ram_registered (
  input  logic        clk_i,
  input  logic        write_i,
  input  logic [8:0]  write_at_i,
  input  logic [4:0]  write_total_i,
  input  logic        table_i,
  input  logic [31:0] next_i,
  output logic [31:0] window_o
);

  loop_block_ram #(.Register(1'b1)) u_loop (.*);

endmodule
