// YCbCr to RGB, a source beat a clock.
//
// Reference   emit_row in decode.cpp, libjpeg's JFIF conversion: 1.402, 0.344136, 0.714136, 1.772
//             in Q1.16 on Cb and Cr less 128; each channel is rounded once, half up, and clamped.
// Interface   nothing stalls. With `rgb_i` the components are R, G, B already.
// Throughput  SourcePixels a clock. Latency 6 clocks. Four multipliers a pixel, with a register
//             before and two behind.
module color
  import headrace_pkg::*;
  import render_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         rgb_i,
  input  ycc_beat_t    beat_i,
  input  logic         beat_valid_i,

  output source_pixels_t          pixel_o,
  output logic [SourcePixels-1:0] keep_o,
  output logic         last_o,
  output logic         valid_o
);

  localparam int unsigned Latency = 6;

  typedef logic signed [7:0]  centred_t;
  typedef logic signed [25:0] product_t;  // Q10.16

  localparam logic signed [17:0] RedOfCr   = 18'sd91881;
  localparam logic signed [17:0] GreenOfCb = 18'sd22554;
  localparam logic signed [17:0] GreenOfCr = 18'sd46802;
  localparam logic signed [17:0] BlueOfCb  = 18'sd116130;

  ycc_beat_t beat_q, beat_q2, beat_q3, beat_q4, beat_q5;
  logic [Latency-1:0] valid_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q <= '0;
    else         valid_q <= {valid_q[Latency-2:0], beat_valid_i};
  end

  always_ff @(posedge clk_i) begin
    beat_q  <= beat_i;
    beat_q2 <= beat_q;
    beat_q3 <= beat_q2;
    beat_q4 <= beat_q3;
    beat_q5 <= beat_q4;
    keep_o  <= beat_q5.keep;
    last_o  <= beat_q5.last;
  end

  function automatic logic [7:0] clamped(logic [9:0] value);
    return value[9] ? 8'd0 : value[8] ? 8'd255 : value[7:0];
  endfunction

  for (genvar x = 0; x < SourcePixels; x++) begin : gen_pixel
    centred_t cb_q, cr_q;
    product_t red_m_q, green_cb_m_q, green_cr_m_q, blue_m_q;
    product_t red_p_q, green_cb_p_q, green_cr_p_q, blue_p_q;
    product_t red_q, green_part_q, green_cr_q, blue_q, luma;
    product_t red_q2, green_q2, blue_q2;

    assign luma = {2'd0, beat_q3.y[x], 16'h8000};

    always_ff @(posedge clk_i) begin
      cb_q <= {!beat_i.cb[x][7], beat_i.cb[x][6:0]};
      cr_q <= {!beat_i.cr[x][7], beat_i.cr[x][6:0]};

      red_m_q      <= cr_q * RedOfCr;
      green_cb_m_q <= cb_q * GreenOfCb;
      green_cr_m_q <= cr_q * GreenOfCr;
      blue_m_q     <= cb_q * BlueOfCb;

      red_p_q      <= red_m_q;
      green_cb_p_q <= green_cb_m_q;
      green_cr_p_q <= green_cr_m_q;
      blue_p_q     <= blue_m_q;

      red_q        <= luma + red_p_q;
      green_part_q <= luma - green_cb_p_q;
      green_cr_q   <= green_cr_p_q;
      blue_q       <= luma + blue_p_q;

      red_q2   <= red_q;
      green_q2 <= green_part_q - green_cr_q;
      blue_q2  <= blue_q;

      pixel_o[x].r <= rgb_i ? beat_q5.y[x]  : clamped(red_q2[25:16]);
      pixel_o[x].g <= rgb_i ? beat_q5.cb[x] : clamped(green_q2[25:16]);
      pixel_o[x].b <= rgb_i ? beat_q5.cr[x] : clamped(blue_q2[25:16]);
    end
  end

  assign valid_o = valid_q[Latency-1];

endmodule
