// Registers in a stream, between long logic on both sides: data, valid and ready leave from
// flip-flops.
//
// Interface   ready/valid on both sides.
// Throughput  one word a clock. Latency one clock.
module stream_register #(
  parameter int unsigned Width = 8
) (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic [Width-1:0] data_i,
  input  logic             valid_i,
  output logic             ready_o,

  output logic [Width-1:0] data_o,
  output logic             valid_o,
  input  logic             ready_i
);

  // The word that came while the one before it could not leave.
  logic [Width-1:0] waiting_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_o <= 1'b0;
      ready_o <= 1'b1;
    end else if (ready_i || !valid_o) begin
      valid_o <= valid_i || !ready_o;
      ready_o <= 1'b1;
    end else if (valid_i) begin
      ready_o <= 1'b0;
    end
    if (ready_i || !valid_o) data_o <= ready_o ? data_i : waiting_q;
    if (ready_o) waiting_q <= data_i;
  end

endmodule
