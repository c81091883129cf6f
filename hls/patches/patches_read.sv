// Bands out of the memory of patches, in the order of the tensor: the address of a word, and which
// of its samples are next.
//
// Interface   `band_i` with `valid_i` until `done_o`, for a clock. A read a clock while `room_i`:
//             with `read_o`, samples `first_o` to before `first_o` + `count_o` of the word at
//             `index_o`. They count pixels of `channel_o`, or with channels last, 0 to 23, channels
//             of pixels.
// Throughput  four samples of 4 bytes a clock, or eight.
module patches_read
  import patches_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,

  input  layout_t    layout_i,
  input  logic       four_i,  // samples a clock; else eight
  input  band_t      band_i,
  input  logic       valid_i,
  output logic       done_o,

  input  logic       room_i,
  output logic       read_o,
  output address_t   index_o,
  output logic [1:0] channel_o,
  output logic [4:0] first_o,
  output logic [3:0] count_o
);

  // ---- What stays ----
  logic [12:0] words_q;              // of a row of a patch
  logic [4:0]  full_q, tail_q;       // samples of a word, and of a row's last one
  logic [4:0]  full_end_q, tail_end_q;  // the first of its last samples that are read at once
  logic [3:0]  frames_q;
  logic [1:0]  channels_q;
  logic [3:0]  tail_pixels;
  band_t       band_q;
  logic        start;  // nothing is read: the loops begin anew

  assign tail_pixels = 4'(3'(layout_i.side_width - 16'd1)) + 4'd1;

  function automatic logic [4:0] end_of(logic [4:0] samples);
    return (samples - 5'd1) & (four_i ? 5'b11100 : 5'b11000);
  endfunction

  always_ff @(posedge clk_i) begin
    if (start) band_q <= band_i;
    words_q    <= 13'((layout_i.side_width - 16'd1) >> 3) + 13'd1;
    full_q     <= layout_i.channels_last ? 5'd24 : 5'd8;
    tail_q     <= layout_i.channels_last ? 5'(tail_pixels) + {tail_pixels, 1'b0}
                                         : 5'(tail_pixels);
    full_end_q <= end_of(full_q);
    tail_end_q <= end_of(tail_q);
    frames_q   <= layout_i.channels_last ? 4'd1 : layout_i.frames;
    channels_q <= layout_i.channels_last ? 2'd1 : 2'd3;
  end

  // ---- The loops, from the innermost on ----
  logic [4:0]  first_q, next_first, samples_left;
  logic [12:0] word_q;
  logic [1:0]  channel_q;
  logic        running_q, fresh_q;
  // The samples that are read are the last of a whole word; of a row's last one.
  logic        full_ends_q, tail_ends_q;
  logic        last_word, last_row, last_frame, last_channel, last_patch, last_part, last_square;
  logic        word_ends, row_ends, plane_ends, frames_end, patch_ends, patches_end, parts_end;

  assign start       = !running_q;
  assign read_o      = running_q && room_i;
  assign word_ends   = read_o && (last_word ? tail_ends_q : full_ends_q);
  assign row_ends    = word_ends && last_word;
  assign plane_ends  = row_ends && last_row;
  assign frames_end  = plane_ends && last_frame;
  assign patch_ends  = frames_end && last_channel;
  assign patches_end = patch_ends && last_patch;
  assign parts_end   = patches_end && last_part;

  loop_count #(.Width(13)) u_words (
    .clk_i, .start_i(start), .count_i(words_q), .step_i(word_ends), .last_o(last_word)
  );
  loop_count #(.Width(16)) u_rows (
    .clk_i, .start_i(start), .count_i(layout_i.side_height), .step_i(row_ends), .last_o(last_row)
  );
  loop_count #(.Width(4)) u_frames (
    .clk_i, .start_i(start), .count_i(frames_q), .step_i(plane_ends), .last_o(last_frame)
  );
  loop_count #(.Width(2)) u_channels (
    .clk_i, .start_i(start), .count_i(channels_q), .step_i(frames_end), .last_o(last_channel)
  );
  loop_count #(.Width(8)) u_patches (
    .clk_i, .start_i(start), .count_i(layout_i.merge), .step_i(patch_ends), .last_o(last_patch)
  );
  loop_count #(.Width(8)) u_parts (
    .clk_i, .start_i(start), .count_i(layout_i.merge), .step_i(patches_end), .last_o(last_part)
  );
  loop_count #(.Width(16)) u_squares (
    .clk_i, .start_i(start), .count_i(band_q.across), .step_i(parts_end), .last_o(last_square)
  );

  // A band is begun when its counts are those of the loops.
  localparam int unsigned Settling = 4;
  logic [Settling-1:0] valid_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      running_q <= 1'b0;
      fresh_q   <= 1'b1;
      valid_q   <= '0;
      done_o    <= 1'b0;
    end else begin
      done_o  <= parts_end && last_square;
      // A clock passes until the next band is shown.
      fresh_q <= !(running_q || done_o);
      valid_q <= running_q || done_o || !fresh_q ? '0 : {valid_q[Settling-2:0], valid_i};
      if (&valid_q && valid_i && !running_q) running_q <= 1'b1;
      else if (parts_end && last_square) running_q <= 1'b0;
    end
  end

  // ---- Where, and which ----
  address_t row_base_q, patch_base_q, part_base_q, next_square_q, begin_at;
  address_t next_row, next_patch, next_part, next_square;
  logic     first_part_q;

  assign begin_at    = {band_q.upper, (AddressBits - 1)'(0)};
  assign next_row    = row_base_q + band_q.row_words;
  assign next_patch  = patch_base_q + address_t'(words_q);
  assign next_part   = part_base_q + band_q.part_words;
  // The next square begins where the first part's patches end.
  assign next_square = first_part_q ? next_patch : next_square_q;

  assign next_first   = first_q + (four_i ? 5'd4 : 5'd8);
  assign samples_left = (last_word ? tail_q : full_q) - first_q;
  assign index_o      = row_base_q + address_t'(word_q);
  assign channel_o    = channel_q;
  assign first_o      = first_q;
  assign count_o      = four_i ? (samples_left > 5'd4 ? 4'd4 : 4'(samples_left))
                               : (samples_left > 5'd8 ? 4'd8 : 4'(samples_left));

  always_ff @(posedge clk_i) begin
    if (start) begin
      first_q      <= '0;
      full_ends_q  <= full_end_q == '0;
      tail_ends_q  <= tail_end_q == '0;
      word_q       <= '0;
      channel_q    <= '0;
      first_part_q <= 1'b1;
      row_base_q   <= begin_at;
      patch_base_q <= begin_at;
      part_base_q  <= begin_at;
    end else if (read_o) begin
      first_q     <= word_ends ? '0 : next_first;
      full_ends_q <= word_ends ? full_end_q == '0 : next_first == full_end_q;
      tail_ends_q <= word_ends ? tail_end_q == '0 : next_first == tail_end_q;
      if (word_ends) word_q <= row_ends ? '0 : word_q + 13'd1;
      if (frames_end) channel_q <= patch_ends ? '0 : channel_q + 2'd1;
      if (row_ends) row_base_q <= plane_ends ? patch_base_q : next_row;
      if (patch_ends) begin
        patch_base_q <= parts_end ? next_square : patches_end ? next_part : next_patch;
        row_base_q   <= parts_end ? next_square : patches_end ? next_part : next_patch;
      end
      if (patches_end) begin
        part_base_q   <= parts_end ? next_square : next_part;
        first_part_q  <= parts_end;
        next_square_q <= next_square;
      end
    end
  end

`ifndef SYNTHESIS
  a_ends: assert property (@(posedge clk_i) disable iff (!rst_ni)
    running_q |-> full_ends_q == (first_q == full_end_q) && tail_ends_q == (first_q == tail_end_q));
`endif

endmodule
