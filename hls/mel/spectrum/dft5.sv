// Half the DFTs of 5 points: dft5() of mel.cpp.
//
// Interface   a frame is 40 DFTs of three clocks each, the first one told by `start_i`: points 1
//             and 4, then 2 and 3, then 0 with zero as the other one. With `negate_i` the two of
//             each pair are in each other's place. Out in the same way, Latency clocks later; with
//             `flip_i` in the clock before, in each other's place. Point 0 leaves on both sides.
// Products    by a rotate that stands elsewhere: `turn_index_o` of dft5_factor() leaves a clock
//             before the numbers, which come back four clocks later.
// Throughput  a DFT in three clocks; frames begin at least 135 clocks apart.
module dft5
  import mel_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  point_t      low_i,
  input  point_t      high_i,
  input  logic        negate_i,

  output logic [1:0]  turn_index_o,
  output wide_t       turn_re_o,
  output wide_t       turn_im_o,
  input  half_t       turn_re_i,
  input  half_t       turn_im_i,

  input  logic        flip_i,
  output logic        start_o,
  output half_point_t low_o,
  output half_point_t high_o
);

  localparam int unsigned Latency = 11;

  // The clock of a DFT, modulo 3. It is the same for all that are on their way.
  logic [1:0]       next_q, slot;
  logic [Latency:1] start_q;
  assign slot    = start_i ? 2'd0 : next_q;
  assign start_o = start_q[Latency];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) start_q <= '0;
    else start_q <= {start_q[Latency-1:1], start_i};
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) next_q <= '0;
    else next_q <= slot == 2'd2 ? 2'd0 : slot + 2'd1;
  end

  // ---- Sums and differences ----
  wide_t sum_re_1, sum_im_1, sum_re_2, sum_im_2;
  wide_t re_1, im_1, re_2, im_2, im_3;
  logic signed [35:0] between_re, between_im, all_re_q, all_im_q;
  wide_t between_re_q, between_im_q;

  assign between_re = 36'(sum_re_2) - 36'(sum_re_1);
  assign between_im = 36'(sum_im_2) - 36'(sum_im_1);

  always_ff @(posedge clk_i) begin
    sum_re_1 <= 35'(low_i.re) + 35'(high_i.re);
    sum_im_1 <= 35'(low_i.im) + 35'(high_i.im);
    re_1     <= 35'(low_i.re) - 35'(high_i.re);
    im_1     <= 35'(low_i.im) - 35'(high_i.im);
    sum_re_2 <= sum_re_1;
    sum_im_2 <= sum_im_1;
    re_2     <= re_1;
    im_2     <= im_1;
    im_3     <= im_2;
    if (slot == 2'd2) begin
      all_re_q     <= 36'(sum_re_2) + 36'(sum_re_1);
      all_im_q     <= 36'(sum_im_2) + 36'(sum_im_1);
      between_re_q <= between_re[35:1];
      between_im_q <= between_im[35:1];
    end
  end

  // ---- Products: of both real parts, of both imaginary ones, of the sums' difference ----
  always_ff @(posedge clk_i) turn_index_o <= slot == 2'd2 ? 2'd2 : {1'b0, negate_i};
  always_comb begin
    unique case (slot)
      2'd2: {turn_re_o, turn_im_o} = {re_2, re_1};
      2'd0: {turn_re_o, turn_im_o} = {im_3, im_2};
      default: {turn_re_o, turn_im_o} = {between_re_q, between_im_q};
    endcase
  end

  half_t turn_re_7, turn_im_7;  // of the clock before
  half_t first_re_q, second_re_q, first_im_q, second_im_q, up_re_q, up_im_q;
  always_ff @(posedge clk_i) begin
    turn_re_7 <= turn_re_i;
    turn_im_7 <= turn_im_i;
    if (slot == 2'd1) begin
      first_re_q  <= turn_re_7;
      second_re_q <= turn_im_7;
      first_im_q  <= turn_re_i;
      second_im_q <= turn_im_i;
    end
    if (slot == 2'd2) begin
      up_re_q <= turn_re_i;
      up_im_q <= turn_im_i;
    end
  end

  // ---- What points 1 and 4, 2 and 3 have in common, and point 0 ----
  logic signed [37:0] middle_re, middle_im;
  logic signed [36:0] zero_re, zero_im;
  half_point_t middle_4, middle_5, middle_8, zero_4, zero_6, zero_9, common_10, apart_10;

  assign middle_re = $signed({sum_re_1[34], sum_re_1, 2'b11}) - 38'(all_re_q);
  assign middle_im = $signed({sum_im_1[34], sum_im_1, 2'b11}) - 38'(all_im_q);
  assign zero_re   = 37'(sum_re_1) + 37'(all_re_q) + 37'sd1;
  assign zero_im   = 37'(sum_im_1) + 37'(all_im_q) + 37'sd1;

  always_ff @(posedge clk_i) begin
    if (slot == 2'd0) begin
      middle_4 <= {{middle_re[37], middle_re[37:3]}, {middle_im[37], middle_im[37:3]}};
      zero_4   <= {zero_re[36:1], zero_im[36:1]};
    end
    if (slot == 2'd1) begin
      middle_5 <= middle_4;
      middle_8 <= middle_5;
    end
    if (slot == 2'd2) begin
      zero_6 <= zero_4;
      zero_9 <= zero_6;
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (slot)
      2'd0: begin
        common_10 <= {middle_8.re + up_re_q, middle_8.im + up_im_q};
        apart_10  <= {first_re_q, first_im_q};
      end
      2'd1: begin
        common_10 <= {middle_8.re - up_re_q, middle_8.im - up_im_q};
        apart_10  <= {second_re_q, second_im_q};
      end
      default: begin
        common_10 <= zero_9;
        apart_10  <= '0;
      end
    endcase
  end

  // ---- Out: less and plus j times what they have apart ----
  logic less;
  assign less = (slot == 2'd2) ^ flip_i;
  always_ff @(posedge clk_i) begin
    low_o.re  <= less ? common_10.re - apart_10.im : common_10.re + apart_10.im;
    low_o.im  <= less ? common_10.im + apart_10.re : common_10.im - apart_10.re;
    high_o.re <= less ? common_10.re + apart_10.im : common_10.re - apart_10.im;
    high_o.im <= less ? common_10.im - apart_10.re : common_10.im + apart_10.re;
  end

`ifndef SYNTHESIS
  logic [7:0] since_q;  // a frame began
  always_ff @(posedge clk_i) begin
    if (!rst_ni) since_q <= 8'd135;
    else if (start_i) since_q <= 8'd1;
    else if (since_q != 8'd135) since_q <= since_q + 8'd1;
  end
  a_frames_apart: assert property (@(posedge clk_i) disable iff (!rst_ni)
    start_i |-> since_q == 8'd135);
`endif

endmodule
