// Quantisation table definitions: the DQT segment behind its length.
//
// Reference   T.81 B.2.4.1; parse_quantisation in jpeg_parser.cpp.
// Interface   `begin_i` for a clock, then a byte a clock while `turn_i`. Values leave in the file's
//             order, which is zigzag. `defined_o` tells which tables the file has so far.
// Bad input   `bad_o` a clock after the number of a table that no file has. A table that is longer
//             than the segment is seen when the next one would begin, as the C++ sees it.
//             A request to fail tells that.
module quant_definition
  import parse_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  logic        begin_i,
  input  logic        turn_i,
  input  logic [15:0] length_i,     // bytes of the segment that are left
  input  logic        empty_i,      // there are none
  input  logic [7:0]  byte_i,
  input  logic        have_byte_i,
  output request_t    request_o,
  output logic        bad_o,

  output logic        we_o,
  output logic [1:0]  table_o,
  output logic [5:0]  index_o,
  output logic [15:0] value_o,
  output logic [3:0]  defined_o
);

  // The upper bit tells that a byte is taken in any case.
  typedef enum logic [1:0] {
    StSelect = 2'b00,  // the table's number and width
    StHigh   = 2'b10,  // the upper byte of a value of 16 bits
    StLow    = 2'b11
  } state_e;

  state_e      state_d, state_q;
  logic [3:0]  defined_d, defined_q;
  logic        negative_d, negative_q;  // the segment is shorter than its tables
  logic        wide_d, wide_q;          // values have 16 bits
  logic [1:0]  number_d, number_q;
  logic [5:0]  index_d, index_q;
  logic [7:0]  high_d, high_q;
  logic        bad_d;
  logic [15:0] table_bytes;             // of the table that begins

  assign table_o     = number_q;
  assign index_o     = index_q;
  assign value_o     = {wide_q ? high_q : 8'd0, byte_i};
  assign we_o        = turn_i && state_q == StLow && have_byte_i;
  assign defined_o   = defined_q;
  assign table_bytes = byte_i[4] ? 16'd129 : 16'd65;

  always_comb begin
    state_d    = turn_i ? state_q : StSelect;
    defined_d  = defined_q;
    negative_d = negative_q;
    wide_d     = wide_q;
    number_d   = number_q;
    index_d    = index_q;
    high_d     = high_q;
    bad_d      = 1'b0;

    request_o         = '0;
    request_o.wants   = turn_i && (state_q[1] || !(negative_q || empty_i));
    request_o.take    = request_o.wants;
    // Of no matter at the segment's end.
    request_o.less    = turn_i && state_q == StSelect && have_byte_i ? table_bytes[8:0] : '0;

    if (turn_i) begin
      unique case (state_q)
        StSelect: if (negative_q || empty_i) begin
          request_o.over = !negative_q;
          request_o.fail = negative_q;
        end else begin
          index_d  = '0;
          wide_d   = byte_i[4];
          number_d = byte_i[1:0];
          if (have_byte_i) begin
            bad_d      = byte_i[7:5] != '0 || byte_i[3:2] != '0;
            negative_d = length_i < table_bytes;
            state_d    = byte_i[4] ? StHigh : StLow;
          end
        end
        StHigh: if (have_byte_i) begin
          high_d  = byte_i;
          state_d = StLow;
        end
        StLow: if (have_byte_i) begin
          index_d = index_q + 1'b1;
          if (wide_q) state_d = StHigh;
          if (index_q == 6'd63) begin
            defined_d[number_q] = 1'b1;
            state_d             = StSelect;
          end
        end
        default: state_d = StSelect;
      endcase
    end
    if (begin_i) negative_d = 1'b0;
    if (start_i) defined_d = '0;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) state_q <= StSelect;
    else state_q <= state_d;
  end

  always_ff @(posedge clk_i) begin
    bad_o      <= bad_d;
    defined_q  <= defined_d;
    negative_q <= negative_d;
    wide_q     <= wide_d;
    number_q   <= number_d;
    index_q    <= index_d;
    high_q     <= high_d;
  end

endmodule
