// Scan check: whether a scan is one that can be decoded, and what the colours of its file are.
//
// Reference   T.81 G.1.1.1; band_exists, resolve_tables and parse_scan in jpeg_parser.cpp.
// Interface   `bad_o` and `missing_o` follow `high` and `low` of the header in the same clock, and
//             what stands before them a clock later. With `check_i`, for a clock,
//             `rgb_o` is taken; it stands until the next start.
// Bad input   `bad_o` for what no scan may have, `missing_o` for tables that the file lacks.
//             Whether a scan goes on from those before it is progression's matter.
module scan_check
  import parse_pkg::*;
(
  input  logic            clk_i,

  input  logic            start_i,
  input  logic            check_i,
  input  scan_header_t    header_i,
  input  logic            progressive_i,      // the frame is
  input  logic            scanned_i,          // after the first scan: the colours are known
  input  logic            color_i,            // three components
  input  logic [2:0][7:0] id_i,               // by component
  input  logic            jfif_i,
  input  logic            adobe_i,
  input  logic [7:0]      adobe_transform_i,

  output logic            bad_o,
  output logic            missing_o,
  output logic            rgb_o
);

  logic alone, by_adobe, rgb;
  logic band_exists_q, needs_ac_q, from_dc_q;  // from_dc_q: the band begins with DC
  logic needs_dc, bits_exist, bad_before_q;    // bad_before_q: whatever `high` and `low` are

  assign alone    = header_i.members inside {3'b001, 3'b010, 3'b100};
  assign needs_dc = from_dc_q && header_i.high == '0;

  // Whether the bits are those of some scan: all, or one more than the scans before it had. A
  // table, as a sum would be a long path.
  always_comb begin
    bits_exist = header_i.high == '0 && (progressive_i ? header_i.low <= 4'd13
                                                       : header_i.low == '0);
    for (int unsigned low = 0; low <= 13; low++) begin
      if (progressive_i && header_i.low == 4'(low) && header_i.high == 4'(low + 1)) begin
        bits_exist = 1'b1;
      end
    end
  end

  // Whether the band is that of some scan.
  always_ff @(posedge clk_i) begin
    if (!progressive_i) begin
      band_exists_q <= header_i.first == '0 && header_i.last == '1;
    end else begin
      band_exists_q <= header_i.first == '0 ? header_i.last == '0
                                            : header_i.last >= header_i.first && alone;
    end
    from_dc_q    <= header_i.first == '0;
    needs_ac_q   <= header_i.last != '0;
    bad_before_q <= header_i.beyond || header_i.wide_quant ||
                    (header_i.last != '0 && header_i.wide_table[1]) ||
                    (!scanned_i && by_adobe && adobe_transform_i > 8'd1);
  end

  assign by_adobe  = color_i && !jfif_i && adobe_i;
  assign rgb       = !color_i || jfif_i ? 1'b0
                   : adobe_i ? adobe_transform_i == '0
                   : id_i[0] == "R" && id_i[1] == "G" && id_i[2] == "B";
  assign bad_o     = bad_before_q || !band_exists_q || !bits_exist ||
                     (needs_dc && header_i.wide_table[0]);
  assign missing_o = header_i.no_quant || (needs_dc && header_i.missing[0]) ||
                     (needs_ac_q && header_i.missing[1]);

  always_ff @(posedge clk_i) begin
    if (start_i) rgb_o <= 1'b0;
    else if (check_i && !scanned_i) rgb_o <= rgb;
  end

endmodule
