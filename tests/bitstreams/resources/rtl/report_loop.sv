// Logic that feeds itself within a clock.
module report_loop (
  input  logic enable_i,
  input  logic other_i,
  output logic data_o
);

  logic first, second;

  assign first  = second ^ enable_i;
  assign second = first & other_i;
  assign data_o = second;

endmodule
