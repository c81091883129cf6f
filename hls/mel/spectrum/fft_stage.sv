// One stage of the FFT of 256 points: butterflies with decimation in frequency, and the exchange
// that brings the next stage's pairs together (multi-path delay commutator). See fft_stage() of
// mel.cpp.
//
// Interface   frames of 128 pairs in consecutive clocks, the first one told by `start_i`; so out,
//             Latency clocks later. Pair t is of points 2 t - j and 2 t - j + Apart, where j = t
//             mod Apart. Nothing can hold it up.
// Throughput  two points a clock; frames begin at least 129 clocks apart.
module fft_stage
  import mel_pkg::*;
  import mel_tables_pkg::*;
#(
  parameter int unsigned Stage = 0  // 0 to 7
) (
  input  logic   clk_i,
  input  logic   rst_ni,
  input  logic   start_i,
  input  point_t low_i,
  input  point_t high_i,
  output logic   start_o,
  output point_t low_o,
  output point_t high_o
);

  localparam int unsigned Apart = 128 >> Stage;
  localparam int unsigned Shift = Stage == 1 ? 0 : 1;
  localparam int unsigned Butterfly = Stage == 7 ? 2 : Stage == 6 ? 3 : 5;  // clocks
  localparam int unsigned Delay = Apart / 2;
  localparam int unsigned Latency = Stage == 7 ? Butterfly : Butterfly + Delay + 1;

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
    else if (start_q[Butterfly]) left_q <= 8'd127;
    else if (left_q != '0) left_q <= left_q - 8'd1;
  end
`endif

  // ---- Butterfly ----
  wide_t sum_re_1, sum_im_1, re_1, im_1;
  always_ff @(posedge clk_i) begin
    sum_re_1 <= 35'(low_i.re) + 35'(high_i.re);
    sum_im_1 <= 35'(low_i.im) + 35'(high_i.im);
    re_1     <= 35'(low_i.re) - 35'(high_i.re);
    im_1     <= 35'(low_i.im) - 35'(high_i.im);
  end

  function automatic component_t halved(wide_t value);
    logic signed [35:0] rounded = 36'(value) + 36'(Shift);
    return rounded[Shift+:34];
  endfunction

  point_t sum_2, sum, difference;
  always_ff @(posedge clk_i) sum_2 <= {halved(sum_re_1), halved(sum_im_1)};

  if (Stage == 7) begin : gen_last
    always_ff @(posedge clk_i) difference <= {halved(re_1), halved(im_1)};
    assign sum = sum_2;
  end else begin : gen_turn
    logic [6:0] next_q, number;  // of the pair
    assign number = start_i ? '0 : next_q;
    always_ff @(posedge clk_i) next_q <= number + 7'd1;

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
    end else begin : gen_rotate
      localparam int unsigned Width = $clog2(Apart);
      localparam Style = Apart >= 64 ? "block" : "auto";
      (* ram_style = Style *) logic [53:0] factors[Apart];  // cosine, sine of 2 pi j / (2 Apart)
      initial begin
        for (int j = 0; j < Apart; j++) begin
          automatic int k = j << (Stage + 1);
          factors[j] = {Cosine[k], k <= 128 ? Cosine[128-k] : Cosine[k-128]};
        end
      end
      logic [53:0] factor_1;
      always_ff @(posedge clk_i) factor_1 <= factors[number[Width-1:0]];

      logic signed [35:0] re_5, im_5;
      rotate #(.Shift(Shift)) i_rotate (
        .clk_i,
        .re_i     (re_1),
        .im_i     (im_1),
        .cosine_i (factor_1[53:27]),
        .sine_i   (factor_1[26:0]),
        .re_o     (re_5),
        .im_o     (im_5)
      );
      assign difference = {re_5[33:0], im_5[33:0]};
`ifndef SYNTHESIS
      a_difference_fits: assert property (@(posedge clk_i) disable iff (!rst_ni)
        busy |-> (re_5[35:33] inside {3'b000, 3'b111}) && (im_5[35:33] inside {3'b000, 3'b111}));
`endif
    end
  end

  // ---- Exchange: first the sums, then the differences, those that are Delay apart as pairs ----
  if (Stage == 7) begin : gen_out
    assign {low_o, high_o} = {sum, difference};
  end else begin : gen_exchange
    logic [6:0] next_q, number;
    logic       busy_q, first;
    assign first  = start_q[Butterfly];
    assign number = first ? '0 : next_q;
    always_ff @(posedge clk_i) next_q <= number + 7'd1;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) busy_q <= 1'b0;
      else busy_q <= first || (busy_q && number != 7'd127);
    end

    logic   crossed;
    point_t late, early, upper;
    assign crossed = (first || busy_q) && number[$clog2(Delay)];
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
  a_sum_fits: assert property (@(posedge clk_i) disable iff (!rst_ni)
    Shift == 0 && start_q[1] |-> sum_re_1[34] == sum_re_1[33] && sum_im_1[34] == sum_im_1[33]);
`endif

endmodule
