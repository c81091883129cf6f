// The powers of two bins of a real DFT of 512 from one of 256 complex points, or of 400 from 200.
//
// Reference   the first half of filterbank() and power() of mel.cpp.
// Interface   frames of points from fft into the slot that `slot_i` has with their `start_i`. `k_i`
//             (1 to 128) of slot `read_slot_i` asks for bins k and 256 - k; with 400 points k (1
//             to 100) for bins k and 200 - k. Their powers come Latency clocks later.
// Throughput  one k a clock. Latency 13 clocks.
// Memory      points below 128, or 100, and from there on, four frames each.
module spectrum
  import mel_pkg::*;
  import mel_tables_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       points_400_i,

  input  logic       start_i,
  input  logic [1:0] slot_i,
  input  point_t     low_i,
  input  point_t     high_i,
  output logic       written_o,  // with the last pair

  input  logic [1:0] read_slot_i,
  input  logic [7:0] k_i,
  output power_t     up_o,    // of bin k
  output power_t     down_o   // of bin 256 - k or 200 - k
);

  // ---- Points, at their own number ----
  (* ram_style = "block" *) logic [67:0] low[Slots*128];
  (* ram_style = "block" *) logic [67:0] high[Slots*128];
  logic [6:0] next_q, number, last, reversed, place_400, place, mirror;
  logic       busy_q;
  logic [1:0] slot_q, slot;
  point_t     low_1, high_1, low_2, high_2;

  assign number    = start_i ? '0 : next_q;
  assign slot      = start_i ? slot_i : slot_q;
  assign last      = points_400_i ? 7'd99 : 7'd127;
  for (genvar i = 0; i < 7; i++) begin : gen_reversed
    assign reversed[i] = number[6-i];
  end
  // As in fft_stage.
  logic [127:0][6:0] places;
  for (genvar i = 0; i < 128; i++) begin : gen_place
    assign places[i] = 7'((176 * (i / 4) + 25 * (i % 2 * 2 + i / 2 % 2)) % 100);
  end
  assign place_400 = places[number];
  assign place     = points_400_i ? place_400 : reversed;
  // 256 - k lies there in the upper half, or 200 - k
  assign mirror    = (points_400_i ? 7'd100 : 7'd0) - k_i[6:0];
  assign written_o = busy_q && number == last;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) busy_q <= 1'b0;
    else busy_q <= start_i || (busy_q && number != last);
  end
  always_ff @(posedge clk_i) begin
    next_q <= number + 7'd1;
    slot_q <= slot;
  end

  always_ff @(posedge clk_i) begin
    if (start_i || busy_q) low[{slot, place}] <= low_i;
    low_1 <= low[{read_slot_i, k_i[6:0]}];
  end
  always_ff @(posedge clk_i) begin
    if (start_i || busy_q) high[{slot, place}] <= high_i;
    high_1 <= high[{read_slot_i, mirror}];
  end

  // ---- Twice the DFTs of even and of odd samples; the latter turned ----
  // Cosine, sine of 2 pi k / 512, those of k = 128 at 0; from 128 on of 2 pi k / 400.
  (* ram_style = "block" *) logic [53:0] factors[256];
  initial begin
    factors[0] = {Cosine[128], Cosine[0]};
    for (int k = 1; k < 128; k++) factors[k] = {Cosine[k], Cosine[128-k]};
    for (int k = 0; k < 128; k++) begin
      factors[128+k] = k > 100 ? '0 : {Cosine400[k], Cosine400[100-k]};
    end
  end

  logic [2:1]  middle_q;  // k is its own mirror
  logic [53:0] factor_1, factor_2, factor_3, factor_4;
  point_t      point_3, mirror_3;
  wide_t       even_re_4, even_im_4, odd_re_4, odd_im_4, even_re_8, even_im_8;
  logic signed [35:0] turned_re_8, turned_im_8;

  always_ff @(posedge clk_i) begin
    middle_q <= {middle_q[1], points_400_i ? k_i == 8'd100 : k_i[7]};
    factor_1 <= factors[{points_400_i, k_i[6:0]}];
    factor_2 <= factor_1;
    factor_3 <= factor_2;
    factor_4 <= factor_3;
    low_2    <= low_1;
    high_2   <= high_1;
    point_3  <= middle_q[2] ? high_2 : low_2;
    mirror_3 <= high_2;

    even_re_4 <= 35'(point_3.re) + 35'(mirror_3.re);
    even_im_4 <= 35'(point_3.im) - 35'(mirror_3.im);
    odd_re_4  <= 35'(point_3.im) + 35'(mirror_3.im);
    odd_im_4  <= 35'(mirror_3.re) - 35'(point_3.re);
  end

  rotate i_rotate (
    .clk_i,
    .re_i     (odd_re_4),
    .im_i     (odd_im_4),
    .cosine_i (factor_4[53:27]),
    .sine_i   (factor_4[26:0]),
    .re_o     (turned_re_8),
    .im_o     (turned_im_8)
  );
  delay_line #(.Width(70), .Depth(4)) i_even (
    .clk_i, .rst_ni, .data_i({even_re_4, even_im_4}), .data_o({even_re_8, even_im_8})
  );

  wide_t up_re_9, up_im_9, down_re_9, down_im_9;
  always_ff @(posedge clk_i) begin
    up_re_9   <= even_re_8 + turned_re_8[34:0];
    up_im_9   <= even_im_8 + turned_im_8[34:0];
    down_re_9 <= even_re_8 - turned_re_8[34:0];
    down_im_9 <= even_im_8 - turned_im_8[34:0];
  end

  power i_up (.clk_i, .re_i(up_re_9), .im_i(up_im_9), .power_o(up_o));
  power i_down (.clk_i, .re_i(down_re_9), .im_i(down_im_9), .power_o(down_o));

endmodule
