// The properties of job_ring: it asks for the slot of the next job, for the whole descriptor only
// behind the right number; a job is what the descriptor says with the bases added, and bad if a
// range is; it stays until it is taken; and each step has an end, if memory answers within a bound.
//
// The reader is cut: what it gives is what f_axi_read and f_axi_read_live prove of it. The words of
// a read come each within Late clocks, and idle follows the last. Words that come behind a stop are
// dropped within, so none comes.
module f_job_ring
  import image_cu_pkg::*;
#(
  parameter int unsigned Late = 3
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         run_i,
  input arguments_t   arguments_i,
  input logic         waiting_i,
  input logic         ready_i,
  input logic         arready_i,
  input logic [127:0] rdata_i,
  input logic [1:0]   rresp_i,
  input logic         rlast_i,
  input logic         rvalid_i
);

  // As job_ring has them.
  typedef enum logic [3:0] {
    StOff, StSlot, StLook, StJudge, StPause, StTake, StSum, StGive, StAsk, StFetch, StOver
  } state_e;
  localparam int unsigned Pause = 64;
  // Without pauses: the slot, a word, the four of the descriptor, the reader's rest before, between
  // and behind them, and the sums.
  localparam int unsigned Bound = 8 * Late + 12;

  logic         idle_o, bad_o, valid_o, over_o, stopped_o, error_o, arvalid_o;
  job_t         job_o;
  logic [31:0]  number_o;
  logic [63:0]  araddr_o;
  logic [7:0]   arlen_o;
  logic         past_q = 1'b0, up_q = 1'b0;

  job_ring u (.*);

  state_e      state, state_q;
  logic        known;                  // one of these
  assign state = state_e'(u.state_q);
  assign known = u.state_q <= StOver;

  // ---- The reader ----
  logic [2:0]        due_q;            // words that it has to give
  logic [2:0]        late_q, rest_q;   // clocks without one; clocks without idle behind the last
  logic              error_q, asked_q, rest_before_q;
  logic [127:0]      number_word_q;
  always_ff @(posedge clk_i) begin
    asked_q <= rst_ni && u.ask;
    error_q <= u.read_error;
    rest_before_q <= rst_ni && u.idle_o && !u.ask;
    if (!rst_ni || state == StOff) due_q <= '0;
    else if (u.ask) due_q <= u.whole ? 3'd4 : 3'd1;
    else if (u.word_valid) due_q <= due_q - 1'b1;
    late_q <= rst_ni && state != StOff && due_q != '0 && !u.word_valid ? late_q + 1'b1 : '0;
    rest_q <= rst_ni && due_q == '0 && !u.ask && !u.idle_o ? rest_q + 1'b1 : '0;
    if (u.word_valid && state == StLook) number_word_q <= u.word;
  end

  // ---- What the host sees ----
  logic               stays_q, over_q, run_q;
  job_t               job_q;
  logic               bad_q;
  logic [31:0]        number_q, left_q;
  logic [7:0]         busy_q, pause_q;
  logic               waiting_q, past_2_q = 1'b0;
  logic [63:0]        slot, address;
  descriptor_t        d;
  assign d    = u.descriptor_q;
  assign slot = u.given_q.ring +
                64'({number_o[15:0] & 16'(u.given_q.ring_entries[16:0] - 1'b1), 6'b0});
  assign address = {u.upper_q, u.lower_q[27:2], u.whole ? 2'd0 : 2'd3, 4'b0};
  always_ff @(posedge clk_i) begin
    past_q   <= 1'b1;
    up_q     <= rst_ni;
    past_2_q <= past_q;
    run_q    <= run_i;
    waiting_q <= rst_ni && waiting_i && run_i;
    state_q  <= state_e'(u.state_q);
    stays_q  <= rst_ni && run_i && valid_o && !ready_i;
    over_q   <= rst_ni && run_i && over_o;
    job_q    <= job_o;
    bad_q    <= bad_o;
    number_q <= number_o;
    left_q   <= u.left_q;
    pause_q  <= rst_ni && state == StPause ? pause_q + 1'b1 : '0;
    busy_q   <= rst_ni && !(state inside {StOff, StPause, StGive, StOver}) ? busy_q + 1'b1 : '0;
  end

  function automatic logic [63:0] behind(logic [63:0] base, logic [31:0] bytes);
    return base + 64'(bytes);
  endfunction

  logic beyond;  // a range of the descriptor ends behind what the run was given
  assign beyond = 33'(d.jpeg) + 33'(d.jpeg_bytes) > 33'(u.given_q.jpeg_bytes) ||
                  33'(d.tensor) + 33'(d.tensor_capacity) > 33'(u.given_q.tensor_capacity) ||
                  33'(d.program_at) + 33'(d.program_bytes) > 33'(u.given_q.program_bytes);

  // The most clocks that it may have taken to get where it is.
  int unsigned spent;
  always_comb begin
    unique case (state)
      StSlot:  spent = 32'(u.step_q);
      StAsk:   spent = 3 + 32'(rest_q);
      StLook:  spent = Late + 4 + 32'(late_q);
      StJudge: spent = 2 * Late + 4;
      StFetch: spent = 2 * Late + 5 + 32'(rest_q);
      StTake:  spent = due_q != '0 ? 3 * Late + 6 + (4 - 32'(due_q)) * Late + 32'(late_q)
                                   : 7 * Late + 6 + 32'(rest_q);
      StSum:   spent = 8 * Late + 7 + 32'(u.step_q);
      default: spent = Bound - 1;
    endcase
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_ring_is_aligned: assume (arguments_i.ring[5:0] == '0);
    m_words_are_due: assume (!u.word_valid || (due_q != '0 && state != StOff));
    m_word_in_time: assume (!rst_ni || due_q == '0 || u.word_valid || state == StOff ||
                            32'(late_q) + 32'd1 < Late);
    m_idle_owes_nothing: assume (!u.idle_o || due_q == '0);
    m_idle_in_time: assume (!rst_ni || due_q != '0 || u.idle_o || 32'(rest_q) + 32'd1 < Late);
    m_idle_stays: assume (!rest_before_q || u.idle_o);
    m_error_stays: assume (!error_q || asked_q || u.read_error);
    if (past_q) begin
      a_asks_for_the_slot: assert (!u.ask || address == slot + (u.whole ? 64'd0 : 64'd48));
      a_asks_when_idle: assert (!u.ask || u.idle_o);
      a_whole_behind_its_number: assert (!(u.ask && u.whole && up_q) ||
                                         number_word_q[127:96] == number_o);
      a_job_stays: assert (!stays_q || (valid_o && {job_o, bad_o, number_o} ==
                                                   {job_q, bad_q, number_q}));
      a_over_stays: assert (!over_q || over_o);
      a_bases_are_added: assert (!valid_o ||
          (job_o.jpeg == behind(u.given_q.jpeg, d.jpeg) &&
           job_o.tensor == behind(u.given_q.tensor, d.tensor) &&
           job_o.program_at == behind(u.given_q.program_at, d.program_at)));
      a_job_is_the_descriptor: assert (!valid_o ||
          {job_o.jpeg_bytes, job_o.tensor_capacity, job_o.program_bytes, job_o.stage, job_o.format,
           job_o.resize_short, job_o.crop_width, job_o.crop_height, job_o.crop_x, job_o.crop_y} ==
          {d.jpeg_bytes, d.tensor_capacity, d.program_bytes, d.stage, d.format,
           d.resize_short, d.crop_width, d.crop_height, d.crop_x, d.crop_y});
      a_bad_if_and_only_if: assert (!valid_o || bad_o == (d.zeros != '0 ||
                                    d.command > CommandStop || beyond));
      a_stop_was_said: assert (!(over_o && stopped_o) ||
                               (d.command == CommandStop && d.zeros == '0));
      a_over_has_one_reason: assert (!(stopped_o && error_o));
      a_number_counts_jobs: assert (!(up_q && state_q != StOff && state != StOff) ||
          number_o == number_q + 32'(state_q == StGive && state == StSlot) +
                      32'(state_q == StSum && state == StOver));
      a_looks_count: assert (!(state_q == StJudge && state == StPause && waiting_q) ||
                             u.left_q < left_q);
      a_job_in_time: assert (32'(busy_q) < Bound);
      a_pause_ends: assert (32'(pause_q) <= Pause);
      a_off_follows_the_run: assert (run_q || !past_2_q || state == StOff);
      a_unknown_leads_to_off: assert (known || state == StOff);
      h_known: assert (known);
      h_index: assert (state inside {StOff, StOver} || (state == StSlot && u.step_q == '0) ||
          u.index_q == (number_o[15:0] & 16'(u.given_q.ring_entries[16:0] - 1'b1)));
      h_lower: assert (state inside {StOff, StOver} || (state == StSlot && u.step_q <= 7'd1) ||
          {u.carry_q, u.lower_q} == {1'b0, u.given_q.ring[31:4]} + {11'b0, u.index_q, 2'b0});
      h_upper: assert (state inside {StOff, StOver, StSlot} ||
                       u.upper_q == u.given_q.ring[63:32] + 32'(u.carry_q));
      h_ring: assert (u.given_q.ring[5:0] == '0 || !past_2_q);
      h_slot: assert (state != StSlot || u.step_q <= 7'd2);
      h_sum: assert (state != StSum || u.step_q <= 7'd3);
      h_due: assert (state == StOff || (state == StLook ? due_q == 3'd1 :
                                        state == StTake ? due_q <= 3'd4 : due_q == '0));
      h_take: assert (state != StTake || u.step_q != '0 || due_q == 3'd4);
      h_pause: assert (state == StPause ? 32'(u.step_q) < Pause && pause_q == 8'(u.step_q) :
                                          32'(pause_q) <= Pause);
      h_late: assert (32'(late_q) < Late && 32'(rest_q) < Late);
      h_few: assert (state == StOff || u.few_q == (u.left_q[31:1] == '0));
      h_number: assert ((state != StJudge || (u.words_q[3] == number_word_q &&
                                              u.right == (number_word_q[127:96] == number_o))) &&
                        (state != StFetch || number_word_q[127:96] == number_o));
      h_sums: assert (!((state == StSum && u.step_q != '0) || state == StGive) ||
          ({u.jpeg_carry_q, u.jpeg_lower_q} == 33'(u.given_q.jpeg[31:0]) + 33'(d.jpeg) &&
           {u.tensor_carry_q, u.tensor_lower_q} ==
           33'(u.given_q.tensor[31:0]) + 33'(d.tensor) &&
           {u.program_carry_q, u.program_lower_q} ==
           33'(u.given_q.program_at[31:0]) + 33'(d.program_at) &&
           u.jpeg_end_q == 33'(d.jpeg) + 33'(d.jpeg_bytes) &&
           u.tensor_end_q == 33'(d.tensor) + 33'(d.tensor_capacity) &&
           u.program_end_q == 33'(d.program_at) + 33'(d.program_bytes) &&
           u.odd_q == (d.zeros != '0) && u.stops_q == (d.command == CommandStop)));
      h_job: assert (!((state == StSum && u.step_q > 7'd1) || state == StGive) ||
          (job_o.jpeg == {u.given_q.jpeg[63:32] + 32'(u.jpeg_carry_q), u.jpeg_lower_q} &&
           job_o.tensor == {u.given_q.tensor[63:32] + 32'(u.tensor_carry_q), u.tensor_lower_q} &&
           job_o.program_at ==
           {u.given_q.program_at[63:32] + 32'(u.program_carry_q), u.program_lower_q} &&
           bad_o == (u.odd_q || d.command > CommandStop ||
                     u.jpeg_end_q > 33'(u.given_q.jpeg_bytes) ||
                     u.tensor_end_q > 33'(u.given_q.tensor_capacity) ||
                     u.program_end_q > 33'(u.given_q.program_bytes)) &&
           {job_o.jpeg_bytes, job_o.tensor_capacity, job_o.program_bytes, job_o.stage,
            job_o.format, job_o.resize_short, job_o.crop_width, job_o.crop_height, job_o.crop_x,
            job_o.crop_y} ==
           {d.jpeg_bytes, d.tensor_capacity, d.program_bytes, d.stage, d.format,
            d.resize_short, d.crop_width, d.crop_height, d.crop_x, d.crop_y}));
      h_busy: assert (32'(busy_q) <= spent);
      c_gives: cover (valid_o && ready_i && !bad_o);
      c_gives_again: cover (valid_o && number_o == arguments_i.ring_first + 32'd1 && !bad_o);
      c_stops: cover (over_o && stopped_o);
      c_errs: cover (over_o && error_o);
      c_gives_up: cover (over_o && !stopped_o && !error_o);
    end
  end

endmodule
