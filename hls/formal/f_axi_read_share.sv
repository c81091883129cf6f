// The properties of axi_read_share: an address that waits stays, one reader has the turn, none
// waits for more than one address of each other reader, and a word reaches the reader of its id.
//
// Three readers stand for more: the search for the next turn is the same loop. They keep an address
// that waits (f_axi_read has the proof), but for resets.
module f_axi_read_share #(
  parameter int unsigned Readers = 3
) (
  input logic                     clk_i,
  input logic                     rst_ni,
  input logic [Readers-1:0][63:0] araddr_i,
  input logic [Readers-1:0][7:0]  arlen_i,
  input logic [Readers-1:0]       arvalid_i,
  input logic                     arready_i,
  input logic [1:0]               rid_i,
  input logic                     rvalid_i,
  input logic [1:0]               watched_i  // a reader, the same for ever
);

  logic [Readers-1:0]       arready_o, rvalid_o;
  logic [1:0]               arid_o;
  logic [63:0]              araddr_o;
  logic [7:0]               arlen_o;
  logic                     arvalid_o;
  logic                     past_q = 1'b0;

  axi_read_share #(.Readers(Readers)) u (.*);

  logic                     waits_q;
  logic [73:0]              shown_q;
  logic [Readers-1:0]       reader_waits_q;
  logic [Readers-1:0][63:0] araddr_q;
  logic [Readers-1:0][7:0]  arlen_q;
  logic [1:0]               watched_q;
  logic [2:0]               passed_q;  // addresses of others while the watched reader waits
  logic [Readers-1:0]       passes;
  always_ff @(posedge clk_i) begin
    past_q         <= 1'b1;
    waits_q        <= rst_ni && arvalid_o && !arready_i;
    shown_q        <= {arid_o, araddr_o, arlen_o};
    reader_waits_q <= rst_ni ? arvalid_i & ~arready_o : '0;
    araddr_q       <= araddr_i;
    arlen_q        <= arlen_i;
    watched_q      <= watched_i;
    if (!rst_ni || !arvalid_i[watched_i] || arready_o[watched_i]) passed_q <= '0;
    else passed_q <= passed_q + 3'(arvalid_o && arready_i);
  end
  assign passes = arvalid_i & arready_o;

  logic readers_hold;
  logic [2:0] distance;  // of the watched reader from the turn
  always_comb begin
    readers_hold = 1'b1;
    for (int unsigned i = 0; i < Readers; i++) begin
      if (reader_waits_q[i] && !(arvalid_i[i] && araddr_i[i] == araddr_q[i] &&
                                 arlen_i[i] == arlen_q[i])) readers_hold = 1'b0;
    end
    distance = u.turn_q <= watched_i ? 3'(watched_i) - 3'(u.turn_q) :
                                       3'(Readers) + 3'(watched_i) - 3'(u.turn_q);
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_readers_hold: assume (!rst_ni || readers_hold);
    m_watched_is_a_reader: assume (32'(watched_i) < Readers && (!past_q || watched_i == watched_q));
    m_id_is_a_readers: assume (32'(rid_i) < Readers);
    if (past_q) begin
      a_ar_stable: assert (!waits_q || !rst_ni ||
                           (arvalid_o && {arid_o, araddr_o, arlen_o} == shown_q));
      a_is_that_of_its_reader: assert (!arvalid_o || (arvalid_i[arid_o] &&
          araddr_o == araddr_i[arid_o] && arlen_o == arlen_i[arid_o]));
      a_one_passes: assert (passes == '0 || passes == Readers'(1) << arid_o);
      a_passes_as_memory_takes: assert ((passes != '0) == (arvalid_o && arready_i));
      a_all_have_a_turn: assert (32'(passed_q) < Readers);
      a_word_reaches_its_reader: assert (rvalid_o == (rvalid_i ? Readers'(1) << rid_i : '0));
      h_turn: assert (32'(u.turn_q) < Readers);
      h_passed: assert (passed_q == '0 || 32'(passed_q) + 32'(distance) <= Readers);
      h_passed_at_turn: assert (!(distance == '0 && arvalid_i[watched_i] && rst_ni) ||
                                32'(passed_q) < Readers);
      c_waits_for_all: cover (32'(passed_q) == Readers - 1 && passes[watched_i]);
    end
  end

endmodule
