// Mel normalize: each mel band over the frames that count, (x - mean) / (std + std_floor), or each
// value by one mean and factor; frames behind them are 0.
//
//   words -> norm_statistics -> mean and scale of each band ---v
//         -> norm_fixed x 4 -> two tiles of frames -> norm_lane x 4 -> words
//
// Reference   mel_normalize.cpp, word for word.
// Interface   `start_i` for a clock while `idle_o`, settings stable until `idle_o` again. In come a
//             word of statistics for each band, then the frames' values, four in a word; out go
//             tiles of 128 frames, in each the bands in turn, or the frames with `by_frames_i`.
// Throughput  a word of statistics in six clocks; four values a clock in, and beside it four values
//             a clock out.
// Latency     the first word goes out when the first tile is full and 32 slots of six clocks after
//             the last statistics.
// Memory      two tiles in four banks, one for each of four frames in a row: 2048 words of 96 bits
//             each. The stages never stand still: a queue of 64 words takes what is in them.
// Bad input   any words are taken, see mel_normalize.hpp; always ends after as many words as the
//             settings say.
module mel_normalize
  import audio_pkg::*;
  import mel_normalize_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [15:0]  frames_i,     // 1 to 65535
  input  logic [15:0]  counted_i,    // 1 to frames_i, from the first
  input  logic [7:0]   mels_i,       // 4 to 128, a multiple of 4
  input  logic         half_i,       // float16, else float32
  input  logic         by_frames_i,  // rows of the output are frames, else bands
  input  logic [31:0]  std_floor_i,  // LSB 2^-40
  input  log_mel_t     least_i,      // values below are taken as this one
  input  logic         rescale_i,    // by the next two; else by each band's statistics
  input  mean_t        mean_i,       // else the rule of the variance, see norm_statistics
  input  scale_t       scale_i,
  output logic         idle_o,
  output logic         statistics_o, // some band has no scale yet

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output logic [127:0] word_o,
  output logic         word_valid_o,
  input  logic         word_ready_i
);

  // ---- Input: between here and where it comes from, paths end ----
  logic [127:0] word;
  logic         word_valid, word_ready;

  stream_fifo #(.Width(128), .Depth(2)) u_input (
    .clk_i,
    .rst_ni,
    .data_i (word_i),
    .valid_i(word_valid_i),
    .ready_o(word_ready_o),
    .data_o (word),
    .valid_o(word_valid),
    .ready_i(word_ready),
    .count_o()
  );

  // ---- Statistics ----
  typedef enum logic [1:0] {
    StIdle,
    StStatistics,  // takes the statistics
    StValues,      // takes the values
    StEmpty        // until the last word has gone
  } state_e;

  state_e     state_q;
  logic       statistics_ready, statistics_take, last_statistics, last_value, empty;
  logic [7:0] statistics_left_q;
  mean_t      mean;
  scale_t     scale;
  logic [6:0] mean_band, scale_band, last_band_q;
  logic       mean_valid, scale_valid, scaled_q;

  norm_statistics u_statistics (
    .clk_i,
    .rst_ni,
    .clear_i      (start_i),
    .counted_i,
    .std_floor_i,
    .variance_floor_i(mean_i[15:0]),
    .whole_i      (mean_i[16]),
    .word_i       (word),
    .word_valid_i (word_valid && state_q == StStatistics),
    .word_ready_o (statistics_ready),
    .mean_o       (mean),
    .mean_band_o  (mean_band),
    .mean_valid_o (mean_valid),
    .scale_o      (scale),
    .scale_band_o (scale_band),
    .scale_valid_o(scale_valid)
  );

  assign statistics_take = state_q == StStatistics && statistics_ready && word_valid;
  assign last_statistics = statistics_take && statistics_left_q == 8'd1;
  assign idle_o          = state_q == StIdle;
  assign statistics_o    = state_q != StIdle && !scaled_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
    end else begin
      unique case (state_q)
        StIdle:       if (start_i) state_q <= StStatistics;
        StStatistics: if (last_statistics) state_q <= StValues;
        StValues:     if (last_value) state_q <= StEmpty;
        StEmpty:      if (empty) state_q <= StIdle;
        default:      state_q <= StIdle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    last_band_q <= 7'(mels_i - 1'b1);
    if (start_i) statistics_left_q <= mels_i;
    else if (statistics_take) statistics_left_q <= statistics_left_q - 1'b1;
    if (start_i) scaled_q <= 1'b0;
    else if (scale_valid && scale_band == last_band_q) scaled_q <= 1'b1;
  end

  // ---- Filling tiles: a word has four bands of a frame ----
  logic [1:0]      full_q;         // tiles that wait for being given out, or are
  logic            fill_tile_q, take, last_frame;
  logic            final_word_q;   // of the frame
  logic            final_frame_q;  // of the input
  logic [4:0]      fill_word_q, last_word_q;
  logic [6:0]      fill_frame_q;   // of the tile
  logic [15:0]     frames_left_q;  // of the input
  logic [15:0]     counted_left_q; // of those that count, with this one
  logic            counts_q;       // this frame
  logic [7:0]      kept_q, kept;   // frames of the tile that count, before this one and with it
  logic [2:0]      write_q;        // one that is on its way to the memory, by stage
  logic [2:0]      write_last_q;   // it fills the tile
  logic [1:0][1:0] write_bank_q;
  logic [1:0][10:0] write_address_q;
  logic            written_tile_q;
  log_mel_t [3:0]  fixed, written;

  assign word_ready   = state_q == StStatistics ? statistics_ready
                      : state_q == StValues && !full_q[fill_tile_q];
  assign take         = word_valid && state_q == StValues && !full_q[fill_tile_q];
  assign last_frame   = fill_frame_q == '1 || final_frame_q;
  assign last_value   = take && final_word_q && final_frame_q;
  assign kept         = kept_q + 8'(counts_q);

  for (genvar lane = 0; lane < 4; lane++) begin : gen_fixed
    norm_fixed u_fixed (.clk_i, .bits_i(word[32*lane+:32]), .value_o(fixed[lane]));
    always_ff @(posedge clk_i) written[lane] <= fixed[lane] < least_i ? least_i : fixed[lane];
  end

  always_ff @(posedge clk_i) begin
    last_word_q <= 5'(mels_i[7:2] - 1'b1);
    if (start_i) begin
      frames_left_q  <= frames_i;
      counted_left_q <= counted_i;
      counts_q       <= 1'b1;
      kept_q         <= '0;
      final_frame_q  <= frames_i == 16'd1;
      fill_word_q    <= '0;
      final_word_q   <= mels_i[7:2] == 6'd1;
      fill_frame_q   <= '0;
    end else if (take) begin
      fill_word_q  <= final_word_q ? '0 : fill_word_q + 1'b1;
      final_word_q <= final_word_q ? last_word_q == '0 : fill_word_q + 1'b1 == last_word_q;
      if (final_word_q) begin
        frames_left_q <= frames_left_q - 1'b1;
        final_frame_q <= frames_left_q == 16'd2;
        fill_frame_q  <= last_frame ? '0 : fill_frame_q + 1'b1;
        kept_q        <= last_frame ? '0 : kept;
        if (counts_q) begin
          counted_left_q <= counted_left_q - 1'b1;
          counts_q       <= counted_left_q != 16'd1;
        end
      end
    end
    write_last_q    <= {write_last_q[1:0], final_word_q && last_frame};
    write_bank_q    <= {write_bank_q[0], fill_frame_q[1:0]};
    write_address_q <= {write_address_q[0], fill_tile_q, fill_frame_q[6:2], fill_word_q};
    written_tile_q  <= write_address_q[1][10];
  end

  // A tile is taken as full with its last word, so that none of the next comes before it is empty;
  // it can be read when that word is in the memory.
  logic [1:0]      written_q;      // tiles that can be read
  logic [1:0][6:0] tile_last_q;    // its last frame
  logic [1:0][7:0] tile_kept_q;
  logic            drained;        // the last of a tile is being read
  logic            drain_tile_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) begin
      full_q       <= '0;
      written_q    <= '0;
      fill_tile_q  <= 1'b0;
      write_q      <= '0;
    end else begin
      write_q <= {write_q[1:0], take};
      if (take && final_word_q && last_frame) begin
        full_q[fill_tile_q] <= 1'b1;
        fill_tile_q         <= !fill_tile_q;
      end
      if (write_q[2] && write_last_q[2]) written_q[written_tile_q] <= 1'b1;
      if (drained) begin
        full_q[drain_tile_q]    <= 1'b0;
        written_q[drain_tile_q] <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (take && final_word_q && last_frame) begin
      tile_last_q[fill_tile_q] <= fill_frame_q;
      tile_kept_q[fill_tile_q] <= kept;
    end
  end

  // ---- Giving tiles out: four frames of a band in a clock, or four bands of a frame ----
  localparam int unsigned Stages = 17;  // the address, two of the memories, the band, norm_lane's

  localparam int unsigned Waiting = 64;  // words that may wait

  logic        room_q;                  // for one more read than there are stages
  logic        read, last_group, last_band;
  logic [6:0]  row_q;                   // a band, or a frame of the tile
  logic [4:0]  group_q;                 // of four in the row
  logic [6:0]  drain_last;
  logic [7:0]  drain_kept;
  logic [4:0]  final_group;             // of a row
  logic [3:0]  present;                 // values of the group that are there and count
  logic [Stages:1] valid_q, odd_q;
  logic            packed_valid_q;      // a word is ready for the queue
  logic [3:0][31:0] bits;

  assign read         = written_q[drain_tile_q] && scaled_q && room_q;
  assign drain_last   = tile_last_q[drain_tile_q];
  assign drain_kept   = tile_kept_q[drain_tile_q];
  // In float16 two groups make a word.
  assign final_group  = (by_frames_i ? last_word_q : drain_last[6:2]) | 5'(half_i);
  assign last_group   = group_q == final_group;
  assign last_band    = row_q == (by_frames_i ? drain_last : last_band_q);
  assign drained      = read && last_group && last_band;
  assign empty        = full_q == '0 && valid_q == '0 && !packed_valid_q && !word_valid_o;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) begin
      drain_tile_q <= 1'b0;
      row_q        <= '0;
      group_q      <= '0;
      valid_q      <= '0;
    end else begin
      valid_q <= {valid_q[Stages-1:1], read};
      if (read) begin
        group_q <= last_group ? '0 : group_q + 1'b1;
        if (last_group) row_q <= last_band ? '0 : row_q + 1'b1;
        if (last_group && last_band) drain_tile_q <= !drain_tile_q;
      end
    end
  end

  for (genvar k = 0; k < 4; k++) begin : gen_present
    assign present[k] = by_frames_i ? {1'b0, row_q} < drain_kept && group_q <= last_word_q
                                    : {1'b0, group_q, 2'(k)} < drain_kept;
  end

  logic [10:0]     address_1_q;
  logic [4:0]      bands_1_q, bands_2_q; // which four
  mean_t [3:0]     mean_3_q;            // of four bands
  scale_t [3:0]    scale_3_q;
  logic [1:0]      lane_1_q, lane_2_q, lane_3_q;  // the band of the word, or the frame of the four
  logic [3:0]      keep_1_q, keep_2_q, keep_3_q, keep_4_q;
  log_mel_t [3:0][3:0] word_3_q;        // by the frame of the four, and the band of the word

  always_ff @(posedge clk_i) begin
    address_1_q[10]                          <= drain_tile_q;
    address_1_q[9:0]                         <= by_frames_i ? {row_q[6:2], group_q}
                                                            : {group_q, row_q[6:2]};
    {bands_2_q, bands_1_q}                   <= {bands_1_q, by_frames_i ? group_q : row_q[6:2]};
    {lane_3_q, lane_2_q, lane_1_q}           <= {lane_2_q, lane_1_q, row_q[1:0]};
    {keep_4_q, keep_3_q, keep_2_q, keep_1_q} <= {keep_3_q, keep_2_q, keep_1_q, present};
    odd_q                                    <= {odd_q[Stages-1:1], group_q[0]};
  end

  for (genvar k = 0; k < 4; k++) begin : gen_lane
    // A tile that is being filled is not given out, so a word that is written counts only later.
    (* ram_style = "ultra", no_rw_check *) logic [95:0] memory[2048];
    (* ram_style = "distributed" *) mean_t  means[MaxMels/4];
    (* ram_style = "distributed" *) scale_t scales[MaxMels/4];
    logic [95:0] word_2_q;
    log_mel_t    value_4_q;
    mean_t       mean_4_q;
    scale_t      scale_4_q;
    logic [1:0]  band;  // of the four
    // Of its own, as a bank is large: the address of its last word, and that it is written.
    logic [10:0] write_at_q;
    logic        write_here_q;
    // The same of the bands' tables.
    logic [4:0]  mean_at_q, scale_at_q;
    mean_t       mean_in_q;
    scale_t      scale_in_q;
    logic        mean_here_q, scale_here_q;

    assign band = by_frames_i ? 2'(k) : lane_3_q;

    always_ff @(posedge clk_i) begin
      mean_here_q  <= mean_valid && mean_band[1:0] == 2'(k);
      scale_here_q <= scale_valid && scale_band[1:0] == 2'(k);
      if (mean_band[1:0] == 2'(k)) {mean_at_q, mean_in_q} <= {mean_band[6:2], mean};
      if (scale_band[1:0] == 2'(k)) {scale_at_q, scale_in_q} <= {scale_band[6:2], scale};
      if (mean_here_q) means[mean_at_q] <= mean_in_q;
      if (scale_here_q) scales[scale_at_q] <= scale_in_q;
      mean_3_q[k]  <= means[bands_2_q];
      scale_3_q[k] <= scales[bands_2_q];
      mean_4_q     <= rescale_i ? mean_i : mean_3_q[band];
      scale_4_q    <= rescale_i ? scale_i : scale_3_q[band];
    end

    always_ff @(posedge clk_i) begin
      if (write_bank_q[1] == 2'(k)) write_at_q <= write_address_q[1];
      write_here_q <= write_q[1] && write_bank_q[1] == 2'(k);
      if (write_here_q) memory[write_at_q] <= written;
    end

    always_ff @(posedge clk_i) begin
      word_2_q    <= memory[address_1_q];
      word_3_q[k] <= word_2_q;
      value_4_q   <= by_frames_i ? word_3_q[lane_3_q][k] : word_3_q[k][lane_3_q];
    end

    norm_lane u_lane (
      .clk_i,
      .half_i,
      .value_i(value_4_q),
      .keep_i (keep_4_q[k]),
      .mean_i (mean_4_q),
      .scale_i(scale_4_q),
      .bits_o (bits[k])
    );
  end

  // ---- Words ----
  logic [63:0]              halves, first_halves_q;
  logic [127:0]             packed_q;         // behind the lanes, which lie far from each other
  logic [$clog2(Waiting):0] waiting;
  logic                     output_ready;

  assign halves = {bits[3][15:0], bits[2][15:0], bits[1][15:0], bits[0][15:0]};

  always_ff @(posedge clk_i) begin
    if (valid_q[Stages]) first_halves_q <= halves;
    packed_q       <= half_i ? {halves, first_halves_q} : bits;
    packed_valid_q <= rst_ni && valid_q[Stages] && (!half_i || odd_q[Stages]);
    room_q         <= waiting < ($clog2(Waiting) + 1)'(Waiting - Stages - 3);
  end

  stream_fifo #(.Width(128), .Depth(Waiting), .Slices(4)) u_output (
    .clk_i,
    .rst_ni,
    .data_i (packed_q),
    .valid_i(packed_valid_q),
    .ready_o(output_ready),
    .data_o (word_o),
    .valid_o(word_valid_o),
    .ready_i(word_ready_i),
    .count_o(waiting)
  );

`ifndef SYNTHESIS
  a_start_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni) start_i |-> idle_o);
  a_some_frames_count: assert property (@(posedge clk_i) disable iff (!rst_ni)
      start_i |-> counted_i != '0 && counted_i <= frames_i);
  a_word_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
      word_valid_o && !word_ready_i |=> word_valid_o && $stable(word_o));
  a_output_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
      packed_valid_q |-> output_ready);
  a_final_word: assert property (@(posedge clk_i) disable iff (!rst_ni)
      state_q == StValues |-> final_word_q == (fill_word_q == last_word_q));
  a_tiles_are_full_when_read: assert property (@(posedge clk_i) disable iff (!rst_ni)
      (written_q & ~full_q) == '0);
`endif

endmodule
