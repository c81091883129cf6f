// Resize: bilinear, the shorter side to a given length, aspect kept.
//
// Reference   resize.cpp bit for bit, and through it cv2.resize(INTER_LINEAR_EXACT). Rows are
//             blended first here, which is the same: both steps are exact, and only the end is
//             rounded.
// Interface   one frame and its beats in, one frame and its beats out; see headrace_pkg. The size
//             comes before, with `sized_i`; it and the arguments stay until the last beat, and
//             before the next one `sized_i` is low for a clock. With `crops_i` what comes out are
//             the beats with pixels of the crop, and what comes in are those of `window_o`, which
//             these are made of. It is known, and `crop_o`, when `window_valid_o` rises, some 340
//             clocks after the size and one for each row, or two columns, up to the last that is
//             wanted, and stays until `sized_i` falls. A frame without an error comes after that.
// Throughput  SourcePixels a clock in and two out, whichever takes longer. Rows that no output row
//             needs are dropped as they come. With two pixels in, the input is never held back on
//             the way down; with four, not where both sides shrink to 0.7 or less.
// Latency     of a frame as soon as the window is known, of a row about 20 clocks behind the last
//             source pixel that it needs. The last beat waits for the input's last, whose status it
//             carries.
// Memory      four source rows in two UltraRAMs; two, of images wider than half of MaxWidth.
// Limits      8192 pixels wide in, 65535 out; see resize_setup. Bad input: StatusResizeLimit;
//             upstream errors pass. With a crop outside the image all of it is wanted.
module resize
  import headrace_pkg::*;
  import resize_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic [15:0] resize_short_i,
  input  logic        crops_i,
  input  logic [31:0] crop_width_i,
  input  logic [31:0] crop_height_i,
  input  logic [31:0] crop_x_i,
  input  logic [31:0] crop_y_i,

  input  logic [15:0] width_i,
  input  logic [15:0] height_i,
  input  logic        sized_i,
  output window_t     window_o,      // of the source
  output logic        window_valid_o,
  output crop_t       crop_o,        // in the resized image, with `crops_i`

  input  frame_t      frame_i,
  input  logic        frame_valid_i,
  output logic        frame_ready_o,
  input  source_beat_t beat_i,
  input  logic        beat_valid_i,
  output logic        beat_ready_o,

  output frame_t      frame_o,
  output logic        frame_valid_o,
  input  logic        frame_ready_i,
  output beat_t       beat_o,
  output logic        beat_valid_o,
  input  logic        beat_ready_i
);

  localparam int unsigned Depth     = 32;  // of the queue between the two interpolations
  localparam int unsigned DepthBits = $clog2(Depth) + 1;

  typedef enum logic [3:0] {
    StIdle,
    StPass,       // a frame with a status, no beats
    StRefuse,     // the same, of our own: beats come in
    StDrain,
    StFrame,
    StRun,
    StAbort,      // the input ended early: forget what is inside
    StEnd         // and say so behind the beats that are out already
  } state_e;
  state_e state_q;

  typedef enum logic [2:0] {
    PlanIdle,
    PlanSetup,
    PlanCrop,   // two clocks: the taps begin with what is wanted
    PlanTaps,   // of the first row and column that are wanted to the last
    PlanReady
  } plan_e;
  plan_e plan_q;
  logic  rows_begun_q, rows_known_q, columns_begun_q, columns_known_q;

  frame_t out_frame_q;
  logic   setup_start, setup_done, setup_limit;
  axis_t  axis_x, axis_y;
  // The parts work; else they are in reset. Registers, as they go far: 0 before the first clock.
  // verilator lint_off PROCASSINIT
  logic   run_q = 1'b0, row_taps_run_q = 1'b0, column_taps_run_q = 1'b0;
  // verilator lint_on PROCASSINIT

  logic    ended_q, early_q;  // the input has had its last beat; before its last pixel
  status_e end_status_q;
  logic    last_leaves;

  // ---- Request ----
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
    end else begin
      unique case (state_q)
        StIdle: begin
          if (frame_valid_i && frame_i.status != StatusOk) state_q <= StPass;
          else if (frame_valid_i) state_q <= setup_limit ? StRefuse : StFrame;
        end
        StPass:   if (frame_ready_i) state_q <= StIdle;
        StRefuse: if (frame_ready_i) state_q <= StDrain;
        StDrain:  if (ended_q) state_q <= StIdle;
        StFrame:  if (frame_ready_i) state_q <= StRun;
        StRun: begin
          if (last_leaves) state_q <= StIdle;
          else if (ended_q && (early_q || end_status_q != StatusOk)) state_q <= StAbort;
        end
        StAbort:  if (!run_q) state_q <= StEnd;
        StEnd:    if (last_leaves) state_q <= StIdle;
        default:  state_q <= StIdle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StIdle && frame_i.status != StatusOk) begin
      out_frame_q <= frame_i;
    end else if (state_q == StIdle) begin
      out_frame_q.width  <= setup_limit ? '0 : axis_x.size_out;
      out_frame_q.height <= setup_limit ? '0 : axis_y.size_out;
      out_frame_q.status <= setup_limit ? StatusResizeLimit : StatusOk;
    end
  end

  assign frame_ready_o = state_q == StIdle;
  assign frame_o       = out_frame_q;
  assign frame_valid_o = state_q == StPass || state_q == StRefuse || state_q == StFrame;

  // Low between requests, so that taps of a row too many go.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      run_q             <= 1'b0;
      row_taps_run_q    <= 1'b0;
      column_taps_run_q <= 1'b0;
    end else begin
      run_q             <= state_q == StRun;
      row_taps_run_q    <= state_q == StRun || (plan_q == PlanTaps && !rows_known_q);
      column_taps_run_q <= state_q == StRun || (plan_q == PlanTaps && !columns_known_q);
    end
  end

  resize_setup u_setup (
    .clk_i,
    .rst_ni  (rst_ni && sized_i),
    .start_i (setup_start),
    .width_i,
    .height_i,
    .short_i (resize_short_i),
    .done_o  (setup_done),
    .limit_o (setup_limit),
    .x_o     (axis_x),
    .y_o     (axis_y)
  );

  // ---- Window: the taps of the crop's rows and columns say it, before they are needed ----
  logic             placed_q;
  logic             planning;
  logic [15:0]      out_right;
  logic [15:0]      begin_x_q, end_x_q, begin_y_q, end_y_q;  // of the output that is wanted
  window_t          window_q;
  logic [15:0]      end_row_q;   // behind its last row, in the image
  logic [ColumnBits-1:0] right_q;  // last column of the source
  logic [15:0]      row_first;
  logic [7:0]       row_weight;
  logic [15:0]      row_needs;   // the last source row of its two that has a weight
  logic             row_last, row_valid;
  logic [1:0][ColumnBits-1:0] tap_first, tap_needs;
  logic [1:0][7:0]  tap_weight;
  logic             tap_end, tap_valid;

  crop_window u_crop (
    .clk_i,
    .width_i (axis_x.size_out),
    .height_i(axis_y.size_out),
    .crop_width_i, .crop_height_i, .crop_x_i, .crop_y_i,
    .crop_o
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !sized_i) begin
      plan_q <= PlanIdle;
    end else begin
      unique case (plan_q)
        PlanIdle:  plan_q <= PlanSetup;
        PlanSetup: if (setup_done) plan_q <= setup_limit || !crops_i ? PlanReady : PlanCrop;
        PlanCrop:  if (placed_q) plan_q <= crop_o.fits ? PlanTaps : PlanReady;
        PlanTaps:  if (rows_known_q && columns_known_q) plan_q <= PlanReady;
        default: ;
      endcase
    end
  end

  assign planning    = plan_q == PlanTaps;
  assign setup_start = plan_q == PlanIdle && sized_i;
  // Beats are whole: two pixels, unless the image ends.
  assign out_right   = crop_o.right | 16'd1;

  always_ff @(posedge clk_i) begin
    placed_q <= plan_q == PlanCrop;
    if (plan_q == PlanSetup) begin
      begin_x_q <= '0;
      begin_y_q <= '0;
      end_x_q   <= axis_x.size_out;
      end_y_q   <= axis_y.size_out;
    end else if (plan_q == PlanCrop && crop_o.fits) begin
      begin_x_q <= {crop_o.left[15:1], 1'b0};
      begin_y_q <= crop_o.top;
      end_x_q   <= out_right < axis_x.size_out ? out_right + 16'd1 : axis_x.size_out;
      end_y_q   <= crop_o.bottom + 16'd1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!planning) begin
      {rows_begun_q, rows_known_q, columns_begun_q, columns_known_q} <= '0;
    end else begin
      if (row_valid) rows_begun_q <= 1'b1;
      if (row_valid && row_last) rows_known_q <= 1'b1;
      if (tap_valid) columns_begun_q <= 1'b1;
      if (tap_valid && tap_end) columns_known_q <= 1'b1;
    end
  end

  // A word more on each side where the neighbour of a column lies in it: chroma at the window's
  // ends is not right.
  always_ff @(posedge clk_i) begin
    if (plan_q == PlanSetup) begin
      window_q  <= WholeFrame;
      end_row_q <= height_i;
    end else if (planning) begin
      if (row_valid && !rows_begun_q) window_q.first_row <= row_first;
      if (row_valid && !rows_known_q) window_q.last_row <= row_needs;
      end_row_q <= window_q.last_row + 16'd1;
      if (tap_valid && !columns_begun_q) begin
        window_q.first_word <= tap_first[0] == '0 ? '0
                             : WordBits'((tap_first[0] - ColumnBits'(1)) >> 3);
      end
      if (tap_valid && !columns_known_q) right_q <= tap_needs[1];
      window_q.last_word <= (WordBits+1)'(((ColumnBits+1)'(right_q) + (ColumnBits+1)'(1)) >> 3);
    end
  end

  assign window_o       = window_q;
  assign window_valid_o = plan_q == PlanReady;

  // ---- Input into the ring ----
  logic        taking_q, room_q;
  number_t     in_word_q, first_word_q, last_word_q;
  logic [15:0] in_row_q;     // rows taken in
  logic [15:0] rows_left_q;  // rows to come
  // The ring has room for rows before `end_q`: the first one that is needed, and as many as it has
  // places. While one comes in, the next has room before `less_q`.
  logic [16:0] end_q, less_q;
  logic        in_row_end, in_image, accept, row_taken;
  logic        rows_read_q;  // all that will be

  assign beat_ready_o = taking_q && room_q;
  assign accept       = beat_ready_o && beat_valid_i;
  assign in_row_end   = in_word_q == last_word_q;
  assign in_image     = rows_left_q != '0;
  assign row_taken    = accept && in_image && in_row_end;

  logic [16:0] places;
  assign places = wide_rows(last_word_q) ? 17'd2 : 17'd4;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || state_q == StIdle) begin
      taking_q    <= rst_ni && frame_valid_i && frame_i.status == StatusOk;
      ended_q     <= 1'b0;
      room_q      <= 1'b1;
      in_row_q    <= window_q.first_row;
      rows_left_q <= end_row_q - window_q.first_row;
      in_word_q   <= {window_q.first_word, {(3 - SourceLaneBits) {1'b0}}};
    end else begin
      if (accept && beat_i.last) begin
        taking_q <= 1'b0;
        ended_q  <= 1'b1;
      end
      room_q <= rows_read_q || state_q == StDrain ||
                (row_taken ? 17'(in_row_q) < less_q : 17'(in_row_q) < end_q);
      if (row_taken) begin
        in_row_q    <= in_row_q + 16'd1;
        rows_left_q <= rows_left_q - 16'd1;
      end
      if (accept && in_image) in_word_q <= in_row_end ? first_word_q : in_word_q + number_t'(1);
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StIdle) begin
      first_word_q <= {window_q.first_word, {(3 - SourceLaneBits) {1'b0}}};
      last_word_q  <= window_q.last_word < (WordBits+1)'((width_i - 16'd1) >> 3)
                    ? {window_q.last_word[WordBits-1:0], {(3 - SourceLaneBits) {1'b1}}}
                      : number_t'((width_i - 16'd1) >> SourceLaneBits);
    end
    if (accept && beat_i.last) begin
      end_status_q <= beat_i.status;
      early_q      <= rows_left_q > 16'd1 || (in_image && !in_row_end);
    end
  end

  // ---- Reading, row by row of the output ----
  // A row's taps, and the last of their two rows that has a weight.
  typedef struct packed {
    logic [15:0] first;
    logic [15:0] needs;
    logic [7:0]  weight;
    logic        last;
  } row_t;
  row_t                  row_come, row_next, row_q;  // from the taps; next; at work
  logic                  row_ready, row_next_valid, row_valid_q, row_step, row_take;
  number_t               out_word_q, next_word_q;  // to read, and the one behind it
  logic                  read, read_end_q, ahead_q, word_room_q;
  logic                  past_q, same_q, next_past_q, next_same_q, present;
  logic [1:0]            tag;
  word_t                 blended, word;
  logic                  blended_valid, word_last, word_final, word_valid, word_ready;
  logic [DepthBits-1:0]  words;

  resize_taps #(
    .Lanes    (1),
    .FirstBits(16)
  ) u_row_taps (
    .clk_i,
    .rst_ni  (row_taps_run_q),
    .axis_i  (axis_y),
    .begin_i (begin_y_q),
    .end_i   (end_y_q),
    .first_o (row_first),
    .needs_o (row_needs),
    .weight_o(row_weight),
    .both_o  (),
    .last_o  (row_last),
    .valid_o (row_valid),
    .ready_i (row_ready)
  );

  assign row_come  = '{first: row_first, needs: row_needs, weight: row_weight, last: row_last};
  assign row_step  = !row_valid_q || row_take;

  // In reset, while the window is planned, it takes all rows.
  stream_register #(.Width($bits(row_t))) u_row_next (
    .clk_i,
    .rst_ni (run_q),
    .data_i (row_come),
    .valid_i(row_valid),
    .ready_o(row_ready),
    .data_o (row_next),
    .valid_o(row_next_valid),
    .ready_i(row_step)
  );

  always_ff @(posedge clk_i) begin
    if (!run_q) row_valid_q <= 1'b0;
    else if (row_step) row_valid_q <= row_next_valid;
    if (row_step) row_q <= row_next;
  end

  // A word may be read as soon as it is there in the lower row, or in the only one where the lower
  // has no weight. Registers compare the rows, and see a row that has come in a little later.
  always_ff @(posedge clk_i) begin
    past_q      <= row_step ? next_past_q : in_row_q > row_q.needs;
    same_q      <= row_step ? next_same_q : in_row_q == row_q.needs;
    next_past_q <= row_next_valid && !row_step && in_row_q > row_next.needs;
    next_same_q <= row_next_valid && !row_step && in_row_q == row_next.needs;
  end

  assign present  = past_q || (same_q && ahead_q);
  assign read     = row_valid_q && !rows_read_q && word_room_q && present;
  assign row_take = read && read_end_q;

  // Words are compared a clock ahead, too: those that come in only grow in a row.
  always_ff @(posedge clk_i) begin
    if (!run_q) begin
      out_word_q  <= first_word_q;
      read_end_q  <= first_word_q == last_word_q;
      next_word_q <= first_word_q == last_word_q ? first_word_q : first_word_q + number_t'(1);
      ahead_q     <= 1'b0;
      rows_read_q <= 1'b0;
      word_room_q <= 1'b0;
      end_q       <= 17'(window_q.first_row) + places;
      less_q      <= 17'(window_q.first_row) + places - 17'd1;
    end else begin
      ahead_q <= read ? in_word_q > next_word_q : in_word_q > out_word_q;
      if (read) begin
        out_word_q  <= next_word_q;
        read_end_q  <= next_word_q == last_word_q;
        next_word_q <= next_word_q == last_word_q ? first_word_q : next_word_q + number_t'(1);
      end
      if (row_take && row_q.last) rows_read_q <= 1'b1;
      word_room_q <= words < DepthBits'(Depth / 2);
      if (row_valid_q && !rows_read_q) begin
        end_q  <= 17'(row_q.first) + places;
        less_q <= 17'(row_q.first) + places - 17'd1;
      end
    end
  end

  resize_rows #(
    .TagBits(2)
  ) u_rows (
    .clk_i,
    .rst_ni       (run_q),
    .wide_i       (wide_rows(last_word_q)),
    .write_i      (accept && in_image),
    .write_row_i  (in_row_q[1:0]),
    .write_word_i (in_word_q),
    .write_pixel_i(beat_i.pixel),
    .read_i       (read),
    .read_row_i   (row_q.first[1:0]),
    .read_word_i  (out_word_q),
    .weight_i     (row_q.weight),
    .tag_i        ({read_end_q, row_q.last}),
    .word_o       (blended),
    .tag_o        (tag),
    .valid_o      (blended_valid)
  );

  // What decides is in a queue of its own: the words' is wide.
  stream_fifo #(
    .Width($bits(tag)),
    .Depth(Depth)
  ) u_tags (
    .clk_i,
    .rst_ni (run_q),
    .data_i (tag),
    .valid_i(blended_valid),
    .ready_o(),
    .data_o ({word_last, word_final}),
    .valid_o(word_valid),
    .ready_i(word_ready),
    .count_o(words)
  );

  stream_fifo #(
    .Width ($bits(blended)),
    .Depth (Depth),
    .Slices(4)
  ) u_words (
    .clk_i,
    .rst_ni (run_q),
    .data_i (blended),
    .valid_i(blended_valid),
    .ready_o(),
    .data_o (word),
    .valid_o(),
    .ready_i(word_ready),
    .count_o()
  );

  // ---- Columns ----
  logic             tap_both, tap_ready;
  pixel_t [1:0]     pixels;
  logic             both, last, pixels_valid, beat_room;

  resize_taps #(
    .Lanes    (2),
    .FirstBits(ColumnBits)
  ) u_column_taps (
    .clk_i,
    .rst_ni  (column_taps_run_q),
    .axis_i  (axis_x),
    .begin_i (begin_x_q),
    .end_i   (end_x_q),
    .first_o (tap_first),
    .needs_o (tap_needs),
    .weight_o(tap_weight),
    .both_o  (tap_both),
    .last_o  (tap_end),
    .valid_o (tap_valid),
    .ready_i (tap_ready)
  );

  resize_columns u_columns (
    .clk_i,
    .rst_ni      (run_q),
    .word_i      (word),
    .last_i      (word_last),
    .final_i     (word_final),
    .word_valid_i(word_valid),
    .word_ready_o(word_ready),
    .first_word_i(first_word_q),
    .first_i     (tap_first),
    .needs_i     (tap_needs),
    .weight_i    (tap_weight),
    .both_i      (tap_both),
    .row_end_i   (tap_end),
    .tap_valid_i (tap_valid),
    .tap_ready_o (tap_ready),
    .pixel_o     (pixels),
    .both_o      (both),
    .last_o      (last),
    .valid_o     (pixels_valid),
    .room_i      (beat_room)
  );

  // ---- Output ----
  beat_queue u_beats (
    .clk_i,
    .rst_ni,
    .pixel_i      (pixels),
    .both_i       (both),
    .last_i       (last),
    .valid_i      (pixels_valid),
    .room_o       (beat_room),
    .pass_i       (state_q == StRun && ended_q && !early_q && end_status_q == StatusOk),
    .end_i        (state_q == StEnd),
    .status_i     (end_status_q),
    .beat_o, .beat_valid_o, .beat_ready_i,
    .last_leaves_o(last_leaves)
  );

`ifndef SYNTHESIS
  a_word_is_there: assert property (@(posedge clk_i) disable iff (!rst_ni || !run_q)
    read |-> in_row_q > row_q.needs ||
             (in_row_q == row_q.needs && in_word_q > out_word_q));
  a_frame_behind_window: assert property (@(posedge clk_i) disable iff (!rst_ni)
    frame_valid_i && frame_ready_o && frame_i.status == StatusOk |->
    window_valid_o && frame_i.width == width_i && frame_i.height == height_i);
  a_queue_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(blended_valid && words == DepthBits'(Depth)));
`endif

endmodule
