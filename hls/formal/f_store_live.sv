// The liveness of store: while it is not idle, its state changes, or a frame, a beat, an address, a
// word or an answer moves within Bound clocks, if memory and the units in front of it let none wait
// for Late clocks. So each run ends: its beats are those of a frame, and f_store shows that the
// rest of what moves is counted by them.
//
// Method      `rank` is the least of the bounds that the registers give of the clocks to the next
//             move: what memory or the source lets wait, a burst that is due, a word on its way
//             through its queue, room that is not yet seen. It falls in each clock without a move.
module f_store_live
  import headrace_pkg::*;
#(
  parameter int unsigned Late  = 3,
  parameter int unsigned Bytes = 16  // of a word
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

  typedef enum logic [2:0] {
    StIdle, StFrame, StSize, StTake, StDrain, StFlush, StWrite
  } state_e;  // as store has them

  localparam int unsigned Due   = 7;              // clocks in which a burst that is due is issued
  localparam int unsigned Bound = Late + Due + 4; // and three in which beats are packed

  f_store #(.Bytes(Bytes)) u_store (.*);

  state_e     state;
  logic       owes, lacks, moves, past_q = 1'b0, moved_q, empty;
  logic [2:0] source_late_q, address_late, word_late, answer_late;
  logic [7:0] rank, rank_q, rounds;
  logic [2:0] due, full;
  assign state = state_e'(u_store.u.state_q);
  assign owes  = u_store.u_check.unanswered_q > u_store.u_check.unwritten_q &&
                 u_store.u_check.unanswered_q > 7'(u_store.u_check.aw_waits_q);
  assign lacks = (u_store.frame_ready_o && !frame_valid_i) ||
                 (u_store.sample_ready_o && !sample_valid_i);
  assign moves = u_store.u.take_frame || u_store.u.take_sample || bvalid_i ||
                 (u_store.awvalid_o && awready_i) || (u_store.wvalid_o && wready_i) ||
                 u_store.u.state_d != u_store.u.state_q;
  assign empty = u_store.packing == '0 && u_store.packed_q == '0 && u_store.packed_2_q == '0;

  axi_memory_answers #(.Late(Late)) u_memory (
    .clk_i, .rst_ni,
    .asks_i  (u_store.awvalid_o), .takes_i  (awready_i),
    .writes_i(u_store.wvalid_o),  .stores_i (wready_i),
    .owes_i  (owes),              .answers_i(bvalid_i),
    .address_late_o(address_late), .word_late_o(word_late), .answer_late_o(answer_late)
  );

  // Each plane: whether it has a burst, whether it is too full for more beats, and the clocks until
  // its queue shows a word.
  logic [2:0][7:0] shows;
  for (genvar p = 0; p < 3; p++) begin : gen_plane
    assign due[p]  = 32'(u_store.u.waiting_q[p]) + 32'(u_store.u.next_q[p][1:0]) >= 32'd4 ||
                     (state == StWrite && u_store.u.waiting_q[p] != '0);
    assign full[p] = u_store.u.fifo_count[p] >= 5'd8;
    assign shows[p] = u_store.u.fifo_valid[p] ? 8'd0 :
                      u_store.u.gen_plane[p].u_fifo.output_valid_q ? 8'd1 :
                      u_store.u.gen_plane[p].u_fifo.read_valid_q ? 8'd2 : 8'd3;
  end

  function automatic logic [7:0] rounds_from(logic [1:0] plane, logic [2:0] planes);
    logic [1:0] next, last;
    next = plane == 2'd2 ? 2'd0 : plane + 2'd1;
    last = next == 2'd2 ? 2'd0 : next + 2'd1;
    if (planes[plane]) return 8'd2;
    if (planes[next]) return 8'd4;
    return planes[last] ? 8'd6 : 8'd100;
  endfunction

  function automatic logic [7:0] least(logic [7:0] a, logic [7:0] b);
    return a < b ? a : b;
  endfunction

  always_comb begin
    if (!u_store.u.sized_q) rounds = rounds_from(u_store.u.plane_q, due);
    else if (u_store.u.due_q) rounds = 8'd1;
    else rounds = 8'd1 + rounds_from(u_store.u.plane_q == 2'd2 ? 2'd0 : u_store.u.plane_q + 2'd1,
                                     due);
    rank = 8'd200;
    if (u_store.awvalid_o) rank = least(rank, 8'(Late) - 8'(address_late));
    if (u_store.wvalid_o) rank = least(rank, 8'(Late) - 8'(word_late));
    if (owes) rank = least(rank, 8'(Late) - 8'(answer_late));
    if (u_store.job_count != '0 && !u_store.wvalid_o)
      rank = least(rank, 8'(Late) + (u_store.u.job_valid ? 8'd1 : 8'd2) +
                         shows[u_store.job_plane_q[0]]);
    if (u_store.job_count == '0 && !u_store.awvalid_o && u_store.u.outstanding_q != '1)
      rank = least(rank, 8'(Late) + rounds);
    unique case (state)
      StFrame, StDrain: rank = least(rank, 8'(Late) - 8'(source_late_q));
      StSize:           rank = least(rank, 8'd5 - 8'(u_store.u.step_q));
      StFlush:          rank = least(rank, 8'd6 - 8'(u_store.u.step_q));
      StTake: begin
        if (u_store.packing != '0) rank = least(rank, 8'(Late + Due) + 8'd4);
        else if (u_store.packed_q != '0) rank = least(rank, 8'(Late + Due) + 8'd3);
        else if (u_store.packed_2_q != '0) rank = least(rank, 8'(Late + Due) + 8'd2);
        else if (full != '0) rank = least(rank, 8'd200);
        else if (u_store.u.roomy_q != '1) rank = least(rank, 8'(Late) + 8'd2);
        else if (!u_store.u.room_q) rank = least(rank, 8'(Late) + 8'd1);
        else rank = least(rank, 8'(Late) - 8'(source_late_q));
      end
      StWrite: if (u_store.u.written) rank = 8'd1;
      default: rank = '0;
    endcase
  end

  always_ff @(posedge clk_i) begin
    past_q        <= 1'b1;
    rank_q        <= rank;
    moved_q       <= moves || !rst_ni || u_store.idle_o;
    source_late_q <= rst_ni && lacks ? source_late_q + 1'b1 : '0;
  end

  always_comb begin
    m_source_in_time: assume (!rst_ni || !lacks || 32'(source_late_q) + 32'd1 < Late);
    if (past_q) begin
      a_nearer_to_a_move: assert (moved_q || (rank_q != '0 && rank < rank_q));
      a_moves_in_time: assert (32'(rank) <= Bound);
      h_source_late: assert (32'(source_late_q) < Late);
      c_moves_late: cover (!moved_q && rank == 8'd1 && state == StWrite);
    end
  end

endmodule
