// First-in first-out queue of Depth words in block RAM between two ready/valid streams.
//
// Interface   ready/valid on both sides; the oldest word is shown (first-word fall-through).
//             `clear_i` empties it; what arrives in the same clock is lost.
// Throughput  one word a clock in and out. Latency two clocks: the memory's read is registered.
// Memory      block RAM; the read register holds one word more, so Depth + 1 fit in all.
module block_fifo #(
  parameter int unsigned Width = 128,
  parameter int unsigned Depth = 512  // a power of two
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             clear_i,

  input  logic [Width-1:0] data_i,
  input  logic             valid_i,
  output logic             ready_o,

  output logic [Width-1:0] data_o,
  output logic             valid_o,
  input  logic             ready_i,

  // Words in the memory, without the one in the read register.
  output logic [$clog2(Depth):0] count_o
);

  localparam int unsigned AddressWidth = $clog2(Depth);

  if (Depth != 1 << AddressWidth || Depth < 2) begin : gen_bad_depth
    $fatal(1, "%m: Depth must be a power of two and at least 2");
  end

  (* ram_style = "block" *) logic [Width-1:0] memory[Depth];
  // Next to leave the memory, next free; one bit more than an address.
  logic [AddressWidth:0] head_q, tail_q;
  logic                  write, read;

  assign count_o = tail_q - head_q;
  assign ready_o = !count_o[AddressWidth];
  assign write   = valid_i && ready_o;
  assign read    = head_q != tail_q && (!valid_o || ready_i);

  always_ff @(posedge clk_i) begin
    if (write) memory[tail_q[AddressWidth-1:0]] <= data_i;
  end

  always_ff @(posedge clk_i) begin
    if (read) data_o <= memory[head_q[AddressWidth-1:0]];
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      head_q  <= '0;
      tail_q  <= '0;
      valid_o <= 1'b0;
    end else begin
      if (write) tail_q <= tail_q + 1'b1;
      if (read) head_q <= head_q + 1'b1;
      if (read) valid_o <= 1'b1;
      else if (ready_i) valid_o <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  a_never_above_depth: assert property (@(posedge clk_i) disable iff (!rst_ni) count_o <= Depth);
`endif

endmodule
