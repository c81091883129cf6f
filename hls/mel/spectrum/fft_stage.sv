// One stage of the FFT of 256 points: butterflies with decimation in frequency, and the exchange
// that brings the next stage's pairs together (multi-path delay commutator). See fft_stage() of
// mel.cpp. With `points_400_i` the last three are those of DFTs of 8, and the rotates of the first
// four work for fft_fifths.
//
// Interface   frames of 128 pairs, or of 100, in consecutive clocks, the first one told by
//             `start_i`; so out, Latency clocks later. Pair t is of points 2 t - j and 2 t - j +
//             Apart, where j = t mod Apart. Nothing can hold it up. Of 100 pairs into stage 5 the
//             points are in each other's place with `swapped_i`; from stage 7 on the first one is
//             that of the lower number.
//             `turn_*`: see fft_fifths.
// Throughput  two points a clock; frames begin at least 129 clocks apart.
module fft_stage
  import mel_pkg::*;
  import mel_tables_pkg::*;
#(
  parameter int unsigned Stage = 0  // 0 to 7
) (
  input  logic       clk_i,
  input  logic       rst_ni,
  input  logic       points_400_i,
  input  logic       start_i,
  input  logic       swapped_i,
  input  point_t     low_i,
  input  point_t     high_i,
  output logic       start_o,
  output point_t     low_o,
  output point_t     high_o,

  input  logic [7:0] turn_index_i,
  input  wide_t      turn_re_i,
  input  wide_t      turn_im_i,
  output half_t      turn_re_o,
  output half_t      turn_im_o
);

  localparam int unsigned Apart = 128 >> Stage;
  localparam int unsigned Butterfly = Stage == 7 ? 2 : Stage == 6 ? 3 : 5;  // clocks
  localparam int unsigned Delay = Apart / 2;
  localparam int unsigned Latency = Stage == 7 ? Butterfly : Butterfly + Delay + 1;

  logic [6:0] last;  // number of the last pair
  assign last = points_400_i && Stage >= 5 ? 7'd99 : 7'd127;

  logic [Latency:1] start_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) start_q <= '0;
    else start_q <= {start_q[Latency-1:1], start_i};
  end
  assign start_o = start_q[Latency];

`ifndef SYNTHESIS
  logic [7:0] left_q;  // pairs of the frame that are still to come out of the butterfly
  logic       busy;
  assign busy = start_q[Butterfly] || left_q != '0;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) left_q <= '0;
    else if (start_q[Butterfly]) left_q <= {1'b0, last};
    else if (left_q != '0) left_q <= left_q - 8'd1;
  end
`endif

  logic unused;
  assign unused = points_400_i ^ swapped_i ^ (^{turn_index_i, turn_re_i, turn_im_i});

  // ---- Butterfly ----
  logic [6:0] next_q, number;  // of the pair
  assign number = start_i ? '0 : next_q;
  always_ff @(posedge clk_i) next_q <= number + 7'd1;

  logic exchange;  // the difference leaves first
  if (Stage == 7) begin : gen_upper
    // Of DFT of 25 number k1 and DFT of 8 number k2 the point is 176 k1 + 25 k2 modulo 200.
    logic [99:0] upper;
    for (genvar i = 0; i < 100; i++) begin : gen_number
      assign upper[i] = (176 * (i / 4) + 25 * (i % 2 * 2 + i / 2 % 2)) % 200 >= 100;
    end
    assign exchange = points_400_i && upper[number];
  end else begin : gen_sum_first
    assign exchange = 1'b0;
  end

  wide_t sum_re_1, sum_im_1, re_1, im_1;
  always_ff @(posedge clk_i) begin
    sum_re_1 <= exchange ? 35'(low_i.re) - 35'(high_i.re) : 35'(low_i.re) + 35'(high_i.re);
    sum_im_1 <= exchange ? 35'(low_i.im) - 35'(high_i.im) : 35'(low_i.im) + 35'(high_i.im);
    re_1     <= exchange ? 35'(low_i.re) + 35'(high_i.re) : 35'(low_i.re) - 35'(high_i.re);
    im_1     <= exchange ? 35'(low_i.im) + 35'(high_i.im) : 35'(low_i.im) - 35'(high_i.im);
  end

  function automatic component_t halved(wide_t value);
    logic signed [35:0] rounded = 36'(value) + 36'sd1;
    return rounded[34:1];
  endfunction

  point_t sum_2, sum, difference;
  always_ff @(posedge clk_i) sum_2 <= {halved(sum_re_1), halved(sum_im_1)};

  if (Stage == 7) begin : gen_last
    always_ff @(posedge clk_i) difference <= {halved(re_1), halved(im_1)};
    assign sum       = sum_2;
    assign turn_re_o = '0;
    assign turn_im_o = '0;
  end else begin : gen_turn
    delay_line #(.Width(68), .Depth(Butterfly - 2)) i_sum (
      .clk_i, .rst_ni, .data_i(sum_2), .data_o(sum)
    );

    if (Stage == 6) begin : gen_quarter  // by 0 or a quarter of a turn: no product
      logic  turned_1;
      wide_t re_2, im_2;
      always_ff @(posedge clk_i) begin
        turned_1   <= number[0];
        re_2       <= turned_1 ? im_1 : re_1;
        im_2       <= turned_1 ? -re_1 : im_1;
        difference <= {halved(re_2), halved(im_2)};
      end
      assign turn_re_o = '0;
      assign turn_im_o = '0;
    end else begin : gen_rotate
      // Cosine and sine of 2 pi j / (2 Apart); behind them those of fft_fifths, or of pairs that
      // are in each other's place.
      localparam int unsigned Width = Stage <= 1 ? 8 : $clog2(Apart);
      localparam Style = Stage <= 3 ? "block" : "auto";
      (* ram_style = Style *) logic [53:0] factors[2<<Width];
      initial begin
        for (int j = 0; j < 1 << Width; j++) begin
          automatic int k = (j % Apart) << (Stage + 1);
          automatic logic [26:0] cosine = Cosine[k];
          automatic logic [26:0] sine = k <= 128 ? Cosine[128-k] : Cosine[k-128];
          factors[j] = {cosine, sine};
          if (Stage == 5) factors[(1<<Width)+j] = {-cosine, -sine};
          else factors[(1<<Width)+j] = '0;
        end
        if (Stage <= 1) begin
          for (int r = 0; r < 40; r++) begin
            for (int slot = 0; slot < 3; slot++) begin
              // The point that stage 0 turns, and the other one of the pair.
              automatic logic other = (r / 8 + r % 8 * 2) % 5 >= 3;
              automatic int c = slot == 2 ? 0 : other == (Stage == 1) ? slot + 1 : 4 - slot;
              factors[(1<<Width)+4*r+slot] = {TurnCosine[22*r*c%25], TurnSine[22*r*c%25]};
            end
          end
        end else if (Stage <= 3) begin
          factors[(1<<Width)]   = {Fifth[0], Fifth[1]};
          factors[(1<<Width)+1] = {-Fifth[0], -Fifth[1]};
          factors[(1<<Width)+2] = {Fifth[2], 27'd0};
        end
      end
      logic [Width:0] index;
      if (Stage <= 3) begin : gen_shared
        assign index = points_400_i ? {1'b1, turn_index_i[Width-1:0]}
                                    : {1'b0, Width'(number[$clog2(Apart)-1:0])};
      end else begin : gen_own
        assign index = {Stage == 5 && swapped_i, number[Width-1:0]};
      end
      logic [53:0] factor_1;
      always_ff @(posedge clk_i) factor_1 <= factors[index];

      wide_t re, im;
      half_t re_5, im_5;
      assign re = Stage <= 3 && points_400_i ? turn_re_i : re_1;
      assign im = Stage <= 3 && points_400_i ? turn_im_i : im_1;
      rotate #(.Shift(1)) i_rotate (
        .clk_i,
        .re_i     (re),
        .im_i     (im),
        .cosine_i (factor_1[53:27]),
        .sine_i   (factor_1[26:0]),
        .re_o     (re_5),
        .im_o     (im_5)
      );
      assign difference = {re_5[33:0], im_5[33:0]};
      assign turn_re_o  = re_5;
      assign turn_im_o  = im_5;
`ifndef SYNTHESIS
      a_difference_fits: assert property (@(posedge clk_i) disable iff (!rst_ni)
        busy && !(Stage <= 3 && points_400_i) |->
        (re_5[35:33] inside {3'b000, 3'b111}) && (im_5[35:33] inside {3'b000, 3'b111}));
`endif
    end
  end

  // ---- Exchange: first the sums, then the differences, those that are Delay apart as pairs ----
  if (Stage == 7) begin : gen_out
    assign {low_o, high_o} = {sum, difference};
  end else begin : gen_exchange
    logic [6:0] next_out_q, number_out;
    logic       busy_q, first;
    assign first      = start_q[Butterfly];
    assign number_out = first ? '0 : next_out_q;
    always_ff @(posedge clk_i) next_out_q <= number_out + 7'd1;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) busy_q <= 1'b0;
      else busy_q <= first || (busy_q && number_out != last);
    end

    logic   crossed;
    point_t late, early, upper;
    assign crossed = (first || busy_q) && number_out[$clog2(Delay)];
    assign early   = crossed ? late : sum;
    delay_line #(.Width(68), .Depth(Delay)) i_late (
      .clk_i, .rst_ni, .data_i(difference), .data_o(late)
    );
    delay_line #(.Width(68), .Depth(Delay)) i_upper (
      .clk_i, .rst_ni, .data_i(early), .data_o(upper)
    );
    always_ff @(posedge clk_i) begin
      low_o  <= upper;
      high_o <= crossed ? sum : late;
    end
  end

`ifndef SYNTHESIS
  logic [7:0] since_q;  // a frame began
  always_ff @(posedge clk_i) begin
    if (!rst_ni) since_q <= 8'd129;
    else if (start_i) since_q <= 8'd1;
    else if (since_q != 8'd129) since_q <= since_q + 8'd1;
  end
  a_frames_apart: assert property (@(posedge clk_i) disable iff (!rst_ni)
    start_i |-> since_q == 8'd129);
`endif

endmodule
