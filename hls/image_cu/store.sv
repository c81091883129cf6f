// Store: the samples of a frame to memory, packed as image_cu.cpp's store() packs them.
//
// Reference   interleaved 8-bit RGB (HWC), or with `planar_i` three planes (CHW) of 1 << `shift_i`
//             bytes a sample.
// Interface   `start_i` for a clock while `idle_o`, the settings stable until `idle_o` again; then
//             one frame and, if its status is StatusOk, beats until `last`. After that `status_o`
//             and the sizes stand until the next start. AXI4 writes of words of Bytes; planes that
//             do not begin or end with a word use write strobes, so exactly the output's bytes are
//             written. `idle_o` comes after the last write response.
// Throughput  two pixels a clock into the FIFOs, one word a clock out of them. Three planes of
//             float32 fill 24 bytes a clock: 0.75 of words of 32 bytes, or 1.5 of 16, and 8 KiB a
//             plane even that out over 18 rows of 224 pixels.
// Latency     a burst begins when BurstWords of a plane are there, or what the frame's end left.
// Bad input   a frame with an error status, or beats that need more than `capacity_i` bytes:
//             nothing is written, the samples are drained. An error in mid-frame: what came before
//             it is written. An error response from memory sets `bus_error_o`; writing goes on to
//             the end.
module store
  import headrace_pkg::*;
#(
  parameter int unsigned Bytes      = 16,           // of a word, 16 or 32
  parameter int unsigned BurstWords = 512 / Bytes,  // a power of two: at most 4 KiB
  // Words a plane waits in; a power of two, at least 2 BurstWords.
  parameter int unsigned Depth      = 8192 / Bytes
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [63:0]  address_i,   // 16-byte aligned
  input  logic [31:0]  capacity_i,  // bytes
  input  logic         planar_i,
  input  logic [1:0]   shift_i,     // log2 of a sample's bytes; 0 unless planar
  output logic         idle_o,

  output status_e      status_o,
  output logic [15:0]  width_o,
  output logic [15:0]  height_o,
  output logic [63:0]  bytes_o,     // of the output, also when it does not fit
  output logic         bus_error_o,

  input  frame_t       frame_i,
  input  logic         frame_valid_i,
  output logic         frame_ready_o,

  input  sample_beat_t sample_i,
  input  logic         sample_valid_i,
  output logic         sample_ready_o,

  output logic [63:0]  awaddr_o,
  output logic [7:0]   awlen_o,
  output logic [2:0]   awsize_o,
  output logic [1:0]   awburst_o,
  output logic         awvalid_o,
  input  logic         awready_i,
  output logic [8*Bytes-1:0] wdata_o,
  output logic [Bytes-1:0] wstrb_o,
  output logic         wlast_o,
  output logic         wvalid_o,
  input  logic         wready_i,
  input  logic [1:0]   bresp_i,
  input  logic         bvalid_i,
  output logic         bready_o
);

  localparam int unsigned ByteBits  = $clog2(Bytes);
  localparam int unsigned BurstBits = $clog2(BurstWords);
  localparam int unsigned CountBits = $clog2(Depth) + 1;
  // Words of a plane that may still be on the way to its FIFO when it is seen to be full: at most
  // half a word from each of the five beats between the check and the FIFO, rounded up well.
  localparam int unsigned Margin = 8;
  localparam int unsigned OutstandingBits = 6;  // bursts that may wait for their response: 2^6 - 1

  if ((Bytes != 16 && Bytes != 32) || BurstWords != 1 << BurstBits ||
      BurstWords * Bytes > 4096 || Depth < 2 * BurstWords) begin : gen_bad_parameters
    $fatal(1, "%m: Bytes must be 16 or 32, BurstWords a power of two, up to half of Depth");
  end

  // ---- Sizes ----
  typedef enum logic [2:0] {
    StIdle,
    StFrame,  // waits for the frame
    StSize,   // computes sizes, four clocks
    StTake,   // takes beats, packs them
    StDrain,  // takes beats, writes nothing
    StFlush,  // the last beat is on its way through the packers
    StWrite   // waits for memory
  } state_e;

  state_e      state_q, state_d;
  logic [2:0]  step_q;         // clocks in StSize or StFlush
  logic        take_frame, take_sample, room_q;
  logic [31:0] pixels_q;
  logic [33:0] three_q;        // 3 * pixels
  logic [34:0] plane_bytes_q;  // bytes of a plane
  logic [35:0] bytes_q;        // bytes of all
  logic        fits_q;
  logic        begin_planes;
  logic        flush;
  logic        written;        // nothing left to write, nothing unanswered

  assign frame_ready_o  = state_q == StFrame;
  assign take_frame     = frame_valid_i && frame_ready_o;
  assign sample_ready_o = state_q == StTake ? room_q : state_q == StDrain;
  assign take_sample    = sample_valid_i && sample_ready_o;
  assign idle_o         = state_q == StIdle;
  assign bytes_o        = 64'(bytes_q);

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StIdle:  if (start_i) state_d = StFrame;
      StFrame: if (take_frame) state_d = frame_i.status == StatusOk ? StSize : StWrite;
      StSize:  if (step_q == 3'd4) state_d = fits_q ? StTake : StDrain;
      StTake:  if (take_sample && sample_i.last) state_d = StFlush;
      StDrain: if (take_sample && sample_i.last) state_d = StWrite;
      StFlush: if (step_q == 3'd5) state_d = StWrite;
      StWrite: if (written) state_d = StIdle;
      default: state_d = StIdle;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
      step_q  <= '0;
    end else begin
      state_q <= state_d;
      step_q  <= (state_q == StSize && step_q != 3'd4) || (state_q == StFlush && step_q != 3'd5)
          ? step_q + 1'b1 : '0;
    end
  end

  // Registered step by step: the product of the sides alone takes one multiplier.
  always_ff @(posedge clk_i) begin
    pixels_q      <= width_o * height_o;
    three_q       <= 34'(pixels_q) + {1'b0, pixels_q, 1'b0};
    plane_bytes_q <= 35'(pixels_q) << shift_i;
    fits_q        <= bytes_q <= 36'(capacity_i);
    if (take_frame) begin
      width_o  <= frame_i.status == StatusOk ? frame_i.width : '0;
      height_o <= frame_i.status == StatusOk ? frame_i.height : '0;
      status_o <= frame_i.status;
      bytes_q  <= '0;
    end
    if (state_q == StSize && step_q == 3'd2) bytes_q <= 36'(three_q) << shift_i;
    if (take_sample && sample_i.last) begin
      if (state_q == StDrain && sample_i.status == StatusOk) status_o <= StatusBufferTooSmall;
      else status_o <= sample_i.status;
    end
  end

  assign begin_planes = state_q == StSize && step_q == 3'd3;

  // ---- Packing, first clock: each plane's bytes of the beat ----
  logic [2:0][63:0] given_q;        // [plane], first byte lowest
  logic [2:0][3:0]  given_count_q;  // bytes
  logic             left_pixel, right_pixel;

  // What comes with an error status is not a pixel; only the last beat can have one.
  assign left_pixel  = take_sample && state_q == StTake && sample_i.keep[0] &&
                       sample_i.status == StatusOk;
  assign right_pixel = left_pixel && sample_i.keep[1];

  always_ff @(posedge clk_i) begin
    for (int unsigned p = 0; p < 3; p++) begin
      unique case (shift_i)
        2'd0:    given_q[p] <= 64'({sample_i.value[1][p][7:0], sample_i.value[0][p][7:0]});
        2'd1:    given_q[p] <= 64'({sample_i.value[1][p][15:0], sample_i.value[0][p][15:0]});
        default: given_q[p] <= {sample_i.value[1][p], sample_i.value[0][p]};
      endcase
      given_count_q[p] <= (4'(left_pixel) + 4'(right_pixel)) << shift_i;
    end
    if (!planar_i) begin
      given_q[0] <= 64'({
          sample_i.value[1][2][7:0], sample_i.value[1][1][7:0], sample_i.value[1][0][7:0],
          sample_i.value[0][2][7:0], sample_i.value[0][1][7:0], sample_i.value[0][0][7:0]});
      given_count_q[0] <= right_pixel ? 4'd6 : left_pixel ? 4'd3 : 4'd0;
      given_count_q[1] <= '0;
      given_count_q[2] <= '0;
    end
  end

  // The beats behind are through when the last has been in StFlush for a clock; then what they left
  // is pushed.
  assign flush = state_q == StFlush && step_q == 3'd1;

  // ---- Packing and one FIFO a plane ----
  logic [2:0]                push;            // a word enters a FIFO
  logic [2:0][9*Bytes-1:0]   pushed;          // {strobes, data}
  logic [2:0]                fifo_valid, fifo_ready, roomy_q;
  logic [2:0][9*Bytes-1:0]   fifo_word;
  logic [2:0][CountBits-1:0] fifo_count;

  logic [2:0][31:0]          offset;  // of the planes' first bytes; exact where the output fits
  logic [2:0][28:0]          first;   // these added to the address, in 16 bytes; [28]: carry

  for (genvar p = 0; p < 3; p++) begin : gen_plane
    assign offset[p] = p == 0 || !planar_i ? '0 : p == 1 ? plane_bytes_q[31:0]
                     : {plane_bytes_q[30:0], 1'b0};
    assign first[p]  = {1'b0, address_i[31:4]} + {1'b0, offset[p][31:4]};

    store_pack #(.Bytes(Bytes)) u_pack (
      .clk_i,
      .rst_ni,
      .begin_i (begin_planes),
      .offset_i(ByteBits'({first[p][0], offset[p][3:0]})),
      .data_i  (given_q[p]),
      .count_i (given_count_q[p]),
      .flush_i (flush),
      .word_o  (pushed[p]),
      .valid_o (push[p])
    );

    block_fifo #(.Width(9 * Bytes), .Depth(Depth), .Slices(4)) u_fifo (
      .clk_i,
      .rst_ni,
      .clear_i(1'b0),
      .data_i (pushed[p]),
      .valid_i(push[p]),
      .ready_o(),
      .data_o (fifo_word[p]),
      .valid_o(fifo_valid[p]),
      .ready_i(fifo_ready[p]),
      .count_o(fifo_count[p])
    );

    always_ff @(posedge clk_i) roomy_q[p] <= fifo_count[p] < CountBits'(Depth - Margin);

`ifndef SYNTHESIS
    a_fifo_never_full: assert property (@(posedge clk_i) disable iff (!rst_ni)
        push[p] |-> fifo_count[p] < CountBits'(Depth));
`endif
  end

  always_ff @(posedge clk_i) room_q <= &roomy_q;

  // ---- Bursts: one plane is looked at in each round of two clocks, and has one if it is due ----
  // Addresses are counted in two parts, the upper a clock later, which a round's two clocks allow:
  // short carries.
  logic [2:0][31-ByteBits:0] next_q;     // word address of the plane's next burst
  logic [2:0][31:0]          upper_q;
  logic [2:0]                carry_q;    // from next_q, not yet in upper_q
  logic [2:0][CountBits-1:0] waiting_q;  // words in the FIFO that no burst has claimed yet
  logic [1:0]                  plane_q;    // looked at
  logic [BurstBits:0]          border, size_q;
  logic                        due_q;      // plane_q has a burst of size_q
  logic                        sized_q;
  logic                        ending;     // no more words come
  logic                        issue, answer;
  logic [OutstandingBits-1:0]  outstanding_q;
  logic                        job_room;
  logic [CountBits-1:0]      waiting;

  assign waiting = waiting_q[plane_q];
  assign border  = (BurstBits + 1)'(BurstWords) - {1'b0, next_q[plane_q][BurstBits-1:0]};
  assign ending  = state_q == StWrite;
  assign issue   = sized_q && due_q && !awvalid_o && job_room && outstanding_q != '1;
  assign answer  = bvalid_i && bready_o;
  assign written = waiting_q == '0 && outstanding_q == '0 && !issue;

  assign awsize_o  = 3'(ByteBits);
  assign awburst_o = 2'b01;
  assign bready_o  = 1'b1;

  always_ff @(posedge clk_i) begin
    size_q <= waiting < CountBits'(border) ? waiting[BurstBits:0] : border;
    due_q  <= waiting >= CountBits'(border) || (ending && waiting != '0);
    if (sized_q) begin
      size_q <= size_q;
      due_q  <= due_q;
    end
    if (issue) awaddr_o <= {upper_q[plane_q], next_q[plane_q], ByteBits'(0)};
    if (issue) awlen_o <= 8'(size_q - 1'b1);
    for (int unsigned p = 0; p < 3; p++) begin
      carry_q[p] <= 1'b0;
      upper_q[p] <= begin_planes ? address_i[63:32] : upper_q[p] + 32'(carry_q[p]);
      if (begin_planes) begin
        {carry_q[p], next_q[p]} <= first[p][28:ByteBits-4];
      end else if (issue && plane_q == 2'(p)) begin
        {carry_q[p], next_q[p]} <= {1'b0, next_q[p]} + (33 - ByteBits)'(size_q);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      waiting_q     <= '0;
      plane_q       <= '0;
      sized_q       <= 1'b0;
      awvalid_o     <= 1'b0;
      outstanding_q <= '0;
      bus_error_o   <= 1'b0;
    end else begin
      for (int unsigned p = 0; p < 3; p++) begin
        waiting_q[p] <= waiting_q[p] + CountBits'(push[p])
            - (issue && plane_q == 2'(p) ? CountBits'(size_q) : '0);
      end
      // A round: sized in the first clock, then issued as soon as possible, or left. Each frame
      // begins with the same one, so that the same run takes the same clocks.
      if (begin_planes) {plane_q, sized_q} <= '0;
      else if (!sized_q) sized_q <= 1'b1;
      else if (issue || !due_q) begin
        sized_q <= 1'b0;
        plane_q <= plane_q == 2'd2 ? '0 : plane_q + 1'b1;
      end
      if (issue) awvalid_o <= 1'b1;
      else if (awready_i) awvalid_o <= 1'b0;
      outstanding_q <= outstanding_q + OutstandingBits'(issue) - OutstandingBits'(answer);
      if (start_i) bus_error_o <= 1'b0;
      else if (answer && bresp_i[1]) bus_error_o <= 1'b1;
    end
  end

  // ---- Data of the issued bursts, in their order ----
  // The oldest burst stands in a register, because its plane decides which word leaves.
  typedef struct packed {
    logic [2:0]         plane;  // one bit for each
    logic [BurstBits:0] words;
  } job_t;
  job_t               queued, job;
  logic               queued_valid, queued_ready, job_valid, job_done;
  logic [BurstBits:0] beat_q;  // words of the job that have left their FIFO
  logic               advance, last_q; // last_q: the next word is the job's last
  logic               room;            // for a word in the output's register
  logic               word_valid;
  logic [9*Bytes-1:0] word;

  stream_fifo #(.Width($bits(job_t)), .Depth(4)) u_jobs (
    .clk_i,
    .rst_ni,
    .data_i ({3'b001 << plane_q, size_q}),
    .valid_i(issue),
    .ready_o(job_room),
    .data_o (queued),
    .valid_o(queued_valid),
    .ready_i(queued_ready),
    .count_o()
  );

  assign queued_ready = job_done || !job_valid;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) job_valid <= 1'b0;
    else if (queued_ready) job_valid <= queued_valid;
    if (queued_ready) job <= queued;
    if (queued_ready) last_q <= queued.words == (BurstBits + 1)'(1);
    else if (advance) last_q <= beat_q + (BurstBits + 1)'(2) == job.words;
  end

  always_comb begin
    word       = '0;
    for (int unsigned p = 0; p < 3; p++) word |= job.plane[p] ? fifo_word[p] : '0;
    word_valid = job_valid && (job.plane & fifo_valid) != '0;
    room       = !wvalid_o || wready_i;
    advance    = word_valid && room;
    job_done   = advance && last_q;
    fifo_ready = job.plane & {3{advance}};
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      beat_q   <= '0;
      wvalid_o <= 1'b0;
    end else begin
      if (advance) beat_q <= last_q ? '0 : beat_q + 1'b1;
      if (advance) wvalid_o <= 1'b1;
      else if (wready_i) wvalid_o <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (room) begin  // also without a word: this goes to each bit
      {wstrb_o, wdata_o} <= word;
      wlast_o            <= last_q;
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
  a_last: assert property (@(posedge clk_i) disable iff (!rst_ni)
      job_valid |-> last_q == (beat_q + 1'b1 == job.words));
  a_start_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni) start_i |-> idle_o);
  a_aligned: assert property (@(posedge clk_i) disable iff (!rst_ni)
      start_i |-> address_i[3:0] == '0);
  a_aw_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      awvalid_o && !awready_i |=> awvalid_o && $stable(awaddr_o) && $stable(awlen_o));
  a_aw_within_4_kib: assert property (@(posedge clk_i) disable iff (!rst_ni)
      awvalid_o |-> 13'(awaddr_o[11:ByteBits]) + 13'(awlen_o) < 13'(4096 / Bytes));
  a_w_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      wvalid_o && !wready_i |=>
      wvalid_o && $stable(wdata_o) && $stable(wstrb_o) && $stable(wlast_o));
  a_wlast_where_awlen_says: assert property (@(posedge clk_i) disable iff (!rst_ni)
      wvalid_o |-> oldest_q != newest_q && wlast_o == (sent_beat_q == sent_q[oldest_q]));
  a_some_strobe: assert property (@(posedge clk_i) disable iff (!rst_ni)
      wvalid_o |-> wstrb_o != '0);
  a_b_was_asked_for: assert property (@(posedge clk_i) disable iff (!rst_ni)
      bvalid_i |-> outstanding_q != '0);
`endif

endmodule
