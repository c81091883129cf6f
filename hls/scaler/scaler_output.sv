// The end of a pass: sums of products to pixels, and pixels to pairs of which each row begins with
// a new one.
//
// Interface   one or two sums without back-pressure: `room_o` says, a clock ago, that the queue is
//             at most half full. The two are of one row. Pairs leave by ready/valid; `both_o` is
//             low in the last pair of a row of odd width.
// Arithmetic  clamp((sum + 2^(bits - 1)) >> bits) to 8 bits.
// Throughput  two pixels a clock; a clock more in a row of odd width whose pixels come unpaired.
// Latency     five clocks.
module scaler_output
  import headrace_pkg::*;
  import scaler_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic [15:0]  width_i,
  input  logic [4:0]   bits_i,

  input  sums_t [1:0]  sum_i,    // [0] is the left one
  input  logic         two_i,    // else only the left one
  input  logic         valid_i,
  output logic         room_o,

  output pixel_t [1:0] pixel_o,
  output logic         both_o,
  output logic         valid_o,
  input  logic         ready_i
);

  localparam int unsigned Depth = 32;

  // ---- Rounding, and where rows end ----
  logic  [31:0]      half_q;
  sums_t [1:0]       biased_1, shifted_2;
  pixel_t [1:0]      pixel_3;
  logic  [3:1]       valid_q, two_q, last_q;
  logic  [15:0]      column_q, next_column;

  assign next_column = column_q + 16'(two_i ? 2 : 1);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q  <= '0;
      column_q <= '0;
    end else begin
      valid_q <= {valid_q[2:1], valid_i};
      if (valid_i) column_q <= next_column == width_i ? '0 : next_column;
    end
  end

  function automatic logic [7:0] clamped(logic signed [31:0] value);
    if (value < 0) return 8'd0;
    return value > 255 ? 8'd255 : value[7:0];
  endfunction

  always_ff @(posedge clk_i) begin
    half_q <= 32'd1 << (bits_i - 5'd1);
    two_q  <= {two_q[2:1], two_i};
    last_q <= {last_q[2:1], next_column == width_i};
    for (int i = 0; i < 2; i++) begin
      for (int c = 0; c < 3; c++) begin
        biased_1[i][c]  <= sum_i[i][c] + half_q;
        shifted_2[i][c] <= $signed(biased_1[i][c]) >>> bits_i;
      end
      pixel_3[i].r <= clamped(shifted_2[i][0]);
      pixel_3[i].g <= clamped(shifted_2[i][1]);
      pixel_3[i].b <= clamped(shifted_2[i][2]);
    end
  end

  // ---- Queue ----
  pixel_t [1:0]           pixel;
  logic                   two, last, valid, pop;
  logic [$clog2(Depth):0] count;

  always_ff @(posedge clk_i) room_o <= count < ($clog2(Depth) + 1)'(Depth / 2);

  stream_fifo #(
    .Width(50),
    .Depth(Depth)
  ) u_pixels (
    .clk_i,
    .rst_ni,
    .data_i ({pixel_3, two_q[3], last_q[3]}),
    .valid_i(valid_q[3]),
    .ready_o(),
    .data_o ({pixel, two, last}),
    .valid_o(valid),
    .ready_i(pop),
    .count_o(count)
  );

  // ---- Pairs ----
  pixel_t       waiting_q;  // the left pixel of a pair
  pixel_t [1:0] made_pair;
  logic         waits_q, flush_q, alone, pair, made, taken;

  assign pair      = valid && !flush_q && (waits_q || two);
  assign alone     = valid && !flush_q && !waits_q && !two && last;
  assign made      = flush_q || pair || alone;
  assign made_pair = waits_q ? {pixel[0], waiting_q} : pixel;
  assign pop       = valid && !flush_q && (!made || taken);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      waits_q <= 1'b0;
      flush_q <= 1'b0;
    end else if (flush_q) begin
      waits_q <= !taken;
      flush_q <= !taken;
    end else if (pop) begin
      waits_q <= pair ? waits_q && two : !alone;
      flush_q <= waits_q && two && last;  // what waits then is the row's last pixel
    end
    if (pop) waiting_q <= two ? pixel[1] : pixel[0];
  end

  // The next pair is made while one waits, because who takes one may want two clocks for it.
  stream_register #(.Width(49)) u_pair (
    .clk_i,
    .rst_ni,
    .data_i ({made_pair, pair}),
    .valid_i(made),
    .ready_o(taken),
    .data_o ({pixel_o, both_o}),
    .valid_o,
    .ready_i
  );

`ifndef SYNTHESIS
  a_queue_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(valid_q[3] && count == ($clog2(Depth) + 1)'(Depth)));
  a_pair_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    valid_o && !ready_i |=> valid_o && $stable(both_o) && $stable(pixel_o[0]));
`endif

endmodule
