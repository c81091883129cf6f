// Between readers of 128-bit words and a wider AXI4 port: two words a beat.
//
// Interface   the readers' side is that of an AXI4 port behind axi_read_share: words come with the
//             id of the port's beat and are taken as they come. Its addresses are 16-byte aligned,
//             those of the port aligned to its words. A burst stays one burst: from the port's word
//             that holds its first word to the one that holds its last, and the readers get the
//             words of it that they asked for. Memory may answer different ids in any order, also
//             beat by beat in turn, and each id in its own.
// Throughput  a word a clock. Latency none. With Bytes of 16 there are wires.
// Reset       may come with bursts under way, and memory be reset with it or not: what still comes
//             of them goes to the readers, who drop it. No address is shown before all has come, or
//             nothing for QuietClocks clocks.
// Bad input   of a beat that comes while no burst of its id is under way both words are given.
module axi_read_upsize #(
  parameter  int unsigned Ids = 3,
  parameter  int unsigned Bytes = 32,      // of a word of the port, 16 or 32
  parameter  int unsigned MaxBursts = 64,  // of an id under way; a power of two
  // A memory that was not reset does not pause for so long, 3.4 us at 300 MHz, in the middle of its
  // answers.
  parameter  int unsigned QuietClocks = 1024,
  localparam int unsigned IdBits = $clog2(Ids)
) (
  input  logic               clk_i,
  input  logic               rst_ni,

  input  logic [IdBits-1:0]  arid_i,
  input  logic [63:0]        araddr_i,
  input  logic [7:0]         arlen_i,
  input  logic               arvalid_i,
  output logic               arready_o,
  output logic [127:0]       rdata_o,
  output logic               rlast_o,
  output logic               rvalid_o,

  output logic [63:0]        araddr_o,
  output logic [7:0]         arlen_o,
  output logic               arvalid_o,
  input  logic               arready_i,
  input  logic [IdBits-1:0]  rid_i,
  input  logic [8*Bytes-1:0] rdata_i,
  input  logic               rlast_i,
  input  logic               rvalid_i,
  output logic               rready_o
);

  if (Bytes != 16 && Bytes != 32) begin : gen_bad_parameters
    $fatal(1, "%m: Bytes must be 16 or 32");
  end

  if (Bytes == 32) begin : gen_pairs
    localparam int unsigned PlaceBits = $clog2(MaxBursts);

    // What no reader wants of a burst.
    typedef struct packed {
      logic lower;  // of its first beat
      logic upper;  // of its last
    } unwanted_t;

    unwanted_t [Ids-1:0] oldest;  // of each id's bursts under way
    logic [Ids-1:0]      some, full, first;
    logic                take, ends, forget;
    logic [8:0]          last_word;
    unwanted_t           unwanted;
    logic                upper, whole;  // the upper word is given; no other one of the beat follows
    // verilator lint_off PROCASSINIT
    logic                half_q = 1'b0; // the lower word was given
    // verilator lint_on PROCASSINIT
    logic                stale_q;       // bursts from before a reset are under way
    logic [$clog2(QuietClocks)-1:0] quiet_q;

    assign last_word = 9'(arlen_i) + 9'(araddr_i[4]);
    assign araddr_o  = {araddr_i[63:5], 5'b0};
    assign arlen_o   = 8'(last_word >> 1);
    assign arvalid_o = arvalid_i && !full[arid_i] && !stale_q && rst_ni;
    assign arready_o = arready_i && !full[arid_i] && !stale_q && rst_ni;
    assign take      = arvalid_o && arready_i;

    assign unwanted = some[rid_i] ? oldest[rid_i] : '0;
    assign upper    = half_q || (first[rid_i] && unwanted.lower);
    assign whole    = upper || (rlast_i && unwanted.upper);
    assign ends     = rvalid_i && rlast_i && whole;
    assign rready_o = whole;
    assign rvalid_o = rvalid_i;
    assign rlast_o  = rlast_i && whole;
    assign rdata_o  = upper ? rdata_i[255:128] : rdata_i[127:0];
    assign forget   = stale_q && quiet_q == '1;

    // Without a reset, which makes no beat come sooner: a beat is shown until both words are taken.
    always_ff @(posedge clk_i) begin
      half_q <= rvalid_i && !whole;
      if (!rst_ni) stale_q <= 1'b1;
      else if (some == '0) stale_q <= 1'b0;
      quiet_q <= !rst_ni || rvalid_i ? '0 : quiet_q + 1'b1;
    end

    for (genvar i = 0; i < Ids; i++) begin : gen_id
      // The oldest burst stands in a register: no path begins with the memory of the others.
      (* ram_style = "distributed" *) unwanted_t bursts[MaxBursts];
      unwanted_t            asked, oldest_q;
      // verilator lint_off PROCASSINIT
      logic [PlaceBits-1:0] head_q = '0, tail_q = '0;
      logic [PlaceBits:0]   count_q = '0;
      // There is one; there are others behind it.
      logic                 some_q = 1'b0, others_q = 1'b0, full_q = 1'b0, first_q = 1'b1;
      // verilator lint_on PROCASSINIT
      logic                 push, pop, direct;

      assign push      = take && arid_i == IdBits'(i);
      assign pop       = ends && rid_i == IdBits'(i) && some_q;
      assign direct    = !some_q || (pop && !others_q);
      assign asked     = '{lower: araddr_i[4], upper: !last_word[0]};
      assign oldest[i] = oldest_q;
      assign some[i]   = some_q;
      assign full[i]   = full_q;
      assign first[i]  = first_q;

      always_ff @(posedge clk_i) begin
        if (push) bursts[tail_q] <= asked;
        if (push && !direct) tail_q <= tail_q + 1'b1;
        if (!some_q || pop) oldest_q <= others_q ? bursts[head_q] : asked;
        if (forget) begin
          head_q   <= tail_q;
          count_q  <= '0;
          some_q   <= 1'b0;
          others_q <= 1'b0;
          full_q   <= 1'b0;
          first_q  <= 1'b1;
        end else begin
          if (pop && others_q) head_q <= head_q + 1'b1;
          if (push && !pop) begin
            count_q  <= count_q + 1'b1;
            some_q   <= 1'b1;
            others_q <= some_q;
            full_q   <= count_q == (PlaceBits + 1)'(MaxBursts - 1);
          end else if (pop && !push) begin
            count_q  <= count_q - 1'b1;
            some_q   <= others_q;
            others_q <= count_q > (PlaceBits + 1)'(2);
            full_q   <= 1'b0;
          end
          if (rvalid_i && whole && rid_i == IdBits'(i) && some_q) first_q <= rlast_i;
        end
      end
    end
  end else begin : gen_wires
    assign {araddr_o, arlen_o, arvalid_o} = {araddr_i, arlen_i, arvalid_i};
    assign arready_o                      = arready_i;
    assign {rdata_o, rlast_o, rvalid_o}   = {rdata_i, rlast_i, rvalid_i};
    assign rready_o                       = 1'b1;
  end

`ifndef SYNTHESIS
  a_aligned: assert property (@(posedge clk_i) disable iff (!rst_ni)
      arvalid_i |-> araddr_i[3:0] == '0);
  a_ar_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      arvalid_o && !arready_i |=> arvalid_o && $stable({araddr_o, arlen_o}));
`endif

endmodule
