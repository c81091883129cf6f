// Transform: coefficients in zigzag order to rows of samples, bit-exact to libjpeg-turbo.
//
//   coefficients -> coefficient_buffer -> idct_1d (columns) -> transpose
//                -> idct_1d (rows) -> samples
//
// Reference   transform_columns and transform_rows in decode.cpp: the ISLOW inverse DCT in its AVX2
//             form.
// Interface   coefficient_t and samples_t of headrace_pkg.sv. The quantisation tables of an image
//             are written before its first coefficient and after the end beat of the image before
//             has left. With `by_component_i`, `quant` is the component, whose table is the one
//             that was latched for it value by value. Of a block that is not `wanted_i` no samples
//             leave; `wanted_i` is of the oldest, a clock after `next_o` of the one behind it.
// Throughput  a beat of one coefficient or two a clock in, see coefficient_buffer; a row of a block
//             a clock out, so a block takes 8 clocks or one for each of its beats, whichever is
//             more: the columns of a block are transformed beside the rows of the one before. Up to
//             512 blocks may wait for their 8 clocks. One that is not wanted takes one.
// Latency     38 clocks from the last coefficient of a block to its first row. The chain never
//             stalls: a block enters it only if the queue at its end has room for all that is under
//             way.
// Bad input   every value is defined: products and some sums wrap in 16 bits, results saturate. A
//             block that is cut off by the end beat is dropped.
module transform
  import headrace_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         quant_we_i,
  input  logic         quant_latch_i,      // the table's value becomes the component's
  input  logic [1:0]   quant_table_i,
  input  logic [1:0]   quant_component_i,
  input  logic [5:0]   quant_index_i,      // in zigzag order, as in the file
  input  logic [15:0]  quant_value_i,
  input  logic         by_component_i,

  input  coefficient_t coefficient_i,
  input  logic         coefficient_valid_i,
  output logic         coefficient_ready_o,

  input  logic         wanted_i,
  output logic         next_o,

  output samples_t     samples_o,
  output logic         samples_valid_o,
  input  logic         samples_ready_i
);

  localparam int unsigned QueueDepth = 64;  // rows: about 40 are under way at full throughput

  logic             room_q, block, done_valid, done_ready;
  status_e          done_status;
  logic [7:0][15:0] column, transformed, row;
  logic             column_valid, transformed_valid, row_valid, first_row_only;
  logic [7:0][7:0]  centred;
  logic             centred_valid;

  coefficient_buffer u_buffer (
    .clk_i, .rst_ni,
    .quant_we_i, .quant_latch_i, .quant_table_i, .quant_component_i, .quant_index_i, .quant_value_i,
    .by_component_i,
    .coefficient_i, .coefficient_valid_i, .coefficient_ready_o,
    .room_i          (room_q),
    .block_o         (block),
    .wanted_i, .next_o,
    .column_o        (column),
    .first_row_only_o(first_row_only),
    .column_valid_o  (column_valid),
    .done_status_o   (done_status),
    .done_valid_o    (done_valid),
    .done_ready_i    (done_ready)
  );

  idct_1d #(
    .Shift      (11),
    .OutputWidth(16)
  ) u_columns (
    .clk_i, .rst_ni,
    .in_i   (column),
    .wrap_i (first_row_only),
    .valid_i(column_valid),
    .out_o  (transformed),
    .valid_o(transformed_valid)
  );

  transpose #(
    .Width(16)
  ) u_transpose (
    .clk_i, .rst_ni,
    .column_i(transformed),
    .valid_i (transformed_valid),
    .row_o   (row),
    .valid_o (row_valid)
  );

  // 14 bits are left after the shift: saturation at 16 bits, as in the C++, would change nothing,
  // the one at 8 does.
  idct_1d #(
    .Shift      (18),
    .OutputWidth(8)
  ) u_rows (
    .clk_i, .rst_ni,
    .in_i   (row),
    .wrap_i (1'b0),
    .valid_i(row_valid),
    .out_o  (centred),
    .valid_o(centred_valid)
  );

  // ---- Queue ----
  logic [6:0] reserved_q;  // rows in the queue and under way
  logic [6:0] count;
  samples_t   samples;
  logic       queue_ready, send_done;
  logic       none_q;      // nothing was under way, and no block begins where there is an end

  always_ff @(posedge clk_i) none_q <= reserved_q == count;

  assign done_ready = none_q && queue_ready;
  assign send_done  = done_valid && done_ready;

  always_comb begin
    samples.done   = send_done;
    samples.status = send_done ? done_status : StatusOk;
    for (int unsigned i = 0; i < 8; i++) samples.value[i] = {!centred[i][7], centred[i][6:0]};
  end

  // Room is seen a clock late, and a block is begun eight clocks behind the one before at the
  // earliest. The end beat leaves when all blocks have been begun.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      reserved_q <= '0;
      room_q     <= 1'b1;
    end else begin
      reserved_q <= reserved_q + {3'd0, block, 2'd0, send_done} -
                    {6'd0, samples_valid_o && samples_ready_i};
      room_q     <= reserved_q <= 7'(QueueDepth - 8);
    end
  end

  stream_fifo #(
    .Width($bits(samples_t)),
    .Depth(QueueDepth)
  ) u_queue (
    .clk_i, .rst_ni,
    .data_i (samples),
    .valid_i(centred_valid || send_done),
    .ready_o(queue_ready),
    .data_o (samples_o),
    .valid_o(samples_valid_o),
    .ready_i(samples_ready_i),
    .count_o(count)
  );

`ifndef SYNTHESIS
  a_end_behind_all: assert property (@(posedge clk_i) disable iff (!rst_ni)
      send_done |-> reserved_q == count && !block);
  a_room_for_all: assert property (@(posedge clk_i) disable iff (!rst_ni)
      centred_valid |-> queue_ready);
`endif

endmodule
