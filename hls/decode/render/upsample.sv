// Brings chroma to the size of luma: words of samples in, two pixels a clock out.
//
// Reference   upsample in decode.cpp, the fancy upsampling of libjpeg-turbo: three parts of the
//             near sample and one of the next in each direction with fancy_h or fancy_v, else
//             replication. The rounding term alternates: 8, 7 along a 4:2:0 row, 1, 2 along a 4:2:2
//             row, 1, 2 down a 4:4:0 column. The samples at the edges repeat.
// Interface   `room_i` allows the next beat, `begin_o` says that it is begun; it comes out some
//             clocks later, as nothing behind stalls. Gray gets chroma 128.
// Throughput  two pixels a clock, without a gap between rows. Latency 5 clocks. First the rows are
//             blended, then a window of three samples slides along the row; the sample to the right
//             of a beat is that of the next beat, for which the last beat of a row does not wait.
module upsample
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

  typedef logic [1:0][7:0]  pair_t;
  typedef logic [9:0]       blend_t;  // of near and far row, up to four times a sample
  typedef logic [11:0]      sum_t;    // of up to sixteen samples

  typedef struct packed {
    pair_t      y;
    logic [1:0] keep;
    logic       first;    // of the row
    logic       last;     // of the row
    logic       last_row;
    logic       odd_row;
  } place_t;

  // ---- Clock 1: the samples of a beat out of the words ----
  // `even` is the chroma sample of the beat or, without horizontal subsampling, that of its left
  // pixel, `odd` the right.
  logic [1:0]  beat_q;
  logic [2:0]  at[2];        // [0] Cb, [1] Cr
  logic        row_ends;
  place_t      place_d, place_q, place_q2;
  logic        valid_q, valid_q2;
  logic [7:0]  near_even_q[2], near_odd_q[2], far_even_q[2], far_odd_q[2];

  assign row_ends      = words_i.last && beat_q == layout_i.last_beat;
  assign begin_o       = words_valid_i && room_i;
  assign words_ready_o = begin_o && (row_ends || beat_q == 2'd3);

  always_comb begin
    for (int unsigned c = 0; c < 2; c++) begin
      unique case (layout_i.h_shift[c])
        2'd0:    at[c] = {beat_q, 1'b0};
        2'd1:    at[c] = {words_i.part[0], beat_q};
        default: at[c] = {words_i.part, beat_q[1]};
      endcase
    end
    place_d = '{
      y:        words_i.luma[{beat_q, 1'b0}+:2],
      keep:     {!(row_ends && layout_i.odd_width), 1'b1},
      first:    words_i.first && beat_q == '0,
      last:     row_ends,
      last_row: words_i.last_row,
      odd_row:  words_i.odd_row
    };
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
    place_q        <= place_d;
    near_even_q[0] <= words_i.cb_near[at[0]];
    near_even_q[1] <= words_i.cr_near[at[1]];
    far_even_q[0]  <= words_i.cb_far[at[0]];
    far_even_q[1]  <= words_i.cr_far[at[1]];
    near_odd_q[0]  <= words_i.cb_near[{beat_q, 1'b1}];
    near_odd_q[1]  <= words_i.cr_near[{beat_q, 1'b1}];
    far_odd_q[0]   <= words_i.cb_far[{beat_q, 1'b1}];
    far_odd_q[1]   <= words_i.cr_far[{beat_q, 1'b1}];
  end

  // ---- Clock 2: rows blended ----
  blend_t even_q[2], odd_q[2];

  function automatic blend_t blend(logic [7:0] near, logic [7:0] far, logic fancy);
    return fancy ? blend_t'(near) + {1'b0, near, 1'b0} + blend_t'(far) : blend_t'(near);
  endfunction

  always_ff @(posedge clk_i) begin
    place_q2 <= place_q;
    for (int unsigned c = 0; c < 2; c++) begin
      even_q[c] <= blend(near_even_q[c], far_even_q[c], layout_i.fancy_v[c]);
      odd_q[c]  <= blend(near_odd_q[c], far_odd_q[c], layout_i.fancy_v[c]);
    end
  end

  // ---- Clock 3: the beat in the middle of the window ----
  place_t place_q3;
  logic   valid_q3, leaves;
  blend_t even_q2[2], odd_q2[2], before_q[2];

  assign leaves = valid_q3 && (place_q3.last || valid_q2);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q3 <= 1'b0;
    else if (valid_q2) valid_q3 <= 1'b1;
    else if (leaves) valid_q3 <= 1'b0;
  end

  always_ff @(posedge clk_i) begin
    if (valid_q2) begin
      place_q3 <= place_q2;
      even_q2  <= even_q;
      odd_q2   <= odd_q;
      before_q <= even_q2;
    end
  end

  // ---- Clock 4: neighbours blended ----
  sum_t   sum_d[2][2], sum_q[2][2];  // [left or right pixel][Cb, Cr]
  place_t place_q4;
  logic   valid_q4;

  function automatic sum_t blend_next(blend_t center, blend_t next);
    return sum_t'(center) + {1'b0, center, 1'b0} + sum_t'(next);
  endfunction

  always_comb begin
    for (int unsigned c = 0; c < 2; c++) begin
      if (layout_i.fancy_h[c]) begin
        sum_d[0][c] = blend_next(even_q2[c], place_q3.first ? even_q2[c] : before_q[c]);
        sum_d[1][c] = blend_next(even_q2[c], place_q3.last ? even_q2[c] : even_q[c]);
      end else begin
        sum_d[0][c] = sum_t'(even_q2[c]);
        sum_d[1][c] = sum_t'(layout_i.h_shift[c] == '0 ? odd_q2[c] : even_q2[c]);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    place_q4 <= place_q3;
    sum_q    <= sum_d;
  end

  // ---- Clock 5: rounded ----
  logic [3:0] half[2][2];  // [left or right pixel][Cb, Cr]

  always_comb begin
    for (int unsigned x = 0; x < 2; x++) begin
      for (int unsigned c = 0; c < 2; c++) begin
        if (layout_i.fancy_h[c] && layout_i.fancy_v[c]) half[x][c] = x == 0 ? 4'd8 : 4'd7;
        else if (layout_i.fancy_h[c])                   half[x][c] = x == 0 ? 4'd1 : 4'd2;
        else                                            half[x][c] = place_q4.odd_row ? 4'd2 : 4'd1;
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
    for (int unsigned x = 0; x < 2; x++) begin
      beat_o.cb[x] <= rounded(sum_q[x][0], half[x][0], layout_i.color, layout_i.fancy_h[0],
                              layout_i.fancy_v[0]);
      beat_o.cr[x] <= rounded(sum_q[x][1], half[x][1], layout_i.color, layout_i.fancy_h[1],
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
