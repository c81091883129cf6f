// The properties of store: AXI4's rules (axi_write_checker), queues that never overflow though
// beats are stopped late, each word of a plane written once and in its place, all of them inside
// the tensor, nothing written of a frame that is bad or does not fit, and all written and answered
// before it is idle.
//
// Method      the packers are cut. Their words come free, as f_store_pack has proved of them: two
//             clocks after bytes or a flush, and each with bytes. The words of a plane are counted
//             when they come, when a burst has them, and when they leave. `over_q`: clocks since
//             the queue had room for what is on its way. Each stage that a beat passes is some
//             clocks behind the look at the queue.
// Assumes     a frame has the pixels that its sides say. The product of the sides is cut: it stays
//             while they do.
//
// Bursts of 4 words and queues of 16 stand for longer ones: BurstWords and Depth only bound
// counters, and the margin within a queue is the same 8 words. The words' values are cut where they
// leave the queues (f_block_fifo has the proof that they are those that entered).
module f_store
  import headrace_pkg::*;
#(
  parameter int unsigned Bytes      = 16,  // of a word
  parameter int unsigned BurstWords = 4,
  parameter int unsigned Depth      = 16
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         mark_i,
  input logic         start_i,
  input logic [63:0]  address_i,
  input logic [31:0]  capacity_i,
  input logic         planar_i,
  input logic [1:0]   shift_i,
  input frame_t       frame_i,
  input logic         frame_valid_i,
  input sample_beat_t sample_i,
  input logic         sample_valid_i,
  input logic         awready_i,
  input logic         wready_i,
  input logic [1:0]   bresp_i,
  input logic         bvalid_i
);

  localparam int unsigned Margin   = 8;
  localparam int unsigned Bits     = $clog2(Depth) + 1;
  localparam int unsigned WordBits = $clog2(Bytes);
  localparam int unsigned At       = 64 - WordBits;  // bits of a word's address
  // As store has them.
  typedef enum logic [2:0] {
    StIdle, StFrame, StSize, StTake, StDrain, StFlush, StWrite
  } state_e;

  logic         idle_o, bus_error_o, frame_ready_o, sample_ready_o;
  status_e      status_o;
  logic [15:0]  width_o, height_o;
  logic [63:0]  bytes_o, awaddr_o;
  logic [7:0]   awlen_o;
  logic [2:0]   awsize_o;
  logic [1:0]   awburst_o;
  logic         awvalid_o, wlast_o, wvalid_o, bready_o;
  logic [8*Bytes-1:0] wdata_o;
  logic [Bytes-1:0]   wstrb_o;
  logic         past_q = 1'b0, up_q = 1'b0, up_2_q = 1'b0;

  store #(.Bytes(Bytes), .BurstWords(BurstWords), .Depth(Depth)) u (.*);
  axi_write_checker #(.BurstWords(BurstWords), .MaxOutstanding(63), .WordBytes(Bytes)) u_check (
    .clk_i, .rst_ni, .mark_i,
    .awaddr_i (awaddr_o), .awlen_i (awlen_o), .awvalid_i(awvalid_o), .awready_i,
    .wdata_i  (wdata_o[127:0]), .wlast_i (wlast_o), .wvalid_i (wvalid_o),  .wready_i,
    .bvalid_i, .bready_i (bready_o)
  );

  state_e state, state_q;
  assign state = state_e'(u.state_q);

  // ---- The run ----
  logic         bad_q;               // nothing of this run's frame may be written
  logic         running_q, begun_q, framed_q, planar_q;
  logic [1:0]   shift_q;
  logic [31:0]  capacity_q, pixels_q;
  logic [63:0]  address_q;
  logic [8*Bytes-1:0] wdata_q;
  logic [Bytes-1:0]   wstrb_q;
  logic [31:0]  taken_q;             // pixels
  logic [33:0]  three_taken;
  logic [1:0]   taken_now;
  assign taken_now   = 2'(u.left_pixel) + 2'(u.right_pixel);
  assign three_taken = 34'(taken_q) + {1'b0, taken_q, 1'b0};

  always_ff @(posedge clk_i) begin
    past_q     <= 1'b1;
    up_q       <= rst_ni;
    up_2_q     <= up_q && rst_ni;
    state_q    <= state;
    running_q  <= rst_ni && (start_i || !idle_o);
    planar_q   <= planar_i;
    shift_q    <= shift_i;
    address_q  <= address_i;
    capacity_q <= capacity_i;
    framed_q   <= u.take_frame;
    pixels_q   <= u.pixels_q;
    wdata_q    <= wdata_o;
    wstrb_q    <= wstrb_o;
    begun_q    <= rst_ni && (u.begin_planes || begun_q);
    taken_q    <= u.begin_planes ? '0 : taken_q + 32'(taken_now);
    if (state == StFrame && u.take_frame) bad_q <= frame_i.status != StatusOk;
    else if (state == StSize && u.step_q == 3'd4 && !u.fits_q) bad_q <= 1'b1;
  end

  // ---- Planes ----
  logic [2:0][63:0]     first;       // byte address
  logic [2:0][At-1:0]   expected_q;  // word address of the next burst
  logic [2:0][31:0]     pushes_q, issued_q;  // words that came, and that have an address
  logic [2:0][7:0]      leaves_q;    // and that have left the queue
  logic [2:0][35:0]     given, most; // bytes that came, and that may
  logic [2:0][3:0]      over_q;
  logic [2:0][Bits:0]   held;        // words in the queue
  logic [2:0]           packing, packed_q, packed_2_q;
  logic [1:0]           flushed_q;
  logic                 pack_open_q, pack_some_q;  // what f_store_pack assumes of its inputs
  logic [1:0]           pack_flushed_q;
  logic [1:0]           asked_plane_q;  // of the burst whose address is shown
  logic                 asks;
  assign asks = awvalid_o && !u_check.aw_waits_q;

  always_ff @(posedge clk_i) begin
    flushed_q <= {2{rst_ni}} & {flushed_q[0], u.flush};
    if (!rst_ni || u.begin_planes) begin
      pack_open_q    <= rst_ni;
      pack_some_q    <= 1'b0;
      pack_flushed_q <= rst_ni ? 2'd0 : 2'd3;
    end else begin
      if (u.flush) pack_open_q <= 1'b0;
      if (packing != '0) pack_some_q <= 1'b1;
      if (!pack_open_q && pack_flushed_q != 2'd3) pack_flushed_q <= pack_flushed_q + 1'b1;
    end
    if (u.issue) asked_plane_q <= u.plane_q;
  end
  for (genvar p = 0; p < 3; p++) begin : gen_plane
    assign first[p]   = address_i + 64'(u.offset[p]);
    assign held[p]    = (Bits + 1)'(u.fifo_count[p]) +
                        (Bits + 1)'(u.gen_plane[p].u_fifo.claims_q);
    assign packing[p] = u.given_count_q[p] != '0;
    assign given[p]   = planar_i ? 36'(taken_q) << shift_i : p == 0 ? 36'(three_taken) : '0;
    assign most[p]    = planar_i ? 36'(u.plane_bytes_q) : p == 0 ? u.bytes_q : '0;
    always_ff @(posedge clk_i) begin
      packed_q[p]   <= rst_ni && packing[p];
      packed_2_q[p] <= rst_ni && packed_q[p];
      if (!rst_ni || u.fifo_count[p] < Bits'(Depth - Margin)) over_q[p] <= '0;
      else if (over_q[p] != '1) over_q[p] <= over_q[p] + 1'b1;
      if (u.begin_planes) begin
        expected_q[p] <= first[p][63:WordBits];
        issued_q[p]   <= '0;
        pushes_q[p]   <= '0;
        leaves_q[p]   <= '0;
      end else begin
        if (u.issue && u.plane_q == 2'(p)) begin
          expected_q[p] <= expected_q[p] + At'(u.size_q);
          issued_q[p]   <= issued_q[p] + 32'(u.size_q);
        end
        if (u.push[p]) pushes_q[p] <= pushes_q[p] + 1'b1;
        if (u.fifo_ready[p]) leaves_q[p] <= leaves_q[p] + 1'b1;
      end
    end
  end

  // ---- The bursts whose data has not left, the oldest first: in a register, and in a queue ----
  // `job_at` is the number of a burst's first word in its plane, and `gone_q` of a plane counts the
  // words of its bursts that have left. Numbers are modulo 256: no more words are within.
  localparam int unsigned Jobs = 5;
  logic [Jobs-1:0][7:0]    job_at_q, job_at;
  logic [Jobs-1:0][1:0]    job_plane_q, job_plane;
  logic [Jobs-1:0][7:0]    job_words_q, job_words, jobs;
  logic [Jobs-1:0][5:0]    job_bits;  // as the register or the queue has it
  logic [2:0][7:0]         gone_q;
  logic [Jobs:0][2:0][7:0] follows;  // of each plane, behind so many of these bursts
  logic [2:0]              job_count, place;  // place: of a new one
  logic                    jobs_are_bursts, jobs_are_in_place, jobs_are_those;
  assign job_count = u.u_jobs.count_o + 3'(u.job_valid);
  assign place     = job_count - 3'(u.job_done);
  for (genvar k = 0; k < Jobs; k++) begin : gen_job
    if (k < Jobs - 1) begin : gen_next
      assign {job_at[k], job_plane[k], job_words[k]} = u.job_done ?
          {job_at_q[k+1], job_plane_q[k+1], job_words_q[k+1]} :
          {job_at_q[k], job_plane_q[k], job_words_q[k]};
    end else begin : gen_last
      assign {job_at[k], job_plane[k], job_words[k]} =
          {job_at_q[k], job_plane_q[k], job_words_q[k]};
    end
    always_ff @(posedge clk_i) begin
      {job_at_q[k], job_plane_q[k], job_words_q[k]} <= u.issue && place == 3'(k) ?
          {issued_q[u.plane_q][7:0], u.plane_q, 8'(u.size_q)} :
          {job_at[k], job_plane[k], job_words[k]};
    end
    assign jobs[k]     = job_count > 3'(k) ? job_words_q[k] : 8'd0;
    assign job_bits[k] = u.job_valid && k == 0 ? u.job :
        u.u_jobs.memory[2'(u.u_jobs.head_q + 2'(k) - 2'(u.job_valid))];
  end
  for (genvar p = 0; p < 3; p++) begin : gen_gone
    always_ff @(posedge clk_i) begin
      if (u.begin_planes) gone_q[p] <= '0;
      else if (u.job_done && job_plane_q[0] == 2'(p)) gone_q[p] <= gone_q[p] + jobs[0];
    end
  end
  always_comb begin
    follows           = '0;
    follows[0]        = gone_q;
    jobs_are_bursts   = 1'b1;
    jobs_are_in_place = 1'b1;
    jobs_are_those    = 1'b1;
    for (int unsigned k = 0; k < Jobs; k++) begin
      follows[k+1] = follows[k];
      for (int unsigned p = 0; p < 3; p++) begin
        if (job_plane_q[k] == 2'(p)) follows[k+1][p] = follows[k][p] + jobs[k];
        if (job_plane_q[k] == 2'(p) && jobs[k] != '0 && job_at_q[k] != follows[k][p])
          jobs_are_in_place = 1'b0;
      end
      if (job_count > 3'(k)) begin
        if (jobs[k] == '0 || jobs[k] > BurstWords || job_plane_q[k] == 2'd3)
          jobs_are_bursts = 1'b0;
        if (job_bits[k] != {3'b001 << job_plane_q[k], jobs[k][2:0]}) jobs_are_those = 1'b0;
      end
    end
  end

  // ---- What holds of each plane ----
  logic begins, writes;  // the planes have just begun; the frame is good and fits
  logic sized, fits;     // the sizes are those of the product; so are they in the capacity
  assign begins = state == StSize && u.step_q == 3'd4;
  assign writes = state inside {StTake, StFlush, StWrite} && !bad_q;
  assign sized = u.three_q == 34'(u.pixels_q) + {1'b0, u.pixels_q, 1'b0} &&
                 u.plane_bytes_q == 35'(u.pixels_q) << shift_i;
  assign fits  = sized && u.bytes_q == 36'(u.three_q) << shift_i &&
                 u.bytes_q <= 36'(capacity_i);

  logic [2:0] of_queue_has_room, of_addresses_follow, of_words_in_place, of_inside,
              of_planes_inside, of_room, of_roomy, of_beats_stop, of_packing, of_packed, of_flushed,
              of_next, of_carry, of_waiting, of_gone, of_fifo, of_claims, of_leaves, of_given,
              of_pushed, of_lawful_pack, of_push_has_bytes, of_push_in_time, of_lanes;
  for (genvar p = 0; p < 3; p++) begin : gen_holds
    always_comb begin
      of_push_in_time[p] = !u.push[p] || packed_2_q[p] || flushed_q[1];
      of_push_has_bytes[p] = !u.push[p] || (begun_q && given[p] != '0 &&
          37'({pushes_q[p], WordBits'(0)}) < 37'(first[p][WordBits-1:0]) + 37'(given[p]));
      of_lawful_pack[p] = !packing[p] || (!u.begin_planes && !u.flush && (pack_open_q || !up_q));
      of_lanes[p] = !u.begin_planes ||
          u.gen_plane[p].u_pack.offset_i == first[p][WordBits-1:0];
      of_queue_has_room[p] = !u.push[p] || 32'(u.fifo_count[p]) < Depth;
      of_addresses_follow[p] = !(asks && asked_plane_q == 2'(p)) ||
          awaddr_o[63:WordBits] + At'(awlen_o) + At'(1) == expected_q[p];
      of_words_in_place[p] = !u.fifo_ready[p] ||
          (job_plane_q[0] == 2'(p) && job_at_q[0] + 8'(u.beat_q) == leaves_q[p]);
      of_inside[p] = !(asks && asked_plane_q == 2'(p)) || (issued_q[p] != '0 &&
          37'({issued_q[p] - 32'd1, WordBits'(0)}) < 37'(first[p][WordBits-1:0]) + 37'(most[p]));
      of_planes_inside[p] = !writes ||
          (37'(u.offset[p]) + 37'(most[p]) <= 37'(u.bytes_q) && u.bytes_q <= 36'(capacity_i));
      of_room[p] = 32'(u.fifo_count[p]) <=
          Depth - Margin + 32'(over_q[p] > 4'd6 ? 4'd6 : over_q[p]);
      of_roomy[p] = !u.roomy_q[p] || over_q[p] == '0;
      of_beats_stop[p] = !u.room_q || over_q[p] <= 4'd1;
      of_packing[p] = !packing[p] || !up_q || ((state == StTake || (state == StFlush &&
          u.step_q == '0)) && over_q[p] <= 4'd2 && begun_q);
      of_packed[p] = (!packed_q[p] || !up_2_q || ((state == StTake || (state == StFlush &&
          u.step_q <= 3'd1)) && over_q[p] <= 4'd3)) &&
          (!packed_2_q[p] || ((state == StTake || (state == StFlush &&
          u.step_q <= 3'd2)) && over_q[p] <= 4'd4) || !begun_q);
      of_flushed[p] = (!flushed_q[0] || (state == StFlush && u.step_q == 3'd2 &&
          over_q[p] <= 4'd4)) && (!flushed_q[1] || (state == StFlush && u.step_q == 3'd3 &&
          over_q[p] <= 4'd5));
      of_next[p] = !(begins || writes) ||
          {u.upper_q[p] + 32'(u.carry_q[p]), u.next_q[p]} == expected_q[p];
      of_carry[p] = !(u.carry_q[p] && u.plane_q == 2'(p) && u.sized_q && u.due_q);
      of_waiting[p] = !begun_q || (pushes_q[p] == issued_q[p] + 32'(u.waiting_q[p]) &&
          32'(u.waiting_q[p]) <= pushes_q[p]);
      of_gone[p] = !begun_q || (follows[Jobs][p] == issued_q[p][7:0] &&
          leaves_q[p] == gone_q[p] + (job_plane_q[0] == 2'(p) ? 8'(u.beat_q) : 8'd0));
      of_fifo[p] = 32'(u.fifo_count[p]) <= Depth &&
          u.gen_plane[p].u_fifo.some_q == (u.fifo_count[p] != '0) &&
          u.gen_plane[p].u_fifo.ready_o == (32'(u.fifo_count[p]) != Depth);
      of_claims[p] = 4'(u.gen_plane[p].u_fifo.claims_q) ==
          4'(u.gen_plane[p].u_fifo.u_queue.count_o) +
          4'(u.gen_plane[p].u_fifo.output_valid_q) + 4'(u.gen_plane[p].u_fifo.read_valid_q) &&
          u.gen_plane[p].u_fifo.claims_q <= 3'd4 &&
          u.gen_plane[p].u_fifo.claimable_q == (u.gen_plane[p].u_fifo.claims_q != 3'd4) &&
          u.fifo_valid[p] == (u.gen_plane[p].u_fifo.u_queue.count_o != '0) &&
          u.gen_plane[p].u_fifo.u_queue.ready_o ==
          (u.gen_plane[p].u_fifo.u_queue.count_o != 3'd4);
      of_leaves[p] = !begun_q || pushes_q[p][7:0] == leaves_q[p] + 8'(held[p]);
      of_given[p] = !writes || given[p] <= most[p];
      of_pushed[p] = !writes ||
          37'({pushes_q[p], WordBits'(0)}) <
          37'(first[p][WordBits-1:0]) + 37'(given[p]) + 37'(Bytes);
    end
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_starts_when_idle: assume (!start_i || (idle_o && rst_ni));
    m_address_is_aligned: assume (address_i[3:0] == '0);
    m_settings_stay: assume (!running_q || (planar_i == planar_q && shift_i == shift_q &&
                             address_i == address_q && capacity_i == capacity_q));
    m_format: assume (shift_i != 2'd3 && (planar_i || shift_i == '0));
    m_product_stays: assume (framed_q || u.pixels_q == pixels_q);
    m_pixels_of_the_frame: assume (state != StTake || 33'(taken_q) + 33'(taken_now) <=
                                                      33'(u.pixels_q));
    m_words_come_two_clocks_later: assume (of_push_in_time == '1);
    m_words_have_bytes: assume (of_push_has_bytes == '1);
    if (past_q) begin
      a_idle_is_complete: assert (!idle_o || (u_check.unanswered_q == '0 &&
                                  !awvalid_o && !wvalid_o && held == '0));
      a_nothing_of_a_bad_frame: assert (!(bad_q && state inside {StDrain, StWrite}) ||
                                        (!awvalid_o && !wvalid_o));
      a_known: assert (u.state_q <= StWrite);
      a_payload_stable: assert (!u_check.w_waits_q || (wdata_o == wdata_q && wstrb_o == wstrb_q));
      a_queue_has_room: assert (of_queue_has_room == '1);
      a_addresses_follow: assert (of_addresses_follow == '1);
      a_words_in_place: assert (of_words_in_place == '1);
      a_words_inside_their_plane: assert (of_inside == '1);
      a_planes_inside: assert (of_planes_inside == '1);
      a_planes_begin_in_their_lane: assert (of_lanes == '1);
      a_packer_is_asked_in_order: assert (of_lawful_pack == '1 &&
          (!u.flush || (pack_open_q && !u.begin_planes)) &&
          (!u.begin_planes || (pack_open_q ? !pack_some_q : pack_flushed_q == 2'd3)));
      h_pack: assert (state == StTake ? pack_open_q : state != StFlush ?
          (pack_open_q ? !pack_some_q : pack_flushed_q == 2'd3) :
          u.step_q <= 3'd1 ? pack_open_q : !pack_open_q && 3'(pack_flushed_q) + 3'd2 >= u.step_q);
      h_pack_begins: assert (!begins || pack_open_q);
      h_room: assert (of_room == '1);
      h_roomy: assert (of_roomy == '1);
      h_beats_stop: assert (of_beats_stop == '1);
      h_packing: assert (of_packing == '1);
      h_packed: assert (of_packed == '1);
      h_flushed: assert (of_flushed == '1);
      h_next: assert (of_next == '1);
      h_carry: assert (of_carry == '1);
      h_waiting: assert (of_waiting == '1);
      h_fifo: assert (of_fifo == '1);
      h_claims: assert (of_claims == '1);
      h_leaves: assert (of_leaves == '1);
      h_given: assert (of_given == '1);
      h_pushed: assert (of_pushed == '1);
      h_begun: assert (begun_q || !(begins || writes));
      h_none_before: assert (begun_q || (u.waiting_q == '0 && held == '0));
      h_framed: assert (!framed_q || !up_q || u.step_q == '0);
      h_sized: assert (!(state == StSize && u.step_q >= 3'd2 && !bad_q) || sized);
      h_bytes: assert (!(state == StSize && u.step_q >= 3'd3) ||
                       u.bytes_q == 36'(u.three_q) << shift_i);
      h_fits_q: assert (!(begins && u.fits_q) || fits);
      h_fits: assert (!writes || fits);
      h_taken: assert (!writes ||
                       taken_q <= u.pixels_q);
      h_none_taken: assert (!begins || (taken_q == '0 &&
                            pushes_q == '0));
      h_gone: assert (of_gone == '1);
      h_places: assert (!begun_q || jobs_are_in_place);
      h_step: assert (state == StFlush ? u.step_q <= 3'd5 : state == StSize ? u.step_q <= 3'd4 :
                                                                              1'b1);
      h_flush_is_late: assert (!(state == StFlush && u.step_q <= 3'd1) ||
          (over_q[0] <= 4'd2 + 4'(u.step_q) && over_q[1] <= 4'd2 + 4'(u.step_q) &&
           over_q[2] <= 4'd2 + 4'(u.step_q)));
      h_plane: assert (u.plane_q != 2'd3);
      h_jobs: assert (u.u_jobs.count_o <= 4 &&
                      u.u_jobs.valid_o == (u.u_jobs.count_o != '0) &&
                      u.u_jobs.ready_o == (u.u_jobs.count_o != 3'd4) &&
                      u.u_jobs.tail_q == 2'(u.u_jobs.head_q + 2'(u.u_jobs.count_o)));
      h_job_words: assert (jobs_are_bursts && jobs_are_those);
      h_last: assert (!u.job_valid || u.last_q == (u.beat_q + 1'b1 == u.job.words));
      h_beat: assert (!u.job_valid ? u.beat_q == '0 : 8'(u.beat_q) < jobs[0]);
      h_size: assert (!(u.sized_q && u.due_q) || (u.size_q != '0 && u.size_q <= u.border &&
                                                  32'(u.size_q) <= 32'(u.waiting)));
      h_reset: assert (up_2_q || (state inside {StIdle, StFrame} && !begun_q));
      h_running: assert (running_q || state == StIdle);
      h_in_reset: assert (up_q || (state == StIdle && !begun_q && !pack_open_q));
      h_drains: assert (state != StDrain || bad_q);
      h_bad: assert (!bad_q || state inside {StIdle, StFrame, StDrain, StWrite});
      h_answered: assert (u_check.unanswered_q >= u_check.unwritten_q &&
                          u_check.unanswered_q >= 7'(u_check.aw_waits_q));
      h_rests: assert (!(state inside {StIdle, StFrame, StSize, StDrain} ||
                         (state == StWrite && bad_q)) ||
          (u.waiting_q == '0 && u.outstanding_q == '0 && job_count == '0 && !awvalid_o));
      h_open: assert (32'(u_check.unanswered_q) + 32'(asks) == 32'(u.outstanding_q));
      h_unwritten: assert (8'(u_check.unwritten_q) + 8'(asks) ==
                           8'(job_count) + 8'(wvalid_o && wlast_o));
      h_beats: assert (!wvalid_o ? u_check.beat_q == 8'(u.beat_q) :
                       wlast_o   ? u.beat_q == '0 && u_check.beat_q < BurstWords :
                                   u_check.beat_q + 8'd1 == 8'(u.beat_q));
      h_last_asked: assert (!asks || (job_count != '0 &&
                            jobs[3'(job_count - 1'b1)] == awlen_o + 8'd1));
      h_followed: assert (!u_check.follows_q || (u_check.ahead_q < u_check.unwritten_q &&
          (wvalid_o && wlast_o && u_check.ahead_q == '0 ? u_check.beat_q == u_check.length_q :
           jobs[3'(u_check.ahead_q - 7'(wvalid_o && wlast_o))] == u_check.length_q + 8'd1)));
      c_three_planes: cover (asks && asked_plane_q == 2'd2 && planar_i && state == StWrite);
      // Words of 32 bytes fill a queue in more clocks than covers are looked for.
      if (Bytes == 16) begin
        c_is_stopped: cover (state == StTake && sample_valid_i && !sample_ready_o && up_2_q);
      end
      c_drains: cover (state == StDrain && sample_valid_i && sample_i.last);
      c_written: cover (state_q == StWrite && idle_o && begun_q && !bad_q && taken_q != '0);
    end
  end

endmodule
