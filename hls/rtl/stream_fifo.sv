// First-in first-out queue of up to Depth words between two ready/valid streams.
//
// Interface   ready/valid on both sides; the word shown is the oldest, without a read latency.
// Throughput  one word a clock in and out, also when full or empty in turn. Latency one clock.
// Memory      distributed RAM; for depths beyond 64 words that are wide see block_fifo.
module stream_fifo #(
  parameter int unsigned Width = 8,
  parameter int unsigned Depth = 16  // a power of two
) (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic [Width-1:0] data_i,
  input  logic             valid_i,
  output logic             ready_o,

  output logic [Width-1:0] data_o,
  output logic             valid_o,
  input  logic             ready_i,

  output logic [$clog2(Depth):0] count_o  // words inside
);

  localparam int unsigned AddressWidth = $clog2(Depth);

  if (Depth != 1 << AddressWidth || Depth < 2) begin : gen_bad_depth
    $fatal(1, "%m: Depth must be a power of two and at least 2");
  end

  (* ram_style = "distributed" *) logic [Width-1:0] memory[Depth];
  logic [AddressWidth:0] head_q, tail_q;  // next to leave, next free; one bit more than an address

  assign count_o = tail_q - head_q;
  assign ready_o = !count_o[AddressWidth];
  assign valid_o = head_q != tail_q;
  assign data_o  = memory[head_q[AddressWidth-1:0]];

  always_ff @(posedge clk_i) begin
    if (valid_i && ready_o) memory[tail_q[AddressWidth-1:0]] <= data_i;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q <= '0;
      tail_q <= '0;
    end else begin
      if (valid_i && ready_o) tail_q <= tail_q + 1'b1;
      if (valid_o && ready_i) head_q <= head_q + 1'b1;
    end
  end

`ifndef SYNTHESIS
  a_never_above_depth: assert property (@(posedge clk_i) disable iff (!rst_ni) count_o <= Depth);
`endif

endmodule
