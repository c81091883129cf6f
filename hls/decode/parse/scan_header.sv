// Scan header: the SOS segment behind its length.
//
// Reference   T.81 B.2.3; parse_scan in jpeg_parser.cpp.
// Interface   `begin_i` for a clock, then a byte a clock while `turn_i`, which the marker machine
//             takes by itself. `header_o` stands from the segment's end until the next segment
//             begins; `several_o`, that the file has more than one scan, from there until the next
//             start.
// Bad input   a request to fail, a clock after the byte. scan_check judges what is not wrong with a
//             single byte.
module scan_header
  import headrace_pkg::*;
  import parse_pkg::*;
(
  input  logic            clk_i,
  input  logic            rst_ni,

  input  logic            start_i,
  input  logic            begin_i,
  input  logic            turn_i,
  input  logic [15:0]     length_i,           // bytes of the segment
  input  logic [7:0]      byte_i,
  input  logic            have_byte_i,
  output request_t        request_o,

  input  logic            workspace_i,        // there is one
  input  logic            progressive_i,      // the frame is
  input  logic            scanned_i,          // after the first scan
  input  logic            color_i,            // three components
  input  logic [2:0][7:0] id_i,               // by component
  input  logic [2:0][1:0] quant_i,            // table number by component
  input  logic [2:0]      quant_wide_i,       // it is above 3
  input  logic [3:0]      quant_defined_i,
  input  logic [7:0]      huffman_defined_i,  // DC 0 to 3, AC 0 to 3

  output scan_header_t    header_o,
  output logic            several_o
);

  // A byte for each state, in the segment's order; StId and StTables once for each component.
  typedef enum logic [2:0] {
    StCount,
    StId,
    StTables,
    StFirst,
    StLast,
    StBits
  } state_e;

  state_e       state_d, state_q;
  scan_header_t header_d, header_q;
  logic         several_d, several_q;
  logic [7:0]   scans_d, scans_q;          // so far
  logic [5:0]   left_d, left_q;            // components that are still to come
  logic [1:0]   component_d, component_q;  // that the next one is, or the first that it can be
  logic         match_d, match_q;          // the frame has it
  // The byte a clock ago was wrong, and why: too many scans, if the length fits.
  logic         fail_d, fail_q, too_many_scans_d, too_many_scans_q, length_fits_q;
  logic         all_scans_q;               // scans_q is MaxScans
  logic         too_few, too_many;         // components: fewer than the frame has, more
  logic [2:0]   same_id;                   // components that the scan's next one can be

  assign header_o   = header_q;
  assign several_o  = several_q;

  // The components of a scan stand in the order of the frame header.
  always_comb begin
    for (int unsigned c = 0; c < 3; c++) begin
      same_id[c] = byte_i == id_i[c] && component_q <= 2'(c) && (c == 0 || color_i);
    end
  end

  // One to four components in 4 bytes and two for each: a table, as a sum would be a long path. So
  // are comparisons. What they say does not matter where the length does not fit.
  logic length_fits;
  assign too_few  = byte_i[2:0] == '0 || (color_i && byte_i[2:0] inside {3'd1, 3'd2});
  assign too_many = byte_i[2] || (!color_i && byte_i[1]);
  assign length_fits = length_i[15:4] == '0 && byte_i[7:3] == '0 &&
                       {length_i[3:0], byte_i[2:0]} inside {{4'd6, 3'd1}, {4'd8, 3'd2},
                                                            {4'd10, 3'd3}, {4'd12, 3'd4}};

  always_comb begin
    state_d     = turn_i ? state_q : StCount;
    header_d    = header_q;
    several_d   = several_q;
    scans_d     = scans_q;
    left_d      = left_q;
    component_d = component_q;
    match_d     = match_q;

    request_o         = '0;
    request_o.wants   = turn_i;
    request_o.fail    = turn_i && fail_q;
    request_o.failure = !turn_i ? '0 : too_many_scans_q && length_fits_q ? StatusMultipleScans
                                                                         : StatusCorruptHeader;
    fail_d            = 1'b0;
    too_many_scans_d  = 1'b0;

    if (turn_i && have_byte_i) begin
      unique case (state_q)
        StCount: begin
          left_d  = byte_i[5:0];
          scans_d = scans_q + 1'b1;
          state_d = StId;
          if (!scanned_i) several_d = progressive_i || (byte_i[7:3] == '0 && too_few);
          too_many_scans_d = (!workspace_i && too_few) || all_scans_q;
          fail_d           = !length_fits || too_many_scans_d || too_many;
        end
        StId: begin
          match_d     = same_id != '0;
          component_d = same_id[0] ? 2'd0 : same_id[1] ? 2'd1 : 2'd2;
          state_d     = StTables;
        end
        StTables: begin
          left_d      = left_q - 1'b1;
          component_d = component_q + 1'b1;
          header_d.members[component_q] = 1'b1;
          header_d.dc[component_q]      = byte_i[5:4];
          header_d.ac[component_q]      = byte_i[1:0];
          // libjpeg-turbo knows the standard's for sequential frames only.
          if (!huffman_defined_i[{1'b0, byte_i[5:4]}]) begin
            if (byte_i[5] || progressive_i) header_d.missing[0] = 1'b1;
            else header_d.standard[{1'b0, byte_i[4]}] = 1'b1;
          end
          if (!huffman_defined_i[{1'b1, byte_i[1:0]}]) begin
            if (byte_i[1] || progressive_i) header_d.missing[1] = 1'b1;
            else header_d.standard[{1'b1, byte_i[0]}] = 1'b1;
          end
          if (byte_i[7:6] != '0) header_d.wide_table[0] = 1'b1;
          if (byte_i[3:2] != '0) header_d.wide_table[1] = 1'b1;
          if (quant_wide_i[component_q]) header_d.wide_quant = 1'b1;
          if (!quant_defined_i[quant_i[component_q]]) header_d.no_quant = 1'b1;
          state_d = left_q == 6'd1 ? StFirst : StId;
          fail_d  = !match_q;
        end
        StFirst: begin
          header_d.first  = byte_i[5:0];
          header_d.beyond = byte_i[7:6] != '0;
          state_d         = StLast;
        end
        StLast: begin
          header_d.last   = byte_i[5:0];
          header_d.beyond = header_q.beyond || byte_i[7:6] != '0;
          state_d         = StBits;
        end
        StBits: begin
          {header_d.high, header_d.low} = byte_i;
          request_o.over = 1'b1;
        end
        default: state_d = StCount;
      endcase
    end
    if (begin_i) begin
      component_d         = '0;
      header_d.members    = '0;
      header_d.standard   = '0;
      header_d.missing    = '0;
      header_d.wide_table = '0;
      header_d.no_quant   = 1'b0;
      header_d.wide_quant = 1'b0;
    end
    if (start_i) begin
      header_d.dc = '0;
      header_d.ac = '0;
      several_d   = 1'b0;
      scans_d     = '0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) state_q <= StCount;
    else state_q <= state_d;
  end

  always_ff @(posedge clk_i) begin
    header_q    <= header_d;
    several_q   <= several_d;
    scans_q     <= scans_d;
    left_q      <= left_d;
    component_q <= component_d;
    match_q     <= match_d;
    fail_q      <= fail_d;
    all_scans_q <= scans_q == 8'(MaxScans);
    too_many_scans_q <= too_many_scans_d;
    length_fits_q    <= length_fits;
  end

endmodule
