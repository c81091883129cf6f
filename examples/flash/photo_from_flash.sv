// Photo from flash: the example design. A pulse decodes the file that lies in an SPI flash memory.
//
//   SPI flash -> flash_reader -> image_stream -> pixels
//   register_script -> registers of image_stream
//
// Interface   `start_i` for a clock with the file's address in the flash, while `busy_o` is low.
//             Out come pixels as image_stream has them; then `done_o` for a clock, with `status_o`.
// Bad input   ends in a status other than 0.
module photo_from_flash (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  logic [23:0] address_i,
  output logic        busy_o,
  output logic        done_o,
  output logic [7:0]  status_o,

  output logic        spi_cs_no,
  output logic        spi_sck_o,
  output logic        spi_mosi_o,
  input  logic        spi_miso_i,

  output logic [47:0] m_axis_pixels_tdata,
  output logic [5:0]  m_axis_pixels_tkeep,
  output logic [1:0]  m_axis_pixels_tuser,
  output logic        m_axis_pixels_tlast,
  output logic        m_axis_pixels_tvalid,
  input  logic        m_axis_pixels_tready
);

  logic        reader_busy, script_busy, interrupt;
  logic [31:0] tdata, wdata, rdata;
  logic [3:0]  tkeep;
  logic        tlast, tvalid, tready;
  logic [11:0] awaddr, araddr;
  logic        awvalid, awready, wvalid, wready, bvalid, arvalid, arready, rvalid;

  assign busy_o = reader_busy || script_busy;

  flash_reader u_reader (
    .clk_i, .rst_ni,
    .start_i      (start_i && !busy_o),
    .address_i,
    .busy_o       (reader_busy),
    .spi_cs_no, .spi_sck_o, .spi_mosi_o, .spi_miso_i,
    .m_axis_tdata (tdata),
    .m_axis_tkeep (tkeep),
    .m_axis_tlast (tlast),
    .m_axis_tvalid(tvalid),
    .m_axis_tready(tready)
  );

  register_script u_script (
    .clk_i, .rst_ni,
    .start_i      (start_i && !busy_o),
    .busy_o       (script_busy),
    .done_o, .status_o,
    .interrupt_i  (interrupt),
    .m_axi_awaddr (awaddr),
    .m_axi_awvalid(awvalid),
    .m_axi_awready(awready),
    .m_axi_wdata  (wdata),
    .m_axi_wvalid (wvalid),
    .m_axi_wready (wready),
    .m_axi_bvalid (bvalid),
    .m_axi_araddr (araddr),
    .m_axi_arvalid(arvalid),
    .m_axi_arready(arready),
    .m_axi_rdata  (rdata),
    .m_axi_rvalid (rvalid)
  );

  image_stream #(.InputBits(32)) u_image (
    .clk_i, .rst_ni,
    .interrupt_o          (interrupt),
    .s_axi_control_awaddr (awaddr),
    .s_axi_control_awvalid(awvalid),
    .s_axi_control_awready(awready),
    .s_axi_control_wdata  (wdata),
    .s_axi_control_wstrb  (4'hF),
    .s_axi_control_wvalid (wvalid),
    .s_axi_control_wready (wready),
    .s_axi_control_bresp  (),
    .s_axi_control_bvalid (bvalid),
    .s_axi_control_bready (1'b1),
    .s_axi_control_araddr (araddr),
    .s_axi_control_arvalid(arvalid),
    .s_axi_control_arready(arready),
    .s_axi_control_rdata  (rdata),
    .s_axi_control_rresp  (),
    .s_axi_control_rvalid (rvalid),
    .s_axi_control_rready (1'b1),
    .s_axis_jpeg_tdata    (tdata),
    .s_axis_jpeg_tkeep    (tkeep),
    .s_axis_jpeg_tlast    (tlast),
    .s_axis_jpeg_tvalid   (tvalid),
    .s_axis_jpeg_tready   (tready),
    .m_axis_pixels_tdata, .m_axis_pixels_tkeep, .m_axis_pixels_tuser, .m_axis_pixels_tlast,
    .m_axis_pixels_tvalid, .m_axis_pixels_tready
  );

endmodule
