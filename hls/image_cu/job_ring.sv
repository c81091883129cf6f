// Fetches jobs from a ring of descriptors in device memory, one ahead of the job that runs.
//
// Reference   image_cu.hpp has the descriptor. The host writes its number last; a slot holds a new
//             job if the number there is that of the job that comes next. So the number is read
//             first, by itself, and when it is right the whole descriptor: what was written before
//             the number is then there, in whatever order memory serves the words.
// Interface   `run_i` stands as long as the run: the arguments are taken when it rises, and what is
//             under way when it falls is waited for; `idle_o` is then up again. `valid_o` and
//             `ready_i` hand a job over: arguments with the bases added, its number, and whether it
//             is bad. `over_o` rises when no more jobs come: behind a job that says stop, after
//             `polls_i` looks in a row at an empty slot while `waiting_i`, or if memory answered
//             with an error; the number is then that of the first job that was not taken.
// Throughput  a job in two latencies of memory and some 20 clocks, beside the job before it.
// Latency     of a job that is written while nothing runs, at most PauseClocks and three latencies.
// Bad input   a command that is unknown, words that must be zero and are not, or a range beyond
//             what the run was given: `bad_o`; the next jobs are not affected.
module job_ring
  import image_cu_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         run_i,
  input  arguments_t   arguments_i,
  input  logic         waiting_i,  // no job runs
  output logic         idle_o,

  output job_t         job_o,
  output logic         bad_o,
  output logic [31:0]  number_o,
  output logic         valid_o,
  input  logic         ready_i,
  output logic         over_o,
  output logic         stopped_o,  // why: a job said so
  output logic         error_o,    // why: an error of memory

  output logic [63:0]  araddr_o,
  output logic [7:0]   arlen_o,
  output logic         arvalid_o,
  input  logic         arready_i,
  input  logic [127:0] rdata_i,
  input  logic [1:0]   rresp_i,
  input  logic         rlast_i,
  input  logic         rvalid_i
);

  // Between two looks: the CU's other reads have the memory, too.
  localparam int unsigned PauseClocks = 64;

  // Bit 3 tells that something is asked for: a single bit, as it goes to all of the reader.
  typedef enum logic [3:0] {
    StOff   = 4'd0,
    StSlot  = 4'd1,   // where the next job's descriptor lies, three clocks
    StLook  = 4'd2,   // until its number comes
    StJudge = 4'd3,   // is it the next job's?
    StPause = 4'd4,   // it is not
    StTake  = 4'd5,   // until the descriptor has come
    StSum   = 4'd6,   // bases are added and ranges compared, four clocks
    StGive  = 4'd7,   // until the job is taken
    StAsk   = 4'd8,   // its number is asked for
    StFetch = 4'd9,   // the descriptor is asked for
    StOver  = 4'd10
  } state_e;

  state_e     state_q, state_d;
  logic [6:0] step_q;  // clocks in this state, where they count
  logic       steps;   // this state stays, and its clocks count

  // ---- What the run was given ----
  arguments_t  given_q;
  logic [31:0] left_q;    // looks that may still fail

  always_ff @(posedge clk_i) if (state_q == StOff) given_q <= arguments_i;

  // ---- The slot: the address is added in two parts, a clock each ----
  logic [15:0] index_q;
  logic [27:0] lower_q;   // word address
  logic [31:0] upper_q;
  logic        carry_q;

  always_ff @(posedge clk_i) begin
    index_q            <= number_o[15:0] & 16'(given_q.ring_entries[16:0] - 1'b1);
    {carry_q, lower_q} <= {1'b0, given_q.ring[31:4]} + {10'b0, index_q, 2'b0};
    upper_q            <= given_q.ring[63:32] + 32'(carry_q);
  end

  // ---- Reading ----
  logic         ask, word_valid, read_error, whole;
  logic         off_q;  // StOff a clock ago: in a register, as it goes to all of the reader
  logic [127:0] word;

  always_ff @(posedge clk_i) off_q <= state_q == StOff;

  assign whole = state_q == StFetch;
  assign ask   = state_q[3] && !state_q[1] && idle_o;

  axi_read #(.BurstWords(4), .Depth(8)) u_read (
    .clk_i,
    .rst_ni,
    .start_i     (ask),
    .address_i   ({upper_q, lower_q[27:2], whole ? 2'd0 : 2'd3, 4'b0}),
    .words_i     (whole ? 29'd4 : 29'd1),
    .stop_i      (off_q),
    .idle_o,
    .error_o     (read_error),
    .word_o      (word),
    .word_valid_o(word_valid),
    .word_ready_i(1'b1),
    .araddr_o,
    .arlen_o,
    .arsize_o    (),
    .arburst_o   (),
    .arvalid_o,
    .arready_i,
    .rdata_i,
    .rresp_i,
    .rlast_i,
    .rvalid_i,
    .rready_o    ()
  );

  // ---- The descriptor ----
  descriptor_t descriptor_q;
  logic [3:0][127:0] words_q;  // shifted in, the first one ends at [0]

  always_ff @(posedge clk_i) if (word_valid) words_q <= {word, words_q[3:1]};
  assign descriptor_q = words_q;

  // ---- Bases are added in two parts; a range must end within what the run was given ----
  logic [31:0] jpeg_lower_q, tensor_lower_q, program_lower_q;
  logic        jpeg_carry_q, tensor_carry_q, program_carry_q;
  logic [32:0] jpeg_end_q, tensor_end_q, program_end_q;
  logic        odd_q, stops_q;

  always_ff @(posedge clk_i) begin
    {jpeg_carry_q, jpeg_lower_q}     <= {1'b0, given_q.jpeg[31:0]} + {1'b0, descriptor_q.jpeg};
    {tensor_carry_q, tensor_lower_q} <= {1'b0, given_q.tensor[31:0]} + {1'b0, descriptor_q.tensor};
    {program_carry_q, program_lower_q} <= {1'b0, given_q.program_at[31:0]} +
                                          {1'b0, descriptor_q.program_at};
    program_end_q <= {1'b0, descriptor_q.program_at} + {1'b0, descriptor_q.program_bytes};
    jpeg_end_q   <= {1'b0, descriptor_q.jpeg} + {1'b0, descriptor_q.jpeg_bytes};
    tensor_end_q <= {1'b0, descriptor_q.tensor} + {1'b0, descriptor_q.tensor_capacity};
    odd_q        <= descriptor_q.zeros != '0;
    stops_q      <= descriptor_q.command == CommandStop;
    bad_o        <= odd_q || descriptor_q.command > CommandStop ||
                    jpeg_end_q > {1'b0, given_q.jpeg_bytes} ||
                    tensor_end_q > {1'b0, given_q.tensor_capacity} ||
                    program_end_q > {1'b0, given_q.program_bytes};
    job_o.jpeg            <= {given_q.jpeg[63:32] + 32'(jpeg_carry_q), jpeg_lower_q};
    job_o.jpeg_bytes      <= descriptor_q.jpeg_bytes;
    job_o.tensor          <= {given_q.tensor[63:32] + 32'(tensor_carry_q), tensor_lower_q};
    job_o.tensor_capacity <= descriptor_q.tensor_capacity;
    job_o.stage           <= descriptor_q.stage;
    job_o.format          <= descriptor_q.format;
    job_o.resize_short    <= descriptor_q.resize_short;
    job_o.crop_width      <= descriptor_q.crop_width;
    job_o.crop_height     <= descriptor_q.crop_height;
    job_o.crop_x          <= descriptor_q.crop_x;
    job_o.crop_y          <= descriptor_q.crop_y;
    job_o.program_at      <= {given_q.program_at[63:32] + 32'(program_carry_q), program_lower_q};
    job_o.program_bytes   <= descriptor_q.program_bytes;
  end

  // ---- Control ----
  logic        few_q;   // left_q is 0 or 1
  logic [15:0] same_q;  // two bits each of the last word's number are as they should
  logic        right, stops, last_look;

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < 16; i++) same_q[i] <= word[96+2*i+:2] == number_o[2*i+:2];
  end

  assign right     = same_q == '1;
  assign stops     = state_q == StSum && step_q[1:0] == 2'd3 && stops_q && !odd_q && run_i;
  assign last_look = waiting_i && few_q;
  assign valid_o   = state_q == StGive;
  assign over_o    = state_q == StOver;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StOff:   if (run_i) state_d = StSlot;
      StSlot:  if (step_q[1:0] == 2'd2) state_d = StAsk;
      StAsk:   if (ask) state_d = StLook;
      StLook:  if (word_valid) state_d = StJudge;
      StJudge: state_d = read_error ? StOver : right ? StFetch : last_look ? StOver : StPause;
      StPause: if (step_q[5:0] == 6'(PauseClocks - 1)) state_d = StAsk;
      StFetch: if (ask) state_d = StTake;
      StTake:  if (idle_o && step_q != '0) state_d = read_error ? StOver : StSum;
      StSum:   if (step_q[1:0] == 2'd3) state_d = stops_q && !odd_q ? StOver : StGive;
      StGive:  if (ready_i) state_d = StSlot;
      StOver:  ;
      default: state_d = StOff;
    endcase
    if (!run_i) state_d = StOff;
  end

  // Not by `state_d`, which is known late.
  always_comb begin
    unique case (state_q)
      StSlot:  steps = step_q[1:0] != 2'd2;
      StPause: steps = step_q[5:0] != 6'(PauseClocks - 1);
      StTake:  steps = !idle_o || step_q == '0;
      StSum:   steps = step_q[1:0] != 2'd3;
      default: steps = 1'b0;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q   <= StOff;
      step_q    <= '0;
      stopped_o <= 1'b0;
      error_o   <= 1'b0;
    end else begin
      state_q <= state_d;
      step_q  <= !steps ? '0 : step_q[6] ? step_q : step_q + 1'b1;
      if (state_q == StOff) begin
        stopped_o <= 1'b0;
        error_o   <= 1'b0;
      end else if (state_d == StOver && state_q != StOver) begin
        stopped_o <= state_q == StSum;
        error_o   <= state_q != StSum && read_error;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StOff) number_o <= arguments_i.ring_first;
    else if ((valid_o && ready_i) || stops) number_o <= number_o + 1'b1;
    if (!waiting_i || state_q == StOff || state_q == StGive) begin
      left_q <= given_q.polls;
      few_q  <= given_q.polls[31:1] == '0;
    end else if (state_q == StJudge && !right) begin
      left_q <= left_q - 1'b1;
      few_q  <= left_q[31:2] == '0 && (left_q[0] ^ left_q[1]);  // 1 or 2
    end
  end

`ifndef SYNTHESIS
  a_valid_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      valid_o && !ready_i && run_i |=> valid_o && $stable({job_o, bad_o, number_o}));
`endif

endmodule
