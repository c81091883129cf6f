// The state machine of mel leads to its rest from any state and any count of the division. All that
// it reads of the data path is cut.
module f_mel_states (
  input logic clk_i,
  input logic program_valid_i,
  input logic sound_valid_i,
  input logic frames_ready_i,
  input logic value_ready_i
);

  // As mel has them.
  typedef enum logic [2:0] {
    StLoad, StSound, StLimit, StDivide, StFrames, StRun, StDrain
  } state_e;

  // verilator lint_off PINMISSING
  mel u (.clk_i, .rst_ni(1'b1), .program_valid_i, .sound_valid_i, .frames_ready_i, .value_ready_i);
  // verilator lint_on PINMISSING

  logic       sound_moved, frames_moved, run_moved, idle_moved, run_ends;
  logic [7:0] rank;
  assign run_ends = u.value_valid_o && value_ready_i && u.value_last && u.frames_left_q == 28'd1;

  always_comb begin
    unique case (state_e'(u.state_q))
      StLoad:   rank = 8'd0;
      StDrain:  rank = 8'd1 + 8'(idle_moved);
      StRun:    rank = 8'd3 + 8'(run_moved);
      StFrames: rank = 8'd5 + 8'(frames_moved);
      StDivide: rank = 8'd7 + 8'(u.bits_left_q);
      StLimit:  rank = 8'd39 + 8'({2'd2 - u.limit_q});
      StSound:  rank = 8'd43 + 8'(sound_moved);
      default:  rank = 8'd1;
    endcase
  end

  state_checker #(.Moves(4)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({sound_valid_i, frames_ready_i, run_ends, u.frames_idle}),
    .moved_o({sound_moved, frames_moved, run_moved, idle_moved})
  );

endmodule
