// A memory that no RAM can be: all of its words are reset at once.
module report_registers (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        write_i,
  input  logic  [5:0] write_address_i,
  input  logic  [5:0] read_address_i,
  input  logic [31:0] data_i,
  output logic [31:0] data_o
);

  logic [31:0] memory[64];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      for (int i = 0; i < 64; i++) memory[i] <= '0;
    end else if (write_i) begin
      memory[write_address_i] <= data_i;
    end
  end
  assign data_o = memory[read_address_i];

endmodule
