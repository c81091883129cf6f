// Between a reader and its AXI4 port: what memory still sends of bursts from before a reset does
// not reach the reader.
//
// Interface   the reader is reset with this, takes data as it comes, and asks for nothing before
//             `idle_o`: no burst is under way. An address that memory did not take before the reset
//             is withdrawn. Memory may be reset, too, or not: what is left of a burst is waited for
//             until nothing has come for QuietClocks clocks.
// Throughput  that of the reader; nothing is registered on its way.
// Bad input   a word that comes while no burst is under way does not reach the reader.
module axi_read_rest #(
  parameter int unsigned MaxBursts = 1023,  // under way
  // A memory that was not reset does not pause for so long, 3.4 us at 300 MHz, in the middle of its
  // answers.
  parameter int unsigned QuietClocks = 1024
) (
  input  logic clk_i,
  input  logic rst_ni,

  output logic idle_o,

  input  logic arvalid_i,  // of the reader
  output logic arready_o,
  output logic rvalid_o,

  output logic arvalid_o,  // of the port
  input  logic arready_i,
  input  logic rvalid_i,
  input  logic rlast_i
);

  localparam int unsigned CountBits = $clog2(MaxBursts + 1);

  // No reset makes the bursts under way come sooner: 0 is what it begins with, by the
  // configuration.
  // verilator lint_off PROCASSINIT
  logic [CountBits-1:0] flying_q = '0;
  // verilator lint_on PROCASSINIT
  logic                 stale_q;   // they were asked for before a reset
  logic                 forget;    // and will not come
  logic [$clog2(QuietClocks)-1:0] quiet_q;
  logic                 ask, answered;

  assign arvalid_o = arvalid_i && !stale_q && rst_ni;  // in reset the reader may hold anything
  assign arready_o = arready_i && !stale_q;
  assign rvalid_o  = rvalid_i && !stale_q && flying_q != '0;
  assign ask       = arvalid_o && arready_i;
  assign answered  = rvalid_i && rlast_i && flying_q != '0;
  assign forget    = stale_q && quiet_q == '1;
  assign idle_o    = flying_q == '0 && !stale_q;

  always_ff @(posedge clk_i) begin
    if (forget) flying_q <= '0;
    else flying_q <= flying_q + CountBits'(ask) - CountBits'(answered);
    if (!rst_ni) stale_q <= 1'b1;
    else if (flying_q == '0) stale_q <= 1'b0;
    quiet_q <= !rst_ni || rvalid_i ? '0 : quiet_q + 1'b1;
  end

`ifndef SYNTHESIS
  a_r_was_requested: assert property (@(posedge clk_i) disable iff (!rst_ni)
      rvalid_i |-> flying_q != '0);
  a_waits_for_idle: assert property (@(posedge clk_i) disable iff (!rst_ni) arvalid_i |-> !stale_q);
  a_count_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni) ask |-> flying_q != '1);
`endif

endmodule
