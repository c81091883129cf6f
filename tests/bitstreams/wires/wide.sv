// The output is the input.
module wide (
    input  logic [7:0] a,
    output logic [7:0] b
);
  assign b = a;
endmodule
