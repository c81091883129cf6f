// The property of stream_register: it is a queue of two words (stream_checker).
module f_stream_register #(
  parameter int unsigned Width = 2
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             mark_i,
  input logic [Width-1:0] data_i,
  input logic             valid_i,
  input logic             ready_i
);

  logic [Width-1:0] data_o;
  logic             valid_o, ready_o;
  logic             past_q = 1'b0;

  stream_register #(.Width(Width)) u (.*);
  stream_checker #(.Width(Width), .Depth(2)) u_check (
    .clk_i, .rst_ni, .mark_i,
    .in_i (data_i), .in_valid_i (valid_i), .in_ready_i (ready_o),
    .out_i(data_o), .out_valid_i(valid_o), .out_ready_i(ready_i),
    .inside_i(3'(valid_o) + 3'(!ready_o))
  );

  always_ff @(posedge clk_i) past_q <= 1'b1;
  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    if (past_q) begin
      h_waiting: assert (!(u_check.follows_q && u_check.ahead_q == 3'd1) ||
                         u.waiting_q == u_check.word_q);
    end
  end

endmodule
