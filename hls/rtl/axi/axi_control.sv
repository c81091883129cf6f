// A CU's registers behind an AXI4-Lite slave: ap_ctrl_chain, arguments, outputs, performance
// counters.
//
// Reference   the CU's kernel.xml has the offsets; 0x00 to 0x0C are as Vitis HLS lays them out, in
//             its own ways: ap_start holds until the CU takes it (ap_ready, which reading clears),
//             ap_continue is a pulse, writing 1 to a bit of ISR toggles it. Differences: ap_start
//             can be written again as soon as it reads 0, for the run after this one, because the
//             CU takes the arguments when it starts; ISR's ap_done is set once a run, by the rise
//             of ap_done, which then stands until ap_continue; there is no auto-restart.
// Interface   32-bit data, byte strobes, address bits 1 and 0 ignored. What has no register reads
//             as 0 and takes writes without effect; every answer is OKAY. Address and data of a
//             write may come in either order. Words are in the order of packed structs, the last
//             member at index 0; a 64-bit argument is two words. Counters lie at 0x140 in a row,
//             the first member first.
// Throughput  a read and a write in two clocks each, independent of each other.
module axi_control #(
  parameter int unsigned               ArgumentWords  = 1,
  parameter logic [ArgumentWords-1:0][11:0] ArgumentOffset = 12'h010,
  parameter int unsigned                        OutputWords    = 1,
  parameter logic [OutputWords-1:0][11:0]       OutputOffset   = 12'h018,
  parameter int unsigned                        CounterWords   = 1
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic [11:0] awaddr_i,
  input  logic        awvalid_i,
  output logic        awready_o,
  input  logic [31:0] wdata_i,
  input  logic [3:0]  wstrb_i,
  input  logic        wvalid_i,
  output logic        wready_o,
  output logic [1:0]  bresp_o,
  output logic        bvalid_o,
  input  logic        bready_i,
  input  logic [11:0] araddr_i,
  input  logic        arvalid_i,
  output logic        arready_o,
  output logic [31:0] rdata_o,
  output logic [1:0]  rresp_o,
  output logic        rvalid_o,
  input  logic        rready_i,
  output logic        interrupt_o,

  output logic        start_o,     // a run is asked for, until `ready_i`
  input  logic        ready_i,     // the run begins, it has taken the arguments
  input  logic        done_i,      // stands until `continue_o`
  output logic        continue_o,
  input  logic        idle_i,
  output logic [ArgumentWords-1:0][31:0] arguments_o,
  input  logic [OutputWords-1:0][31:0]   outputs_i,
  input  logic [CounterWords-1:0][31:0]  counters_i
);

  // docs/reference/registers.md has the text of each comment.
  // Bit 0 ap_start: write 1 to ask for a run; it reads 1 until the unit takes its arguments.
  // Bit 1 ap_done: the run has ended; it reads 1 until ap_continue.
  // Bit 2 ap_idle: no run is asked for or under way.
  // Bit 3 ap_ready: the unit has taken the arguments; reading clears it.
  // Bit 4 ap_continue: write 1 after ap_done, so that the next run may begin; it reads 0.
  localparam logic [11:0] Control = 12'h000;
  // Bit 0: the interrupt output is enabled.
  localparam logic [11:0] Gie     = 12'h004;
  // Bit 0: ap_done sets bit 0 of ISR. Bit 1: ap_ready sets bit 1 of ISR.
  localparam logic [11:0] Ier     = 12'h008;
  // Bit 0: ap_done has risen. Bit 1: ap_ready has risen. Writing 1 to a bit toggles it.
  localparam logic [11:0] Isr     = 12'h00C;

  // ---- Writes ----
  logic [11:0] waddr_q;
  logic [31:0] wdata_q;
  logic [3:0]  wstrb_q;
  logic        waddr_full_q, wdata_full_q;
  logic        write;

  assign awready_o = !waddr_full_q;
  assign wready_o  = !wdata_full_q;
  assign bresp_o   = 2'b00;
  assign write     = waddr_full_q && wdata_full_q && (!bvalid_o || bready_i);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      waddr_full_q <= 1'b0;
      wdata_full_q <= 1'b0;
      bvalid_o     <= 1'b0;
    end else begin
      if (awvalid_i && awready_o) waddr_full_q <= 1'b1;
      else if (write) waddr_full_q <= 1'b0;
      if (wvalid_i && wready_o) wdata_full_q <= 1'b1;
      else if (write) wdata_full_q <= 1'b0;
      if (write) bvalid_o <= 1'b1;
      else if (bready_i) bvalid_o <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (awready_o) waddr_q <= {awaddr_i[11:2], 2'b00};
    if (wready_o) {wstrb_q, wdata_q} <= {wstrb_i, wdata_i};
  end

  // ---- Arguments ----
  logic [ArgumentWords-1:0][3:0][7:0] arguments_q;

  assign arguments_o = arguments_q;

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < ArgumentWords; i++) begin
      for (int unsigned j = 0; j < 4; j++) begin
        if (write && waddr_q == ArgumentOffset[i] && wstrb_q[j]) begin
          arguments_q[i][j] <= wdata_q[8*j+:8];
        end
      end
    end
  end

  // ---- Control ----
  logic       read_control;     // the control register is being read
  logic       ready_seen_q;     // ap_ready, until read
  logic       done_q;
  logic       gie_q;
  logic [1:0] ier_q, isr_q, isr_set, isr_toggle;  // 0: done, 1: ready

  assign continue_o  = write && waddr_q == Control && wstrb_q[0] && wdata_q[4];
  assign isr_set     = ier_q & {ready_i, done_i && !done_q};
  assign isr_toggle  = write && waddr_q == Isr && wstrb_q[0] ? wdata_q[1:0] : '0;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      start_o      <= 1'b0;
      ready_seen_q <= 1'b0;
      done_q       <= 1'b0;
      gie_q        <= 1'b0;
      ier_q        <= '0;
      isr_q        <= '0;
      interrupt_o  <= 1'b0;
    end else begin
      if (write && waddr_q == Control && wstrb_q[0] && wdata_q[0]) start_o <= 1'b1;
      else if (ready_i) start_o <= 1'b0;
      if (ready_i) ready_seen_q <= 1'b1;
      else if (read_control) ready_seen_q <= 1'b0;
      done_q <= done_i;
      if (write && waddr_q == Gie && wstrb_q[0]) gie_q <= wdata_q[0];
      if (write && waddr_q == Ier && wstrb_q[0]) ier_q <= wdata_q[1:0];
      isr_q       <= isr_set | (isr_q ^ isr_toggle);
      interrupt_o <= gie_q && isr_q != '0;
    end
  end

  // ---- Reads: the address is registered, then the word ----
  logic [11:0] raddr_q;
  logic        raddr_full_q;
  logic        read;
  logic [31:0] word;

  assign arready_o    = !raddr_full_q;
  assign rresp_o      = 2'b00;
  assign read         = raddr_full_q && (!rvalid_o || rready_i);
  assign read_control = read && raddr_q == Control;

  // Which register is read is found when the address comes. Bit by bit, what each has for the word:
  // the tools make a tree of an "or" over a vector.
  localparam int unsigned Words = ArgumentWords + OutputWords + CounterWords;
  logic [Words-1:0]       hit, hit_q;
  logic [Words-1:0][31:0] words;
  logic [31:0][Words-1:0] column;

  assign words = {counters_i, outputs_i, arguments_o};

  for (genvar i = 0; i < Words; i++) begin : gen_word
    localparam int unsigned Counter = i - ArgumentWords - OutputWords;
    localparam logic [11:0] Offset = i < ArgumentWords ? ArgumentOffset[i % ArgumentWords] :
                                     i < ArgumentWords + OutputWords ?
                                     OutputOffset[(i - ArgumentWords) % OutputWords] :
                                     12'(12'h140 + 4 * (CounterWords - 1 - Counter));
    assign hit[i] = araddr_i[11:2] == Offset[11:2];
    for (genvar b = 0; b < 32; b++) begin : gen_bit
      assign column[b][i] = hit_q[i] && words[i][b];
    end
  end

  always_comb begin
    unique case (raddr_q)
      Control: word = {28'b0, ready_seen_q, idle_i && !start_o, done_i, start_o};
      Gie:     word = 32'(gie_q);
      Ier:     word = 32'(ier_q);
      Isr:     word = 32'(isr_q);
      default: word = '0;
    endcase
    for (int unsigned b = 0; b < 32; b++) word[b] |= |column[b];  // no two have the same offset
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      raddr_full_q <= 1'b0;
      rvalid_o     <= 1'b0;
    end else begin
      if (arvalid_i && arready_o) raddr_full_q <= 1'b1;
      else if (read) raddr_full_q <= 1'b0;
      if (read) rvalid_o <= 1'b1;
      else if (rready_i) rvalid_o <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (arready_o) raddr_q <= {araddr_i[11:2], 2'b00};
    if (arready_o) hit_q <= hit;
    if (read) rdata_o <= word;
  end

`ifndef SYNTHESIS
  a_b_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      bvalid_o && !bready_i |=> bvalid_o);
  a_r_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      rvalid_o && !rready_i |=> rvalid_o && $stable(rdata_o));
`endif

endmodule
