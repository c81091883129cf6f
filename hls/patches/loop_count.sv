// One loop of several in each other: tells whether its step is the last one.
//
// Interface   `start_i` begins anew. `step_i`: the loops within it have ended. `last_o`: this step
//             is the last of `count_i`, at least one, which stays.
module loop_count #(
  parameter int unsigned Width = 16
) (
  input  logic             clk_i,

  input  logic             start_i,
  input  logic [Width-1:0] count_i,
  input  logic             step_i,
  output logic             last_o
);

  logic [Width-1:0] left_q;  // steps behind this one
  logic             one_q;   // in all

  always_ff @(posedge clk_i) begin
    one_q <= count_i == Width'(1);
    if (start_i || (step_i && last_o)) begin
      left_q <= count_i - 1'b1;
      last_o <= one_q;
    end else if (step_i) begin
      left_q <= left_q - 1'b1;
      last_o <= left_q == Width'(1);
    end
  end

endmodule
