// audio_norm_cu with the AXI id signals that cocotbext-axi wants to see: one id, 0.
module cocotb_audio_norm_cu (
  input  logic         ap_clk,
  input  logic         ap_rst_n,
  output logic         interrupt_o,

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

  output logic         m_axi_gmem0_arid,
  output logic [63:0]  m_axi_gmem0_araddr,
  output logic [7:0]   m_axi_gmem0_arlen,
  output logic [2:0]   m_axi_gmem0_arsize,
  output logic [1:0]   m_axi_gmem0_arburst,
  output logic [3:0]   m_axi_gmem0_arcache,
  output logic [2:0]   m_axi_gmem0_arprot,
  output logic         m_axi_gmem0_arvalid,
  input  logic         m_axi_gmem0_arready,
  input  logic         m_axi_gmem0_rid,
  input  logic [127:0] m_axi_gmem0_rdata,
  input  logic [1:0]   m_axi_gmem0_rresp,
  input  logic         m_axi_gmem0_rlast,
  input  logic         m_axi_gmem0_rvalid,
  output logic         m_axi_gmem0_rready,

  output logic         m_axi_gmem1_awid,
  output logic [63:0]  m_axi_gmem1_awaddr,
  output logic [7:0]   m_axi_gmem1_awlen,
  output logic [2:0]   m_axi_gmem1_awsize,
  output logic [1:0]   m_axi_gmem1_awburst,
  output logic [3:0]   m_axi_gmem1_awcache,
  output logic [2:0]   m_axi_gmem1_awprot,
  output logic         m_axi_gmem1_awvalid,
  input  logic         m_axi_gmem1_awready,
  output logic [127:0] m_axi_gmem1_wdata,
  output logic [15:0]  m_axi_gmem1_wstrb,
  output logic         m_axi_gmem1_wlast,
  output logic         m_axi_gmem1_wvalid,
  input  logic         m_axi_gmem1_wready,
  input  logic         m_axi_gmem1_bid,
  input  logic [1:0]   m_axi_gmem1_bresp,
  input  logic         m_axi_gmem1_bvalid,
  output logic         m_axi_gmem1_bready
);

  assign m_axi_gmem0_arid = 1'b0;

  audio_norm_cu u_audio_norm_cu (.interrupt(interrupt_o), .*);

endmodule
