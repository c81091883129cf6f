// The properties of axi_read_rest: words of bursts from before a reset do not reach the reader, and
// it knows which bursts memory still owes.
//
// Four bursts stand for more, and QuietClocks is 4, so that bursts are forgotten in a short trace.
module f_axi_read_rest #(
  parameter bit Lawful = 1'b1  // else words come at any time
) (
  input logic clk_i,
  input logic rst_ni,
  input logic forgets_i,
  input logic arvalid_i,
  input logic arready_i,
  input logic rvalid_i,
  input logic rlast_i
);

  localparam int unsigned MaxBursts = 3;

  logic       idle_o, arready_o, rvalid_o, arvalid_o;
  logic       past_q = 1'b0, up_q = 1'b0, waits_q, reader_waits_q;
  logic       reset_q = 1'b0;  // came with bursts under way
  logic [3:0] owed_q = '0;     // bursts that memory took and did not complete

  axi_read_rest #(.MaxBursts(MaxBursts), .QuietClocks(4)) u (.*);

  always_ff @(posedge clk_i) begin
    past_q         <= 1'b1;
    up_q           <= rst_ni;
    waits_q        <= rst_ni && arvalid_o && !arready_i;
    reader_waits_q <= rst_ni && arvalid_i && !arready_o;
    if (past_q && !rst_ni && owed_q != '0) reset_q <= 1'b1;
    if (!rst_ni && forgets_i) owed_q <= '0;
    else owed_q <= owed_q + 4'(arvalid_o && arready_i) -
                   4'(rvalid_i && rlast_i && owed_q != '0);
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_reader_holds: assume (!rst_ni || !reader_waits_q || arvalid_i);
    m_reader_is_bounded: assume (!(arvalid_o && arready_i) || u.flying_q != '1);
    if (Lawful) begin
      m_words_were_asked_for: assume (!rvalid_i || owed_q != '0);
      m_no_pause_of_quiet_clocks: assume (!u.forget || owed_q == '0);
    end
    if (past_q) begin
      a_ar_stable: assert (!waits_q || !rst_ni || arvalid_o);
      a_none_while_stale: assert (!u.stale_q || (!rvalid_o && !arvalid_o && !idle_o));
      a_word_has_a_burst: assert (!rvalid_o || u.flying_q != '0);
      a_idle_has_none_open: assert (!idle_o || u.flying_q == '0);
      if (Lawful) begin
        a_account: assert (u.stale_q || 4'(u.flying_q) == owed_q);
        h_account: assert (owed_q <= 4'(u.flying_q));
      end
      h_stale: assert (up_q || u.stale_q);
      c_forgets: cover (u.forget && u.flying_q != '0);
      c_reads_after_reset: cover (reset_q && rvalid_o);
    end
  end

endmodule
