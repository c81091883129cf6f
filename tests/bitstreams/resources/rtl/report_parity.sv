// Registers around a parity of 36 bits, which takes seven LUTs or more, and around a 32-bit sum.
module report_parity (
  input  logic        clk_i,
  input  logic [35:0] data_i,
  output logic        parity_o,
  output logic [31:0] sum_o
);

  logic [35:0] data_q;
  logic [31:0] first_q, second_q;

  always_ff @(posedge clk_i) begin
    data_q   <= data_i;
    parity_o <= ^data_q;
    first_q  <= data_q[31:0];
    second_q <= first_q;
    sum_o    <= first_q + second_q;
  end

endmodule
