// Several writers behind one AXI4 master: addresses by turns, data in the order of the addresses,
// responses by id.
//
// Interface   a writer has the number of its place, which is the id of its bursts. Its data waits
//             until memory has taken its address; all data of a burst goes before that of the next
//             burst, whoever's it is, so a writer shows an address only when the burst's data will
//             not wait for another writer. Writers take responses as they come. bresp goes to all
//             of them past this module.
// Throughput  an address and a word a clock. Latency none for the writer that had the last turn,
//             else a clock; data comes a clock after its address at the earliest.
// Reset       may come with bursts under way, and memory be reset with it or not: no address is
//             shown before their responses have come, which no writer sees, or nothing has for
//             QuietClocks clocks. A burst whose data memory has not got all of is not completed:
//             that takes a reset of the memory.
// Bad input   a response that comes while none is owed reaches no writer.
module axi_write_share #(
  parameter  int unsigned Writers = 3,
  parameter  int unsigned Bytes = 16,  // of a word
  // A memory that was not reset does not pause for so long, 3.4 us at 300 MHz, in the middle of its
  // answers.
  parameter  int unsigned QuietClocks = 1024,
  localparam int unsigned IdBits  = $clog2(Writers)
) (
  input  logic                      clk_i,
  input  logic                      rst_ni,

  input  logic [Writers-1:0][63:0]  awaddr_i,
  input  logic [Writers-1:0][7:0]   awlen_i,
  input  logic [Writers-1:0]        awvalid_i,
  output logic [Writers-1:0]        awready_o,
  input  logic [Writers-1:0][8*Bytes-1:0] wdata_i,
  input  logic [Writers-1:0][Bytes-1:0] wstrb_i,
  input  logic [Writers-1:0]        wlast_i,
  input  logic [Writers-1:0]        wvalid_i,
  output logic [Writers-1:0]        wready_o,
  output logic [Writers-1:0]        bvalid_o,

  output logic [IdBits-1:0]         awid_o,
  output logic [63:0]               awaddr_o,
  output logic [7:0]                awlen_o,
  output logic                      awvalid_o,
  input  logic                      awready_i,
  output logic [8*Bytes-1:0]        wdata_o,
  output logic [Bytes-1:0]          wstrb_o,
  output logic                      wlast_o,
  output logic                      wvalid_o,
  input  logic                      wready_i,
  input  logic [IdBits-1:0]         bid_i,
  input  logic                      bvalid_i
);

  localparam int unsigned Ahead = 8;  // bursts whose data may wait behind that of others
  // Of bursts without response: 63 of each of four writers.
  localparam int unsigned CountBits   = 8;

  if (Writers < 2) begin : gen_bad_parameters
    $fatal(1, "%m: Writers must be at least 2");
  end

  logic [IdBits-1:0] turn_q, turn_d, owner;
  logic              room, owned, take;

  // No reset makes responses come sooner: 0 is what this begins with, by the configuration.
  // verilator lint_off PROCASSINIT
  logic [CountBits-1:0] unanswered_q = '0;
  // verilator lint_on PROCASSINIT
  logic                 stale_q;  // they are of bursts from before a reset
  logic                 forget;   // and will not come
  logic                 answered;
  logic [$clog2(QuietClocks)-1:0] quiet_q;

  assign answered = bvalid_i && unanswered_q != '0;
  assign forget   = stale_q && quiet_q == '1;
  always_ff @(posedge clk_i) begin
    if (forget) unanswered_q <= '0;
    else unanswered_q <= unanswered_q + CountBits'(take) - CountBits'(answered);
    if (!rst_ni) stale_q <= 1'b1;
    else if (unanswered_q == '0) stale_q <= 1'b0;
    quiet_q <= !rst_ni || bvalid_i ? '0 : quiet_q + 1'b1;
  end

  assign take = awvalid_o && awready_i;

  always_comb begin
    turn_d = turn_q;
    if (!awvalid_i[turn_q] || take) begin
      for (int unsigned i = Writers - 1; i > 0; i--) begin
        automatic int unsigned place = 32'(turn_q) + i;
        automatic logic [IdBits-1:0] writer = IdBits'(place >= Writers ? place - Writers : place);
        if (awvalid_i[writer]) turn_d = writer;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) turn_q <= '0;
    else turn_q <= turn_d;
  end

  // Whose data comes next. In registers that move, as what waits for it is long.
  logic [Ahead-1:0][IdBits-1:0] order_q;
  logic [Ahead:0]               waiting_q;  // a bit for each number of bursts
  logic                         done;
  assign owner = order_q[0];
  assign owned = !waiting_q[0];
  assign room  = !waiting_q[Ahead];
  assign done  = wvalid_o && wready_i && wlast_o;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) waiting_q <= (Ahead + 1)'(1);
    else if (take && !done) waiting_q <= waiting_q << 1;
    else if (done && !take) waiting_q <= waiting_q >> 1;
    for (int unsigned i = 0; i < Ahead; i++) begin
      if (done && i + 1 < Ahead) order_q[i] <= order_q[i+1];
      if (take && waiting_q[done ? i + 1 : i]) order_q[i] <= turn_q;
    end
  end

  assign awid_o    = turn_q;
  assign awaddr_o  = awaddr_i[turn_q];
  assign awlen_o   = awlen_i[turn_q];
  // In reset writers may hold anything.
  assign awvalid_o = awvalid_i[turn_q] && room && !stale_q && rst_ni;
  assign wdata_o   = wdata_i[owner];
  assign wstrb_o   = wstrb_i[owner];
  assign wlast_o   = wlast_i[owner];
  assign wvalid_o  = owned && wvalid_i[owner];

  always_comb begin
    for (int unsigned i = 0; i < Writers; i++) begin
      awready_o[i] = awready_i && room && !stale_q && turn_q == IdBits'(i);
      wready_o[i]  = wready_i && owned && owner == IdBits'(i);
      bvalid_o[i]  = answered && !stale_q && bid_i == IdBits'(i);
    end
  end

`ifndef SYNTHESIS
  a_aw_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      awvalid_o && !awready_i |=> awvalid_o && $stable({awid_o, awaddr_o, awlen_o}));
  a_w_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      wvalid_o && !wready_i |=> wvalid_o && $stable({wdata_o, wstrb_o, wlast_o}));
  a_count_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
      take |-> unanswered_q != '1);
  a_b_was_asked_for: assert property (@(posedge clk_i) disable iff (!rst_ni)
      bvalid_i |-> unanswered_q != '0);
  a_id_is_a_writers: assert property (@(posedge clk_i) disable iff (!rst_ni)
      bvalid_i |-> 32'(bid_i) < Writers);
`endif

endmodule
