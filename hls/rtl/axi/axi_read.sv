// Reads a run of 128-bit words from memory over AXI4 and gives them as a stream.
//
// Interface   `start_i` for a clock while `idle_o`: `words_i` words from `address_i`, which is
//             16-byte aligned. Exactly that many come out, unless `stop_i` is held: then no further
//             burst is issued, what is under way is taken and dropped, and the stream is silent;
//             hold it until `idle_o`.
// Bursts      up to BurstWords beats, ending where a multiple of BurstWords words of address ends,
//             so that none crosses 4 KiB. A burst is issued when the FIFO has room for the longest,
//             so `rready` never falls, and as many are under way as the FIFO holds.
// Throughput  one word a clock when memory's latency is below Depth clocks. Latency memory's and
//             six clocks; four where the FIFO is LUT RAM.
// Reset       may come with reads under way, and memory be reset with it or not: what still comes
//             of them is dropped, and the unit is not idle before all has come, or nothing for
//             QuietClocks clocks.
// Bad input   a word that memory answers with an error, and every word after it, is given as zeros;
//             `error_o` rises when the first of them is taken and stays until the next start.
//             Errors in words that nobody took do not count. A word that comes while none is under
//             way is dropped and not counted.
module axi_read #(
  parameter int unsigned BurstWords = 64,  // a power of two, at most 256: 4 KiB
  // Words under way or waiting; a power of two, above BurstWords; LUT RAM to 64.
  parameter int unsigned Depth      = 512,
  // A memory that was not reset does not pause for so long, 3.4 us at 300 MHz, in the middle of its
  // answers.
  parameter int unsigned QuietClocks = 1024
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [63:0]  address_i,
  input  logic [28:0]  words_i,
  input  logic         stop_i,
  output logic         idle_o,   // all words given, nothing under way
  output logic         error_o,

  output logic [127:0] word_o,
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
  input  logic         rlast_i,
  input  logic         rvalid_i,
  output logic         rready_o
);

  localparam int unsigned BurstBits = $clog2(BurstWords);
  localparam int unsigned CountBits = $clog2(Depth) + 1;

  if (BurstWords != 1 << BurstBits || BurstWords > 256 ||
      Depth <= BurstWords) begin : gen_bad_parameters
    $fatal(1, "%m: BurstWords must be a power of two, at most 256 and below Depth");
  end

  // ---- Requests ----
  // `left_q` words are not yet requested. A burst is first sized, then issued when there is room
  // for it. The address is counted in two parts, the upper a clock later, which a burst's two
  // clocks allow: short carries.
  logic [27:0]          next_q;    // word address of the next burst
  logic [31:0]          upper_q;
  logic                 carry_q;   // from next_q, not yet in upper_q
  logic [28:0]          left_q;
  logic                 asks_q;    // some
  logic [BurstBits:0]   border;    // words up to where a burst must end
  logic [BurstBits:0]   size_q;
  logic                 sized_q;
  logic                 issue, asked;  // a burst's address is shown; memory takes it
  logic [CountBits-1:0] free_q;    // words of the FIFO that nobody has a claim on
  logic                 room_q;    // for the longest burst
  // verilator lint_off PROCASSINIT
  // Words of bursts that memory took, not yet here: no reset makes them come sooner.
  logic [CountBits-1:0] flying_q = '0;
  logic                 flies_q = 1'b0;  // some
  initial arvalid_o = 1'b0;              // so that memory takes no burst before the first reset
  // verilator lint_on PROCASSINIT
  logic                 stale_q;        // they were requested before a reset
  logic                 forget;         // and will not come: memory was reset, too
  logic [$clog2(QuietClocks)-1:0] quiet_q;
  logic                 take, pop;      // a word that was requested comes; one is given
  logic                 popped_q;

  assign border = (BurstBits + 1)'(BurstWords) - {1'b0, next_q[BurstBits-1:0]};
  assign issue  = sized_q && !stop_i && !arvalid_o && room_q;
  assign asked  = arvalid_o && arready_i;
  assign take   = rvalid_i && rready_o && flies_q;

  assign arsize_o  = 3'd4;
  assign arburst_o = 2'b01;
  assign rready_o  = 1'b1;
  assign forget    = stale_q && quiet_q == '1;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      left_q    <= '0;
      asks_q    <= 1'b0;
      sized_q   <= 1'b0;
      arvalid_o <= 1'b0;
      free_q    <= CountBits'(Depth);
      popped_q  <= 1'b0;
    end else begin
      popped_q <= pop && !start_i;
      if (start_i) begin
        left_q  <= words_i;
        asks_q  <= words_i != '0;
        sized_q <= 1'b0;
        free_q  <= CountBits'(Depth);
      end else if (stop_i || error_o) begin
        left_q  <= '0;
        asks_q  <= 1'b0;
        sized_q <= 1'b0;
      end else begin
        if (issue) left_q <= left_q - 29'(size_q);
        if (issue) asks_q <= left_q != 29'(size_q);
        if (issue) sized_q <= 1'b0;
        else if (asks_q) sized_q <= 1'b1;
        free_q <= free_q - (issue ? CountBits'(size_q) : '0) + CountBits'(popped_q);
      end
      if (issue) arvalid_o <= 1'b1;
      else if (arready_i) arvalid_o <= 1'b0;
    end
  end

  // A burst takes two clocks and more from one issue to the next, so that this is in time.
  always_ff @(posedge clk_i) room_q <= free_q >= CountBits'(BurstWords);

  // Without a reset; 0 is what it begins with, by the configuration, whatever else does with which
  // values. A burst that memory did not take before the reset does not count.
  always_ff @(posedge clk_i) begin
    if (forget) flying_q <= '0;
    else flying_q <= flying_q + (asked ? CountBits'(arlen_o) + 1'b1 : '0) - CountBits'(take);
    if (forget) flies_q <= 1'b0;
    else if (asked) flies_q <= 1'b1;
    else if (take) flies_q <= flying_q != CountBits'(1);
    if (!rst_ni) stale_q <= 1'b1;
    else if (!flies_q) stale_q <= 1'b0;
    quiet_q <= !rst_ni || rvalid_i ? '0 : quiet_q + 1'b1;
  end

  always_ff @(posedge clk_i) begin
    if (!sized_q) size_q <= left_q < 29'(border) ? left_q[BurstBits:0] : border;
    carry_q <= 1'b0;
    upper_q <= upper_q + 32'(carry_q);
    if (start_i) {upper_q, next_q} <= address_i[63:4];
    else if (issue) {carry_q, next_q} <= {1'b0, next_q} + 29'(size_q);
    if (issue) araddr_o <= {upper_q, next_q, 4'b0};
    if (issue) arlen_o <= 8'(size_q - 1'b1);
  end

  // ---- Words ----
  logic [28:0]  owed_q;    // words still to be given
  logic         owes_q;    // some
  logic         dropping;  // what arrives is for nobody: stopped, or an error came before it
  logic         bad;       // the word at the FIFO's end came with an error
  logic         fifo_valid, fifo_pop;
  logic [127:0] fifo_word;  // 0 if bad

  assign dropping     = stop_i || error_o || !owes_q;
  assign word_valid_o = !stop_i && owes_q && (error_o || fifo_valid);
  assign word_o       = fifo_word & {128{!error_o}};
  assign pop          = word_valid_o && word_ready_i;
  assign fifo_pop     = pop && !error_o;
  assign idle_o       = !owes_q && !asks_q && !flies_q && !arvalid_o;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      owed_q  <= '0;
      owes_q  <= 1'b0;
      error_o <= 1'b0;
    end else begin
      if (start_i) owed_q <= words_i;
      else if (pop) owed_q <= owed_q - 1'b1;
      if (start_i) owes_q <= words_i != '0;
      else if (stop_i) owes_q <= 1'b0;
      else if (pop) owes_q <= owed_q != 29'd1;
      if (start_i) error_o <= 1'b0;
      else if (fifo_pop && bad) error_o <= 1'b1;
    end
  end

  if (Depth <= 64) begin : gen_small
    stream_fifo #(.Width(129), .Depth(Depth)) u_fifo (
      .clk_i,
      .rst_ni (rst_ni && !dropping),
      .data_i ({rresp_i[1], rdata_i & {128{!rresp_i[1]}}}),
      .valid_i(take && !dropping),
      .ready_o(),
      .data_o ({bad, fifo_word}),
      .valid_o(fifo_valid),
      .ready_i(fifo_pop),
      .count_o()
    );
  end else begin : gen_block
    block_fifo #(.Width(129), .Depth(Depth)) u_fifo (
      .clk_i,
      .rst_ni,
      .clear_i(dropping),
      .data_i ({rresp_i[1], rdata_i & {128{!rresp_i[1]}}}),
      .valid_i(take && !dropping),
      .ready_o(),
      .data_o ({bad, fifo_word}),
      .valid_o(fifo_valid),
      .ready_i(fifo_pop),
      .count_o()
    );
  end

`ifndef SYNTHESIS
  // Beats of the bursts under way, in order: at most Depth / BurstWords + 2.
  logic [CountBits-1:0] burst_q[16];
  // verilator lint_off PROCASSINIT
  logic [CountBits-1:0] beat_q = '0;
  logic [3:0]           first_q = '0, free_burst_q = '0;
  // verilator lint_on PROCASSINIT
  always_ff @(posedge clk_i) begin
    if (take) beat_q <= rlast_i ? '0 : beat_q + 1'b1;
    if (take && rlast_i) first_q <= first_q + 1'b1;
    if (forget) begin
      beat_q  <= '0;
      first_q <= free_burst_q;
    end else if (asked) begin
      burst_q[free_burst_q] <= CountBits'(arlen_o) + 1'b1;
      free_burst_q          <= free_burst_q + 1'b1;
    end
  end
  a_start_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni)
      start_i |-> idle_o && !stop_i);
  a_aligned: assert property (@(posedge clk_i) disable iff (!rst_ni)
      start_i |-> address_i[3:0] == '0);
  a_ar_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      arvalid_o && !arready_i |=> arvalid_o && $stable(araddr_o) && $stable(arlen_o));
  a_ar_within_4_kib: assert property (@(posedge clk_i) disable iff (!rst_ni)
      arvalid_o |-> 13'(araddr_o[11:4]) + 13'(arlen_o) < 13'd256);
  a_r_was_requested: assert property (@(posedge clk_i) disable iff (!rst_ni)
      rvalid_i |-> flies_q);
  a_rlast_where_asked: assert property (@(posedge clk_i) disable iff (!rst_ni)
      take |-> rlast_i == (beat_q + 1'b1 == burst_q[first_q]));
`endif

endmodule
