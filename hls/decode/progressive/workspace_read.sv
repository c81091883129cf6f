// Reads words of blocks from the workspace over AXI4, ahead of those who want them.
//
// Interface   for each block on `block_i` words `first_word_i` to `last_word_i`. Words come in that
//             order. The base is aligned to a block, 128 bytes, so that a burst is a block's and
//             none crosses 4 KiB. With `stop_i` held no more bursts are issued and what still comes
//             is dropped, until `idle_o`.
// Throughput  one word a clock when memory's latency is below Depth clocks and blocks have two
//             words and more.
// Latency     memory's and seven clocks.
// Bad input   a word that memory answers with an error is given as it comes; `bus_error_o`, until
//             cleared, says that one was taken. Errors in words that nobody took do not count.
module workspace_read
  import progressive_pkg::*;
#(
  parameter int unsigned Depth = 512  // words under way or waiting; a power of two
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic [63:0]  base_i,
  input  logic [2:0]   first_word_i,
  input  logic [2:0]   last_word_i,
  input  logic         stop_i,
  input  logic         clear_i,
  output logic         idle_o,
  output logic         bus_error_o,

  input  logic [BlockBits-1:0] block_i,
  input  logic         block_valid_i,
  output logic         block_ready_o,

  output word_t        word_o,
  output logic         word_valid_o,
  input  logic         word_ready_i,

  output logic [63:0]  araddr_o,
  output logic [7:0]   arlen_o,
  output logic [2:0]   arsize_o,
  output logic [1:0]   arburst_o,
  output logic         arvalid_o,
  input  logic         arready_i,
  input  logic [127:0] rdata_i,
  input  logic [1:0]   rresp_i,
  input  logic         rvalid_i,
  output logic         rready_o
);

  localparam int unsigned CountBits = $clog2(Depth) + 1;

  logic [CountBits-1:0] free_q;    // places that nobody has a claim on
  logic [CountBits-1:0] flying_q;  // words requested and not yet here
  logic [3:0]           words_q;   // of a block
  // For a block's words besides those of two that are not counted yet.
  logic                 room_q;
  logic                 issue, issued_q, pop, popped_q, arrived_q;
  logic [31:0]          upper_next_q;  // a short carry
  logic [25:0]          lower;
  logic [127:0]         data_q;
  word_t                arrived;
  logic                 bad_q, bad;  // arrived, taken: with an error

  assign issue         = block_valid_i && !stop_i && room_q && (!arvalid_o || arready_i);
  assign block_ready_o = issue;
  assign lower         = {1'b0, base_i[31:7]} + 26'(block_i);
  assign pop           = word_valid_o && word_ready_i;
  assign arsize_o      = 3'd4;
  assign arburst_o     = 2'b01;
  assign rready_o      = 1'b1;
  assign idle_o        = flying_q == '0 && !arvalid_o && !issued_q && !arrived_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      arvalid_o   <= 1'b0;
      flying_q    <= '0;
      free_q      <= CountBits'(Depth);
      room_q      <= 1'b0;
      arrived_q   <= 1'b0;
      issued_q    <= 1'b0;
      popped_q    <= 1'b0;
      bus_error_o <= 1'b0;
    end else begin
      if (issue) arvalid_o <= 1'b1;
      else if (arready_i) arvalid_o <= 1'b0;
      issued_q  <= issue;
      popped_q  <= pop;
      flying_q  <= flying_q + (issued_q ? CountBits'(words_q) : '0) - CountBits'(rvalid_i);
      free_q    <= stop_i ? CountBits'(Depth)
                 : free_q - (issued_q ? CountBits'(words_q) : '0) + CountBits'(popped_q);
      room_q    <= free_q >= CountBits'(24);
      arrived_q <= rvalid_i;
      if (clear_i) bus_error_o <= 1'b0;
      else if (pop && bad && !stop_i) bus_error_o <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    upper_next_q <= base_i[63:32] + 32'd1;
    words_q      <= {1'b0, last_word_i - first_word_i} + 4'd1;
    if (issue) begin
      araddr_o <= {lower[25] ? upper_next_q : base_i[63:32], lower[24:0], first_word_i, 4'd0};
    end
    if (issue) arlen_o <= 8'(words_q - 4'd1);
    data_q <= rdata_i;
    bad_q  <= rresp_i[1];
  end

  always_comb begin
    arrived.value = data_q;
    for (int unsigned i = 0; i < 8; i++) arrived.some[i] = arrived.value[i] != '0;
  end

  block_fifo #(.Width(1 + $bits(word_t)), .Depth(Depth)) u_words (
    .clk_i,
    .rst_ni,
    .clear_i(stop_i),
    .data_i ({bad_q, arrived}),
    .valid_i(arrived_q && !stop_i),
    .ready_o(),
    .data_o ({bad, word_o}),
    .valid_o(word_valid_o),
    .ready_i(word_ready_i),
    .count_o()
  );

`ifndef SYNTHESIS
  a_aligned: assert property (@(posedge clk_i) disable iff (!rst_ni) issue |-> base_i[6:0] == '0);
  a_ar_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      arvalid_o && !arready_i |=> arvalid_o && $stable(araddr_o) && $stable(arlen_o));
  a_r_was_requested: assert property (@(posedge clk_i) disable iff (!rst_ni)
      rvalid_i |-> flying_q != '0);
  a_claims: assert property (@(posedge clk_i) disable iff (!rst_ni) free_q <= CountBits'(Depth));
`endif

endmodule
