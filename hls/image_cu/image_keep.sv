// Packs the pixels of a frame into words, as an image lies in the workspace: four pixels a word,
// each as R, G, B and 0, and rows that begin with a word.
//
// Reference   keep_image() of image_cu.cpp.
// Interface   `start_i` for a clock while `idle_o`; then one frame and, if its status is StatusOk,
//             beats until `last`. After that `status_o` and the sizes stand until the next start.
//             Words leave by ready/valid.
// Throughput  two pixels a clock.
// Latency     a clock.
// Bad input   an error of upstream is the status; words of pixels before it have left.
module image_keep
  import headrace_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  output logic         idle_o,
  output status_e      status_o,
  output logic [15:0]  width_o,
  output logic [15:0]  height_o,

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

  typedef enum logic [1:0] {
    StIdle,
    StFrame,
    StTake,
    StSend  // the last word
  } state_e;
  state_e state_q;

  logic [14:0]  pair_q, last_pair;  // of a row
  logic [63:0]  low_q;
  logic [127:0] word_q;
  logic         half_q, take, pixels, row_ends;

  function automatic logic [63:0] bytes_of(beat_t beat);
    return {8'b0, beat.keep[1] ? {beat.pixel[1].b, beat.pixel[1].g, beat.pixel[1].r} : 24'b0,
            8'b0, beat.pixel[0].b, beat.pixel[0].g, beat.pixel[0].r};
  endfunction

  assign idle_o        = state_q == StIdle;
  assign frame_ready_o = state_q == StFrame;
  assign beat_ready_o  = state_q == StTake && (!word_valid_o || word_ready_i);
  assign take          = beat_valid_i && beat_ready_o;
  assign pixels        = beat_i.keep != '0;
  assign last_pair     = 15'((width_o - 16'd1) >> 1);
  assign row_ends      = pair_q == last_pair;
  assign word_o        = word_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q      <= StIdle;
      word_valid_o <= 1'b0;
    end else begin
      unique case (state_q)
        StIdle:  if (start_i) state_q <= StFrame;
        StFrame: if (frame_valid_i) state_q <= frame_i.status == StatusOk ? StTake : StIdle;
        StTake:  if (take && beat_i.last) state_q <= StSend;
        StSend:  if (!word_valid_o || word_ready_i) state_q <= StIdle;
        default: state_q <= StIdle;
      endcase
      if (take && pixels && (half_q || row_ends)) word_valid_o <= 1'b1;
      else if (word_ready_i) word_valid_o <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StFrame && frame_valid_i) begin
      status_o <= frame_i.status;
      width_o  <= frame_i.status == StatusOk ? frame_i.width : '0;
      height_o <= frame_i.status == StatusOk ? frame_i.height : '0;
      pair_q   <= '0;
      half_q   <= 1'b0;
    end else if (take) begin
      if (beat_i.last) status_o <= beat_i.status;
      if (pixels) begin
        half_q <= !half_q && !row_ends;
        pair_q <= row_ends ? '0 : pair_q + 15'd1;
        low_q  <= bytes_of(beat_i);
        word_q <= half_q ? {bytes_of(beat_i), low_q} : {64'b0, bytes_of(beat_i)};
      end
    end
  end

endmodule
