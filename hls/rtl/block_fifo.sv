// First-in first-out queue of Depth words in block RAM between two ready/valid streams.
//
// Interface   ready/valid on both sides; the oldest word is shown (first-word fall-through).
//             `clear_i` empties it; what arrives in the same clock is lost.
// Throughput  one word a clock in and out. Latency four clocks: the memory's read register, its
//             output register without logic between them, and the word shown.
// Memory      block RAM; its two registers and two more behind them hold four words, so Depth + 4
//             fit in all. `ready_i` reaches only the last two.
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

  // Words in the memory, without those in the registers behind it.
  output logic [$clog2(Depth):0] count_o
);

  localparam int unsigned AddressWidth = $clog2(Depth);

  if (Depth != 1 << AddressWidth || Depth < 2) begin : gen_bad_depth
    $fatal(1, "%m: Depth must be a power of two and at least 2");
  end

  (* ram_style = "block" *) logic [Width-1:0] memory[Depth];
  logic [AddressWidth-1:0] head_q, tail_q;  // next to leave the memory, next free
  logic                    some_q;          // the memory has a word
  logic                    write, read;
  // The oldest word is in data_o, the next one in spare_q, then output_q, and read_q.
  logic [Width-1:0]        read_q, output_q, spare_q;
  logic                    read_valid_q, output_valid_q, spare_valid_q;
  logic                    pass;            // output_q is free for the next word
  logic                    shift;           // data_o is

  assign write = valid_i && ready_o;
  assign pass  = !output_valid_q || !spare_valid_q;
  assign read  = some_q && (!read_valid_q || pass);
  assign shift = !valid_o || ready_i;

  always_ff @(posedge clk_i) begin
    if (write) memory[tail_q] <= data_i;
  end

  always_ff @(posedge clk_i) begin
    if (read) read_q <= memory[head_q];
    if (pass) output_q <= read_q;
  end

  always_ff @(posedge clk_i) begin
    if (shift || !spare_valid_q) spare_q <= output_q;
    if (shift) data_o <= spare_valid_q ? spare_q : output_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      head_q         <= '0;
      tail_q         <= '0;
      count_o        <= '0;
      some_q         <= 1'b0;
      ready_o        <= 1'b1;
      read_valid_q   <= 1'b0;
      output_valid_q <= 1'b0;
      spare_valid_q  <= 1'b0;
      valid_o        <= 1'b0;
    end else begin
      if (write) tail_q <= tail_q + 1'b1;
      if (read) head_q <= head_q + 1'b1;
      if (write && !read) count_o <= count_o + 1'b1;
      else if (read && !write) count_o <= count_o - 1'b1;
      if (write) some_q <= 1'b1;
      else if (read) some_q <= count_o != (AddressWidth + 1)'(1);
      if (read) ready_o <= 1'b1;
      else if (write) ready_o <= count_o != (AddressWidth + 1)'(Depth - 1);
      if (read) read_valid_q <= 1'b1;
      else if (pass) read_valid_q <= 1'b0;
      if (pass) output_valid_q <= read_valid_q;
      else if (shift) output_valid_q <= 1'b0;
      spare_valid_q <= shift ? spare_valid_q && output_valid_q : spare_valid_q || output_valid_q;
      if (shift) valid_o <= spare_valid_q || output_valid_q;
    end
  end

`ifndef SYNTHESIS
  a_never_above_depth: assert property (@(posedge clk_i) disable iff (!rst_ni) count_o <= Depth);
`endif

endmodule
