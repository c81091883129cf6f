// Scaler: the antialiased resize of Pillow and torchvision, along rows and along columns, by tables
// of the host, on a canvas of one colour.
//
//              +-> scaler_rows ----> scaler_columns --+
//     beats ---+                                      +-> scaler_canvas -> beat_queue -> beats
//              +-> scaler_columns -> scaler_rows -----+   (columns first)
//
// Reference   scaler.cpp, bit for bit, and status for status. scaler.hpp says what the lists mean.
// Interface   one frame and its beats in, one frame and its beats out; see headrace_pkg. `setup_i`
//             from the frame's clock until the last beat. 2 * (rows.entries + columns.entries)
//             words of the lists for each frame, also for one with an error.
// Throughput  two source pixels or two output pixels a clock, whichever are more; one, if not wide.
// Latency     two clocks an entry along rows, and as many source rows as the first output needs.
// Memory      3 UltraRAMs for the list along rows, 11 for the open outputs.
// Bad input   lists that do not fit the sizes, or a size of 0: StatusBadArgument, in the frame or
//             at the end; so does an image that does not lie on the canvas. Upstream errors pass.
module scaler
  import headrace_pkg::*;
  import scaler_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  setup_t       setup_i,
  output logic         idle_o,   // no frame, and all words of the lists are taken

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  input  frame_t       frame_i,
  input  logic         frame_valid_i,
  output logic         frame_ready_o,
  input  beat_t        beat_i,
  input  logic         beat_valid_i,
  output logic         beat_ready_o,

  output frame_t       frame_o,
  output logic         frame_valid_o,
  input  logic         frame_ready_i,
  output beat_t        beat_o,
  output logic         beat_valid_o,
  input  logic         beat_ready_i
);

  typedef enum logic [3:0] {
    StIdle,
    StLoad,      // the list along rows
    StCheck,     // a clock until what it counts is known
    StPass,      // a frame with a status, no beats
    StRefuse,    // the same, of our own: beats come in
    StDrain,
    StFrame,
    StRun,
    StTail,      // all outputs are made; the input has not ended
    StAbort,     // an error: what is left of the input is lost
    StEnd
  } state_e;
  state_e state_q;

  frame_t  source_q;
  status_e status_q, refusal, end_status_q;
  logic    ended_q, loaded, good, empty, bad, columns_done, columns_bad, failed, made_q;
  logic    run, discard, drains, last_leaves;

  // ---- Request ----
  logic [15:0] held_width;  // of a row of the row memory, which has room for all of the table
  assign held_width = setup_i.columns_first ? source_q.width : setup_i.out_width;

  always_comb begin
    refusal = source_q.status;
    if (source_q.status == StatusOk) begin
      if (!good || setup_i.rows.bits == '0 || setup_i.columns.bits == '0 ||
          setup_i.out_height == '0 ||
          17'(setup_i.left) + 17'(setup_i.out_width) > 17'(setup_i.canvas_width) ||
          17'(setup_i.top) + 17'(setup_i.out_height) > 17'(setup_i.canvas_height)) begin
        refusal = StatusBadArgument;
      end
    end
  end

  assign bad = columns_bad || (ended_q && failed);
  assign run = state_q == StRun;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
    end else begin
      unique case (state_q)
        StIdle:  if (frame_valid_i) state_q <= StLoad;
        StLoad:  if (loaded) state_q <= StCheck;
        StCheck: begin
          if (source_q.status != StatusOk) state_q <= StPass;
          else state_q <= refusal == StatusOk ? StFrame : StRefuse;
        end
        StPass:   if (frame_ready_i) state_q <= StDrain;
        StRefuse: if (frame_ready_i) state_q <= StDrain;
        StDrain:  if (ended_q && empty) state_q <= StIdle;
        StFrame:  if (frame_ready_i) state_q <= StRun;
        StRun: begin
          if (bad) state_q <= StAbort;
          else if (made_q && columns_done) state_q <= StTail;
        end
        StTail:  if (ended_q) state_q <= StEnd;
        StAbort: if (ended_q && empty) state_q <= StEnd;
        StEnd:   if (last_leaves) state_q <= StIdle;
        default: state_q <= StIdle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StIdle) source_q <= frame_i;
    if (state_q == StCheck) status_q <= refusal;
    else if (state_q == StAbort && ended_q) begin
      status_q <= end_status_q == StatusOk ? StatusBadArgument : end_status_q;
    end else if (state_q == StTail) begin
      status_q <= end_status_q;
    end
  end

  assign idle_o        = state_q == StIdle && empty;
  assign frame_ready_o = state_q == StIdle;
  assign frame_valid_o = state_q == StPass || state_q == StRefuse || state_q == StFrame;
  assign frame_o       = status_q == StatusOk
      ? '{width: setup_i.canvas_width, height: setup_i.canvas_height, status: StatusOk}
      : '{width: '0, height: '0, status: status_q};

  // ---- Lists ----
  logic                 table_we, entry_valid, entry_ready;
  logic [EntryBits-1:0] table_index;
  entry_t               table_entry, entry;

  assign discard = state_q == StDrain || state_q == StAbort || state_q == StIdle;

  scaler_load u_load (
    .clk_i,
    .rst_ni,
    .start_i      (state_q == StIdle && frame_valid_i),
    .width_i      (source_q.width),
    .setup_i,
    .discard_i    (discard),
    .loaded_o     (loaded),
    .good_o       (good),
    .empty_o      (empty),
    .word_i, .word_valid_i, .word_ready_o,
    .table_we_o   (table_we),
    .table_index_o(table_index),
    .table_entry_o(table_entry),
    .entry_o      (entry),
    .entry_valid_o(entry_valid),
    .entry_ready_i(entry_ready)
  );

  // ---- Input ----
  // It comes from registers, as what a beat has decides whether it is taken. Beats are counted, so
  // that an end that comes too early is one.
  beat_t       beat;
  logic        beat_valid, beat_ready;

  stream_register #(.Width($bits(beat_t))) u_input (
    .clk_i,
    .rst_ni,
    .data_i (beat_i),
    .valid_i(beat_valid_i),
    .ready_o(beat_ready_o),
    .data_o (beat),
    .valid_o(beat_valid),
    .ready_i(beat_ready)
  );

  logic        taking_q, first_ready, accept, pixels;
  logic [14:0] word_q, last_word;
  logic [15:0] row_q;
  logic        whole;

  assign pixels       = beat.keep != '0;
  assign drains       = state_q == StDrain || state_q == StTail || state_q == StAbort;
  assign beat_ready   = taking_q && (drains || (run && (!pixels || first_ready)));
  assign accept       = beat_ready && beat_valid;
  assign last_word    = 15'((source_q.width - 16'd1) >> 1);
  assign whole        = row_q == source_q.height;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      taking_q <= 1'b0;
      ended_q  <= 1'b0;
    end else if (accept && beat.last) begin
      taking_q <= 1'b0;
      ended_q  <= 1'b1;
    end else if ((state_q == StFrame || state_q == StRefuse) && frame_ready_i) begin
      taking_q <= 1'b1;
      ended_q  <= 1'b0;
    end else if (state_q == StPass) begin
      ended_q  <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StFrame) begin
      word_q <= '0;
      row_q  <= '0;
    end else if (accept && pixels) begin
      word_q <= word_q == last_word ? '0 : word_q + 15'd1;
      if (word_q == last_word) row_q <= row_q + 16'd1;
    end
    if (accept && beat.last) end_status_q <= beat.status;
  end
  assign failed = end_status_q != StatusOk || !whole;

  // ---- The passes, in their order ----
  typedef struct packed {
    pixel_t [1:0] pixel;
    logic         both;
    logic         valid;
  } pair_t;
  pair_t source, rows_in, rows_out, columns_in, columns_out, result;
  logic  rows_in_ready, rows_out_ready, columns_in_ready, columns_out_ready, result_ready;
  logic  swap;
  assign swap = setup_i.columns_first;

  assign source = '{pixel: beat.pixel, both: beat.keep[1],
                    valid: beat_valid && pixels && taking_q && run};
  assign rows_in           = swap ? columns_out : source;
  assign columns_in        = swap ? source : rows_out;
  assign result            = swap ? rows_out : columns_out;
  assign first_ready       = swap ? columns_in_ready : rows_in_ready;
  assign rows_out_ready    = swap ? result_ready : columns_in_ready;
  assign columns_out_ready = swap ? rows_in_ready : result_ready;

  scaler_rows u_rows (
    .clk_i,
    .rst_ni,
    .table_we_i   (table_we),
    .table_index_i(table_index),
    .table_entry_i(table_entry),
    .run_i        (run),
    .wide_i       (setup_i.wide),
    .pass_i       (setup_i.rows),
    .height_i     (swap ? setup_i.out_height : source_q.height),
    .out_width_i  (setup_i.out_width),
    .pixel_i      (rows_in.pixel),
    .both_i       (rows_in.both),
    .valid_i      (rows_in.valid),
    .ready_o      (rows_in_ready),
    .pixel_o      (rows_out.pixel),
    .both_o       (rows_out.both),
    .valid_o      (rows_out.valid),
    .ready_i      (rows_out_ready)
  );

  scaler_columns u_columns (
    .clk_i,
    .rst_ni,
    .run_i        (run),
    .wide_i       (setup_i.wide),
    .pass_i       (setup_i.columns),
    .width_i      (held_width),
    .height_i     (source_q.height),
    .out_height_i (setup_i.out_height),
    .done_o       (columns_done),
    .bad_o        (columns_bad),
    .entry_i      (entry),
    .entry_valid_i(entry_valid),
    .entry_ready_o(entry_ready),
    .pixel_i      (columns_in.pixel),
    .both_i       (columns_in.both),
    .valid_i      (columns_in.valid),
    .ready_o      (columns_in_ready),
    .pixel_o      (columns_out.pixel),
    .both_o       (columns_out.both),
    .valid_o      (columns_out.valid),
    .ready_i      (columns_out_ready)
  );

  // ---- Output ----
  pixel_t [1:0] placed;
  logic         placed_both, placed_last, placed_valid, placed_ready, room, send;

  scaler_canvas u_canvas (
    .clk_i,
    .rst_ni,
    .run_i  (run),
    .setup_i,
    .pixel_i(result.pixel),
    .both_i (result.both),
    .valid_i(result.valid),
    .ready_o(result_ready),
    .pixel_o(placed),
    .both_o (placed_both),
    .last_o (placed_last),
    .valid_o(placed_valid),
    .ready_i(placed_ready)
  );

  assign placed_ready = room && run;
  assign send         = placed_valid && placed_ready;

  always_ff @(posedge clk_i) begin
    if (state_q == StFrame) made_q <= 1'b0;
    else if (send && placed_last) made_q <= 1'b1;
  end

  beat_queue u_beats (
    .clk_i,
    .rst_ni,
    .pixel_i      (placed),
    .both_i       (placed_both),
    .last_i       (placed_last),
    .valid_i      (send),
    .room_o       (room),
    .pass_i       (state_q == StEnd && status_q == StatusOk),
    .end_i        (state_q == StEnd),
    .status_i     (status_q),
    .beat_o, .beat_valid_o, .beat_ready_i,
    .last_leaves_o(last_leaves)
  );

endmodule
