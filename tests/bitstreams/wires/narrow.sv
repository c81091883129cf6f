// The output is the input.
module narrow (
    input  logic [3:0] a,
    output logic [3:0] b
);
  assign b = a;
endmodule
