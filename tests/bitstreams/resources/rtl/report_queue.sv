// 64 words of a packed struct, read without a clock: what `read_verilog -sv` loses.
module report_queue (
  input  logic              clk_i,
  input  logic              write_i,
  input  logic        [5:0] write_address_i,
  input  logic        [5:0] read_address_i,
  input  report_pkg::pair_t data_i,
  output report_pkg::pair_t data_o
);

  (* ram_style = "distributed" *) report_pkg::pair_t memory[64];

  always_ff @(posedge clk_i) if (write_i) memory[write_address_i] <= data_i;
  assign data_o = memory[read_address_i];

endmodule
