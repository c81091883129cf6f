// First-in first-out queue of Depth words in block RAM between two ready/valid streams.
//
// Interface   ready/valid on both sides; the oldest word is shown (first-word fall-through).
//             `clear_i` empties it; what arrives in the same clock is lost.
// Throughput  one word a clock in and out. Latency four clocks: the memory's read register, its
//             output register without logic between them, and a queue of four words.
// Memory      block RAM, and distributed RAM for the queue, which moves a pointer where `ready_i`
//             is and no word; Depth + 4 words fit in all.
module block_fifo #(
  parameter int unsigned Width = 128,
  parameter int unsigned Depth = 512,  // a power of two
  parameter int unsigned Slices = 1    // of the queue, see stream_fifo
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

  // Words in the memory, without those behind it.
  output logic [$clog2(Depth):0] count_o
);

  localparam int unsigned AddressWidth = $clog2(Depth);

  if (Depth != 1 << AddressWidth || Depth < 2) begin : gen_bad_depth
    $fatal(1, "%m: Depth must be a power of two and at least 2");
  end

  // A place is never valid at the output in the clock in which it is written, so a tool needs no
  // logic for that case (`no_rw_check` of Yosys).
  (* ram_style = "block", no_rw_check *) logic [Width-1:0] memory[Depth];
  logic [AddressWidth-1:0] head_q, tail_q;  // next to leave the memory, next free
  logic                    some_q;          // the memory has a word
  logic                    write, read, pop;
  logic [Width-1:0]        read_q, output_q;
  logic                    read_valid_q, output_valid_q;
  logic [2:0]              claims_q;        // words behind the memory
  logic                    claimable_q;     // they are fewer than four

  assign write = valid_i && ready_o;
  assign read  = some_q && claimable_q;
  assign pop   = valid_o && ready_i;

  always_ff @(posedge clk_i) begin
    if (write) memory[tail_q] <= data_i;
  end

  // Without an enable, which would go to each block RAM: what was not asked for is not valid.
  always_ff @(posedge clk_i) begin
    read_q   <= memory[head_q];
    output_q <= read_q;
  end

  stream_fifo #(
    .Width (Width),
    .Depth (4),
    .Slices(Slices)
  ) u_queue (
    .clk_i,
    .rst_ni (rst_ni && !clear_i),
    .data_i (output_q),
    .valid_i(output_valid_q),
    .ready_o(),
    .data_o,
    .valid_o,
    .ready_i,
    .count_o()
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      head_q         <= '0;
      tail_q         <= '0;
      count_o        <= '0;
      some_q         <= 1'b0;
      ready_o        <= 1'b1;
      read_valid_q   <= 1'b0;
      output_valid_q <= 1'b0;
      claims_q       <= '0;
      claimable_q    <= 1'b1;
    end else begin
      if (write) tail_q <= tail_q + 1'b1;
      if (read) head_q <= head_q + 1'b1;
      if (write && !read) count_o <= count_o + 1'b1;
      else if (read && !write) count_o <= count_o - 1'b1;
      if (write) some_q <= 1'b1;
      else if (read) some_q <= count_o != (AddressWidth + 1)'(1);
      if (read) ready_o <= 1'b1;
      else if (write) ready_o <= count_o != (AddressWidth + 1)'(Depth - 1);
      read_valid_q   <= read;
      output_valid_q <= read_valid_q;
      if (read && !pop) claims_q <= claims_q + 1'b1;
      else if (pop && !read) claims_q <= claims_q - 1'b1;
      if (pop) claimable_q <= 1'b1;
      else if (read) claimable_q <= claims_q != 3'd3;
    end
  end

`ifndef SYNTHESIS
  a_never_above_depth: assert property (@(posedge clk_i) disable iff (!rst_ni) count_o <= Depth);
`endif

endmodule
