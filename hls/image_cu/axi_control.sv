// The image CU's registers behind an AXI4-Lite slave: ap_ctrl_chain, arguments, outputs, performance counters.
//
// Reference   kernel.xml has the offsets; 0x00 to 0x0C are as Vitis HLS lays them out, in its own ways: ap_start holds
//             until the CU takes it (ap_ready, which reading clears), ap_continue is a pulse, writing 1 to a bit of ISR
//             toggles it. Differences: ap_start can be written again as soon as it reads 0, for the run after
//             this one, because the CU takes the arguments when it starts; ISR's ap_done is set once a run, by the
//             rise of ap_done, which then stands until ap_continue; there is no auto-restart.
// Interface   32-bit data, byte strobes, address bits 1 and 0 ignored. What has no register reads as 0 and takes writes
//             without effect; every answer is OKAY. Address and data of a write may come in either order.
// Throughput  a read and a write in two clocks each, independent of each other.
module axi_control
  import image_cu_pkg::*;
(
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
  output arguments_t  arguments_o,
  input  outputs_t    outputs_i,
  input  counters_t   counters_i
);

  localparam logic [11:0] Control = 12'h000;
  localparam logic [11:0] Gie     = 12'h004;
  localparam logic [11:0] Ier     = 12'h008;
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
  // Their words in the order of arguments_t, the last one first, and where they lie.
  localparam int unsigned Words = 17;
  localparam logic [Words-1:0][11:0] Offset = {
    12'h014, 12'h010, 12'h01C, 12'h028, 12'h024, 12'h030, 12'h03C, 12'h038, 12'h048, 12'h044,
    12'h050, 12'h058, 12'h060, 12'h068, 12'h070, 12'h078, 12'h080};

  logic [Words-1:0][3:0][7:0] arguments_q;

  assign arguments_o = arguments_q;

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < Words; i++) begin
      for (int unsigned j = 0; j < 4; j++) begin
        if (write && waddr_q == Offset[i] && wstrb_q[j]) arguments_q[i][j] <= wdata_q[8*j+:8];
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

  always_comb begin
    unique case (raddr_q)
      Control: word = {28'b0, ready_seen_q, idle_i && !start_o, done_i, start_o};
      Gie:     word = 32'(gie_q);
      Ier:     word = 32'(ier_q);
      Isr:     word = 32'(isr_q);
      12'h090: word = outputs_i.status;
      12'h0A0: word = outputs_i.out_width;
      12'h0B0: word = outputs_i.out_height;
      12'h0C0: word = outputs_i.src_width;
      12'h0D0: word = outputs_i.src_height;
      12'h100: word = counters_i.cycles;
      12'h104: word = counters_i.symbols;
      12'h108: word = counters_i.first_output;
      12'h10C: word = counters_i.last_output;
      12'h110: word = counters_i.header;
      12'h114: word = counters_i.wait_data;
      12'h118: word = counters_i.wait_transform;
      12'h11C: word = counters_i.wait_rows;
      12'h120: word = counters_i.wait_output;
      12'h124: word = counters_i.wait_write;
      default: word = '0;
    endcase
    for (int unsigned i = 0; i < Words; i++) begin
      if (raddr_q == Offset[i]) word = arguments_q[i];
    end
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
    if (read) rdata_o <= word;
  end

`ifndef SYNTHESIS
  a_b_holds: assert property (@(posedge clk_i) disable iff (!rst_ni) bvalid_o && !bready_i |=> bvalid_o);
  a_r_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      rvalid_o && !rready_i |=> rvalid_o && $stable(rdata_o));
`endif

endmodule
