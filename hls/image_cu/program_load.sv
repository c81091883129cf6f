// Takes the passes of a program from memory's words: what each one asks of its units, and then the
// scaler's lists, which pass.
//
// Interface   `start_i` for a clock, with the program's bytes and the sizes of the buffers, which
//             stay; `next_i` for a clock when a pass is over and another one follows.
//             `loaded_o` rises when the setup is known and stands until one of the two. A pass that
//             does not fit the bytes that are left or the buffers, or with bits that must be zero
//             and are not, is `refused_o`: its setup has no entries, which scaler refuses, and no
//             more words are taken.
// Throughput  a word a clock.
// Latency     eight clocks behind the first four words of a pass.
module program_load
  import image_cu_pkg::*;
  import scaler_pkg::*;
  import patches_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic         next_i,
  input  logic [31:0]  bytes_i,
  input  logic [31:0]  tensor_capacity_i,
  input  logic [31:0]  workspace_bytes_i,
  output logic         loaded_o,
  output logic         refused_o,
  output setup_t       setup_o,
  output layout_t      layout_o,
  output pass_route_t  route_o,

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output logic [127:0] list_o,
  output logic         list_valid_o,
  input  logic         list_ready_i
);

  localparam logic [3:0] CheckClocks = 4'd7;

  pass_words_t       pass_q;
  logic [3:0][127:0] words_q;  // shifted in, the first one ends at [0]
  logic [2:0]        count_q;
  logic [3:0]        clocks_q;
  logic              first_q, sound_q;
  logic [31:0]       left_q;   // bytes of this pass and those behind it

  assign pass_q       = words_q;
  assign word_ready_o = loaded_o ? sound_q && list_ready_i : count_q != 3'(PassWords);
  assign refused_o    = loaded_o && !sound_q;
  assign list_o       = word_i;
  assign list_valid_o = loaded_o && sound_q && word_valid_i;

  // ---- Checks, a step a clock ----
  logic        short_q, zeros_q, fits_q, placed_q, read_q;
  logic [32:0] entries_q;
  logic [37:0] bytes_q;
  logic [15:0] canvas_rows_q, source_rows_q;  // but the last one
  logic [14:0] canvas_words_q, source_words_q;
  logic [30:0] canvas_before_q;
  logic [31:0] source_before_q;
  logic [32:0] canvas_end_q, source_end_q;    // words of the workspace

  always_ff @(posedge clk_i) begin
    if (word_valid_i && word_ready_o && !loaded_o) words_q <= {word_i, words_q[3:1]};
    // The length.
    entries_q <= {1'b0, pass_q.row_entries} + {1'b0, pass_q.column_entries};
    bytes_q   <= {entries_q, 5'b0} + 38'(16 * PassWords);
    fits_q    <= pass_q.more ? bytes_q < 38'(left_q) : bytes_q == 38'(left_q);
    zeros_q   <= {pass_q.zeros, pass_q.place[3:0], pass_q.zeros_12, pass_q.source[3:0],
                  pass_q.zeros_8, pass_q.zeros_6, pass_q.zeros_3a, pass_q.zeros_3b, pass_q.zeros_3c,
                  pass_q.zeros_3d} == '0 && (pass_q.more || !pass_q.keeps);
    // Where the result goes.
    canvas_rows_q   <= pass_q.canvas_height - 16'd1;
    canvas_words_q  <= 15'((17'(pass_q.canvas_width) + 17'd3) >> 2);
    canvas_before_q <= canvas_words_q * canvas_rows_q;
    canvas_end_q    <= 33'(canvas_before_q) + 33'(canvas_words_q) + 33'(pass_q.place[31:4]);
    placed_q        <= pass_q.keeps ? !pass_q.patches && pass_q.canvas_height != '0 &&
                                      canvas_end_q <= 33'(workspace_bytes_i[31:4])
                                    : pass_q.place <= tensor_capacity_i;
    // What is read.
    source_rows_q   <= pass_q.source_height - 16'd1;
    source_words_q  <= 15'((17'(pass_q.source_width) + 17'd3) >> 2);
    source_before_q <= pass_q.source_pitch * source_rows_q;
    source_end_q    <= 33'(source_before_q) + 33'(source_words_q) + 33'(pass_q.source[31:4]);
    read_q          <= first_q || (pass_q.source_height != '0 && pass_q.source_width != '0 &&
                                   source_end_q <= 33'(workspace_bytes_i[31:4]));
    if (!loaded_o) sound_q <= !short_q && zeros_q && fits_q && placed_q && read_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i || next_i) begin
      count_q  <= '0;
      clocks_q <= '0;
      loaded_o <= 1'b0;
    end else if (!loaded_o) begin
      if (word_valid_i && word_ready_o) count_q <= count_q + 3'd1;
      if (count_q == 3'(PassWords) || short_q) begin
        clocks_q <= clocks_q + 4'd1;
        loaded_o <= clocks_q == CheckClocks;
      end
    end
    if (start_i) first_q <= 1'b1;
    else if (next_i) first_q <= 1'b0;
    if (start_i) left_q <= bytes_i;
    else if (next_i) left_q <= left_q - 32'(bytes_q);
    short_q <= left_q < 32'(16 * PassWords);
  end

  always_comb begin
    setup_o = '{
      out_width    : pass_q.out_width,
      out_height   : pass_q.out_height,
      rows         : '{entries: pass_q.row_entries, bits: pass_q.row_bits,
                       gather: pass_q.rows_gather},
      columns      : '{entries: pass_q.column_entries, bits: pass_q.column_bits,
                       gather: pass_q.columns_gather},
      wide         : pass_q.wide,
      columns_first: pass_q.columns_first,
      canvas_width : pass_q.canvas_width,
      canvas_height: pass_q.canvas_height,
      left         : pass_q.left,
      top          : pass_q.top,
      colour       : pass_q.colour
    };
    layout_o = '{
      side_width   : pass_q.side_width,
      side_height  : pass_q.side_height,
      merge        : pass_q.merge,
      frames       : pass_q.frames,
      channels_last: pass_q.channels_last,
      fill         : pass_q.fill
    };
    route_o = '{
      sink         : pass_q.keeps ? SinkWorkspace : pass_q.patches ? SinkPatches : SinkPlanes,
      more         : pass_q.more,
      place        : pass_q.place,
      source       : pass_q.source,
      source_pitch : pass_q.source_pitch,
      source_width : pass_q.source_width,
      source_height: pass_q.source_height
    };
    if (!sound_q) begin
      setup_o.rows.entries    = '0;
      setup_o.columns.entries = '0;
      route_o.sink            = SinkPlanes;
      route_o.more            = 1'b0;
      route_o.place           = '0;
    end
  end

endmodule
