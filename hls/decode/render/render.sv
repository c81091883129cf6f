// Render: rows of blocks to pixels in raster order, bit-exact to libjpeg-turbo.
//
//   samples -> row_writer -> row memories -> row_reader -> upsample -> color -> beats
//
// Reference   render in decode.cpp.
// Interface   a scan, then samples_t in the order of its blocks and an end beat; out come one
//             frame_t and its beats, see headrace_pkg.sv. Samples without a scan are those of an
//             image with bad headers: an end beat only, which is answered by a frame with its
//             status. The frame leaves with the first pixels. Samples come of the MCU rows up to
//             the last that the window needs, and of their MCUs as block_window says; beats are of
//             the window. At its left and right end chroma is
//             that of the image's end: the columns there count only if they are.
// Throughput  one row of a block a clock in, beside SourcePixels a clock out without a gap between
//             words, rows or MCU rows. With four, a row takes two clocks for each of its words, and
//             a group of rows that waits for an MCU row one more.
// Latency     about 25 clocks from the last sample of the first MCU row to the first beat. The last
//             MCU row is held back until the end beat has come without an error.
// Memory      16 UltraRAM: 32768 words of luma, twice 16384 of chroma, in rings of rows with a
//             stride that is the power of two above the image's width: the narrower the image, the
//             more MCU rows fit, by which the decoder in front may run ahead. 2 MCU rows at 8192
//             pixels of 4:4:4, 4:2:0 and 4:1:0, 32 at 500 of 4:2:0.
// Limits      8192 pixels wide, 65535 high; as much less wide as two MCU rows need more place than
//             there is. Luma has the greatest sampling factors.
// Bad input   after an error the rows before it are sent, as in the C++, and a beat with keep = 0,
//             last = 1 and the status; or a frame with the status if there are none.
module render
  import headrace_pkg::*;
  import render_pkg::*;
(
  input  logic     clk_i,
  input  logic     rst_ni,

  input  scan_t    scan_i,
  input  logic     scan_valid_i,
  output logic     scan_ready_o,
  input  window_t  window_i,        // once `window_valid_i` is high, until the last beat
  input  logic     window_valid_i,

  input  samples_t samples_i,
  input  logic     samples_valid_i,
  output logic     samples_ready_o,

  output frame_t   frame_o,
  output logic     frame_valid_o,
  input  logic     frame_ready_i,

  output source_beat_t beat_o,
  output logic     beat_valid_o,
  input  logic     beat_ready_i,

  output logic     wait_rows_o,   // samples waited for a free MCU row
  output logic     wait_output_o  // pixels waited for the unit behind
);

  localparam int unsigned QueueDepth = 32;  // beats: more than are under way at full throughput

  typedef enum logic [2:0] {
    Idle,
    BadHeaders,  // the end beat comes without a scan
    Measure,
    Run,
    EndBeat,     // an error after the first row
    Drain        // until all has left
  } state_e;

  state_e  state_q, state_d;
  scan_t   scan_q;
  layout_t layout_q;
  logic    run_q;

  // ---- Layout ----
  // Of `last` MCU or word, the number of bits is the logarithm of the stride.
  function automatic logic [3:0] bits_of(logic [WordBits-1:0] last);
    logic [3:0] bits;
    bits = '0;
    for (int unsigned i = 0; i < WordBits; i++) if (last[i]) bits = 4'(i + 1);
    return bits;
  endfunction

  logic [ColumnBits-1:0] last_column;
  logic [WordBits-1:0]   last_word;
  logic [15:0] bottom_row, last_mcu_line;
  logic        to_right, row_below_q;
  assign last_column     = ColumnBits'(scan_q.width - 16'd1);
  assign last_word       = last_column[ColumnBits-1:3];
  assign to_right        = window_i.last_word >= {1'b0, last_word};
  assign bottom_row      = scan_q.height - 16'd1;
  assign last_mcu_line   = window_i.last_row >= bottom_row ? bottom_row
                         : window_i.last_row + 16'(row_below_q);

  // Log2 of how many MCU rows of one MCU fit: in the memories of chroma, half of luma's, if there
  // are as many of its blocks.
  logic [1:0] luma_blocks, cb_blocks, cr_blocks;  // log2
  logic [3:0] ring, mcu_stride_log2_q;
  assign luma_blocks = scan_q.h_shift + scan_q.v_shift;
  assign cb_blocks   = scan_q.chroma_h[0] + scan_q.chroma_v[0];
  assign cr_blocks   = scan_q.chroma_h[1] + scan_q.chroma_v[1];
  assign ring        = 4'(ChromaAddressWidth - 3) - 4'(luma_blocks)
                     + 4'(cb_blocks != luma_blocks && cr_blocks != luma_blocks);

  always_ff @(posedge clk_i) begin
    if (state_q == Idle) scan_q <= scan_i;
    if (state_q == Idle) row_below_q <= needs_row_below(scan_i);
    // Settled at the end of Measure: the MCUs across, a clock later their stride, and then what
    // follows from it.
    layout_q.first_row    <= window_i.first_row;
    layout_q.last_row     <= window_i.last_row >= bottom_row ? bottom_row : window_i.last_row;
    layout_q.bottom_row   <= bottom_row;
    // The last word of the image may have less than eight pixels.
    layout_q.first_word   <= window_i.first_word;
    layout_q.last_word    <= to_right ? last_word : window_i.last_word[WordBits-1:0];
    layout_q.last_pixel   <= to_right ? last_column[2:0] : 3'd7;
    layout_q.first_mcu    <= window_i.first_word >> scan_q.h_shift;
    layout_q.end_mcu      <= (to_right ? last_word : window_i.last_word[WordBits-1:0]) >>
                             scan_q.h_shift;
    layout_q.last_mcu     <= last_word >> scan_q.h_shift;
    layout_q.last_mcu_row <= last_mcu_line[15:3] >> scan_q.v_shift;
    layout_q.color        <= scan_q.color;
    layout_q.rgb          <= scan_q.rgb;
    layout_q.blocks_h     <= {scan_q.chroma_h, scan_q.h_shift};
    layout_q.blocks_v     <= {scan_q.chroma_v, scan_q.v_shift};
    for (int unsigned c = 0; c < 2; c++) begin
      layout_q.h_shift[c] <= chroma_h_shift(scan_q, c[0]);
      layout_q.v_shift[c] <= chroma_v_shift(scan_q, c[0]);
      layout_q.fancy_h[c] <= fancy_columns(scan_q, c[0]);
      layout_q.fancy_v[c] <= fancy_rows(scan_q, c[0]);
    end
    layout_q.row_below    <= row_below_q;

    mcu_stride_log2_q <= bits_of(layout_q.last_mcu);
    for (int unsigned c = 0; c < 3; c++) begin
      layout_q.stride_log2[c] <= mcu_stride_log2_q + 4'(layout_q.blocks_h[c]);
    end
    layout_q.ring_log2 <= ring - mcu_stride_log2_q;
  end

  // ---- Control ----
  logic [1:0]  measured_q;
  logic        started, finished, failed, words_empty, ended, sound, drained;
  status_e     status, end_status;
  logic [5:0]  reserved_q, reserved_d;  // beats in the queue and under way
  logic        begin_beat, room_q, send_end;
  logic        any_q;                   // the frame has been sent
  frame_t      frame_q, frame_d;
  logic        frame_valid_q, send_frame;
  logic        writer_ready;

  assign scan_ready_o    = state_q == Idle;
  assign samples_ready_o = state_q == BadHeaders || writer_ready;
  assign drained         = words_empty && reserved_q == '0;
  // An end without an error but before the last MCU row does not happen; if it did, it would have
  // to be one.
  assign end_status      = status == StatusOk ? StatusTruncated : status;

  always_comb begin
    state_d    = state_q;
    send_frame = 1'b0;
    send_end   = 1'b0;
    frame_d    = '{width: '0, height: '0, status: end_status};
    unique case (state_q)
      Idle: begin
        if (scan_valid_i) state_d = Measure;
        else if (samples_valid_i) state_d = BadHeaders;
      end
      BadHeaders: begin
        if (samples_valid_i && samples_i.done) begin
          frame_d.status = samples_i.status;
          send_frame     = 1'b1;
          state_d        = Drain;
        end
      end
      Measure: begin
        if (measured_q[1]) state_d = Run;
      end
      Run: begin
        if (started) begin
          frame_d    = '{width: scan_q.width, height: scan_q.height, status: StatusOk};
          send_frame = 1'b1;
        end else if (failed && any_q) begin
          state_d = EndBeat;
        end else if (failed) begin
          send_frame = 1'b1;
          state_d    = Drain;
        end else if (finished) begin
          state_d = Drain;
        end
      end
      EndBeat: begin
        send_end = drained;
        if (drained) state_d = Drain;
      end
      Drain: begin
        if (drained && !frame_valid_q) state_d = Idle;
      end
      default: state_d = Idle;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q       <= Idle;
      run_q         <= 1'b0;
      measured_q    <= '0;
      any_q         <= 1'b0;
      frame_valid_q <= 1'b0;
      reserved_q    <= '0;
      room_q        <= 1'b1;
    end else begin
      state_q    <= state_d;
      run_q      <= state_d == Run || state_d == EndBeat;
      measured_q <= state_q == Measure ? {measured_q[0], window_valid_i} : '0;
      if (send_frame) any_q <= 1'b1;
      else if (state_q == Idle) any_q <= 1'b0;
      if (send_frame) frame_valid_q <= 1'b1;
      else if (frame_ready_i) frame_valid_q <= 1'b0;
      reserved_q <= reserved_d;
      room_q     <= reserved_d < 6'(QueueDepth);
    end
  end

  always_ff @(posedge clk_i) begin
    if (send_frame) frame_q <= frame_d;
  end

  assign reserved_d = reserved_q + {5'd0, begin_beat || send_end}
                    - {5'd0, beat_valid_o && beat_ready_i};
  assign frame_o       = frame_q;
  assign frame_valid_o = frame_valid_q;
  assign wait_output_o = beat_valid_o && !beat_ready_i;

  // ---- Row memories ----
  logic                          release_row, committed;
  logic                          luma_write, cb_write, cr_write;
  logic [LumaAddressWidth-1:0]   write_address, luma_read_address;
  logic [ChromaAddressWidth-1:0] cb_read_address, cr_read_address;
  logic [63:0]                   write_data, luma_data, cb_data, cr_data;
  row_words_t                    words;
  logic                          words_valid, words_ready;

  row_writer u_writer (
    .clk_i, .rst_ni,
    .layout_i        (layout_q),
    .run_i           (run_q),
    .samples_i, .samples_valid_i,
    .samples_ready_o (writer_ready),
    .wait_rows_o,
    .luma_write_o    (luma_write),
    .cb_write_o      (cb_write),
    .cr_write_o      (cr_write),
    .address_o       (write_address),
    .data_o          (write_data),
    .release_i       (release_row),
    .committed_o     (committed),
    .ended_o         (ended),
    .sound_o         (sound),
    .status_o        (status)
  );

  row_memory #(
    .Depth(LumaWords)
  ) u_luma (
    .clk_i,
    .write_i        (luma_write),
    .write_address_i(write_address),
    .write_data_i   (write_data),
    .read_address_i (luma_read_address),
    .read_data_o    (luma_data)
  );

  row_memory #(
    .Depth(ChromaWords)
  ) u_cb (
    .clk_i,
    .write_i        (cb_write),
    .write_address_i(write_address[ChromaAddressWidth-1:0]),
    .write_data_i   (write_data),
    .read_address_i (cb_read_address),
    .read_data_o    (cb_data)
  );

  row_memory #(
    .Depth(ChromaWords)
  ) u_cr (
    .clk_i,
    .write_i        (cr_write),
    .write_address_i(write_address[ChromaAddressWidth-1:0]),
    .write_data_i   (write_data),
    .read_address_i (cr_read_address),
    .read_data_o    (cr_data)
  );

  row_reader u_reader (
    .clk_i, .rst_ni,
    .layout_i        (layout_q),
    .run_i           (run_q),
    .committed_i     (committed),
    .ended_i         (ended),
    .sound_i         (sound),
    .release_o       (release_row),
    .started_o       (started),
    .finished_o      (finished),
    .failed_o        (failed),
    .empty_o         (words_empty),
    .luma_address_o  (luma_read_address),
    .luma_data_i     (luma_data),
    .cb_address_o    (cb_read_address),
    .cb_data_i       (cb_data),
    .cr_address_o    (cr_read_address),
    .cr_data_i       (cr_data),
    .words_o         (words),
    .words_valid_o   (words_valid),
    .words_ready_i   (words_ready)
  );

  // ---- Pixels ----
  ycc_beat_t    ycc;
  logic         ycc_valid, pixels_valid, pixels_last, queue_ready;
  source_pixels_t          pixels;
  logic [SourcePixels-1:0] pixels_keep;
  source_beat_t            beat;

  upsample u_upsample (
    .clk_i, .rst_ni,
    .layout_i     (layout_q),
    .words_i      (words),
    .words_valid_i(words_valid),
    .words_ready_o(words_ready),
    .room_i       (room_q),
    .begin_o      (begin_beat),
    .beat_o       (ycc),
    .beat_valid_o (ycc_valid)
  );

  color u_color (
    .clk_i, .rst_ni,
    .rgb_i       (layout_q.rgb),
    .beat_i      (ycc),
    .beat_valid_i(ycc_valid),
    .pixel_o     (pixels),
    .keep_o      (pixels_keep),
    .last_o      (pixels_last),
    .valid_o     (pixels_valid)
  );

  assign beat = '{
    pixel:  pixels,
    keep:   send_end ? '0 : pixels_keep,
    last:   send_end || pixels_last,
    status: send_end ? end_status : StatusOk
  };

  stream_fifo #(
    .Width($bits(source_beat_t)),
    .Depth(QueueDepth)
  ) u_queue (
    .clk_i, .rst_ni,
    .data_i (beat),
    .valid_i(pixels_valid || send_end),
    .ready_o(queue_ready),
    .data_o (beat_o),
    .valid_o(beat_valid_o),
    .ready_i(beat_ready_i),
    .count_o()
  );

`ifndef SYNTHESIS
  a_room_for_all: assert property (@(posedge clk_i) disable iff (!rst_ni)
      pixels_valid || send_end |-> queue_ready);
`endif

endmodule
