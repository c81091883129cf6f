// Pixels that come one or two at a time, up to a count: tells which of them end it.
//
// Interface   `start_i` begins anew; it is high for two clocks at least in which `count_i`, at
//             least one, is the one that counts, and stays. `step_i`: a pixel comes, or two with
//             `both_i`. `ends_o`: these are the last, and the next begin anew. If a pair goes
//             beyond the last pixel, the next 2^Width - 2 pixels end nothing.
module pair_count #(
  parameter int unsigned Width = 16
) (
  input  logic             clk_i,

  input  logic             start_i,
  input  logic [Width-1:0] count_i,
  input  logic             step_i,
  input  logic             both_i,
  output logic             ends_o
);

  logic [Width-1:0] left_q;
  // Whether so many are left, and whether they are in all.
  logic             one_q, two_q, one_in_all_q, two_in_all_q;

  assign ends_o = both_i ? two_q : one_q;

  always_ff @(posedge clk_i) begin
    one_in_all_q <= count_i == Width'(1);
    two_in_all_q <= count_i == Width'(2);
    if (start_i || (step_i && ends_o)) begin
      left_q <= count_i;
      one_q  <= one_in_all_q;
      two_q  <= two_in_all_q;
    end else if (step_i) begin
      left_q <= left_q - (both_i ? Width'(2) : Width'(1));
      one_q  <= left_q == (both_i ? Width'(3) : Width'(2));
      two_q  <= left_q == (both_i ? Width'(4) : Width'(3));
    end
  end

endmodule
