// The ports of a compute unit, by the names that its kernel.xml leads the vendor's tools to:
// <port>_<signal>. Macros, as these tools and cocotb want a port for each signal and take no
// interfaces. A macro that ends in CONNECT hands the ports to cu_shell, whose ports have their
// names.
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

// The channels of an AXI4 master that reads, with ids of so many bits and words of so many bytes.
`define AXI_READ_PORTS(port, id_bits, bytes) \
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
  input  logic [8*bytes-1:0] port``_rdata, \
  input  logic [1:0]   port``_rresp, \
  input  logic         port``_rlast, \
  input  logic         port``_rvalid, \
  output logic         port``_rready

// And of one that writes.
`define AXI_WRITE_PORTS(port, id_bits, bytes) \
  output logic [id_bits-1:0] port``_awid, \
  output logic [63:0]  port``_awaddr, \
  output logic [7:0]   port``_awlen, \
  output logic [2:0]   port``_awsize, \
  output logic [1:0]   port``_awburst, \
  output logic [3:0]   port``_awcache, \
  output logic [2:0]   port``_awprot, \
  output logic         port``_awvalid, \
  input  logic         port``_awready, \
  output logic [8*bytes-1:0] port``_wdata, \
  output logic [bytes-1:0] port``_wstrb, \
  output logic         port``_wlast, \
  output logic         port``_wvalid, \
  input  logic         port``_wready, \
  input  logic [id_bits-1:0] port``_bid, \
  input  logic [1:0]   port``_bresp, \
  input  logic         port``_bvalid, \
  output logic         port``_bready

`define AXI_CONTROL_CONNECT(port) \
  .port``_awaddr(port``_awaddr), \
  .port``_awvalid(port``_awvalid), \
  .port``_awready(port``_awready), \
  .port``_wdata(port``_wdata), \
  .port``_wstrb(port``_wstrb), \
  .port``_wvalid(port``_wvalid), \
  .port``_wready(port``_wready), \
  .port``_bresp(port``_bresp), \
  .port``_bvalid(port``_bvalid), \
  .port``_bready(port``_bready), \
  .port``_araddr(port``_araddr), \
  .port``_arvalid(port``_arvalid), \
  .port``_arready(port``_arready), \
  .port``_rdata(port``_rdata), \
  .port``_rresp(port``_rresp), \
  .port``_rvalid(port``_rvalid), \
  .port``_rready(port``_rready)

`define AXI_READ_CONNECT(port) \
  .port``_arid(port``_arid), \
  .port``_araddr(port``_araddr), \
  .port``_arlen(port``_arlen), \
  .port``_arsize(port``_arsize), \
  .port``_arburst(port``_arburst), \
  .port``_arcache(port``_arcache), \
  .port``_arprot(port``_arprot), \
  .port``_arvalid(port``_arvalid), \
  .port``_arready(port``_arready), \
  .port``_rid(port``_rid), \
  .port``_rdata(port``_rdata), \
  .port``_rresp(port``_rresp), \
  .port``_rlast(port``_rlast), \
  .port``_rvalid(port``_rvalid), \
  .port``_rready(port``_rready)

`define AXI_WRITE_CONNECT(port) \
  .port``_awid(port``_awid), \
  .port``_awaddr(port``_awaddr), \
  .port``_awlen(port``_awlen), \
  .port``_awsize(port``_awsize), \
  .port``_awburst(port``_awburst), \
  .port``_awcache(port``_awcache), \
  .port``_awprot(port``_awprot), \
  .port``_awvalid(port``_awvalid), \
  .port``_awready(port``_awready), \
  .port``_wdata(port``_wdata), \
  .port``_wstrb(port``_wstrb), \
  .port``_wlast(port``_wlast), \
  .port``_wvalid(port``_wvalid), \
  .port``_wready(port``_wready), \
  .port``_bid(port``_bid), \
  .port``_bresp(port``_bresp), \
  .port``_bvalid(port``_bvalid), \
  .port``_bready(port``_bready)

`endif
