// Several readers behind one AXI4 master: addresses by turns, data by id.
//
// Interface   a reader has the number of its place, which is the id of its bursts, so that what
//             comes back tells whose it is: nothing is kept of bursts under way, also none that a
//             reset leaves. Memory may answer different readers in any order, also beat by beat in
//             turn, and each reader in its own. Readers take data as it comes. rdata, rresp and
//             rlast go to all of them past this module.
// Throughput  an address a clock. Latency none for the reader that had the last turn, else a clock.
module axi_read_share #(
  parameter  int unsigned Readers = 3,
  localparam int unsigned IdBits  = $clog2(Readers)
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,

  input  logic [Readers-1:0][63:0] araddr_i,
  input  logic [Readers-1:0][7:0]  arlen_i,
  input  logic [Readers-1:0]       arvalid_i,
  output logic [Readers-1:0]       arready_o,
  output logic [Readers-1:0]       rvalid_o,

  output logic [IdBits-1:0]        arid_o,
  output logic [63:0]              araddr_o,
  output logic [7:0]               arlen_o,
  output logic                     arvalid_o,
  input  logic                     arready_i,
  input  logic [IdBits-1:0]        rid_i,
  input  logic                     rvalid_i
);

  if (Readers < 2) begin : gen_bad_parameters
    $fatal(1, "%m: Readers must be at least 2");
  end

  logic [IdBits-1:0] turn_q, turn_d;

  // The reader that has the turn keeps it until memory takes its address; then, or if it has none,
  // the next one that has an address gets it.
  always_comb begin
    turn_d = turn_q;
    if (!arvalid_i[turn_q] || arready_i) begin
      for (int unsigned i = Readers - 1; i > 0; i--) begin
        automatic int unsigned place = 32'(turn_q) + i;
        automatic logic [IdBits-1:0] reader = IdBits'(place >= Readers ? place - Readers : place);
        if (arvalid_i[reader]) turn_d = reader;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) turn_q <= '0;
    else turn_q <= turn_d;
  end

  assign arid_o    = turn_q;
  assign araddr_o  = araddr_i[turn_q];
  assign arlen_o   = arlen_i[turn_q];
  assign arvalid_o = arvalid_i[turn_q];

  always_comb begin
    for (int unsigned i = 0; i < Readers; i++) begin
      arready_o[i] = arready_i && turn_q == IdBits'(i);
      rvalid_o[i]  = rvalid_i && rid_i == IdBits'(i);
    end
  end

`ifndef SYNTHESIS
  a_ar_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      arvalid_o && !arready_i |=> arvalid_o && $stable({arid_o, araddr_o, arlen_o}));
  a_id_is_a_readers: assert property (@(posedge clk_i) disable iff (!rst_ni)
      rvalid_i |-> 32'(rid_i) < Readers);
`endif

endmodule
