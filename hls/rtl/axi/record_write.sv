// Writes the result record, two 128-bit words, over AXI4.
//
// Interface   `start_i` for a clock while `idle_o`, which comes again after the last response; all
//             else is taken with it. Two bursts of one word: two words from a 16-byte aligned
//             address may lie across 4 KiB. With `ordered_i` the second word is written when memory
//             has answered for the first, so that who sees it sees both.
// Bad input   an error response sets `bus_error_o` until the next start.
module record_write (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [63:0]  address_i,  // 16-byte aligned
  input  logic [255:0] record_i,
  input  logic         ordered_i,
  output logic         idle_o,
  output logic         bus_error_o,

  output logic [63:0]  awaddr_o,
  output logic [7:0]   awlen_o,
  output logic [2:0]   awsize_o,
  output logic [1:0]   awburst_o,
  output logic         awvalid_o,
  input  logic         awready_i,
  output logic [127:0] wdata_o,
  output logic [15:0]  wstrb_o,
  output logic         wlast_o,
  output logic         wvalid_o,
  input  logic         wready_i,
  input  logic [1:0]   bresp_i,
  input  logic         bvalid_i,
  output logic         bready_o
);

  logic [1:0]   addresses_q, words_q, answers_q;  // still to be sent, to be sent, to come
  logic [59:0]  address_q;
  logic [255:0] record_q;
  logic         ordered_q, hold;  // the second word waits

  assign hold      = ordered_q && answers_q == 2'd2;
  assign awaddr_o  = {address_q, 4'b0};
  assign awlen_o   = '0;
  assign awsize_o  = 3'd4;
  assign awburst_o = 2'b01;
  assign awvalid_o = addresses_q == 2'd2 || (addresses_q == 2'd1 && !hold);
  assign wdata_o   = words_q == 2'd1 ? record_q[255:128] : record_q[127:0];
  assign wstrb_o   = '1;
  assign wlast_o   = 1'b1;
  assign wvalid_o  = words_q == 2'd2 || (words_q == 2'd1 && !hold);
  assign bready_o  = 1'b1;
  assign idle_o    = answers_q == '0;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      addresses_q <= '0;
      words_q     <= '0;
      answers_q   <= '0;
      bus_error_o <= 1'b0;
    end else if (start_i) begin
      addresses_q <= 2'd2;
      words_q     <= 2'd2;
      answers_q   <= 2'd2;
      bus_error_o <= 1'b0;
    end else begin
      if (awvalid_o && awready_i) addresses_q <= addresses_q - 1'b1;
      if (wvalid_o && wready_i) words_q <= words_q - 1'b1;
      if (bvalid_i && bready_o) answers_q <= answers_q - 1'b1;
      if (bvalid_i && bready_o && bresp_i[1]) bus_error_o <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      address_q <= address_i[63:4];
      record_q  <= record_i;
      ordered_q <= ordered_i;
    end else if (awvalid_o && awready_i) begin
      address_q <= address_q + 1'b1;
    end
  end

`ifndef SYNTHESIS
  a_start_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni) start_i |-> idle_o);
  a_aw_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      awvalid_o && !awready_i |=> awvalid_o && $stable(awaddr_o));
  a_w_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      wvalid_o && !wready_i |=> wvalid_o && $stable(wdata_o));
  a_b_was_asked_for: assert property (@(posedge clk_i) disable iff (!rst_ni)
      bvalid_i |-> answers_q != '0);
`endif

endmodule
