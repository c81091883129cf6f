// Huffman table definitions: the DHT segment behind its length, and the tables of the standard.
//
// Reference   T.81 B.2.4.2 and annex C; parse_huffman and write_standard_table in jpeg_parser.cpp.
// Interface   `begin_i` for a clock, then a byte a clock while `turn_i`. While `standard_i` the
//             tables of `standard_needed_i`, stable since a clock before, are written in place of
//             the file's, until a request that is `over`. For each table 16 limits leave, then its
//             symbols. `defined_o` tells which tables there are so far: DC 0 to 3, AC 0 to 3.
// Throughput  a byte of the file a clock, a byte of the standard in two, while `huffman_ready_i`; a
//             clock for each length of codes besides.
// Bad input   `bad_o` a clock after a byte that no table has, after codes that do not fit their
//             length, and after counts that are too many for a table or for the segment.
module huffman_definition
  import headrace_pkg::*;
  import parse_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  logic           start_i,
  input  logic           turn_i,
  input  logic           standard_i,
  input  logic [3:0]     standard_needed_i,  // DC 0, 1, AC 0, 1
  input  logic [15:0]    length_i,           // bytes of the segment that are left
  input  logic           empty_i,            // there are none
  input  logic [7:0]     byte_i,
  input  logic           have_byte_i,
  output request_t       request_o,
  output logic           bad_o,

  output huffman_write_t huffman_o,
  output logic           huffman_valid_o,
  input  logic           huffman_ready_i,
  output logic [7:0]     defined_o
);

  localparam logic [7:0] AcSymbols = 8'h00, AcCounts = 8'hB0, DcCounts = 8'hC0;  // in the ROM

  // A bit for StSelect, and one for the states that take a byte as soon as there is room for what
  // it becomes.
  typedef enum logic [3:0] {
    StSelect = 4'b1000,  // the table's number, of the file or of the lowest one that is needed
    StCount  = 4'b0100,
    StCheck  = 4'b0000,
    StLength = 4'b0001,
    StSymbol = 4'b0101
  } state_e;

  state_e      state_d, state_q;
  logic        active;
  logic        from_rom_q;                   // the table is one of the standard's
  logic [3:0]  standard_d, standard_q;       // those that are still to be written
  logic [7:0]  defined_d, defined_q;
  logic        ac_d, ac_q;
  logic [1:0]  number_d, number_q;
  logic [4:0]  step_d, step_q;               // lengths of codes that are counted
  logic [16:0] code_d, code_q;               // next free code of the length before
  logic        coded_d, coded_q;             // it had codes
  logic [16:0] spare_d, spare_q;             // codes of that length that are free, less one
  // the counts are known; symbols, for a table or the segment
  logic        checked_q, too_many_q;
  logic [8:0]  symbols_d, symbols_q;         // symbols counted; then those still to come
  logic        excess_q;                     // they were more than 256
  logic        selected_q, short_q;          // a table begins; the segment is too short for one
  logic        unknown_d, unknown_q;         // there is no such table, or no such symbol
  logic [7:0]  index_d, index_q;             // of the next symbol
  logic [4:0]  code_length_d, code_length_q;
  logic [7:0]  count_left_d, count_left_q;
  logic        next_byte;                    // a byte of the table is taken

  assign active    = turn_i || standard_i;
  assign defined_o = defined_q;

  // ---- The next byte, of the file or of the standard ----
  logic [7:0] rom_at_d, rom_at_q;
  logic       rom_chroma_d, rom_chroma_q;
  logic [7:0] rom_byte, table_byte;
  logic       rom_valid_q;  // `rom_byte` is the next byte
  logic       have_table_byte;

  standard_huffman u_standard (
    .clk_i,
    .chroma_i(rom_chroma_q),
    .at_i    (rom_at_q),
    .byte_o  (rom_byte)
  );

  assign table_byte      = from_rom_q ? rom_byte : byte_i;
  assign have_table_byte = from_rom_q ? rom_valid_q : have_byte_i;

  // How many codes each length has, for the symbols that follow.
  logic count_we;
  (* ram_style = "distributed" *) logic [7:0] counts[16];
  always_ff @(posedge clk_i) if (count_we) counts[step_q[3:0]] <= table_byte;

  // ---- Codes ----
  logic [15:0] first_code;  // of this length
  logic [16:0] next_code;   // after its codes
  assign first_code   = {code_q[14:0], 1'b0};
  assign next_code    = {1'b0, first_code} + 17'(table_byte);
  // The code of all ones is never assigned, so one is always free.
  assign bad_o        = (coded_q && spare_q[16]) || (checked_q && too_many_q) ||
                        (selected_q && short_q) || unknown_q;

  always_comb begin
    state_d       = active ? state_q : StSelect;
    standard_d    = standard_i ? standard_q : standard_needed_i;
    defined_d     = defined_q;
    ac_d          = ac_q;
    number_d      = number_q;
    step_d        = step_q;
    code_d        = code_q;
    coded_d       = 1'b0;
    spare_d       = spare_q;
    symbols_d     = symbols_q;
    index_d       = index_q;
    code_length_d = code_length_q;
    count_left_d  = count_left_q;
    rom_at_d      = rom_at_q;
    rom_chroma_d  = rom_chroma_q;
    unknown_d     = 1'b0;
    next_byte     = 1'b0;
    count_we      = 1'b0;

    // Those of the standard are no bytes of the file. The turn of a reader tells that earlier.
    request_o         = '0;
    request_o.wants   = (turn_i && state_q[3] && !empty_i) ||
                        (active && state_q[2] && !from_rom_q);
    request_o.take    = turn_i && ((state_q[3] && !empty_i) || (state_q[2] && huffman_ready_i));
    // Of no matter at the segment's end.
    request_o.less    = turn_i && state_q == StSelect && have_byte_i ? 9'd17 : '0;

    huffman_valid_o  = 1'b0;
    huffman_o        = '0;
    huffman_o.ac     = ac_q;
    huffman_o.number = number_q;
    huffman_o.limit  = 16'(next_code << (4'd15 - step_q[3:0]));
    huffman_o.offset = 8'(symbols_q) - first_code[7:0];
    huffman_o.length = step_q + 5'd1;

    if (active) begin
      unique case (state_q)
        StSelect: begin
          step_d    = '0;
          code_d    = '0;
          spare_d   = '0;
          symbols_d = '0;
          if (standard_i) begin
            ac_d           = standard_q[1:0] == '0;
            number_d       = {1'b0, ac_d ? !standard_q[2] : !standard_q[0]};
            rom_at_d       = ac_d ? AcCounts : DcCounts;
            rom_chroma_d   = number_d[0];
            standard_d     = standard_q & (standard_q - 1'b1);
            request_o.over = standard_q == '0;
            if (standard_q != '0) state_d = StCount;
          end else if (empty_i) begin
            request_o.over = 1'b1;
          end else begin
            ac_d            = byte_i[4];
            number_d        = byte_i[1:0];
            if (have_byte_i) begin
              unknown_d = byte_i[7:5] != '0 || byte_i[3:2] != '0;
              state_d   = StCount;
            end
          end
        end
        StCount: begin
          if (have_table_byte && huffman_ready_i) begin
            next_byte       = 1'b1;
            count_we        = 1'b1;
            huffman_valid_o = 1'b1;  // a limit
            code_d          = next_code;
            coded_d         = table_byte != '0;
            spare_d         = {spare_q[15:0], 1'b1} - 17'(table_byte);
            step_d          = step_q + 1'b1;
            if (step_q == 5'd15) state_d = StCheck;
            symbols_d       = symbols_q + 9'(table_byte);  // up to 256 + 255 fit
          end
        end
        StCheck: begin
          index_d        = '0;
          code_length_d  = '0;
          request_o.less = symbols_q;
          rom_at_d       = AcSymbols;
          state_d        = StLength;
        end
        StLength: begin  // the next one that has codes
          code_length_d = code_length_q + 1'b1;
          count_left_d  = counts[code_length_q[3:0]];
          if (symbols_q == '0 || code_length_q[4]) begin  // no code has 17 bits
            defined_d[{ac_q, number_q}] = 1'b1;
            state_d = StSelect;
          end else if (count_left_d != '0) begin
            state_d = StSymbol;
          end
        end
        StSymbol: begin
          huffman_o.symbol = 1'b1;
          huffman_o.length = code_length_q;
          huffman_o.first  = index_q == '0;
          huffman_o.index  = index_q;
          huffman_o.value  = from_rom_q && !ac_q ? index_q : table_byte;
          huffman_valid_o  = have_table_byte;
          if (have_table_byte && huffman_ready_i) begin
            next_byte    = 1'b1;
            index_d      = index_q + 1'b1;
            symbols_d    = symbols_q - 1'b1;
            count_left_d = count_left_q - 1'b1;
            if (count_left_q == 8'd1) state_d = StLength;
          end
          // libjpeg refuses the table.
          unknown_d = have_byte_i && !from_rom_q && !ac_q && byte_i[7:4] != '0;
        end
        default: state_d = StSelect;
      endcase
    end
    if (next_byte) rom_at_d = rom_at_q + 1'b1;
    if (start_i) defined_d = '0;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) state_q <= StSelect;
    else state_q <= state_d;
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StSelect) from_rom_q <= standard_i;
    standard_q    <= standard_d;
    defined_q     <= defined_d;
    ac_q          <= ac_d;
    number_q      <= number_d;
    step_q        <= step_d;
    code_q        <= code_d;
    coded_q       <= coded_d;
    spare_q       <= spare_d;
    selected_q    <= turn_i && state_q[3] && have_byte_i && !empty_i;
    short_q       <= length_i < 16'd17;
    unknown_q     <= unknown_d;
    checked_q     <= active && state_q == StCheck && !from_rom_q;
    excess_q      <= state_q != StSelect && (excess_q || symbols_q > 9'd256);
    too_many_q    <= excess_q || symbols_q > 9'd256 || 16'(symbols_q) > length_i;
    symbols_q     <= symbols_d;
    index_q       <= index_d;
    code_length_q <= code_length_d;
    count_left_q  <= count_left_d;
    rom_at_q      <= rom_at_d;
    rom_chroma_q  <= rom_chroma_d;
    rom_valid_q   <= state_q inside {StCount, StLength, StSymbol} && !next_byte;
  end

endmodule
