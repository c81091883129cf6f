// Checks the read side of an AXI4 master: its addresses, and what memory still owes it.
//
// Method      `owed_o` counts the words of the bursts whose address memory took, and that it did
//             not send. With `Lawful` memory sends none beyond these; else it sends words at any
//             time. `forgets_i` in a reset: memory is reset, too, and sends nothing more of them.
module axi_read_checker #(
  parameter int unsigned BurstWords = 4,
  parameter bit          Lawful     = 1'b1,
  parameter int unsigned WordBytes  = 16
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        forgets_i,
  input  logic [63:0] araddr_i,
  input  logic [7:0]  arlen_i,
  input  logic        arvalid_i,
  input  logic        arready_i,
  input  logic        rvalid_i,
  output logic [7:0]  owed_o,
  output logic        asks_o   // a burst's address is shown for the first time
);

  localparam int unsigned WordBits = $clog2(WordBytes);

  logic        past_q, up_q, waits_q, take;
  logic        reset_q;  // came while memory owed words
  logic [63:0] araddr_q;
  logic [7:0]  arlen_q;

  initial past_q  = 1'b0;
  initial up_q    = 1'b0;
  initial reset_q = 1'b0;
  initial owed_o  = '0;

  assign asks_o = arvalid_i && !waits_q;
  assign take   = arvalid_i && arready_i && past_q;

  always_ff @(posedge clk_i) begin
    past_q   <= 1'b1;
    up_q     <= rst_ni;
    waits_q  <= rst_ni && arvalid_i && !arready_i;
    araddr_q <= araddr_i;
    arlen_q  <= arlen_i;
    if (past_q && !rst_ni && owed_o != '0) reset_q <= 1'b1;
    if (!rst_ni && forgets_i) owed_o <= '0;
    else owed_o <= owed_o + (take ? arlen_i + 8'd1 : 8'd0) - 8'(rvalid_i && owed_o != '0);
  end

  always_comb begin
    if (Lawful) m_words_were_asked_for: assume (!rvalid_i || owed_o != '0);
    if (past_q) begin
      a_ar_stable: assert (!waits_q ||
                           (!rst_ni || (arvalid_i && araddr_i == araddr_q && arlen_i == arlen_q)));
      a_within_4_kib: assert (!arvalid_i || 13'(araddr_i[11:WordBits]) + 13'(arlen_i) <
                                            13'(4096 / WordBytes));
      a_length: assert (!arvalid_i || arlen_i < BurstWords);
      a_aligned: assert (!arvalid_i || araddr_i[WordBits-1:0] == '0);
      c_ends_at_4_kib: cover (arvalid_i && arlen_i > 0 &&
                              13'(araddr_i[11:WordBits]) + 13'(arlen_i) ==
                              13'(4096 / WordBytes - 1));
      c_asks_again_after_reset: cover (reset_q && up_q && asks_o);
    end
    if (past_q && !up_q) a_silent_after_reset: assert (!arvalid_i);
  end

endmodule
