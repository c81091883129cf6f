// First-in first-out queue of up to Depth words between two ready/valid streams.
//
// Interface   ready/valid on both sides; the word shown is the oldest, without a read latency.
// Throughput  one word a clock in and out, also when full or empty in turn. Latency one clock.
// Memory      distributed RAM, in Slices parts of a word's bits that each have their own pointers:
//             a pointer then goes less far. For depths beyond 64 wide words see block_fifo.
module stream_fifo #(
  parameter int unsigned Width = 8,
  parameter int unsigned Depth = 16,  // a power of two
  parameter int unsigned Slices = 1   // divides Width
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
  if (Width % Slices != 0) begin : gen_bad_slices
    $fatal(1, "%m: Slices must divide Width");
  end

  localparam int unsigned Part = Width / Slices;

  (* ram_style = "distributed" *) logic [Part-1:0] memory[Depth];
  logic [AddressWidth-1:0] head_q, tail_q;  // next to leave, next free
  logic                    push, pop;

  assign push   = valid_i && ready_o;
  assign pop    = valid_o && ready_i;
  assign data_o[Part-1:0] = memory[head_q];

  always_ff @(posedge clk_i) begin
    if (push) memory[tail_q] <= data_i[Part-1:0];
  end

  for (genvar i = 1; i < Slices; i++) begin : gen_slice
    (* ram_style = "distributed" *) logic [Part-1:0] part_memory[Depth];
    logic [AddressWidth-1:0] part_head_q, part_tail_q;

    assign data_o[Part*i+:Part] = part_memory[part_head_q];

    always_ff @(posedge clk_i) begin
      if (push) part_memory[part_tail_q] <= data_i[Part*i+:Part];
      if (!rst_ni) begin
        part_head_q <= '0;
        part_tail_q <= '0;
      end else begin
        if (push) part_tail_q <= part_tail_q + 1'b1;
        if (pop) part_head_q <= part_head_q + 1'b1;
      end
    end
  end

  // What the neighbours wait for comes from registers.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q  <= '0;
      tail_q  <= '0;
      count_o <= '0;
      ready_o <= 1'b1;
      valid_o <= 1'b0;
    end else begin
      if (push) tail_q <= tail_q + 1'b1;
      if (pop) head_q <= head_q + 1'b1;
      if (push && !pop) count_o <= count_o + 1'b1;
      else if (pop && !push) count_o <= count_o - 1'b1;
      if (pop) ready_o <= 1'b1;
      else if (push) ready_o <= count_o != ($clog2(Depth) + 1)'(Depth - 1);
      if (push) valid_o <= 1'b1;
      else if (pop) valid_o <= count_o != ($clog2(Depth) + 1)'(1);
    end
  end

`ifndef SYNTHESIS
  a_never_above_depth: assert property (@(posedge clk_i) disable iff (!rst_ni) count_o <= Depth);
`endif

endmodule
