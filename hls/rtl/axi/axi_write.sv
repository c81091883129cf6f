// Writes runs of 128-bit words to memory over AXI4.
//
// Interface   a command is a run of words: `words_i` of them, at least one, from `address_i`, which
//             is 16-byte aligned. The words of all commands come in one stream, in the order of the
//             commands. Commands and words may run ahead of each other: words wait in the FIFO.
//             `idle_o`: every command taken is written and answered. `clear_i` for a clock while
//             idle clears `bus_error_o`.
// Bursts      up to BurstWords beats, ending where a multiple of BurstWords words of address ends,
//             so that none crosses 4 KiB. A burst is issued when all its words are there, so that
//             it never holds the bus up.
// Throughput  one word a clock within a burst of at least four. Latency a burst's words and three
//             clocks.
// Bad input   an error response sets `bus_error_o` until it is cleared; writing goes on to the end.
module axi_write #(
  parameter int unsigned BurstWords = 32,  // a power of two, at most 256: 4 KiB
  // Words that wait; a power of two, at least 2 BurstWords; LUT RAM to 64.
  parameter int unsigned Depth      = 64,
  // 2^OutstandingBits - 1 bursts may wait for their response.
  parameter int unsigned OutstandingBits = 6
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         clear_i,
  output logic         idle_o,
  output logic         bus_error_o,

  input  logic [63:0]  address_i,
  input  logic [28:0]  words_i,
  input  logic         command_valid_i,
  output logic         command_ready_o,

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output logic [63:0]  awaddr_o,
  output logic [7:0]   awlen_o,
  output logic [2:0]   awsize_o,
  output logic [1:0]   awburst_o,
  output logic         awvalid_o,
  input  logic         awready_i,
  output logic [127:0] wdata_o,
  output logic [15:0]  wstrb_o,
  output logic         wlast_o,
  output logic         wvalid_o,
  input  logic         wready_i,
  input  logic [1:0]   bresp_i,
  input  logic         bvalid_i,
  output logic         bready_o
);

  localparam int unsigned BurstBits = $clog2(BurstWords);
  localparam int unsigned CountBits = $clog2(Depth) + 1;

  if (BurstWords != 1 << BurstBits || BurstWords > 256 ||
      Depth < 2 * BurstWords) begin : gen_bad_parameters
    $fatal(1, "%m: BurstWords must be a power of two, at most 256 and half of Depth");
  end

  // ---- Words wait for their burst ----
  logic         push, fifo_valid, fifo_ready;
  logic [127:0] fifo_word;

  assign push = word_valid_i && word_ready_o;

  if (Depth <= 64) begin : gen_small
    stream_fifo #(.Width(128), .Depth(Depth), .Slices(4)) u_fifo (
      .clk_i,
      .rst_ni,
      .data_i (word_i),
      .valid_i(word_valid_i),
      .ready_o(word_ready_o),
      .data_o (fifo_word),
      .valid_o(fifo_valid),
      .ready_i(fifo_ready),
      .count_o()
    );
  end else begin : gen_block
    block_fifo #(.Width(128), .Depth(Depth)) u_fifo (
      .clk_i,
      .rst_ni,
      .clear_i(1'b0),
      .data_i (word_i),
      .valid_i(word_valid_i),
      .ready_o(word_ready_o),
      .data_o (fifo_word),
      .valid_o(fifo_valid),
      .ready_i(fifo_ready),
      .count_o()
    );
  end

  // ---- Bursts: sized in one clock, issued when there is all that they need ----
  // The address is counted in two parts, the upper a clock later, which a burst's two clocks allow:
  // short carries.
  logic [27:0]                next_q;     // word address of the next burst
  logic [31:0]                upper_q;
  logic                       carry_q;    // from next_q, not yet in upper_q
  logic [28:0]                left_q;     // words of the command that no burst has claimed yet
  logic                       some_q;     // some
  // Words taken, one more than Depth fits in, that no burst has claimed yet.
  logic [CountBits:0]         waiting_q, waiting;  // as it is with a word that comes
  logic [BurstBits:0]         border;     // words up to where a burst must end
  logic [BurstBits:0]         size_q;
  logic                       sized_q;
  logic                       enough_q;   // waiting_q >= size_q, where a burst is sized
  logic                       take, issue, answer, job_room;
  logic [OutstandingBits-1:0] outstanding_q;

  assign command_ready_o = !some_q && !sized_q;
  assign take            = command_valid_i && command_ready_o;
  assign border          = (BurstBits + 1)'(BurstWords) - {1'b0, next_q[BurstBits-1:0]};
  assign waiting         = waiting_q + (CountBits + 1)'(push);
  assign issue           = sized_q && enough_q && !awvalid_o && job_room && outstanding_q != '1;
  assign answer          = bvalid_i && bready_o;
  assign idle_o          = !some_q && outstanding_q == '0;

  assign awsize_o  = 3'd4;
  assign awburst_o = 2'b01;
  assign bready_o  = 1'b1;

  always_ff @(posedge clk_i) begin
    if (!sized_q) size_q <= left_q < 29'(border) ? left_q[BurstBits:0] : border;
    if (sized_q) enough_q <= waiting >= (CountBits + 1)'(size_q);
    else enough_q <= waiting >= (CountBits + 1)'(border) || 29'(waiting) >= left_q;
    carry_q <= 1'b0;
    upper_q <= upper_q + 32'(carry_q);
    if (take) {upper_q, next_q} <= address_i[63:4];
    else if (issue) {carry_q, next_q} <= {1'b0, next_q} + 29'(size_q);
    // Any values while no burst is shown.
    if (!awvalid_o) awaddr_o <= {upper_q, next_q, 4'b0};
    if (!awvalid_o) awlen_o <= 8'(size_q - 1'b1);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      left_q        <= '0;
      some_q        <= 1'b0;
      waiting_q     <= '0;
      sized_q       <= 1'b0;
      awvalid_o     <= 1'b0;
      outstanding_q <= '0;
      bus_error_o   <= 1'b0;
    end else begin
      if (take) left_q <= words_i;
      else if (issue) left_q <= left_q - 29'(size_q);
      if (take) some_q <= words_i != '0;
      else if (issue) some_q <= left_q != 29'(size_q);
      if (issue) sized_q <= 1'b0;
      else if (some_q) sized_q <= 1'b1;
      // Both are worked out before it is known whether a burst is issued.
      waiting_q <= issue ? waiting - (CountBits + 1)'(size_q) : waiting;
      if (issue) awvalid_o <= 1'b1;
      else if (awready_i) awvalid_o <= 1'b0;
      outstanding_q <= outstanding_q + OutstandingBits'(issue) - OutstandingBits'(answer);
      if (clear_i) bus_error_o <= 1'b0;
      else if (answer && bresp_i[1]) bus_error_o <= 1'b1;
    end
  end

  // ---- Data of the issued bursts ----
  logic [BurstBits:0] job_words;
  logic               job_valid, job_done;
  logic [BurstBits:0] beat_q;  // words of the job that have left the FIFO
  logic               advance, last;

  stream_fifo #(.Width(BurstBits + 1), .Depth(4)) u_jobs (
    .clk_i,
    .rst_ni,
    .data_i (size_q),
    .valid_i(issue),
    .ready_o(job_room),
    .data_o (job_words),
    .valid_o(job_valid),
    .ready_i(job_done),
    .count_o()
  );

  assign advance    = job_valid && fifo_valid && (!wvalid_o || wready_i);
  assign last       = beat_q + 1'b1 == job_words;
  assign job_done   = advance && last;
  assign fifo_ready = advance;
  assign wstrb_o    = '1;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      beat_q   <= '0;
      wvalid_o <= 1'b0;
    end else begin
      if (advance) beat_q <= last ? '0 : beat_q + 1'b1;
      if (advance) wvalid_o <= 1'b1;
      else if (wready_i) wvalid_o <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (advance) begin
      wdata_o <= fifo_word;
      wlast_o <= last;
    end
  end

`ifndef SYNTHESIS
  logic [7:0] sent_q[64];  // AWLEN of the bursts whose data is not complete, in order
  logic [5:0] oldest_q, newest_q;
  logic [7:0] sent_beat_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      oldest_q    <= '0;
      newest_q    <= '0;
      sent_beat_q <= '0;
    end else begin
      if (issue) sent_q[newest_q] <= 8'(size_q - 1'b1);
      if (issue) newest_q <= newest_q + 1'b1;
      if (wvalid_o && wready_i) sent_beat_q <= wlast_o ? '0 : sent_beat_q + 1'b1;
      if (wvalid_o && wready_i && wlast_o) oldest_q <= oldest_q + 1'b1;
    end
  end
  a_clear_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni) clear_i |-> idle_o);
  a_aligned: assert property (@(posedge clk_i) disable iff (!rst_ni) take |-> address_i[3:0] == '0);
  a_some_words: assert property (@(posedge clk_i) disable iff (!rst_ni) take |-> words_i != '0);
  a_aw_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      awvalid_o && !awready_i |=> awvalid_o && $stable(awaddr_o) && $stable(awlen_o));
  a_aw_within_4_kib: assert property (@(posedge clk_i) disable iff (!rst_ni)
      awvalid_o |-> 13'(awaddr_o[11:4]) + 13'(awlen_o) < 13'd256);
  a_w_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      wvalid_o && !wready_i |=> wvalid_o && $stable(wdata_o) && $stable(wlast_o));
  a_wlast_where_awlen_says: assert property (@(posedge clk_i) disable iff (!rst_ni)
      wvalid_o |-> oldest_q != newest_q && wlast_o == (sent_beat_q == sent_q[oldest_q]));
  a_b_was_asked_for: assert property (@(posedge clk_i) disable iff (!rst_ni)
      bvalid_i |-> outstanding_q != '0);
`endif

endmodule
