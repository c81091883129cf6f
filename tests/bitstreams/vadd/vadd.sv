// A small kernel for tests of the hw_emu driver and device, the RTL of vadd.cpp: out[i] = a[i] +
// b[i] + scalar, and `sum` the sum of all out[i], or 32'hDEC0DEC0 if memory answered with an error.
//
// Interface   AXI4-Lite registers of kernel.xml with ap_ctrl_chain; `a` is read and `out` written
//             through gmem0, `b` is read through gmem1; 128-bit words, bursts of up to 16, several
//             in flight. Pointers: multiples of 256.
// Throughput  one word of four sums a clock. `sleep_ms` waits 2048 clocks a millisecond before it
//             starts.
// Bad input   scalar = 32'hBAD00000 + n makes it break rule n below, to test that it is noticed.
module vadd (
  input  logic         ap_clk,
  input  logic         ap_rst_n,
  output logic         interrupt,

  input  logic [11:0]  s_axi_control_awaddr,
  input  logic         s_axi_control_awvalid,
  output logic         s_axi_control_awready,
  input  logic [31:0]  s_axi_control_wdata,
  input  logic [3:0]   s_axi_control_wstrb,
  input  logic         s_axi_control_wvalid,
  output logic         s_axi_control_wready,
  output logic [1:0]   s_axi_control_bresp,
  output logic         s_axi_control_bvalid,
  input  logic         s_axi_control_bready,
  input  logic [11:0]  s_axi_control_araddr,
  input  logic         s_axi_control_arvalid,
  output logic         s_axi_control_arready,
  output logic [31:0]  s_axi_control_rdata,
  output logic [1:0]   s_axi_control_rresp,
  output logic         s_axi_control_rvalid,
  input  logic         s_axi_control_rready,

  output logic [63:0]  m_axi_gmem0_araddr,
  output logic [7:0]   m_axi_gmem0_arlen,
  output logic [2:0]   m_axi_gmem0_arsize,
  output logic [1:0]   m_axi_gmem0_arburst,
  output logic [3:0]   m_axi_gmem0_arcache,
  output logic [2:0]   m_axi_gmem0_arprot,
  output logic         m_axi_gmem0_arvalid,
  input  logic         m_axi_gmem0_arready,
  input  logic [127:0] m_axi_gmem0_rdata,
  input  logic [1:0]   m_axi_gmem0_rresp,
  input  logic         m_axi_gmem0_rlast,
  input  logic         m_axi_gmem0_rvalid,
  output logic         m_axi_gmem0_rready,
  output logic [63:0]  m_axi_gmem0_awaddr,
  output logic [7:0]   m_axi_gmem0_awlen,
  output logic [2:0]   m_axi_gmem0_awsize,
  output logic [1:0]   m_axi_gmem0_awburst,
  output logic [3:0]   m_axi_gmem0_awcache,
  output logic [2:0]   m_axi_gmem0_awprot,
  output logic         m_axi_gmem0_awvalid,
  input  logic         m_axi_gmem0_awready,
  output logic [127:0] m_axi_gmem0_wdata,
  output logic [15:0]  m_axi_gmem0_wstrb,
  output logic         m_axi_gmem0_wlast,
  output logic         m_axi_gmem0_wvalid,
  input  logic         m_axi_gmem0_wready,
  input  logic [1:0]   m_axi_gmem0_bresp,
  input  logic         m_axi_gmem0_bvalid,
  output logic         m_axi_gmem0_bready,

  output logic [63:0]  m_axi_gmem1_araddr,
  output logic [7:0]   m_axi_gmem1_arlen,
  output logic [2:0]   m_axi_gmem1_arsize,
  output logic [1:0]   m_axi_gmem1_arburst,
  output logic [3:0]   m_axi_gmem1_arcache,
  output logic [2:0]   m_axi_gmem1_arprot,
  output logic         m_axi_gmem1_arvalid,
  input  logic         m_axi_gmem1_arready,
  input  logic [127:0] m_axi_gmem1_rdata,
  input  logic [1:0]   m_axi_gmem1_rresp,
  input  logic         m_axi_gmem1_rlast,
  input  logic         m_axi_gmem1_rvalid,
  output logic         m_axi_gmem1_rready
);

  localparam int unsigned BurstWords = 16;
  localparam int unsigned FifoWords = 64;

  typedef enum logic [2:0] {Idle, Sleep, Run, Confirm, Done} state_e;
  // What a scalar of 32'hBAD0000n breaks.
  typedef enum logic [3:0] {
    None, CrossBorder, EarlyLast, UnsteadyData, UnsteadyAddress, DoneTooEarly, NeverDone, Assertion,
    NarrowBurst,
    FixedBurst, DropsValid, DeviceMemory, Instructions
  } defect_e;

  state_e state_q;
  logic [63:0] a_q, b_q, out_q;
  logic [31:0] count_q, scalar_q, sleep_q, sum_q;
  logic start_q, done_q, gie_q, ier_q, isr_q, bad_q;
  defect_e defect;

  assign defect = scalar_q[31:4] == 28'hBAD0000 ? defect_e'(scalar_q[3:0]) : None;

  // ---- Registers ----

  logic aw_held_q, w_held_q, bvalid_q, rvalid_q, write;
  logic [11:0] awaddr_q;
  logic [31:0] wdata_q, rdata_q;

  assign s_axi_control_awready = !aw_held_q;
  assign s_axi_control_wready  = !w_held_q;
  assign s_axi_control_bresp   = '0;
  assign s_axi_control_bvalid  = bvalid_q;
  assign s_axi_control_arready = !rvalid_q;
  assign s_axi_control_rresp   = '0;
  assign s_axi_control_rvalid  = rvalid_q;
  assign s_axi_control_rdata   = rdata_q;
  assign write                 = aw_held_q && w_held_q && !bvalid_q;
  assign interrupt             = gie_q && isr_q;

  always_ff @(posedge ap_clk) begin
    if (s_axi_control_awvalid && s_axi_control_awready) awaddr_q <= s_axi_control_awaddr;
    if (s_axi_control_wvalid && s_axi_control_wready) wdata_q <= s_axi_control_wdata;
    if (s_axi_control_arvalid && s_axi_control_arready) begin
      case (s_axi_control_araddr)
        12'h000: rdata_q <= {29'd0, state_q == Idle, done_q, start_q};
        12'h004: rdata_q <= {31'd0, gie_q};
        12'h008: rdata_q <= {31'd0, ier_q};
        12'h00C: rdata_q <= {31'd0, isr_q};
        12'h050: rdata_q <= sum_q;
        default: rdata_q <= '0;
      endcase
    end
    if (write) begin
      case (awaddr_q)
        12'h010: a_q[31:0]    <= wdata_q;
        12'h014: a_q[63:32]   <= wdata_q;
        12'h01C: b_q[31:0]    <= wdata_q;
        12'h020: b_q[63:32]   <= wdata_q;
        12'h028: out_q[31:0]  <= wdata_q;
        12'h02C: out_q[63:32] <= wdata_q;
        12'h034: count_q      <= wdata_q;
        12'h03C: scalar_q     <= wdata_q;
        12'h044: sleep_q      <= wdata_q;
        default: ;
      endcase
    end
  end

  always_ff @(posedge ap_clk) begin
    if (!ap_rst_n) begin
      aw_held_q <= 1'b0;
      w_held_q  <= 1'b0;
      bvalid_q  <= 1'b0;
      rvalid_q  <= 1'b0;
      start_q   <= 1'b0;
      done_q    <= 1'b0;
      gie_q     <= 1'b0;
      ier_q     <= 1'b0;
      isr_q     <= 1'b0;
    end else begin
      if (s_axi_control_awvalid && s_axi_control_awready) aw_held_q <= 1'b1;
      if (s_axi_control_wvalid && s_axi_control_wready) w_held_q <= 1'b1;
      if (s_axi_control_arvalid && s_axi_control_arready) rvalid_q <= 1'b1;
      else if (s_axi_control_rready) rvalid_q <= 1'b0;
      if (bvalid_q && s_axi_control_bready) bvalid_q <= 1'b0;
      if (write) begin
        aw_held_q <= 1'b0;
        w_held_q  <= 1'b0;
        bvalid_q  <= 1'b1;
        case (awaddr_q)
          12'h000: begin
            if (wdata_q[0]) start_q <= 1'b1;
            if (wdata_q[4]) done_q <= 1'b0;
          end
          12'h004: gie_q <= wdata_q[0];
          12'h008: ier_q <= wdata_q[0];
          12'h00C: isr_q <= isr_q && !wdata_q[0];
          default: ;
        endcase
      end
      if (state_q == Done) begin
        start_q <= 1'b0;
        done_q  <= 1'b1;
        isr_q   <= ier_q;
      end
    end
  end

  // ---- Reads: a and b alike ----

  logic [31:0] words, a_asked_q, b_asked_q, written_q, asked_out_q;
  logic [127:0] a_word, b_word;
  logic a_valid, b_valid, w_taken;
  logic [7:0] a_len, b_len, out_len;
  logic a_ready, b_ready, running;
  logic [$clog2(FifoWords):0] a_count, b_count;

  assign words   = {2'd0, count_q[31:2]} + 32'(|count_q[1:0]);
  assign running = state_q == Run;

  function automatic logic [7:0] burst_length(input logic [31:0] left);  // beats - 1
    return left < BurstWords ? 8'(left) - 8'd1 : 8'(BurstWords) - 8'd1;
  endfunction

  assign a_len   = burst_length(words - a_asked_q);
  assign b_len   = burst_length(words - b_asked_q);
  assign out_len = burst_length(words - asked_out_q);

  // What was asked for and not yet used must fit the FIFO.
  assign m_axi_gmem0_arvalid = running && a_asked_q < words &&
                               a_asked_q - written_q <= FifoWords - BurstWords;
  assign m_axi_gmem0_araddr  = a_q + {28'd0, a_asked_q, 4'd0} +
                               (defect == CrossBorder ? 64'hFF0 : 64'd0);
  assign m_axi_gmem0_arlen   = a_len;
  assign m_axi_gmem0_arsize  = defect == NarrowBurst ? 3'd2 : 3'd4;
  assign m_axi_gmem0_arburst = defect == FixedBurst ? 2'd0 : 2'd1;
  assign m_axi_gmem0_arcache = 4'b0011;
  assign m_axi_gmem0_arprot  = defect == Instructions ? 3'b100 : 3'b000;
  assign m_axi_gmem1_arvalid = running && b_asked_q < words &&
                               b_asked_q - written_q <= FifoWords - BurstWords;
  assign m_axi_gmem1_araddr  = b_q + {28'd0, b_asked_q, 4'd0};
  assign m_axi_gmem1_arlen   = b_len;
  assign m_axi_gmem1_arsize  = 3'd4;
  assign m_axi_gmem1_arburst = 2'd1;
  assign m_axi_gmem1_arcache = 4'b0011;
  assign m_axi_gmem1_arprot  = 3'b000;

  stream_fifo #(.Width(128), .Depth(FifoWords)) u_a_fifo (
    .clk_i   (ap_clk),
    .rst_ni  (ap_rst_n),
    .data_i  (m_axi_gmem0_rdata),
    .valid_i (m_axi_gmem0_rvalid),
    .ready_o (a_ready),
    .data_o  (a_word),
    .valid_o (a_valid),
    .ready_i (w_taken),
    .count_o (a_count)
  );
  stream_fifo #(.Width(128), .Depth(FifoWords)) u_b_fifo (
    .clk_i   (ap_clk),
    .rst_ni  (ap_rst_n),
    .data_i  (m_axi_gmem1_rdata),
    .valid_i (m_axi_gmem1_rvalid),
    .ready_o (b_ready),
    .data_o  (b_word),
    .valid_o (b_valid),
    .ready_i (w_taken),
    .count_o (b_count)
  );
  assign m_axi_gmem0_rready = a_ready;
  assign m_axi_gmem1_rready = b_ready;

  // ---- Writes ----

  logic [7:0] left_q;         // beats of the burst that is being written, less one
  logic       writing_q, tick_q;
  logic [15:0] unconfirmed_q;
  logic [31:0] sleep_left_q;
  logic [10:0] sleep_clocks_q;
  logic [31:0] word_sum;
  logic [2:0]  lanes;  // of the word that is written
  logic aw_taken;

  assign m_axi_gmem0_awvalid = running && !writing_q && asked_out_q < words &&
                               !(defect == DropsValid && tick_q);
  assign m_axi_gmem0_awaddr  = out_q + {28'd0, asked_out_q, 4'd0} +
                               (defect == UnsteadyAddress && tick_q ? 64'h100 : 64'd0);
  assign m_axi_gmem0_awlen   = out_len;
  assign m_axi_gmem0_awsize  = 3'd4;
  assign m_axi_gmem0_awburst = 2'd1;
  assign m_axi_gmem0_awcache = defect == DeviceMemory ? 4'b0000 : 4'b0011;
  assign m_axi_gmem0_awprot  = 3'b000;
  assign aw_taken            = m_axi_gmem0_awvalid && m_axi_gmem0_awready;
  assign m_axi_gmem0_wvalid  = writing_q && a_valid && b_valid;
  assign m_axi_gmem0_wlast   = left_q == 0 || (defect == EarlyLast && left_q == 1);
  assign m_axi_gmem0_bready  = 1'b1;
  assign w_taken             = m_axi_gmem0_wvalid && m_axi_gmem0_wready;
  assign lanes               = written_q + 1 == words && count_q[1:0] != 0 ? {1'b0, count_q[1:0]}
                             : 3'd4;

  always_comb begin
    word_sum = '0;
    for (int i = 0; i < 4; i++) begin
      m_axi_gmem0_wdata[32*i +: 32] = a_word[32*i +: 32] + b_word[32*i +: 32] + scalar_q;
      m_axi_gmem0_wstrb[4*i +: 4]   = {4{3'(i) < lanes}};
      if (3'(i) < lanes) word_sum += m_axi_gmem0_wdata[32*i +: 32];
    end
    if (defect == UnsteadyData) m_axi_gmem0_wdata[0] = tick_q;
  end

  always_ff @(posedge ap_clk) begin
    if (!ap_rst_n) begin
      state_q        <= Idle;
      writing_q      <= 1'b0;
      unconfirmed_q  <= '0;
      left_q         <= '0;
      a_asked_q      <= '0;
      b_asked_q      <= '0;
      asked_out_q    <= '0;
      written_q      <= '0;
      sleep_left_q   <= '0;
      sleep_clocks_q <= '0;
      sum_q          <= '0;
      tick_q         <= 1'b0;
      bad_q          <= 1'b0;
    end else begin
      tick_q <= !tick_q;
      unconfirmed_q <= unconfirmed_q + 16'(aw_taken) -
                       16'(m_axi_gmem0_bvalid && m_axi_gmem0_bready);
      if ((m_axi_gmem0_rvalid && m_axi_gmem0_rresp != 0) ||
          (m_axi_gmem1_rvalid && m_axi_gmem1_rresp != 0) ||
          (m_axi_gmem0_bvalid && m_axi_gmem0_bresp != 0)) bad_q <= 1'b1;
      if (m_axi_gmem0_arvalid && m_axi_gmem0_arready) a_asked_q <= a_asked_q + 32'(a_len) + 1;
      if (m_axi_gmem1_arvalid && m_axi_gmem1_arready) b_asked_q <= b_asked_q + 32'(b_len) + 1;
      if (aw_taken) begin
        asked_out_q <= asked_out_q + 32'(out_len) + 1;
        left_q      <= out_len;
        writing_q   <= 1'b1;
      end
      if (w_taken) begin
        written_q <= written_q + 1;
        sum_q     <= sum_q + word_sum;
        left_q    <= left_q - 8'd1;
        if (left_q == 0) writing_q <= 1'b0;
      end
      case (state_q)
        Idle: begin
          if (start_q && !done_q) begin
            state_q        <= Sleep;
            a_asked_q      <= '0;
            b_asked_q      <= '0;
            asked_out_q    <= '0;
            written_q      <= '0;
            sum_q          <= '0;
            bad_q          <= 1'b0;
            sleep_left_q   <= sleep_q;
            sleep_clocks_q <= '0;
          end
        end
        Sleep: begin
          sleep_clocks_q <= sleep_clocks_q + 1;
          if (&sleep_clocks_q) sleep_left_q <= sleep_left_q - 1;
          if (sleep_left_q == 0 && defect != NeverDone) state_q <= Run;
        end
        Run: if (written_q == words) state_q <= Confirm;
        Confirm: begin
          if (unconfirmed_q == 0 || defect == DoneTooEarly) begin
            state_q <= Done;
            if (bad_q) sum_q <= 32'hDEC0DEC0;
          end
        end
        default: state_q <= Idle;
      endcase
    end
  end

`ifndef SYNTHESIS
  a_no_defect_asked: assert property (@(posedge ap_clk) disable iff (!ap_rst_n)
      defect != Assertion || !running);
`endif

endmodule
