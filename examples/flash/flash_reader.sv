// Flash reader: a file from an SPI flash memory to an AXI4-Stream.
//
// Reference   the read command 03h with an address of 24 bits, which serial NOR flash memories
//             share; SPI mode 0.
// Interface   `start_i` for a clock with `address_i`, while `busy_o` is low. There the flash has
//             the length of the file, 4 bytes, the lowest first, and behind it the file. Out comes
//             the file, its first byte in bits 7..0 of a beat; `tlast` ends it, with the bytes that
//             `tkeep` says. A file of no bytes is one beat without any.
// Throughput  a bit in two clocks. Where the stream waits, the clock of the flash waits too.
// Bad input   an erased flash, all ones, has a file of 4 GiB: it ends with a reset.
module flash_reader (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  logic [23:0] address_i,
  output logic        busy_o,

  output logic        spi_cs_no,
  output logic        spi_sck_o,
  output logic        spi_mosi_o,
  input  logic        spi_miso_i,

  output logic [31:0] m_axis_tdata,
  output logic [3:0]  m_axis_tkeep,
  output logic        m_axis_tlast,
  output logic        m_axis_tvalid,
  input  logic        m_axis_tready
);

  localparam logic [7:0] ReadCommand = 8'h03;

  typedef enum logic [1:0] {
    StIdle,
    StCommand,  // 32 bits out
    StLength,   // 32 bits in
    StFile
  } state_e;

  state_e      state_q;
  logic [31:0] out_q;         // bits that leave, the upper one first
  logic [6:0]  in_q;          // of the byte that comes
  logic [2:0]  bit_q;         // of the byte
  logic [1:0]  byte_q;        // of the command, of the length, or of the beat
  logic [3:0][7:0] bytes_q;   // so far
  logic [31:0] left_q;        // bytes of the file that are still to come
  logic [7:0]  byte_in;
  logic        byte_ends, beat_ends, waits, rises;

  assign busy_o     = state_q != StIdle || m_axis_tvalid;
  assign spi_mosi_o = out_q[31];
  assign byte_in    = {in_q, spi_miso_i};
  assign byte_ends  = bit_q == 3'd7;
  assign beat_ends  = byte_ends && (byte_q == 2'd3 || left_q == 32'd1);
  // The bit that completes a beat comes when there is room for it.
  assign waits      = state_q == StFile && beat_ends && m_axis_tvalid && !m_axis_tready;
  assign rises      = state_q != StIdle && !spi_cs_no && !spi_sck_o && !waits;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q       <= StIdle;
      spi_cs_no     <= 1'b1;
      spi_sck_o     <= 1'b0;
      m_axis_tvalid <= 1'b0;
    end else begin
      if (m_axis_tready) m_axis_tvalid <= 1'b0;
      spi_cs_no <= state_q == StIdle;
      spi_sck_o <= rises;
      unique case (state_q)
        StIdle:    if (start_i && !m_axis_tvalid) state_q <= StCommand;
        StCommand: if (rises && byte_ends && byte_q == 2'd3) state_q <= StLength;
        StLength: begin
          if (rises && byte_ends && byte_q == 2'd3) begin
            state_q <= StFile;
            if ({byte_in, bytes_q[2:0]} == '0) begin
              state_q       <= StIdle;
              m_axis_tvalid <= 1'b1;
            end
          end
        end
        StFile: begin
          if (rises && beat_ends) begin
            m_axis_tvalid <= 1'b1;
            if (left_q == 32'd1) state_q <= StIdle;
          end
        end
        default: state_q <= StIdle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StIdle) begin
      out_q  <= {ReadCommand, address_i};
      bit_q  <= '0;
      byte_q <= '0;
    end else if (rises) begin
      in_q  <= byte_in[6:0];
      bit_q <= bit_q + 3'd1;
      if (byte_ends) begin
        bytes_q[byte_q] <= byte_in;
        byte_q          <= state_q == StFile && beat_ends ? '0 : byte_q + 2'd1;
      end
      if (byte_ends && state_q == StLength) left_q <= {byte_in, bytes_q[2:0]};
      if (byte_ends && state_q == StFile) left_q <= left_q - 32'd1;
    end else if (spi_sck_o) begin
      out_q <= out_q << 1;
    end
    if (rises && byte_ends && state_q == StFile) begin
      if (beat_ends) begin
        m_axis_tdata         <= bytes_q;
        m_axis_tdata[8*byte_q+:8] <= byte_in;
        m_axis_tkeep         <= 4'hF >> (2'd3 - byte_q);
        m_axis_tlast         <= left_q == 32'd1;
      end
    end else if (state_q == StLength && rises) begin
      m_axis_tkeep <= '0;
      m_axis_tlast <= 1'b1;
    end
  end

endmodule
