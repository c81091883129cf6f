// Brings chroma to the size of luma: words of samples in, source beats out.
//
// Reference   upsample in decode.cpp, the fancy upsampling of libjpeg-turbo: three parts of the
//             near sample and one of the next in each direction with fancy_h or fancy_v, else
//             replication. The rounding term alternates: 8, 7 along a 4:2:0 row, 1, 2 along a 4:2:2
//             row, 1, 2 down a 4:4:0 column. The samples at the edges repeat.
// Interface   `room_i` allows the next beat, `begin_o` says that it is begun; it comes out some
//             clocks later, as nothing behind stalls. Gray gets chroma 128.
// Throughput  SourcePixels a clock, without a gap between rows. Latency 5 clocks. First the rows
//             are blended, then a window slides along the row: the samples of a beat, one before
//             and one behind it. The one behind is of the next beat, for which the last beat of a
//             row does not wait.
module upsample
  import headrace_pkg::SourcePixels, headrace_pkg::SourceLaneBits;
  import render_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,

  input  layout_t    layout_i,

  input  row_words_t words_i,
  input  logic       words_valid_i,
  output logic       words_ready_o,

  input  logic       room_i,
  output logic       begin_o,

  output ycc_beat_t  beat_o,
  output logic       beat_valid_o
);

  localparam int unsigned BeatBits = 3 - SourceLaneBits;  // of a beat's number in its word

  typedef logic [9:0]  blend_t;  // of near and far row, up to four times a sample
  typedef logic [11:0] sum_t;    // of up to sixteen samples

  typedef struct packed {
    logic [SourcePixels-1:0][7:0] y;
    logic [SourcePixels-1:0]      keep;
    logic                         first;    // of the row
    logic                         last;     // of the row
    logic                         last_row;
    logic                         odd_row;
  } place_t;

  // ---- Clock 1: the samples of a beat out of the words: for each pixel that of its place ----
  logic [BeatBits-1:0] beat_q;
  logic                row_ends;
  place_t              place_d, place_q, place_q2;
  logic                valid_q, valid_q2;
  logic [1:0][SourcePixels-1:0][7:0] near_q, far_q;  // [0] Cb, [1] Cr

  assign row_ends      = words_i.last && beat_q == layout_i.last_pixel[2:SourceLaneBits];
  assign begin_o       = words_valid_i && room_i;
  assign words_ready_o = begin_o && (row_ends || beat_q == '1);

  // The chroma sample in its word that belongs to a pixel of the luma word.
  function automatic logic [2:0] sample_of(logic [2:0] pixel, logic [1:0] part, logic [1:0] shift);
    unique case (shift)
      2'd0:    return pixel;
      2'd1:    return {part[0], pixel[2:1]};
      default: return {part, pixel[2]};
    endcase
  endfunction

  always_comb begin
    place_d.first    = words_i.first && beat_q == '0;
    place_d.last     = row_ends;
    place_d.last_row = words_i.last_row;
    place_d.odd_row  = words_i.odd_row;
    for (int unsigned x = 0; x < SourcePixels; x++) begin
      place_d.y[x]    = words_i.luma[{beat_q, SourceLaneBits'(x)}];
      place_d.keep[x] = !row_ends ||
                        SourceLaneBits'(x) <= layout_i.last_pixel[SourceLaneBits-1:0];
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      beat_q   <= '0;
      valid_q  <= 1'b0;
      valid_q2 <= 1'b0;
    end else begin
      if (begin_o) beat_q <= words_ready_o ? '0 : beat_q + 1'b1;
      valid_q  <= begin_o;
      valid_q2 <= valid_q;
    end
  end

  always_ff @(posedge clk_i) begin
    place_q <= place_d;
    for (int unsigned x = 0; x < SourcePixels; x++) begin
      near_q[0][x] <= words_i.cb_near[sample_of({beat_q, SourceLaneBits'(x)}, words_i.part,
                                                layout_i.h_shift[0])];
      near_q[1][x] <= words_i.cr_near[sample_of({beat_q, SourceLaneBits'(x)}, words_i.part,
                                                layout_i.h_shift[1])];
      far_q[0][x]  <= words_i.cb_far[sample_of({beat_q, SourceLaneBits'(x)}, words_i.part,
                                               layout_i.h_shift[0])];
      far_q[1][x]  <= words_i.cr_far[sample_of({beat_q, SourceLaneBits'(x)}, words_i.part,
                                               layout_i.h_shift[1])];
    end
  end

  // ---- Clock 2: rows blended ----
  blend_t [1:0][SourcePixels-1:0] next_q;

  function automatic blend_t blend(logic [7:0] near, logic [7:0] far, logic fancy);
    return fancy ? blend_t'(near) + {1'b0, near, 1'b0} + blend_t'(far) : blend_t'(near);
  endfunction

  always_ff @(posedge clk_i) begin
    place_q2 <= place_q;
    for (int unsigned c = 0; c < 2; c++) begin
      for (int unsigned x = 0; x < SourcePixels; x++) begin
        next_q[c][x] <= blend(near_q[c][x], far_q[c][x], layout_i.fancy_v[c]);
      end
    end
  end

  // ---- Clock 3: the beat in the middle of the window ----
  place_t place_q3;
  logic   valid_q3, leaves;
  blend_t [1:0][SourcePixels-1:0] center_q;
  blend_t [1:0]                   before_q;

  assign leaves = valid_q3 && (place_q3.last || valid_q2);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q3 <= 1'b0;
    else if (valid_q2) valid_q3 <= 1'b1;
    else if (leaves) valid_q3 <= 1'b0;
  end

  always_ff @(posedge clk_i) begin
    if (valid_q2) begin
      place_q3 <= place_q2;
      center_q <= next_q;
      for (int unsigned c = 0; c < 2; c++) before_q[c] <= center_q[c][SourcePixels-1];
    end
  end

  // ---- Clock 4: neighbours blended ----
  sum_t [1:0][SourcePixels-1:0] sum_d, sum_q;  // [Cb, Cr][pixel]
  place_t                       place_q4;
  logic                         valid_q4;

  function automatic sum_t blend_next(blend_t center, blend_t next);
    return sum_t'(center) + {1'b0, center, 1'b0} + sum_t'(next);
  endfunction

  // Two pixels share a sample. The left one also takes of the sample to the left, the right one of
  // that to the right: it repeats where there is none.
  always_comb begin
    for (int unsigned c = 0; c < 2; c++) begin
      for (int unsigned x = 0; x < SourcePixels; x++) begin
        sum_d[c][x] = sum_t'(center_q[c][x]);
        if (layout_i.fancy_h[c]) begin
          if (x == 0) begin
            sum_d[c][x] = blend_next(center_q[c][x],
                                     place_q3.first ? center_q[c][x] : before_q[c]);
          end else if (x % 2 == 0) begin
            sum_d[c][x] = blend_next(center_q[c][x],
                                     center_q[c][(x + SourcePixels - 1) % SourcePixels]);
          end else if (x == SourcePixels - 1) begin
            sum_d[c][x] = blend_next(center_q[c][x],
                                     place_q3.last ? center_q[c][x] : next_q[c][0]);
          end else begin
            sum_d[c][x] = blend_next(center_q[c][x],
                                     place_q3.keep[(x + 1) % SourcePixels] ?
                                     center_q[c][(x + 1) % SourcePixels] : center_q[c][x]);
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    place_q4 <= place_q3;
    sum_q    <= sum_d;
  end

  // ---- Clock 5: rounded ----
  logic [1:0][SourcePixels-1:0][3:0] half;  // [Cb, Cr][pixel]

  always_comb begin
    for (int unsigned c = 0; c < 2; c++) begin
      for (int unsigned x = 0; x < SourcePixels; x++) begin
        if (layout_i.fancy_h[c] && layout_i.fancy_v[c]) half[c][x] = x % 2 == 0 ? 4'd8 : 4'd7;
        else if (layout_i.fancy_h[c]) half[c][x] = x % 2 == 0 ? 4'd1 : 4'd2;
        else half[c][x] = place_q4.odd_row ? 4'd2 : 4'd1;
      end
    end
  end

  function automatic logic [7:0] rounded(sum_t sum, logic [3:0] term, logic color, logic fancy_h,
                                         logic fancy_v);
    sum_t whole;
    whole = sum + sum_t'(term);
    if (!color) return 8'd128;
    if (fancy_h && fancy_v) return whole[11:4];
    if (fancy_h || fancy_v) return whole[9:2];
    return sum[7:0];
  endfunction

  always_ff @(posedge clk_i) begin
    beat_o.y    <= place_q4.y;
    beat_o.keep <= place_q4.keep;
    beat_o.last <= place_q4.last && place_q4.last_row;
    for (int unsigned x = 0; x < SourcePixels; x++) begin
      beat_o.cb[x] <= rounded(sum_q[0][x], half[0][x], layout_i.color, layout_i.fancy_h[0],
                              layout_i.fancy_v[0]);
      beat_o.cr[x] <= rounded(sum_q[1][x], half[1][x], layout_i.color, layout_i.fancy_h[1],
                              layout_i.fancy_v[1]);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q4     <= 1'b0;
      beat_valid_o <= 1'b0;
    end else begin
      valid_q4     <= leaves;
      beat_valid_o <= valid_q4;
    end
  end

endmodule
