// Checks that a state machine leads to its rest from any state, also from codes that are none.
//
// Method      `rank_i` is a bound of the clocks to the rest, where it is 0. It falls in each clock,
//             so the machine rests within the greatest rank, and no state or loop of states
//             absorbs. The machine's registers begin with any values, with no reset before.
// Assumes     each of `moves_i` is high in one of two clocks: an event that a state waits for. So
//             what a state waits for makes up two ranks, or one if it was missing a clock ago
//             (`moved_o` is low).
module state_checker #(
  parameter int unsigned Moves    = 1,
  parameter int unsigned RankBits = 8
) (
  input  logic                clk_i,
  input  logic [RankBits-1:0] rank_i,
  input  logic [Moves-1:0]    moves_i,
  output logic [Moves-1:0]    moved_o   // a clock ago
);

  logic                past_q = 1'b0;
  logic [RankBits-1:0] rank_q;

  always_ff @(posedge clk_i) begin
    past_q  <= 1'b1;
    rank_q  <= rank_i;
    moved_o <= moves_i;
  end

  always_comb begin
    m_inputs_move: assume ((moves_i | moved_o) == '1);
    if (past_q) begin
      a_nearer_to_rest: assert (rank_q == '0 || rank_i < rank_q);
      c_rests: cover (rank_q != '0 && rank_i == '0);
      c_waits: cover (rank_q != '0 && rank_i == rank_q - 1'b1 && moved_o != '1);
    end
  end

endmodule
