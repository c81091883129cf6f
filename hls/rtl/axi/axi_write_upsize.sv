// Between a writer of 128-bit words and a wider AXI4 port: two words a beat.
//
// Interface   on both sides that of a writer of axi_write_share; addresses of the writer are
//             16-byte aligned, those of the port aligned to its words. A burst stays one burst:
//             from the port's word that holds its first word to the one with its last. Bytes that
//             the writer does not write have no strobe. A word is taken when its address was.
// Throughput  a word a clock. Latency none; a word waits for the other one of its beat. With Bytes
//             of 16 there are wires.
// Reset       forgets the bursts under way, as axi_write_share.
module axi_write_upsize #(
  parameter int unsigned Bytes = 32,  // of a word of the port, 16 or 32
  // Bursts whose data may wait, a power of two: as many as axi_write_share takes addresses of.
  parameter int unsigned Ahead = 8
) (
  input  logic               clk_i,
  input  logic               rst_ni,

  input  logic [63:0]        awaddr_i,
  input  logic [7:0]         awlen_i,
  input  logic               awvalid_i,
  output logic               awready_o,
  input  logic [127:0]       wdata_i,
  input  logic [15:0]        wstrb_i,
  input  logic               wlast_i,
  input  logic               wvalid_i,
  output logic               wready_o,

  output logic [63:0]        awaddr_o,
  output logic [7:0]         awlen_o,
  output logic               awvalid_o,
  input  logic               awready_i,
  output logic [8*Bytes-1:0] wdata_o,
  output logic [Bytes-1:0]   wstrb_o,
  output logic               wlast_o,
  output logic               wvalid_o,
  input  logic               wready_i
);

  if (Bytes != 16 && Bytes != 32) begin : gen_bad_parameters
    $fatal(1, "%m: Bytes must be 16 or 32");
  end

  if (Bytes == 32) begin : gen_pairs
    logic         odd, room, burst_valid;  // the first word of the burst is an upper one
    logic         first_q, upper_q, upper; // the word is the burst's first; the upper one of a beat
    logic         whole, take;             // no other word of its beat follows
    logic [127:0] lower_q;
    logic [15:0]  lower_strobe_q;

    stream_fifo #(.Width(1), .Depth(Ahead)) u_bursts (
      .clk_i,
      .rst_ni,
      .data_i (awaddr_i[4]),
      .valid_i(awvalid_i && awready_i),
      .ready_o(room),
      .data_o (odd),
      .valid_o(burst_valid),
      .ready_i(take && wlast_i),
      .count_o()
    );

    assign awaddr_o  = {awaddr_i[63:5], 5'b0};
    assign awlen_o   = 8'((9'(awlen_i) + 9'(awaddr_i[4])) >> 1);
    assign awvalid_o = awvalid_i && room;
    assign awready_o = awready_i && room;

    assign upper    = first_q ? odd : upper_q;
    assign whole    = upper || wlast_i;
    assign take     = wvalid_i && wready_o;
    assign wready_o = burst_valid && (wready_i || !whole);
    assign wvalid_o = wvalid_i && burst_valid && whole;
    assign wlast_o  = wlast_i;
    assign wdata_o  = {wdata_i, upper ? lower_q : wdata_i};
    assign wstrb_o  = upper ? {wstrb_i, lower_strobe_q} : {16'b0, wstrb_i};

    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        first_q        <= 1'b1;
        lower_strobe_q <= '0;
      end else if (take) begin
        first_q        <= wlast_i;
        lower_strobe_q <= whole ? '0 : wstrb_i;
      end
      if (take) upper_q <= !upper;
      if (take && !upper) lower_q <= wdata_i;
    end
  end else begin : gen_wires
    assign {awaddr_o, awlen_o, awvalid_o} = {awaddr_i, awlen_i, awvalid_i};
    assign awready_o                      = awready_i;
    assign {wdata_o, wstrb_o}             = {wdata_i, wstrb_i};
    assign {wlast_o, wvalid_o}            = {wlast_i, wvalid_i};
    assign wready_o                       = wready_i;
  end

`ifndef SYNTHESIS
  a_aligned: assert property (@(posedge clk_i) disable iff (!rst_ni)
      awvalid_i |-> awaddr_i[3:0] == '0);
  a_aw_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      awvalid_o && !awready_i |=> awvalid_o && $stable({awaddr_o, awlen_o}));
  a_w_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      wvalid_o && !wready_i |=> wvalid_o && $stable({wdata_o, wstrb_o, wlast_o}));
`endif

endmodule
