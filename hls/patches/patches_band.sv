// Pixels into the memory of patches: words of eight pixels of a row of a patch, row by row, until a
// row of squares is whole.
//
// Interface   beats' pixels with `valid_i`, taken while `room_o`. `band_o` with `whole_o` for a
//             clock, when the last word of a band is written; `taken_i`: the oldest band has been
//             read. `bad_o` rises with the first pixel that does not fit the layout. While
//             `write_i` is low, pixels are counted only. `start_i` forgets all; it is high for two
//             clocks at least in which the width and the layout are those of the frame.
// Throughput  two pixels a clock.
// Latency     one clock.
// Bad input   a row that is no multiple of a square, or a band beyond the memory.
module patches_band
  import headrace_pkg::*;
  import patches_pkg::*;
(
  input  logic            clk_i,
  input  logic            rst_ni,

  input  logic            start_i,
  input  layout_t         layout_i,
  input  logic [15:0]     width_i,
  input  logic            write_i,
  output logic            bad_o,
  output logic            between_o,  // no band has been begun

  input  pixel_t [1:0]    pixel_i,
  input  logic            both_i,
  input  logic            valid_i,
  output logic            room_o,

  output logic            we_o,
  output address_t        index_o,
  output pixel_t [7:0]    word_o,

  output band_t           band_o,
  output logic            whole_o,
  input  logic            taken_i
);

  logic [15:0]            squares_q;
  logic [AddressBits:0]   word_q, next_word;       // one bit more than an address
  logic [2:0]             fill_q;
  pixel_t [7:0]           collected_q, collected;
  logic                   first_row_q, first_part_q, first_band_q, halves_q, upper_q;
  logic [1:0]             full_q;                  // bands
  address_t               row_words_q, part_words_q;
  logic [15:0]            across_q;

  logic                   take, patch_ends, square_ends, row_ends, part_ends, band_ends, word_ends;
  logic                   last_patch, last_row, last_part;

  assign take        = valid_i && !bad_o;
  assign square_ends = patch_ends && last_patch;
  assign part_ends   = row_ends && last_row;
  assign band_ends   = part_ends && last_part;
  assign word_ends   = patch_ends || fill_q == 3'd6;
  assign next_word   = word_q + 1'b1;

  pair_count u_in_patch (
    .clk_i, .start_i, .count_i(layout_i.side_width), .step_i(take), .both_i,
    .ends_o(patch_ends)
  );
  pair_count u_columns (
    .clk_i, .start_i, .count_i(width_i), .step_i(take), .both_i,
    .ends_o(row_ends)
  );
  loop_count #(.Width(8)) u_patches (
    .clk_i, .start_i, .count_i(layout_i.merge), .step_i(take && patch_ends), .last_o(last_patch)
  );
  loop_count #(.Width(16)) u_rows (
    .clk_i, .start_i, .count_i(layout_i.side_height), .step_i(take && row_ends), .last_o(last_row)
  );
  loop_count #(.Width(8)) u_parts (
    .clk_i, .start_i, .count_i(layout_i.merge), .step_i(take && part_ends), .last_o(last_part)
  );

  always_comb begin
    collected             = collected_q;
    collected[fill_q]     = pixel_i[0];
    collected[fill_q|3'd1] = both_i ? pixel_i[1] : pixel_i[0];
  end

  assign room_o = !write_i || full_q == '0 || (full_q == 2'd1 && halves_q);

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) begin
      squares_q    <= '0;
      word_q       <= '0;
      fill_q       <= '0;
      between_o    <= 1'b1;
      first_row_q  <= 1'b1;
      first_part_q <= 1'b1;
      first_band_q <= 1'b1;
      halves_q     <= 1'b0;
      upper_q      <= 1'b0;
      full_q       <= '0;
      bad_o        <= 1'b0;
      we_o         <= 1'b0;
      whole_o      <= 1'b0;
    end else begin
      we_o    <= valid_i && word_ends && write_i && !bad_o;
      whole_o <= valid_i && band_ends && write_i && !bad_o;
      full_q  <= full_q + 2'(valid_i && band_ends && write_i && !bad_o) - 2'(taken_i);
      if (take) begin
        between_o <= band_ends;
        fill_q    <= word_ends ? '0 : fill_q + 3'd2;
        if (word_ends) word_q <= band_ends ? '0 : next_word;
        if (square_ends) squares_q <= row_ends ? '0 : squares_q + 16'd1;
        if (row_ends) first_row_q <= 1'b0;
        if (part_ends) first_part_q <= 1'b0;
        if (band_ends) begin
          first_band_q <= 1'b0;
          if (first_band_q) halves_q <= next_word <= (AddressBits + 1)'(BandWords / 2);
          upper_q <= !upper_q && (first_band_q ? next_word <= (AddressBits + 1)'(BandWords / 2)
                                               : halves_q);
        end
        // A row that ends within a square, which it does behind a pair across two patches, too; a
        // band beyond the memory.
        bad_o <= (row_ends && !square_ends) || (word_ends && word_q[AddressBits]);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i) begin
      collected_q <= collected;
      word_o      <= collected;
      index_o     <= {word_q[AddressBits-1] || upper_q, word_q[AddressBits-2:0]};
      if (row_ends && first_row_q) begin
        row_words_q <= address_t'(next_word);
        across_q    <= squares_q + 16'd1;
      end
      if (part_ends && first_band_q && first_part_q) part_words_q <= address_t'(next_word);
      band_o.upper <= upper_q;
    end
  end

  assign band_o.row_words  = row_words_q;
  assign band_o.part_words = part_words_q;
  assign band_o.across     = across_q;

endmodule
