// Bench of the example: the design and a flash memory beside it.
module bench (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        start_i,
  input  logic [23:0] address_i,
  output logic        done_o,
  output logic [7:0]  status_o,
  output logic [47:0] tdata_o,
  output logic [5:0]  tkeep_o,
  output logic        tlast_o,
  output logic        tvalid_o,
  input  logic        tready_i
);

  logic cs_n, sck, mosi, miso;

  photo_from_flash u_design (
    .clk_i, .rst_ni, .start_i, .address_i, .done_o, .status_o,
    .busy_o              (),
    .spi_cs_no           (cs_n),
    .spi_sck_o           (sck),
    .spi_mosi_o          (mosi),
    .spi_miso_i          (miso),
    .m_axis_pixels_tdata (tdata_o),
    .m_axis_pixels_tkeep (tkeep_o),
    .m_axis_pixels_tuser (),
    .m_axis_pixels_tlast (tlast_o),
    .m_axis_pixels_tvalid(tvalid_o),
    .m_axis_pixels_tready(tready_i)
  );

  flash_model u_flash (
    .cs_ni (cs_n),
    .sck_i (sck),
    .mosi_i(mosi),
    .miso_o(miso)
  );

endmodule
