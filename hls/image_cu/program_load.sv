// Takes a program from memory's words: what it asks of scaler and patches, and then the scaler's
// lists, which pass.
//
// Interface   `start_i` for a clock, with the program's bytes, which stay. `loaded_o` rises when
//             the setup is known and stands until the next start. A program whose lists do not fill
//             its bytes, or with bits that must be zero and are not, is `refused_o`: its setup has
//             no entries, which scaler refuses, and no more words are taken.
// Throughput  a word a clock.
// Latency     five clocks behind the first four words.
module program_load
  import image_cu_pkg::*;
  import scaler_pkg::*;
  import patches_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [31:0]  bytes_i,
  output logic         loaded_o,
  output logic         refused_o,
  output setup_t       setup_o,
  output logic         patches_o,
  output layout_t      layout_o,

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output logic [127:0] list_o,
  output logic         list_valid_o,
  input  logic         list_ready_i
);

  program_t          program_q;
  logic [3:0][127:0] words_q;  // shifted in, the first one ends at [0]
  logic [2:0]        count_q;
  logic [1:0]        clocks_q;
  logic              short_q, sound_q, zeros_q;
  logic [32:0]       entries_q;
  logic [37:0]       bytes_q;

  assign program_q    = words_q;
  assign word_ready_o = loaded_o ? sound_q && list_ready_i : count_q != 3'(ProgramWords);
  assign refused_o    = loaded_o && !sound_q;
  assign list_o       = word_i;
  assign list_valid_o = loaded_o && sound_q && word_valid_i;

  always_ff @(posedge clk_i) begin
    if (word_valid_i && word_ready_o && !loaded_o) words_q <= {word_i, words_q[3:1]};
    entries_q <= {1'b0, program_q.row_entries} + {1'b0, program_q.column_entries};
    bytes_q   <= {entries_q, 5'b0} + 38'(16 * ProgramWords);
    zeros_q   <= {program_q.zeros, program_q.zeros_8, program_q.zeros_6, program_q.zeros_3a,
                  program_q.zeros_3b, program_q.zeros_3c, program_q.zeros_3d} == '0;
    if (!loaded_o) sound_q <= !short_q && zeros_q && bytes_q == 38'(bytes_i);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) begin
      count_q  <= '0;
      clocks_q <= '0;
      loaded_o <= 1'b0;
      short_q  <= bytes_i < 32'(16 * ProgramWords);
    end else if (!loaded_o) begin
      if (word_valid_i && word_ready_o) count_q <= count_q + 3'd1;
      if (count_q == 3'(ProgramWords) || short_q) begin
        clocks_q <= clocks_q + 2'd1;
        loaded_o <= clocks_q == 2'd3;
      end
    end
  end

  always_comb begin
    setup_o = '{
      out_width    : program_q.out_width,
      out_height   : program_q.out_height,
      rows         : '{entries: program_q.row_entries, bits: program_q.row_bits,
                       gather: program_q.rows_gather},
      columns      : '{entries: program_q.column_entries, bits: program_q.column_bits,
                       gather: program_q.columns_gather},
      wide         : program_q.wide,
      columns_first: program_q.columns_first,
      canvas_width : program_q.canvas_width,
      canvas_height: program_q.canvas_height,
      left         : program_q.left,
      top          : program_q.top,
      colour       : program_q.colour
    };
    if (!sound_q) begin
      setup_o.rows.entries    = '0;
      setup_o.columns.entries = '0;
    end
    patches_o = sound_q && program_q.patches;
    layout_o  = '{
      side_width   : program_q.side_width,
      side_height  : program_q.side_height,
      merge        : program_q.merge,
      frames       : program_q.frames,
      channels_last: program_q.channels_last,
      fill         : program_q.fill
    };
  end

endmodule
