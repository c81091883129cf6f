// The state machine of wav leads to its rest from any state and any field of the header.
//
// All that it reads of the data path is cut. Of the chunks that may be passed over one is: each
// other one is counted (a_chunks_count), and the machine takes no more than 64.
module f_wav_states (
  input logic clk_i,
  input logic start_i,
  input logic sound_ready_i
);

  // As wav has them.
  typedef enum logic [3:0] {
    Idle, Fetch, Look, Chunk, Skip, Size, Pad, Compare, Measure, Limit, Judge, Answer, Samples
  } state_e;
  typedef enum logic [3:0] {
    FieldRiff, FieldLength, FieldWave, FieldName, FieldSize, FieldForm, FieldRate, FieldByteRate,
    FieldBlock, FieldValidBits, FieldSpeakers, FieldGuid0, FieldGuid1, FieldGuid2, FieldGuid3
  } field_e;

  // verilator lint_off PINMISSING
  wav u (.clk_i, .rst_ni(1'b1), .start_i, .sound_ready_i);
  // verilator lint_on PINMISSING

  logic       seen_q;    // a chunk was passed over
  logic       past_q = 1'b0;
  logic [6:0] chunks_q;
  state_e     state, state_q;
  logic       four_moved, answer_moved, last_moved;
  logic [7:0] rank, pad, look, chunk;
  assign state = state_e'(u.state_q);

  always_comb begin
    chunk = seen_q ? 8'd5 : 8'd46;
    pad   = chunk + 8'd2;
    unique case (u.field_q)
      FieldGuid3:     look = pad + 8'd1;
      FieldGuid2:     look = pad + 8'd4;
      FieldGuid1:     look = pad + 8'd7;
      FieldGuid0:     look = pad + 8'd10;
      FieldSpeakers:  look = pad + 8'd13;
      FieldValidBits: look = pad + 8'd16;
      FieldBlock:     look = pad + 8'd19;
      FieldByteRate:  look = pad + 8'd22;
      FieldRate:      look = pad + 8'd25;
      FieldForm:      look = pad + 8'd28;
      FieldSize:      look = pad + 8'd32;
      FieldName:      look = pad + 8'd35;
      FieldWave:      look = chunk + 8'd1;
      FieldLength:    look = chunk + 8'd4;
      FieldRiff:      look = chunk + 8'd7;
      default:        look = chunk + 8'd10;
    endcase
    unique case (state)
      Idle:    rank = 8'd0;
      Samples: rank = 8'd1 + 8'(last_moved);
      Answer:  rank = 8'd3 + 8'(answer_moved);
      Judge:   rank = 8'd5;
      Limit:   rank = 8'd6;
      Measure: rank = 8'd7;
      Chunk:   rank = chunk;
      Skip:    rank = 8'd45;  // one was passed over
      Compare: rank = chunk + 8'd1;
      Pad:     rank = pad;
      Look:    rank = look;
      Fetch:   rank = look + 8'd1 + 8'(four_moved);
      Size:    rank = look + 8'd3;
      default: rank = 8'd1;
    endcase
  end

  state_checker #(.Moves(3)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({u.four_valid, sound_ready_i, u.last_taken}),
    .moved_o({four_moved, answer_moved, last_moved})
  );

  always_ff @(posedge clk_i) begin
    past_q   <= 1'b1;
    state_q  <= state;
    chunks_q <= u.chunks_q;
    seen_q   <= state != Idle && (seen_q || state == Chunk);
  end

  always_comb begin
    m_one_chunk: assume (!(state == Chunk && seen_q) || u.beyond_q);
    // Behind it a chunk has been passed over.
    m_skip_is_seen: assume (past_q || state != Skip || seen_q);
    if (past_q) begin
      a_chunks_count: assert (!(state_q == Chunk && state == Skip) ||
                              (chunks_q != 7'd64 && u.chunks_q == chunks_q + 7'd1));
      h_skip_is_seen: assert (state != Skip || seen_q);
      c_skips: cover (state_q == Skip && state == Fetch);
    end
  end

endmodule
