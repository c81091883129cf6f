// Patches: the pixels of a frame to words of a tensor, patch by patch, as vision transformers take
// them.
//
//     beats -> patches_band -> memory -> patches_read, tables -> patches_pack -> words
//
// Reference   patches.cpp; patches.hpp has the order of the samples.
// Interface   `start_i` for a clock while `idle_o`; the settings stay until `idle_o` again. Then
//             one frame and, if its status is StatusOk, beats until `last`. `status_o` and the
//             sizes stand until the next start. Words in the order of memory, by ready/valid.
//             Tables are written as those of normalize.
// Throughput  two pixels a clock in. Out, four samples a clock of 4 bytes, else eight.
// Latency     a row of squares, and 14 clocks.
// Memory      12 UltraRAMs for pixels; eight copies of the tables in 8 block RAMs.
// Bad input   as in patches.hpp. Before a StatusBadArgument, words of complete rows of squares may
//             have been sent.
module patches
  import headrace_pkg::*;
  import patches_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  layout_t      layout_i,
  input  logic [1:0]   shift_i,     // log2 of a sample's bytes
  input  logic [31:0]  capacity_i,  // bytes
  output logic         idle_o,

  output status_e      status_o,
  output logic [15:0]  width_o,
  output logic [15:0]  height_o,
  output logic [63:0]  bytes_o,

  input  logic         table_we_i,
  input  logic [1:0]   table_channel_i,
  input  logic [7:0]   table_index_i,
  input  logic [31:0]  table_value_i,

  input  frame_t       frame_i,
  input  logic         frame_valid_i,
  output logic         frame_ready_o,
  input  beat_t        beat_i,
  input  logic         beat_valid_i,
  output logic         beat_ready_o,

  output logic [127:0] word_o,
  output logic         word_valid_o,
  input  logic         word_ready_i
);

  localparam int unsigned Lanes = 8;
  localparam int unsigned Depth = 32;  // of the queue of words
  localparam int unsigned SizeClocks = 6;
  localparam int unsigned FlushClocks = 13;  // longer than the pipeline

  typedef enum logic [3:0] {
    StIdle,
    StFrame,  // waits for the frame
    StSize,   // computes sizes
    StTake,   // takes beats
    StRead,   // the last bands are read
    StFlush,  // the last samples are on their way
    StFill,   // zeros behind them
    StPack,   // the last word is on its way
    StWords   // words wait to leave
  } state_e;
  state_e state_q;

  beat_t       beat;
  logic        beat_valid, register_ready;
  logic [3:0]  clocks_q;  // in the state
  status_e     end_status_q;
  logic        small_q, zero_q, bad, between, room, read_room, pixels, accept, unread;
  logic [31:0] area_q, fill_left_q;
  logic [33:0] three_q;
  logic [35:0] low_q, high_q;  // samples by the lower and by the upper bits of `frames`
  logic [37:0] samples_q;
  logic [40:0] bytes_q;

  assign accept       = beat_valid && room;
  assign beat_ready_o = state_q == StTake && register_ready;
  assign idle_o       = state_q == StIdle;
  assign bytes_o      = 64'(bytes_q);

  logic words_empty;
  always_ff @(posedge clk_i) begin
    clocks_q <= clocks_q + 4'd1;
    if (!rst_ni) begin
      state_q <= StIdle;
    end else begin
      unique case (state_q)
        StIdle:  if (start_i) state_q <= StFrame;
        StFrame: begin
          clocks_q <= '0;
          if (frame_valid_i) state_q <= frame_i.status == StatusOk ? StSize : StIdle;
        end
        StSize:  if (clocks_q == 4'(SizeClocks)) state_q <= StTake;
        StTake:  if (accept && beat.last) state_q <= StRead;
        StRead: begin
          clocks_q <= '0;
          if (!unread) state_q <= StFlush;
        end
        StFlush: begin
          if (clocks_q == 4'(FlushClocks)) begin
            state_q <= status_o == StatusOk && fill_left_q != '0 ? StFill : StPack;
            clocks_q <= '0;
          end
        end
        StFill: begin
          clocks_q <= '0;
          if (fill_left_q == '0) state_q <= StPack;
        end
        StPack:  if (clocks_q == 4'd6) state_q <= StWords;
        StWords: if (words_empty) state_q <= StIdle;
        default: state_q <= StIdle;
      endcase
    end
  end
  assign frame_ready_o = state_q == StFrame;

  // Registered step by step: the product of the sides alone takes one multiplier.
  always_ff @(posedge clk_i) begin
    area_q    <= width_o * height_o;
    three_q   <= 34'(area_q) + {1'b0, area_q, 1'b0};
    low_q     <= (layout_i.frames[0] ? 36'(three_q) : '0) +
                 (layout_i.frames[1] ? {1'b0, three_q, 1'b0} : '0);
    high_q    <= (layout_i.frames[2] ? 36'(three_q) : '0) +
                 (layout_i.frames[3] ? {1'b0, three_q, 1'b0} : '0);
    samples_q <= 38'(low_q) + {high_q, 2'b00};
    zero_q    <= layout_i.side_width == '0 || layout_i.side_height == '0 ||
                 layout_i.merge == '0 || layout_i.frames == '0;
    if (state_q == StFrame) begin
      width_o  <= frame_i.status == StatusOk ? frame_i.width : '0;
      height_o <= frame_i.status == StatusOk ? frame_i.height : '0;
      bytes_q  <= '0;
    end
    if (state_q == StSize) bytes_q <= (41'(samples_q) << shift_i) + 41'(layout_i.fill);
    if (state_q == StSize) small_q <= bytes_q > 41'(capacity_i);
    if (accept && beat.last) end_status_q <= beat.status;
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StFrame) status_o <= frame_i.status;
    else if (state_q == StRead) begin
      if (end_status_q != StatusOk) status_o <= end_status_q;
      else if (bad || zero_q || !between) status_o <= StatusBadArgument;
      else if (small_q) status_o <= StatusBufferTooSmall;
    end
  end

  // ---- Pixels to the memory ----
  stream_register #(.Width($bits(beat_t) + 1)) u_beat (
    .clk_i,
    .rst_ni,
    .data_i ({beat_i, beat_i.keep != '0 && beat_i.status == StatusOk}),
    .valid_i(beat_valid_i && state_q == StTake),
    .ready_o(register_ready),
    .data_o ({beat, pixels}),
    .valid_o(beat_valid),
    .ready_i(room)
  );

  logic         we, whole, taken;
  address_t     write_index;
  pixel_t [7:0] written;
  band_t        band, band_new;
  logic         band_valid;

  patches_band u_band (
    .clk_i,
    .rst_ni,
    .start_i  (state_q == StFrame || state_q == StSize),
    .layout_i,
    .width_i  (width_o),
    .write_i  (!small_q && !zero_q),
    .bad_o    (bad),
    .between_o(between),
    .pixel_i  (beat.pixel),
    .both_i   (beat.keep[1]),
    .valid_i  (accept && pixels),
    .room_o   (room),
    .we_o     (we),
    .index_o  (write_index),
    .word_o   (written),
    .band_o   (band_new),
    .whole_o  (whole),
    .taken_i  (taken)
  );

  stream_fifo #(.Width($bits(band_t)), .Depth(2)) u_bands (
    .clk_i,
    .rst_ni (rst_ni && state_q != StFrame),
    .data_i (band_new),
    .valid_i(whole),
    .ready_o(),
    .data_o (band),
    .valid_o(band_valid),
    .ready_i(taken),
    .count_o()
  );

  // A band that was whole with the last beat comes a clock later.
  logic late_q;
  always_ff @(posedge clk_i) late_q <= state_q == StTake;
  assign unread = band_valid || whole || late_q;

  // ---- Samples from it ----
  logic       read;
  address_t   index;
  logic [1:0] channel;
  logic [4:0] first;
  logic [3:0] count;

  patches_read u_read (
    .clk_i,
    .rst_ni,
    .layout_i,
    .four_i   (shift_i == 2'd2),
    .band_i   (band),
    .valid_i  (band_valid),
    .done_o   (taken),
    .room_i   (read_room),
    .read_o   (read),
    .index_o  (index),
    .channel_o(channel),
    .first_o  (first),
    .count_o  (count)
  );

  // The memory is large, and its addresses go far: from column to column, a clock each.
  localparam int unsigned Columns = 3;
  localparam int unsigned Part    = 8 * $bits(pixel_t) / Columns;
  logic [Columns-1:0]           we_q;
  address_t [Columns-1:0]       write_index_q, index_q;
  logic [Columns-1:0][Part-1:0] parts, parts_6;  // of a word to write, and of one that was read
  pixel_t [7:0]                 read_6;

  assign parts  = written;
  assign read_6 = parts_6;

  always_ff @(posedge clk_i) begin
    we_q          <= {we_q[Columns-2:0], we};
    write_index_q <= {write_index_q[Columns-2:0], write_index};
    index_q       <= {index_q[Columns-2:0], index};
  end

  for (genvar c = 0; c < Columns; c++) begin : gen_column
    // A band that is read is never written, so what is read in the clock of a write does not count.
    (* ram_style = "ultra", no_rw_check *) logic [Part-1:0] memory[BandWords];
    logic [c:0][Part-1:0]           written_q;  // as late as the address
    logic [Columns-c+1:0][Part-1:0] read_q;     // all columns together

    always_ff @(posedge clk_i) begin
      written_q <= (Part * (c + 1))'({written_q, parts[c]});
      if (we_q[c]) memory[write_index_q[c]] <= written_q[c];
      read_q    <= (Part * (Columns - c + 2))'({read_q, memory[index_q[c]]});
    end
    assign parts_6[c] = read_q[Columns-c+1];
  end

  logic [10:1]      valid_q;
  logic [5:1][1:0]  channel_q;
  logic [5:1][4:0]  first_q;
  logic [10:1][3:0] count_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q <= '0;
    else valid_q <= {valid_q[9:1], read};
    channel_q <= {channel_q[4:1], channel};
    first_q   <= {first_q[4:1], first};
    count_q   <= {count_q[9:1], count};
  end

  // ---- Their values ----
  logic [2:0][7:0][7:0] planes_6;  // [channel][pixel]
  always_comb begin
    for (int i = 0; i < 8; i++) begin
      planes_6[0][i] = read_6[i].r;
      planes_6[1][i] = read_6[i].g;
      planes_6[2][i] = read_6[i].b;
    end
  end

  // The pixel and the channel of a sample, with channels last: tables, for a divider is slow.
  function automatic logic [31:0][4:0] thirds();
    for (int s = 0; s < 32; s++) thirds[s] = {3'(s / 3), 2'(s % 3)};
  endfunction
  localparam logic [31:0][4:0] Thirds = thirds();

  logic [Lanes-1:0][31:0] value_10;  // 0 behind the last sample
  for (genvar l = 0; l < Lanes; l++) begin : gen_lane
    logic [4:0] sample;
    logic [2:0] pixel_6;
    logic [1:0] of_pixel_6;
    logic [9:0] entry_7;
    // Written between frames only.
    (* ram_style = "block", no_rw_check *) logic [31:0] entries[1024];
    logic [31:0] value_8, value_9;

    assign sample = first_q[5] + 5'(l);

    always_ff @(posedge clk_i) begin
      pixel_6    <= layout_i.channels_last ? Thirds[sample][4:2] : sample[2:0];
      of_pixel_6 <= layout_i.channels_last ? Thirds[sample][1:0] : channel_q[5];
      entry_7    <= {of_pixel_6, planes_6[of_pixel_6][pixel_6]};
      if (table_we_i) entries[{table_channel_i, table_index_i}] <= table_value_i;
      value_8    <= entries[entry_7];
      value_9    <= value_8;
      value_10[l] <= 4'(l) < count_q[9] ? value_9 : '0;
    end
  end

  // ---- Words ----
  logic [127:0]           packed_word;
  logic [4:0]             zeros_q;
  logic                   packed_valid;
  logic [$clog2(Depth):0] queued;

  // Samples side by side, a clock before zeros take their place behind the last of them.
  logic [127:0] bytes_11;
  logic [4:0]   count_11;
  logic         valid_11, filling, filled_q;
  logic         fills_q;  // some are left, where none was sent a clock ago

  // Every other clock, when it is known how many are left.
  assign filling = state_q == StFill && read_room && !filled_q && fills_q;
  always_ff @(posedge clk_i) begin
    filled_q <= filling;
    fills_q  <= fill_left_q != '0;
    zeros_q  <= fill_left_q > 32'd16 ? 5'd16 : fill_left_q[4:0];
  end

  always_ff @(posedge clk_i) begin
    for (int l = 0; l < Lanes; l++) begin
      unique case (shift_i)
        2'd0:    bytes_11[8*l+:8] <= value_10[l][7:0];
        2'd1:    bytes_11[16*l+:16] <= value_10[l][15:0];
        default: if (l < 4) bytes_11[32*l+:32] <= value_10[l];
      endcase
    end
    if (shift_i == 2'd0) bytes_11[127:64] <= '0;
    if (filling) bytes_11 <= '0;
    count_11 <= filling ? zeros_q : 5'(count_q[10] << shift_i);
    valid_11 <= rst_ni && (valid_q[10] || filling);
  end

  always_ff @(posedge clk_i) begin
    read_room <= queued < ($clog2(Depth) + 1)'(Depth / 2);
    if (state_q == StFrame) fill_left_q <= layout_i.fill;
    else if (filling) fill_left_q <= fill_left_q - 32'(zeros_q);
  end

  patches_pack u_pack (
    .clk_i,
    .rst_ni,
    .start_i(state_q == StFrame),
    .bytes_i(bytes_11),
    .count_i(count_11),
    .valid_i(valid_11),
    .flush_i(state_q == StPack && clocks_q == 4'd2),
    .word_o (packed_word),
    .valid_o(packed_valid)
  );

  stream_fifo #(.Width(128), .Depth(Depth)) u_words (
    .clk_i,
    .rst_ni,
    .data_i (packed_word),
    .valid_i(packed_valid),
    .ready_o(),
    .data_o (word_o),
    .valid_o(word_valid_o),
    .ready_i(word_ready_i),
    .count_o(queued)
  );
  assign words_empty = queued == '0;

`ifndef SYNTHESIS
  a_queue_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(packed_valid && queued == ($clog2(Depth) + 1)'(Depth)));
  a_fills: assert property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == StFill && !filled_q |-> fills_q == (fill_left_q != '0));
  a_tables_stay: assert property (@(posedge clk_i) disable iff (!rst_ni)
    table_we_i |-> valid_q == '0);
  for (genvar c = 0; c < Columns; c++) begin : gen_check
    a_read_beside_a_write: assert property (@(posedge clk_i) disable iff (!rst_ni)
      !(we_q[c] && valid_q[c+1] && write_index_q[c] == index_q[c]));
  end
`endif

endmodule
