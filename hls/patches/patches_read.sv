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

  logic [12:0] word_q, last_word;     // of a row of a patch
  logic [3:0]  pixels;                // of the word
  logic [4:0]  samples, first_q, first;
  logic [15:0] row_q, square_q;
  logic [3:0]  frame_q;
  logic [1:0]  channel_q;
  logic [7:0]  patch_q, part_q;
  address_t    row_base_q, patch_base_q, part_base_q, next_square_q;
  address_t    next_row, next_patch, next_part;
  logic        running_q, fresh_q;
  logic        word_ends, row_ends, plane_ends, patch_ends, patches_end, parts_end, band_ends;

  assign last_word   = 13'((layout_i.side_width - 16'd1) >> 3);
  assign pixels      = word_q == last_word ? 4'(3'(layout_i.side_width - 16'd1)) + 4'd1 : 4'd8;
  assign samples     = layout_i.channels_last ? 5'(pixels) + {pixels, 1'b0} : 5'(pixels);
  assign first       = first_q + (four_i ? 5'd4 : 5'd8);
  assign word_ends   = first >= samples;
  assign row_ends    = word_ends && word_q == last_word;
  assign plane_ends  = row_ends && row_q + 16'd1 == layout_i.side_height;
  assign patch_ends  = plane_ends && (layout_i.channels_last ||
                       (channel_q == 2'd2 && frame_q + 4'd1 == layout_i.frames));
  assign patches_end = patch_ends && patch_q + 8'd1 == layout_i.merge;
  assign parts_end   = patches_end && part_q + 8'd1 == layout_i.merge;
  assign band_ends   = parts_end && square_q + 16'd1 == band_i.across;

  assign next_row   = row_base_q + band_i.row_words;
  assign next_patch = patch_base_q + address_t'(last_word) + 1'b1;
  assign next_part  = part_base_q + band_i.part_words;

  assign read_o    = running_q && room_i;
  assign index_o   = row_base_q + address_t'(word_q);
  assign channel_o = channel_q;
  assign first_o   = first_q;
  assign count_o   = samples - first_q > (four_i ? 5'd4 : 5'd8) ? (four_i ? 4'd4 : 4'd8)
                                                                : 4'(samples - first_q);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      running_q <= 1'b0;
      fresh_q   <= 1'b1;
      done_o    <= 1'b0;
    end else begin
      done_o <= read_o && band_ends;
      if (valid_i && !running_q && fresh_q) running_q <= 1'b1;
      else if (read_o && band_ends) running_q <= 1'b0;
      // A clock passes until the next band is shown.
      fresh_q <= !(running_q || done_o);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!running_q) begin
      word_q        <= '0;
      first_q       <= '0;
      row_q         <= '0;
      frame_q       <= '0;
      channel_q     <= '0;
      patch_q       <= '0;
      part_q        <= '0;
      square_q      <= '0;
      row_base_q    <= {band_i.upper, (AddressBits - 1)'(0)};
      patch_base_q  <= {band_i.upper, (AddressBits - 1)'(0)};
      part_base_q   <= {band_i.upper, (AddressBits - 1)'(0)};
    end else if (read_o) begin
      first_q <= word_ends ? '0 : first;
      if (word_ends) word_q <= row_ends ? '0 : word_q + 13'd1;
      if (row_ends) row_q <= plane_ends ? '0 : row_q + 16'd1;
      if (row_ends) row_base_q <= next_row;
      if (plane_ends) begin
        row_base_q <= patch_base_q;
        if (frame_q + 4'd1 == layout_i.frames) begin
          frame_q   <= '0;
          channel_q <= patch_ends ? '0 : channel_q + 2'd1;
        end else begin
          frame_q <= layout_i.channels_last ? '0 : frame_q + 4'd1;
        end
      end
      if (patch_ends) begin
        channel_q    <= '0;
        frame_q      <= '0;
        patch_q      <= patches_end ? '0 : patch_q + 8'd1;
        patch_base_q <= next_patch;
        row_base_q   <= next_patch;
      end
      if (patches_end) begin
        part_q       <= parts_end ? '0 : part_q + 8'd1;
        part_base_q  <= next_part;
        patch_base_q <= next_part;
        row_base_q   <= next_part;
        // The next square begins where the first part's patches end.
        if (part_q == '0) next_square_q <= next_patch;
      end
      if (parts_end) begin
        square_q      <= square_q + 16'd1;
        part_base_q   <= part_q == '0 ? next_patch : next_square_q;
        patch_base_q  <= part_q == '0 ? next_patch : next_square_q;
        row_base_q    <= part_q == '0 ? next_patch : next_square_q;
      end
    end
  end

endmodule
