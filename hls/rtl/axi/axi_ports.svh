// The ports of a compute unit, by the names that its kernel.xml leads the vendor's tools to: <port>_<signal>. Macros, as
// these tools and cocotb want a port for each signal and take no interfaces.
`ifndef AXI_PORTS_SVH
`define AXI_PORTS_SVH

// AXI4-Lite, the slave's side.
`define AXI_CONTROL_PORTS(port) \
  input  logic [11:0]  port``_awaddr, \
  input  logic         port``_awvalid, \
  output logic         port``_awready, \
  input  logic [31:0]  port``_wdata, \
  input  logic [3:0]   port``_wstrb, \
  input  logic         port``_wvalid, \
  output logic         port``_wready, \
  output logic [1:0]   port``_bresp, \
  output logic         port``_bvalid, \
  input  logic         port``_bready, \
  input  logic [11:0]  port``_araddr, \
  input  logic         port``_arvalid, \
  output logic         port``_arready, \
  output logic [31:0]  port``_rdata, \
  output logic [1:0]   port``_rresp, \
  output logic         port``_rvalid, \
  input  logic         port``_rready

// The channels of an AXI4 master of 128 bits that reads, with ids of so many bits.
`define AXI_READ_PORTS(port, id_bits) \
  output logic [id_bits-1:0] port``_arid, \
  output logic [63:0]  port``_araddr, \
  output logic [7:0]   port``_arlen, \
  output logic [2:0]   port``_arsize, \
  output logic [1:0]   port``_arburst, \
  output logic [3:0]   port``_arcache, \
  output logic [2:0]   port``_arprot, \
  output logic         port``_arvalid, \
  input  logic         port``_arready, \
  input  logic [id_bits-1:0] port``_rid, \
  input  logic [127:0] port``_rdata, \
  input  logic [1:0]   port``_rresp, \
  input  logic         port``_rlast, \
  input  logic         port``_rvalid, \
  output logic         port``_rready

// And of one that writes.
`define AXI_WRITE_PORTS(port, id_bits) \
  output logic [id_bits-1:0] port``_awid, \
  output logic [63:0]  port``_awaddr, \
  output logic [7:0]   port``_awlen, \
  output logic [2:0]   port``_awsize, \
  output logic [1:0]   port``_awburst, \
  output logic [3:0]   port``_awcache, \
  output logic [2:0]   port``_awprot, \
  output logic         port``_awvalid, \
  input  logic         port``_awready, \
  output logic [127:0] port``_wdata, \
  output logic [15:0]  port``_wstrb, \
  output logic         port``_wlast, \
  output logic         port``_wvalid, \
  input  logic         port``_wready, \
  input  logic [id_bits-1:0] port``_bid, \
  input  logic [1:0]   port``_bresp, \
  input  logic         port``_bvalid, \
  output logic         port``_bready

`endif
