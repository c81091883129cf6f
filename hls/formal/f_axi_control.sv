// The properties of axi_control: AXI4-Lite's rules, each access is taken and answered within two
// clocks, a start that stays until the unit takes it, and arguments that are what the host wrote
// last, byte by byte.
//
// One argument, output and counter stand for more: the registers are a loop.
module f_axi_control (
  input logic        clk_i,
  input logic        rst_ni,
  input logic [11:0] awaddr_i,
  input logic        awvalid_i,
  input logic [31:0] wdata_i,
  input logic [3:0]  wstrb_i,
  input logic        wvalid_i,
  input logic        bready_i,
  input logic [11:0] araddr_i,
  input logic        arvalid_i,
  input logic        rready_i,
  input logic        ready_i,
  input logic        done_i,
  input logic        idle_i,
  input logic [0:0][31:0] outputs_i,
  input logic [0:0][31:0] counters_i
);

  localparam logic [11:0] Control = 12'h000, Argument = 12'h010;

  logic        awready_o, wready_o, bvalid_o, arready_o, rvalid_o, interrupt_o, start_o, continue_o;
  logic [1:0]  bresp_o, rresp_o;
  logic [31:0] rdata_o;
  logic [0:0][31:0] arguments_o;
  logic        past_q = 1'b0, later_q = 1'b0, up_q = 1'b0;

  axi_control u (.*);

  // Addresses, words and reads that were taken and not yet answered, as the host counts them.
  logic [1:0]  addresses_q, words_q, reads_q;
  logic        b_waits_q, r_waits_q, start_waits_q, asked_q;
  logic [1:0]  late_write_q, late_read_q;
  logic [1:0]  late_address_q, late_ask_q;  // not taken, though the host takes its answers
  logic [31:0] rdata_q, argument_q;
  logic [11:0] address_q;  // of the write under way, as the host sent it
  logic [31:0] data_q;
  logic [3:0]  strobe_q;
  logic        answered, given;
  assign answered = bvalid_o && bready_i;
  assign given    = rvalid_o && rready_i;
  always_ff @(posedge clk_i) begin
    past_q        <= 1'b1;
    later_q       <= past_q;
    up_q          <= rst_ni;
    b_waits_q     <= rst_ni && bvalid_o && !bready_i;
    r_waits_q     <= rst_ni && rvalid_o && !rready_i;
    start_waits_q <= rst_ni && start_o && !ready_i;
    rdata_q       <= rdata_o;
    if (awvalid_i && awready_o) address_q <= awaddr_i;
    if (wvalid_i && wready_o) {data_q, strobe_q} <= {wdata_i, wstrb_i};
    // Only a write of 1 to bit 0 of the control register asks for a run.
    asked_q   <= rst_ni && u.write && address_q[11:2] == Control[11:2] && strobe_q[0] && data_q[0];
    for (int unsigned i = 0; i < 4; i++) begin
      if (u.write && address_q[11:2] == Argument[11:2] && strobe_q[i])
        argument_q[8*i+:8] <= data_q[8*i+:8];
      else argument_q[8*i+:8] <= arguments_o[0][8*i+:8];
    end
    if (!rst_ni) begin
      addresses_q  <= '0;
      words_q      <= '0;
      reads_q      <= '0;
      late_write_q <= '0;
      late_read_q  <= '0;
      late_address_q <= '0;
      late_ask_q   <= '0;
    end else begin
      addresses_q  <= addresses_q + 2'(awvalid_i && awready_o) - 2'(answered);
      words_q      <= words_q + 2'(wvalid_i && wready_o) - 2'(answered);
      reads_q      <= reads_q + 2'(arvalid_i && arready_o) - 2'(given);
      late_write_q <= addresses_q != '0 && words_q != '0 && !bvalid_o ? late_write_q + 1'b1 : '0;
      late_read_q  <= reads_q != '0 && !rvalid_o ? late_read_q + 1'b1 : '0;
      late_address_q <= awvalid_i && !awready_o && !wready_o && (bready_i || !bvalid_o) ?
                        late_address_q + 1'b1 : '0;
      late_ask_q   <= arvalid_i && !arready_o && (rready_i || !rvalid_o) ? late_ask_q + 1'b1 : '0;
    end
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    if (past_q) begin
      a_b_stable: assert (!b_waits_q || !rst_ni || bvalid_o);
      a_r_stable: assert (!r_waits_q || !rst_ni || (rvalid_o && rdata_o == rdata_q));
      a_answer_has_a_write: assert (!bvalid_o || (addresses_q != '0 && words_q != '0));
      a_answer_has_a_read: assert (!rvalid_o || reads_q != '0);
      a_write_is_answered: assert (32'(late_write_q) < 2);
      a_read_is_answered: assert (32'(late_read_q) < 2);
      a_write_is_taken: assert (32'(late_address_q) < 2);
      a_read_is_taken: assert (32'(late_ask_q) < 2);
      a_start_stays: assert (!start_waits_q || !up_q || start_o);
      a_start_was_asked_for: assert (!(start_o && up_q) || start_waits_q || asked_q);
      a_start_follows_its_write: assert (!asked_q || start_o);
      a_argument_is_what_was_written: assert (!later_q || argument_q == arguments_o[0]);
      a_silent_after_reset: assert (up_q || (!bvalid_o && !rvalid_o && !start_o && !interrupt_o));
      h_writes: assert (addresses_q == 2'(u.waddr_full_q) + 2'(bvalid_o) &&
                        words_q == 2'(u.wdata_full_q) + 2'(bvalid_o));
      h_reads: assert (reads_q == 2'(u.raddr_full_q) + 2'(rvalid_o));
      h_address: assert (!u.waddr_full_q || u.waddr_q == {address_q[11:2], 2'b00});
      h_word: assert (!u.wdata_full_q || {u.wdata_q, u.wstrb_q} == {data_q, strobe_q});
      h_late_write: assert (late_write_q == '0 || bvalid_o);
      h_late_read: assert (late_read_q == '0 || rvalid_o);
      c_starts: cover (start_o && ready_i && answered);
      c_reads_argument: cover (given && rdata_o == 32'h12345678);
      c_writes_in_a_row: cover (bvalid_o && u.waddr_full_q && u.wdata_full_q);
      c_interrupts: cover (interrupt_o);
    end
  end

endmodule
