// A memory that answers in time: what waits for it waits fewer than Late clocks.
//
// Method      each channel has a count of the clocks that it waits. `owes_i`: memory has an address
//             of which it has not sent all; a word or an answer restarts the count.
module axi_memory_answers #(
  parameter int unsigned Late = 3
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic asks_i,     // an address is shown
  input  logic takes_i,    // memory is ready for it
  input  logic writes_i,   // a word is shown
  input  logic stores_i,   // memory is ready for it
  input  logic owes_i,
  input  logic answers_i,
  output logic [2:0] address_late_o,
  output logic [2:0] word_late_o,
  output logic [2:0] answer_late_o
);

  logic past_q = 1'b0;
  always_ff @(posedge clk_i) begin
    past_q         <= 1'b1;
    address_late_o <= rst_ni && asks_i && !takes_i ? address_late_o + 1'b1 : '0;
    word_late_o    <= rst_ni && writes_i && !stores_i ? word_late_o + 1'b1 : '0;
    answer_late_o  <= rst_ni && owes_i && !answers_i ? answer_late_o + 1'b1 : '0;
  end

  always_comb begin
    m_address_in_time: assume (!rst_ni || !asks_i || takes_i ||
                               32'(address_late_o) + 32'd1 < Late);
    m_word_in_time: assume (!rst_ni || !writes_i || stores_i || 32'(word_late_o) + 32'd1 < Late);
    m_answer_in_time: assume (!rst_ni || !owes_i || answers_i ||
                              32'(answer_late_o) + 32'd1 < Late);
    if (past_q) begin
      h_late: assert (32'(address_late_o) < Late && 32'(word_late_o) < Late &&
                      32'(answer_late_o) < Late);
    end
  end

endmodule
