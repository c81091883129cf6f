module report_broken (
  input  logic clk_i,
  output logic data_o
);

  always_ff @(posedge clk_i) data_o <= never_declared;

endmodule
