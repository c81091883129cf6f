// Frames: samples to the windowed points of overlapping frames.
//
// Reference   mel(), emphasise(), windowed() and frame() of mel.cpp.
// Interface   `start_i` begins a sound of `given_i` samples of which `count_i` count, with `pad_i`
//             zeros among them, and of `frames_i` frames, when the one before is done. Of a frame
//             128 pairs of points t and t + 128 leave in consecutive clocks, the first one told by
//             `start_o`, once `room_i` says that there is space for all of it; nothing can hold
//             them up then. See frame_points for their order. `load_i`: the window's rows.
// Throughput  a sample a clock in; a frame every 129 clocks out where its samples are there, so
//             every 160 in all. Samples that no frame needs are taken.
//             With `mean_removed_i` a frame leaves 72 clocks later behind its last sample.
// Plans       with `mean_removed_i` a frame loses its mean's share, found by frame_mean; with
//             `alone_i` its first sample is another one, kept for each frame of the ring. Both are
//             for frames that lie inside the sound.
// Memory      a ring of 512 pairs of emphasised samples in two banks, whose pairs take turns by
//             128, as points t and t + 128 are read together. In front of a sound that begins in
//             the middle of a window, there are 100 pairs: zeros, or what its first pairs are
//             written to once more. Behind it there is any number: zeros, or the last samples from
//             a memory of 64.
module frame
  import audio_pkg::*;
  import mel_pkg::*;
(
  input  logic            clk_i,
  input  logic            rst_ni,

  input  logic            load_i,
  input  logic [6:0]      load_index_i,
  input  logic [127:0]    load_word_i,

  input  logic            points_400_i,
  input  logic [1:0]      ends_i,
  input  logic            mean_removed_i,
  input  logic            alone_i,  // pre-emphasis in each frame by itself
  input  logic [23:0]     preemphasis_i,

  input  logic            start_i,
  input  logic [31:0]     given_i,  // samples that come
  input  logic [31:0]     count_i,  // of them, samples of the sound
  input  logic [31:0]     pad_i,    // zeros behind them
  input  logic [27:0]     frames_i,
  output logic            idle_o,   // all frames have been read, and all samples taken

  input  sample_t         sample_i,
  input  logic            sample_valid_i,
  output logic            sample_ready_o,

  input  logic            room_i,
  output logic            begin_o,  // a frame has been begun: some clocks before start_o
  output logic            start_o,
  output windowed_point_t low_o,
  output windowed_point_t high_o
);

  localparam int unsigned Ring   = 512;
  localparam int unsigned Before = 100;  // pairs in front of a sound: half a window
  localparam int unsigned Needed = 200;  // pairs in a window

  logic mirrored;
  assign mirrored = ends_i == EndsMirrored;

  // ---- What is written: zeros, the samples, zeros; or samples, zeros, samples ----
  logic [6:0]  zeros_left_q;
  logic [31:0] given_left_q, samples_left_q, pad_left_q;
  logic [27:0] frames_left_q;
  logic [9:0]  level_q;  // pairs from the beginning of the oldest frame's window on
  logic        running_q;  // frames are left
  logic        space_q;    // in the ring, also for the few pairs that are on their way
  logic        front_q;    // zeros in front of the sound are left
  logic        given_q;    // samples that have not come
  logic        more_q;     // of them, some for the ring
  logic        single_q;   // one is
  logic        pad_q;      // zeros of the sound are left
  logic        odd_q, take, drop, zero, fill, tail;
  sample_t     before_q;

  assign idle_o         = !running_q && !given_q;
  assign zero           = running_q && space_q && (front_q || (!more_q && !mirrored));
  assign fill           = running_q && space_q && !front_q && !more_q && mirrored;
  assign tail           = fill && !pad_q;
  assign drop           = given_q && !(running_q && more_q);
  assign sample_ready_o = (running_q && space_q && !front_q && more_q) || drop;
  assign take           = running_q && space_q && !front_q && more_q && sample_valid_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) given_q <= 1'b0;
    else if (start_i) given_q <= given_i != '0;
    else if (sample_ready_o && sample_valid_i && given_left_q == 32'd1) given_q <= 1'b0;
  end

  // Only while running_q do these count.
  always_ff @(posedge clk_i) begin
    if (start_i) begin
      space_q        <= 1'b1;
      front_q        <= ends_i == EndsZeros;
      zeros_left_q   <= 7'(Before);
      given_left_q   <= given_i;
      samples_left_q <= count_i;
      more_q         <= count_i != '0;
      single_q       <= count_i == 32'd1;
      pad_left_q     <= pad_i;
      pad_q          <= pad_i != '0;
      odd_q          <= 1'b0;
    end else begin
      space_q <= level_q < 10'(Ring - 12);
      if (zero) begin
        zeros_left_q <= zeros_left_q - 7'd1;
        if (zeros_left_q == 7'd1) front_q <= 1'b0;
      end
      if (sample_ready_o && sample_valid_i) given_left_q <= given_left_q - 32'd1;
      if (take) begin
        samples_left_q <= samples_left_q - 32'd1;
        more_q         <= samples_left_q != 32'd1;
        single_q       <= samples_left_q == 32'd2;
      end
      if (fill && pad_q) begin
        pad_left_q <= pad_left_q - 32'd1;
        pad_q      <= pad_left_q != 32'd1;
      end
      if (take || fill) odd_q <= !odd_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) before_q <= '0;
    else if (take) before_q <= sample_i;
  end

  // ---- Pre-emphasis, four clocks, samples of the mirrored end, and pairs ----
  // A product has two registers: those of one DSP of an AMD card, and of an ECP5 those of two
  // multipliers and behind the sum of their products.
  logic [5:1]          write_q;  // the pair is complete
  logic [5:1]          even_q, hold_q, keep_q;  // keep_q: into the memory of the last samples
  logic [4:1]          zero_q, tail_q;          // tail_q: from there
  sample_t             sample_1, before_1, sample_2, sample_3;
  logic        [23:0]  factor_1;
  logic signed [41:0]  low_2, low_3;    // product with the lower 17 bits of the factor
  logic signed [31:0]  high_2, high_3;  // with the others
  logic signed [49:0]  exact_4;
  emphasised_t         value_5, even_value_q, odd_before_q;
  logic                pair_valid_q, again_q;
  emphasised_t [1:0]   pair_q;  // [0]: even

  (* ram_style = "distributed" *) emphasised_t last_samples[64];
  logic [5:0] last_q;    // the number of samples so far, modulo 64
  logic [5:0] mirror_q;  // where the next one of the mirrored end is

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q      <= '0;
      pair_valid_q <= 1'b0;
    end else begin
      write_q      <= {write_q[4:1],
                       zero || (take && (odd_q || (single_q && !mirrored))) || (fill && odd_q)};
      pair_valid_q <= write_q[5];
    end
  end

  always_ff @(posedge clk_i) begin
    even_q    <= {even_q[4:1], zero || !odd_q};
    hold_q    <= {hold_q[4:1], (take || fill) && !odd_q};
    zero_q    <= {zero_q[3:1], !take};
    tail_q    <= {tail_q[3:1], tail};
    keep_q    <= {keep_q[4:1], take || (fill && pad_q)};
    sample_1  <= sample_i;
    before_1  <= before_q;
    factor_1  <= preemphasis_i;
    low_2     <= before_1 * $signed({1'b0, factor_1[16:0]});
    high_2    <= before_1 * $signed({1'b0, factor_1[23:17]});
    sample_2  <= sample_1;
    low_3     <= low_2;
    high_3    <= high_2;
    sample_3  <= sample_2;
    exact_4   <= {{2{sample_3[23]}}, sample_3, 24'd32} - 50'(low_3) - 50'({high_3, 17'd0});
    if (tail_q[4]) value_5 <= last_samples[mirror_q];
    else if (zero_q[4]) value_5 <= '0;
    else value_5 <= exact_4[48:6];
    if (keep_q[5]) last_samples[last_q] <= value_5;
    if (start_i) last_q <= '0;
    else if (keep_q[5]) last_q <= last_q + 6'd1;
    // A clock ahead: the sample before the last one, which is on its way, is there.
    if (start_i) mirror_q <= -6'd2;
    else if (keep_q[4]) mirror_q <= mirror_q + 6'd1;
    else if (tail_q[4]) mirror_q <= mirror_q - 6'd1;

    if (hold_q[5]) even_value_q <= value_5;
    if (write_q[5]) begin
      pair_q[0] <= even_q[5] ? value_5 : even_value_q;
      pair_q[1] <= even_q[5] ? '0 : value_5;
    end else if (pair_valid_q) begin
      pair_q[1] <= odd_before_q;
    end
    if (pair_valid_q) odd_before_q <= pair_q[1];
  end

  // ---- What a frame has of its own: its mean's share, and its first sample ----
  // Pairs in blocks of 40: a frame begins with every second one.
  logic [5:0]         pair_number_q;
  logic [3:0]         block_q;       // its number
  logic               block_end, block_end_q;
  logic               read_start, mean_ready;
  emphasised_t        mean, mean_q;  // of the next frame, and of the one that is read
  logic [5:2]         head_q;        // the pair has the first sample of a frame
  logic [5:2][2:0]    head_frame_q;
  sample_t            before_2, before_3;
  logic signed [49:0] head_exact_4;
  emphasised_t        head_5, frame_head_q;
  logic [2:0]         frame_q;       // that is read
  (* ram_style = "distributed" *) emphasised_t heads[8];

  assign block_end = write_q[1] && pair_number_q == 6'd39;

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      pair_number_q <= '0;
      block_q       <= '0;
    end else if (write_q[1]) begin
      pair_number_q <= block_end ? '0 : pair_number_q + 6'd1;
      block_q       <= block_q + 4'(block_end);
    end
    block_end_q  <= block_end;
    head_q       <= {head_q[4:2], write_q[1] && pair_number_q == '0 && !block_q[0]};
    head_frame_q <= {head_frame_q[4:2], block_q[3:1]};
    before_2     <= before_1;
    before_3     <= before_2;
    head_exact_4 <= {{2{before_3[23]}}, before_3, 24'd32} - 50'(low_3) - 50'({high_3, 17'd0});
    head_5       <= head_exact_4[48:6];
    if (head_q[5]) heads[head_frame_q[5]] <= even_q[5] ? '0 : head_5;
  end

  frame_mean i_mean (
    .clk_i,
    .rst_ni,
    .enable_i      (mean_removed_i),
    .preemphasis_i,
    .clear_i       (start_i),
    .sample_i      (sample_1),
    .valid_i       (!zero_q[1]),
    .block_end_i   (block_end_q),
    .read_i        (read_start),
    .ready_o       (mean_ready),
    .mean_o        (mean)
  );

  // ---- Which frame is read ----
  logic       reading_q, read_end;
  logic       counted;   // a pair
  logic [6:0] number_q;  // of the pair of points
  logic [7:1] start_q;
  // Pair in the ring where the frame begins: with its window, or 28 pairs before.
  logic [8:0] first_q;

  // The last pair is read 71 clocks behind the first one, so it counts two clocks before it is
  // written. What is mirrored needs a pair more, whose mirrored place is read first.
  assign counted    = mirrored ? write_q[5] : write_q[4];
  assign read_start = !reading_q && running_q && level_q >= 10'(Needed) + 10'(mirrored) && room_i &&
                      mean_ready;
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
      if (start_i) running_q <= frames_i != '0;
      else if (read_end && frames_left_q == 28'd1) running_q <= 1'b0;
      if (start_i) level_q <= mirrored ? 10'(Before) : '0;
      else level_q <= level_q + 10'(counted) - (read_end ? 10'd80 : 10'd0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!reading_q) number_q <= '0;
    else number_q <= number_q + 7'd1;
    if (start_i) frames_left_q <= frames_i;
    else if (read_end) frames_left_q <= frames_left_q - 28'd1;
    if (start_i) first_q <= points_400_i ? '0 : 9'(Ring - 28);
    else if (read_end) first_q <= first_q + 9'd80;
    if (start_i) frame_q <= '0;
    else if (read_end) frame_q <= frame_q + 3'd1;
    // In front of the first pair, and behind the last one of the frame before.
    if (start_q[2]) begin
      mean_q       <= mean;
      frame_head_q <= heads[frame_q];
    end
  end

  // ---- The ring ----
  (* ram_style = "block" *) logic [85:0] bank_0[Ring/2];
  (* ram_style = "block" *) logic [85:0] bank_1[Ring/2];
  logic [8:0]  write_address_q, write_address, address_1;
  logic [6:0]  again_address_q;  // of the next pair in front of the sound
  logic        again_left_q;
  logic [85:0] bank_0_2, bank_1_2, bank_0_3, bank_1_3;
  logic [6:0]  number_1;
  logic [2:1]  low_inside_q, high_inside_q, first_pair_q;
  logic        swap_1, same_1;
  logic        swap_low_q, stay_low_q, swap_high_q, stay_high_q;  // each for 43 bits
  emphasised_t [3:0] framed_3, framed_4;

  assign write_address = again_q ? {2'd0, again_address_q} : write_address_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) again_q <= 1'b0;
    else again_q <= pair_valid_q && again_left_q && again_address_q != 7'(Before);
  end
  always_ff @(posedge clk_i) begin
    if (start_i) begin
      write_address_q <= mirrored ? 9'(Before) : '0;
      again_address_q <= 7'(Before);
      again_left_q    <= mirrored;
    end else begin
      if (pair_valid_q) write_address_q <= write_address_q + 9'd1;
      if (again_q || (pair_valid_q && again_address_q == 7'(Before))) begin
        again_address_q <= again_address_q - 7'd1;
      end
      if (again_q && again_address_q == '0) again_left_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if ((pair_valid_q || again_q) && !write_address[7]) begin
      bank_0[{write_address[8], write_address[6:0]}] <= pair_q;
    end
    bank_0_2 <= bank_0[{address_1[8] ^ address_1[7], address_1[6:0]}];
  end
  always_ff @(posedge clk_i) begin
    if ((pair_valid_q || again_q) && write_address[7]) begin
      bank_1[{write_address[8], write_address[6:0]}] <= pair_q;
    end
    bank_1_2 <= bank_1[{address_1[8], address_1[6:0]}];
  end

  // Of a frame of 400 samples the second points from number 120 on are the first ones.
  always_ff @(posedge clk_i) begin
    address_1     <= first_q + 9'(number_q);
    number_1      <= number_q;
    swap_1        <= address_1[7];
    swap_low_q    <= swap_1;
    stay_low_q    <= !swap_1;
    swap_high_q   <= swap_1 ^ same_1;
    stay_high_q   <= !(swap_1 ^ same_1);
    low_inside_q  <= {low_inside_q[1], points_400_i ? number_1 < 7'd120 : number_1 >= 7'd28};
    high_inside_q <= {high_inside_q[1],
                      points_400_i ? number_1 < 7'd72 || number_1 >= 7'd120 : number_1 < 7'd100};
    same_1        <= points_400_i && number_1 >= 7'd120;
    first_pair_q  <= {first_pair_q[1], alone_i && number_1 == (points_400_i ? 7'd0 : 7'd28)};
    bank_0_3      <= bank_0_2;
    bank_1_3      <= bank_1_2;
    for (int unsigned i = 0; i < 4; i++) framed_4[i] <= framed_3[i] - mean_q;
  end

  always_comb begin
    framed_3[0] = swap_low_q ? bank_1_3[42:0] : bank_0_3[42:0];
    framed_3[1] = stay_low_q ? bank_0_3[85:43] : bank_1_3[85:43];
    framed_3[2] = swap_high_q ? bank_0_3[42:0] : bank_1_3[42:0];
    framed_3[3] = stay_high_q ? bank_1_3[85:43] : bank_0_3[85:43];
    if (first_pair_q[2]) framed_3[0] = frame_head_q;
  end

  // ---- The window: see window_table() of host/dpu/units/audio_tables.py ----
  (* ram_style = "block" *) logic [103:0] weights[128];
  logic [3:0][25:0] weight_2, weight_3, weight_4;
  always_ff @(posedge clk_i) begin
    if (load_i) begin
      weights[load_index_i] <= {load_word_i[121:96], load_word_i[89:64], load_word_i[57:32],
                                load_word_i[25:0]};
    end
    weight_2 <= weights[number_1];
    weight_3 <= weight_2;
    if (low_inside_q[2]) weight_4[1:0] <= weight_3[1:0];
    else weight_4[1:0] <= '0;
    if (high_inside_q[2]) weight_4[3:2] <= weight_3[3:2];
    else weight_4[3:2] <= '0;
  end

  windowed_t [3:0] point_7;

  for (genvar i = 0; i < 4; i++) begin : gen_product
    logic signed [35:0] high_5, high_6;
    logic        [42:0] middle_5, middle_6, low_5;
    logic        [25:0] low_6;
    logic signed [52:0] sum_7;  // without the lowest 17 bits of low_5, to which nothing is added
    always_ff @(posedge clk_i) begin
      high_5   <= $signed(framed_4[i][42:34]) * $signed({1'b0, weight_4[i]});
      middle_5 <= framed_4[i][33:17] * weight_4[i];
      low_5    <= framed_4[i][16:0] * weight_4[i];
      high_6   <= high_5;
      middle_6 <= middle_5;
      low_6    <= low_5[42:17];
      sum_7    <= {high_6, 17'd0} + {10'd0, middle_6} + 53'(low_6) + 53'd128;
    end
    assign point_7[i] = sum_7[51:8];
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) start_q <= '0;
    else start_q <= {start_q[6:1], reading_q && number_q == '0};
  end
  assign start_o = start_q[7];
  assign low_o   = {point_7[0], point_7[1]};
  assign high_o  = {point_7[2], point_7[3]};

`ifndef SYNTHESIS
  a_level_within_ring: assert property (@(posedge clk_i) disable iff (!rst_ni) level_q <= Ring);
  a_start_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni)
    start_i |-> idle_o && !reading_q && write_q == '0 && !pair_valid_q);
`endif

endmodule
