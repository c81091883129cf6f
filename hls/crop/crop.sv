// Crop: a window of the image.
//
// Reference   crop.cpp; numpy: image[top:bottom + 1, left:right + 1]. Where that is, crop_window
//             says.
// Interface   one frame and its beats in, one frame and its beats out; see headrace_pkg. `crop_i`
//             from the frame's clock until the last beat. With `cut_i` the beats are only those
//             with pixels of the window.
// Throughput  two source pixels a clock. A window at an odd offset is moved by a lane.
// Latency     one clock of the frame, three of a beat, four with an odd offset. The last beat waits
//             for the input's last, whose status it carries.
// Bad input   a window that is empty or not inside the image: StatusCropOutside. Upstream errors
//             pass.
module crop
  import headrace_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  crop_t       crop_i,
  input  logic        cut_i,

  input  frame_t      frame_i,
  input  logic        frame_valid_i,
  output logic        frame_ready_o,
  input  beat_t       beat_i,
  input  logic        beat_valid_i,
  output logic        beat_ready_o,

  output frame_t      frame_o,
  output logic        frame_valid_o,
  input  logic        frame_ready_i,
  output beat_t       beat_o,
  output logic        beat_valid_o,
  input  logic        beat_ready_i
);

  typedef enum logic [2:0] {
    StIdle,
    StPass,      // a frame with a status, no beats
    StRefuse,    // the same, of our own: beats come in
    StDrain,
    StFrame,
    StRun,
    StFlush,     // the input has ended; its last beat is on its way
    StEnd
  } state_e;
  state_e state_q;

  frame_t      out_frame_q;
  logic [15:0] width_q;  // of the image

  logic        taking_q, ended_q, last_leaves;
  status_e     end_status_q;

  // ---- Request ----
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
    end else begin
      unique case (state_q)
        StIdle: begin
          if (frame_valid_i && frame_i.status != StatusOk) state_q <= StPass;
          else if (frame_valid_i) state_q <= crop_i.fits ? StFrame : StRefuse;
        end
        StPass:   if (frame_ready_i) state_q <= StIdle;
        StRefuse: if (frame_ready_i) state_q <= StDrain;
        StDrain:  if (ended_q) state_q <= StIdle;
        StFrame:  if (frame_ready_i) state_q <= StRun;
        StRun:    if (ended_q) state_q <= StFlush;
        StFlush:  state_q <= StEnd;
        StEnd:    if (last_leaves) state_q <= StIdle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StIdle) begin
      width_q     <= frame_i.width;
      out_frame_q <= frame_i;
      if (frame_i.status == StatusOk) begin
        out_frame_q.width  <= crop_i.fits ? crop_i.width : '0;
        out_frame_q.height <= crop_i.fits ? crop_i.height : '0;
        out_frame_q.status <= crop_i.fits ? StatusOk : StatusCropOutside;
      end
    end
  end

  assign frame_ready_o = state_q == StIdle;
  assign frame_o       = out_frame_q;
  assign frame_valid_o = state_q == StPass || state_q == StRefuse || state_q == StFrame;

  // ---- Input ----
  logic        room, accept;
  logic [14:0] word_q, first_word, last_word_q;  // of the row
  logic [15:0] row_q;

  assign first_word   = cut_i ? crop_i.left[15:1] : '0;
  assign beat_ready_o = taking_q && (room || state_q == StDrain);
  assign accept       = beat_ready_o && beat_valid_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      taking_q <= 1'b0;
      ended_q  <= 1'b0;
    end else if (accept && beat_i.last) begin
      taking_q <= 1'b0;
      ended_q  <= 1'b1;
    end else if ((state_q == StFrame || state_q == StRefuse) && frame_ready_i) begin
      taking_q <= 1'b1;
      ended_q  <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StFrame) begin
      word_q      <= first_word;
      row_q       <= cut_i ? crop_i.top : '0;
      last_word_q <= cut_i ? crop_i.right[15:1] : 15'((width_q - 16'd1) >> 1);
    end else if (accept) begin
      word_q <= word_q == last_word_q ? first_word : word_q + 15'd1;
      if (word_q == last_word_q) row_q <= row_q + 16'd1;
    end
    if (accept && beat_i.last) end_status_q <= beat_i.status;
  end

  // ---- Which pixels lie in the window ----
  logic         valid_a_q;
  pixel_t [1:0] pixel_a_q;
  logic [1:0]   in_a_q, edge_a_q;  // inside; the last one of its row
  logic         bottom_a_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_a_q <= 1'b0;
    else valid_a_q <= accept && state_q == StRun;
  end
  always_ff @(posedge clk_i) begin
    pixel_a_q <= beat_i.pixel;
    for (int lane = 0; lane < 2; lane++) begin
      in_a_q[lane]   <= beat_i.keep[lane] && row_q >= crop_i.top && row_q <= crop_i.bottom &&
                        {word_q, lane[0]} >= crop_i.left && {word_q, lane[0]} <= crop_i.right;
      edge_a_q[lane] <= {word_q, lane[0]} == crop_i.right;
    end
    bottom_a_q <= row_q == crop_i.bottom;
  end

  // ---- Into beats ----
  // At an odd offset the right pixel waits for the next beat, or goes alone at the end of its row.
  // The first beat of a row sends nothing there, so that the row before it has the clock it needs.
  logic   waiting_q, waiting_edge_q, waiting_bottom_q;
  pixel_t waiting_pixel_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) waiting_q <= 1'b0;
    else if (valid_a_q) waiting_q <= crop_i.left[0] && in_a_q[1];
    else if (waiting_edge_q || state_q == StEnd) waiting_q <= 1'b0;
  end
  always_ff @(posedge clk_i) begin
    if (valid_a_q) begin
      waiting_pixel_q  <= pixel_a_q[1];
      waiting_edge_q   <= edge_a_q[1];
      waiting_bottom_q <= bottom_a_q;
    end
  end

  logic         send, both, edge_out, final_beat;
  pixel_t [1:0] pixels;
  always_comb begin
    // A pixel that waits when the input ends early is dropped.
    both = in_a_q[crop_i.left[0] ? 0 : 1] && valid_a_q;
    if (crop_i.left[0]) begin
      send     = waiting_q && (both || waiting_edge_q);
      pixels   = {pixel_a_q[0], waiting_pixel_q};
      edge_out = both ? edge_a_q[0] : waiting_edge_q;
    end else begin
      send     = valid_a_q && in_a_q[0];
      pixels   = pixel_a_q;
      edge_out = edge_a_q[0] || edge_a_q[1];
    end
    final_beat = edge_out && (crop_i.left[0] ? waiting_bottom_q : bottom_a_q);
  end

  // ---- Output ----
  beat_queue u_beats (
    .clk_i,
    .rst_ni,
    .pixel_i      (pixels),
    .both_i       (both),
    .last_i       (final_beat),
    .valid_i      (send),
    .room_o       (room),
    .pass_i       (state_q == StEnd && end_status_q == StatusOk),
    .end_i        (state_q == StEnd),
    .status_i     (end_status_q),
    .beat_o, .beat_valid_o, .beat_ready_i,
    .last_leaves_o(last_leaves)
  );

endmodule
