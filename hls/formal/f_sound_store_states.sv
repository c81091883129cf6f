// The state machine of sound_store leads to its rest from any state and any step of StSize. All
// that it reads of the data path is cut.
module f_sound_store_states (
  input logic clk_i,
  input logic start_i,
  input logic sound_valid_i
);

  // As sound_store has them.
  typedef enum logic [2:0] {
    StIdle, StSound, StSize, StTake, StDrain, StSums, StWrite
  } state_e;

  // verilator lint_off PINMISSING
  sound_store u (.clk_i, .rst_ni(1'b1), .start_i, .sound_valid_i);
  // verilator lint_on PINMISSING

  logic       sound_moved, values_moved, sums_moved, written_moved;
  logic [7:0] rank;

  always_comb begin
    unique case (state_e'(u.state_q))
      StIdle:          rank = 8'd0;
      StWrite:         rank = 8'd1 + 8'(written_moved);
      StSums:          rank = 8'd3 + 8'(sums_moved);
      StTake, StDrain: rank = 8'd5 + 8'(values_moved);
      StSize:          rank = 8'd7 + 8'({3'd5 - u.step_q});
      StSound:         rank = 8'd15 + 8'(sound_moved);
      default:         rank = 8'd1;
    endcase
  end

  state_checker #(.Moves(4)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({sound_valid_i, u.take_value && u.last_value_q, u.moves && u.last_band,
              u.pipe_empty && !u.command_q && u.writer_idle}),
    .moved_o({sound_moved, values_moved, sums_moved, written_moved})
  );

endmodule
