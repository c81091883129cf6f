// Frames: samples to the windowed points of overlapping frames.
//
// Reference   emphasise(), windowed() and frame() of mel.cpp.
// Interface   `start_i` begins a sound of `count_i` samples and `frames_i` frames, when the one
//             before is done. Of a frame 128 pairs of points t and t + 128 leave in consecutive
//             clocks, the first one told by `start_o`, once `room_i` says that there is space for
//             all of it; nothing can hold them up then.
// Throughput  a sample a clock in; a frame every 129 clocks out where its samples are there, so
//             every 160 in all.
// Memory      a ring of 512 pairs of emphasised samples in two banks, whose pairs take turns by
//             128, as points t and t + 128 are read together. 100 pairs of zeros are written in
//             front of a sound, and any number behind.
module frame
  import audio_pkg::*;
  import mel_pkg::*;
  import mel_tables_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  logic [31:0] count_i,
  input  logic [27:0] frames_i,
  input  logic [17:0] preemphasis_i,
  output logic        idle_o,  // all frames have been read

  input  sample_t     sample_i,
  input  logic        sample_valid_i,
  output logic        sample_ready_o,

  input  logic        room_i,
  output logic        begin_o,  // a frame has been begun: some clocks before start_o
  output logic        start_o,
  output point_t      low_o,
  output point_t      high_o
);

  localparam int unsigned Ring   = 512;
  localparam int unsigned Before = 100;  // pairs of zeros in front of a sound: half a window
  localparam int unsigned Needed = 200;  // pairs in a window

  // ---- What is written: zeros, the samples, zeros ----
  logic [6:0]  zeros_left_q;
  logic [31:0] samples_left_q;
  logic [27:0] frames_left_q;
  logic [9:0]  level_q;  // pairs from the beginning of the oldest frame's window on
  logic        running_q;  // frames are left
  logic        space_q;    // in the ring, also for the few pairs that are on their way
  logic        front_q;    // zeros in front of the sound are left
  logic        more_q;     // samples are left
  logic        single_q;   // one is
  logic        odd_q, take, zero;
  sample_t     before_q;

  assign idle_o         = !running_q;
  assign zero           = running_q && space_q && (front_q || !more_q);
  assign sample_ready_o = running_q && space_q && !front_q && more_q;
  assign take           = sample_ready_o && sample_valid_i;

  // Only while running_q do they count.
  always_ff @(posedge clk_i) begin
    if (start_i) begin
      space_q        <= 1'b1;
      front_q        <= 1'b1;
      zeros_left_q   <= 7'(Before);
      samples_left_q <= count_i;
      more_q         <= count_i != '0;
      single_q       <= count_i == 32'd1;
      odd_q          <= 1'b0;
    end else begin
      space_q <= level_q < 10'(Ring - 10);
      if (zero) begin
        zeros_left_q <= zeros_left_q - 7'd1;
        if (zeros_left_q == 7'd1) front_q <= 1'b0;
      end
      if (take) begin
        samples_left_q <= samples_left_q - 32'd1;
        more_q         <= samples_left_q != 32'd1;
        single_q       <= samples_left_q == 32'd2;
        odd_q          <= !odd_q;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) before_q <= '0;
    else if (take) before_q <= sample_i;
  end

  // ---- Pre-emphasis, four clocks, and pairs ----
  logic [4:1]          write_q;  // the pair is complete
  logic [4:1]          even_q, zero_q, hold_q;
  sample_t             sample_1, before_1, sample_2;
  logic        [17:0]  factor_1;
  logic signed [42:0]  product_2;
  logic signed [43:0]  exact_3;
  emphasised_t         value_4, even_value_q;
  logic                pair_valid_q;
  emphasised_t [1:0]   pair_q;  // [0]: even

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q      <= '0;
      pair_valid_q <= 1'b0;
    end else begin
      write_q      <= {write_q[3:1], zero || (take && (odd_q || single_q))};
      pair_valid_q <= write_q[4];
    end
  end

  always_ff @(posedge clk_i) begin
    even_q    <= {even_q[3:1], !odd_q};
    zero_q    <= {zero_q[3:1], zero};
    hold_q    <= {hold_q[3:1], take && !odd_q};
    sample_1  <= sample_i;
    before_1  <= before_q;
    factor_1  <= preemphasis_i;
    product_2 <= before_1 * $signed({1'b0, factor_1});
    sample_2  <= sample_1;
    exact_3   <= {{2{sample_2[23]}}, sample_2, 18'd256} - 44'(product_2);
    value_4   <= exact_3[42:9];
    if (hold_q[4]) even_value_q <= value_4;
    pair_q[0] <= zero_q[4] ? '0 : even_q[4] ? value_4 : even_value_q;
    pair_q[1] <= zero_q[4] || even_q[4] ? '0 : value_4;
  end

  // ---- Which frame is read ----
  logic       reading_q, read_start, read_end;
  logic [6:0] number_q;  // of the pair of points
  // Pair in the ring where the window of the frame begins, less the 28 pairs of weight 0 before.
  logic [8:0] first_q;

  assign read_start = !reading_q && running_q && level_q >= 10'(Needed) && room_i;
  assign read_end   = reading_q && number_q == 7'd127;
  assign begin_o    = read_start;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      reading_q <= 1'b0;
      running_q <= 1'b0;
      level_q   <= '0;
    end else begin
      if (read_start) reading_q <= 1'b1;
      else if (read_end) reading_q <= 1'b0;
      if (start_i) running_q <= 1'b1;
      else if (read_end && frames_left_q == 28'd1) running_q <= 1'b0;
      if (start_i) level_q <= '0;
      else level_q <= level_q + 10'(pair_valid_q) - (read_end ? 10'd80 : 10'd0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!reading_q) number_q <= '0;
    else number_q <= number_q + 7'd1;
    if (start_i) frames_left_q <= frames_i;
    else if (read_end) frames_left_q <= frames_left_q - 28'd1;
    if (start_i) first_q <= 9'(Ring - 28);
    else if (read_end) first_q <= first_q + 9'd80;
  end

  // ---- The ring ----
  (* ram_style = "block" *) logic [67:0] bank_0[Ring/2];
  (* ram_style = "block" *) logic [67:0] bank_1[Ring/2];
  logic [8:0]  write_address_q, address_1;
  logic [67:0] bank_0_2, bank_1_2, bank_0_3, bank_1_3, pair_low_4, pair_high_4;
  logic [6:0]  number_1;
  logic [2:1]  swap_q;
  logic [6:1]  start_q;

  always_ff @(posedge clk_i) begin
    if (start_i) write_address_q <= '0;
    else if (pair_valid_q) write_address_q <= write_address_q + 9'd1;
  end

  always_ff @(posedge clk_i) begin
    if (pair_valid_q && !write_address_q[7]) begin
      bank_0[{write_address_q[8], write_address_q[6:0]}] <= pair_q;
    end
    bank_0_2 <= bank_0[{address_1[8] ^ address_1[7], address_1[6:0]}];
  end
  always_ff @(posedge clk_i) begin
    if (pair_valid_q && write_address_q[7]) begin
      bank_1[{write_address_q[8], write_address_q[6:0]}] <= pair_q;
    end
    bank_1_2 <= bank_1[{address_1[8], address_1[6:0]}];
  end

  always_ff @(posedge clk_i) begin
    address_1   <= first_q + 9'(number_q);
    number_1    <= number_q;
    swap_q      <= {swap_q[1], address_1[7]};
    bank_0_3    <= bank_0_2;
    bank_1_3    <= bank_1_2;
    pair_low_4  <= swap_q[2] ? bank_1_3 : bank_0_3;
    pair_high_4 <= swap_q[2] ? bank_0_3 : bank_1_3;
  end

  // ---- The window: of samples 2 t, 2 t + 1, 2 t + 256, 2 t + 257 of a frame of 512 ----
  (* ram_style = "block" *) logic [103:0] weights[128];
  initial begin
    for (int t = 0; t < 128; t++) begin
      for (int i = 0; i < 4; i++) begin
        automatic int at = 2 * t + i % 2 + i / 2 * 256 - 56;
        weights[t][26*i+:26] = at < 0 || at >= 400 ? '0 : at < 200 ? Window[at] :
                               Window[399-at];
      end
    end
  end
  logic [3:0][25:0] weight_2, weight_3, weight_4;
  always_ff @(posedge clk_i) begin
    weight_2 <= weights[number_1];
    weight_3 <= weight_2;
    weight_4 <= weight_3;
  end

  emphasised_t [3:0] sample_4;
  component_t  [3:0] point_6;
  assign sample_4 = {pair_high_4, pair_low_4};

  for (genvar i = 0; i < 4; i++) begin : gen_product
    logic signed [43:0] high_5;
    logic        [42:0] low_5;
    logic signed [61:0] sum_6;
    always_ff @(posedge clk_i) begin
      high_5 <= $signed(sample_4[i][33:17]) * $signed({1'b0, weight_4[i]});
      low_5  <= sample_4[i][16:0] * weight_4[i];
      sum_6  <= {high_5[43], high_5, 17'd0} + 62'(low_5) + 62'(1 << 26);
    end
    assign point_6[i] = sum_6[60:27];
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) start_q <= '0;
    else start_q <= {start_q[5:1], reading_q && number_q == '0};
  end
  assign start_o = start_q[6];
  assign low_o   = {point_6[0], point_6[1]};
  assign high_o  = {point_6[2], point_6[3]};

`ifndef SYNTHESIS
  a_level_within_ring: assert property (@(posedge clk_i) disable iff (!rst_ni) level_q <= Ring);
  a_start_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni)
    start_i |-> idle_o && !reading_q && write_q == '0 && !pair_valid_q);
`endif

endmodule
