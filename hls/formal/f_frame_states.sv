// The registers of frame that say what it does lead to the end of a frame from any values, as long
// as frames are left: neither its ring nor what fills it stands still. Without frames it takes the
// samples that are left. `start_i` is low, and the memories and the mean are cut.
//
// Method      a pair of samples counts as in the ring five clocks after it was made, or six, at
//             most four clocks behind the one before. A frame is read when its pairs are there,
//             and has 128 clocks.
// Assumes     of two clocks one has a sample, and one has both room for a frame and its mean.
module f_frame_states
  import mel_pkg::*;
(
  input logic       clk_i,
  input logic [1:0] ends_i,
  input logic       sample_valid_i,
  input logic       room_i
);

  localparam int unsigned Needed = 200, Frame = 128, Stages = 5, PairClocks = 4;
  localparam int unsigned Wait   = Frame + 2;              // a whole frame, and for its begin
  localparam int unsigned Most   = Wait + Stages + 1 + PairClocks * (Needed + 2);

  logic sample_ready_o;

  // verilator lint_off PINMISSING
  frame u (
    .clk_i, .ends_i, .sample_valid_i, .room_i, .sample_ready_o,
    .rst_ni(1'b1), .load_i(1'b0), .start_i(1'b0)
  );
  // verilator lint_on PINMISSING

  logic        sample_moved, begin_moved, begins, past_q = 1'b0;
  logic [1:0]  ends_q;
  logic [9:0]  needed;
  logic [7:0]  missing;      // pairs that are not made yet
  logic [7:0]  comes, here;  // clocks until the last missing pair counts; pairs by then
  logic [5:1]  on_way;       // pairs, the oldest at the highest place
  logic [7:0]  next;         // clocks until the next pair is made
  logic [11:0] rank;
  assign begins = room_i && u.mean_ready;
  assign needed = 10'(Needed) + 10'(u.mirrored);
  assign on_way = u.mirrored ? u.write_q : {u.write_q[4:1], 1'b0};

  always_comb begin
    // The pairs on their way, from the oldest.
    here  = '0;
    comes = '0;
    for (int unsigned i = 1; i <= Stages; i++) begin
      if (on_way[Stages+1-i]) begin
        here = here + 8'd1;
        if (10'(here) + u.level_q == needed) comes = 8'(i);
      end
    end
    missing = 8'(needed - u.level_q) - here;

    if (u.front_q || (!u.more_q && !u.mirrored)) next = 8'd1;
    else if (!u.more_q) next = u.odd_q ? 8'd1 : 8'd2;
    else next = (u.odd_q ? 8'd1 : 8'd3) + 8'(sample_moved);
    if (!u.space_q) next = 8'd5;

    if (!u.running_q || u.read_end) rank = '0;
    else if (u.reading_q) rank = 12'd127 - 12'(u.number_q);
    else if (u.level_q == '1 && begin_moved) rank = 12'(Most);  // it may wrap
    else if (u.level_q >= needed) rank = 12'(Frame) + 12'(begin_moved);
    else if (comes != '0) rank = 12'(Wait) + 12'(comes);
    else rank = 12'(Wait + Stages) + 12'(PairClocks) * 12'(missing - 8'd1) + 12'(next);
  end

  state_checker #(.Moves(2), .RankBits(12)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({sample_valid_i, begins}),
    .moved_o({sample_moved, begin_moved})
  );

  always_ff @(posedge clk_i) begin
    past_q <= 1'b1;
    ends_q <= ends_i;
  end
  always_comb begin
    m_settings_stay: assume (!past_q || ends_i == ends_q);
    if (past_q) begin
      a_takes_what_is_left: assert (u.running_q || !u.given_q || sample_ready_o);
      c_reads: cover (u.read_end);
    end
  end

endmodule
