// Resample: a sound at one of eight rates to 16 kHz, by a polyphase FIR.
//
// Reference   resample.cpp.
// Interface   sound and samples in and out, as in audio_pkg. With `load_valid_i`, which goes before
//             a sound, the taps of `load_rate_i` are taken from memory's words (taps_table of
//             host/dpu/units/audio_tables.py); they are kept until the next load. A sound's rate is
//             the one loaded, or 16 kHz.
// Throughput  a sample in or out a clock; at 8 and 11.025 kHz, one in in two clocks. Latency 39
//             clocks to the sound, 6 of a sample besides those that the filter wants (44 outputs'
//             time, 88 with two passes); a load of 9,705 clocks at 22.05 and 44.1 kHz, 19,407 at
//             11.025 kHz, 69 at most at the others.
// Limits      what wav lets pass: below 2^25 samples.
// Bad input   there is none; upstream errors pass.
module resample
  import headrace_pkg::*;
  import audio_pkg::*;
  import resample_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic [2:0]   load_rate_i,
  input  logic         load_valid_i,
  output logic         load_ready_o,
  input  logic [127:0] table_i,
  input  logic         table_valid_i,
  output logic         table_ready_o,

  input  sound_t       sound_i,
  input  logic         sound_valid_i,
  output logic         sound_ready_o,
  input  pcm_t         pcm_i,
  input  logic         pcm_valid_i,
  output logic         pcm_ready_o,

  output sound_t       sound_o,
  output logic         sound_valid_o,
  input  logic         sound_ready_i,
  output sample_t      sample_o,
  output logic         sample_valid_o,
  input  logic         sample_ready_i
);

  localparam int unsigned OutputDepth = 16;  // more than the steps under way

  typedef enum logic [2:0] {
    Idle,
    Load,
    Count,
    Answer,
    Steps
  } state_e;

  state_e  state_q;
  sound_t  sound_q;
  ratio_t  ratio, load_ratio, ratio_q;
  logic    load, load_starts, load_idle, sound_taken, count_done, ended;
  logic [9:0]  load_words_q;
  logic [23:0] count;

  assign load_ready_o  = state_q == Idle && load_idle;
  assign sound_ready_o = state_q == Idle && load_idle && !load_valid_i;
  assign load          = load_valid_i && load_ready_o;
  assign sound_taken   = sound_valid_i && sound_ready_o;
  assign load_ratio    = Ratio[load_rate_i];
  assign ratio         = Ratio[sound_i.rate];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= Idle;
    end else begin
      unique case (state_q)
        Idle: begin
          if (load && load_ratio.filtered) state_q <= Load;
          else if (sound_taken) state_q <= sound_i.status == StatusOk ? Count : Answer;
        end
        Load:    state_q <= Idle;
        Count:   if (count_done) state_q <= Answer;
        Answer: begin
          if (sound_ready_i) begin
            state_q <= sound_q.status == StatusOk && sound_q.count != '0 ? Steps : Idle;
          end
        end
        Steps:   if (ended) state_q <= Idle;
        default: state_q <= Idle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Idle) begin
      sound_q <= sound_i;
      ratio_q <= ratio;
    end else if (state_q == Count && count_done) begin
      sound_q.count <= 32'(count);
    end
    load_words_q <= 10'(load_ratio.down) << load_ratio.twice;
  end

  assign sound_o       = sound_q;
  assign sound_valid_o = state_q == Answer;
  assign load_starts   = state_q == Load;

  resample_count u_count (
    .clk_i,
    .rst_ni,
    .start_i(sound_taken && sound_i.status == StatusOk),
    .count_i(sound_i.count[24:0]),
    .up_i   (ratio.up),
    .down_i (ratio.down),
    .done_o (count_done),
    .count_o(count)
  );

  // ---- Steps: an input, or zero behind the last, by a word of taps ----
  logic [24:0] inputs_q;    // not yet taken
  logic [23:0] outputs_q;   // not yet complete
  logic [6:0]  unwanted_q;  // outputs before the first sample, under way at the start
  logic [9:0]  word_q;      // of the taps
  logic        second_q;    // pass for this input
  logic        odd_q;       // outputs of this pass
  logic [1:0]  first_q;     // [even or odd]: no step yet
  logic [1:0]  move_q;      // [even or odd]: the oldest is complete
  logic        more_q;      // inputs_q is not 0
  logic        fire, wants, complete, gives;
  logic        room_q;
  logic [$clog2(OutputDepth):0] places_q;  // in the queue, that no step has a claim on

  assign wants       = !second_q && more_q;
  assign fire        = state_q == Steps && room_q && outputs_q != '0 && (!wants || pcm_valid_i);
  assign pcm_ready_o = state_q == Steps && room_q && outputs_q != '0 && wants;
  assign complete    = word_q < ratio_q.up;
  assign gives       = complete && unwanted_q == '0;
  assign ended       = outputs_q == '0;

  always_ff @(posedge clk_i) begin
    if (state_q == Idle) begin
      inputs_q   <= sound_i.count[24:0];
      more_q     <= sound_i.count[24:0] != '0;
      unwanted_q <= ratio.filtered ? 7'(Lanes / 2) << ratio.twice : '0;
      word_q     <= '0;
      second_q   <= 1'b0;
      odd_q      <= 1'b0;
      first_q    <= '1;
    end else if (fire) begin
      if (wants) inputs_q <= inputs_q - 25'd1;
      if (wants) more_q <= inputs_q != 25'd1;
      if (complete && !gives) unwanted_q <= unwanted_q - 7'd1;
      first_q[odd_q] <= 1'b0;
      move_q[odd_q]  <= complete;
      // The pass with the older output goes first, and always completes it.
      second_q <= ratio_q.twice && !second_q;
      odd_q    <= odd_q ^ (ratio_q.twice && (!second_q || complete));
      if (ratio_q.twice && !second_q) word_q <= word_q + 10'(ratio_q.down);
      else word_q <= word_q - ratio_q.up + (complete ? 10'(ratio_q.down) : '0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Answer) outputs_q <= sound_q.count[23:0];
    else if (fire && gives) outputs_q <= outputs_q - 24'd1;
  end

  // ---- Through memory and multipliers into the queue ----
  step_t [3:1] step_q;
  logic  [3:1] valid_q;
  logic  [9:0] address_q;
  logic [Lanes-1:0][TapBits-1:0] taps;
  sample_t sample;
  logic    sample_valid, queue_ready;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q <= '0;
    else valid_q <= {valid_q[2:1], fire};
  end

  always_ff @(posedge clk_i) begin
    step_q[3:2]        <= step_q[2:1];
    step_q[1].odd      <= odd_q;
    step_q[1].first    <= first_q[odd_q];
    step_q[1].move     <= move_q[odd_q];
    step_q[1].filtered <= ratio_q.filtered;
    step_q[1].gives    <= gives;
    if (!second_q) step_q[1].x <= more_q ? pcm_i : '0;
    address_q          <= word_q;
  end

  resample_taps u_taps (
    .clk_i,
    .rst_ni,
    .load_i      (load_starts),
    .words_i     (load_words_q),
    .idle_o      (load_idle),
    .word_i      (table_i),
    .word_valid_i(table_valid_i),
    .word_ready_o(table_ready_o),
    .address_i   (address_q),
    .taps_o      (taps)
  );

  resample_lanes u_lanes (
    .clk_i,
    .rst_ni,
    .step_i        (step_q[3]),
    .step_valid_i  (valid_q[3]),
    .taps_i        (taps),
    .sample_o      (sample),
    .sample_valid_o(sample_valid)
  );

  logic claim, leave;
  assign claim = fire && gives;
  assign leave = sample_valid_o && sample_ready_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      places_q <= ($clog2(OutputDepth) + 1)'(OutputDepth);
      room_q   <= 1'b0;
    end else begin
      if (claim && !leave) places_q <= places_q - 1'b1;
      else if (leave && !claim) places_q <= places_q + 1'b1;
      // The step of this clock may take the last but one.
      room_q   <= places_q > ($bits(places_q))'(1);
    end
  end

  stream_fifo #(.Width($bits(sample_t)), .Depth(OutputDepth)) u_queue (
    .clk_i,
    .rst_ni,
    .data_i (sample),
    .valid_i(sample_valid),
    .ready_o(queue_ready),
    .data_o (sample_o),
    .valid_o(sample_valid_o),
    .ready_i(sample_ready_i),
    .count_o()
  );

`ifndef SYNTHESIS
  // What is loaded, and that a sound has it.
  logic [2:0] loaded_q;
  always_ff @(posedge clk_i) if (load) loaded_q <= load_rate_i;
  a_taps_are_the_rates: assert property (@(posedge clk_i) disable iff (!rst_ni)
    sound_taken && sound_i.status == StatusOk && ratio.filtered |-> loaded_q == sound_i.rate);
  a_count_fits: assert property (@(posedge clk_i) disable iff (!rst_ni)
    sound_taken && sound_i.status == StatusOk |-> sound_i.count[31:25] == '0);
  a_queue_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
      sample_valid |-> queue_ready);
  a_older_pass_completes: assert property (@(posedge clk_i) disable iff (!rst_ni)
    fire && ratio_q.twice && !second_q |-> complete);
  a_all_inputs_are_taken: assert property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == Steps && ended |-> !more_q);
  a_sound_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    sound_valid_o && !sound_ready_i |=> sound_valid_o && $stable(sound_o));
  a_sample_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    sample_valid_o && !sample_ready_i |=> sample_valid_o && $stable(sample_o));
`endif

endmodule
