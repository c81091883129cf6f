// Entropy-coded data: bytes behind a scan header to tokens, with stuffing removed.
//
// Reference   T.81 B.1.1.5, F.1.2.3; forward_scan in jpeg_parser.cpp.
// Interface   while `turn_i` tokens of data and of restart markers leave. A byte is taken when
//             there is room for a token, whether it becomes one or not. `over_o` for a clock ends
//             the turn: with the marker that was found, or 0 for none, at the file's end
//             (`ended_i`) or at a 0 behind fill bytes.
// Throughput  two bytes a clock, one next to 0xFF.
module entropy_data
  import headrace_pkg::*;
(
  input  logic       clk_i,

  input  logic       turn_i,
  input  logic [7:0] byte0_i,
  input  logic [7:0] byte1_i,
  input  logic       byte0_ones_i, // it is 0xFF
  input  logic       byte1_ones_i,
  input  logic       byte0_rst_i,  // it is the second byte of RST0 to RST7
  input  logic       byte0_zero_i, // it is 0
  input  logic       have_byte_i,
  input  logic       single_i,     // there is no byte1_i
  input  logic       ended_i,      // there are no more bytes
  output logic       take_o,       // a byte is taken, or two
  output logic       take_two_o,

  output token_t     token_o,
  output logic       token_valid_o,
  input  logic       token_ready_i,

  output logic       over_o,
  output logic [7:0] marker_o
);

  logic escaped_d, escaped_q;  // the byte before was 0xFF
  logic filled_d, filled_q;    // and so was the one before that
  logic room;

  assign room       = turn_i && token_ready_i;
  assign take_two_o = room && !escaped_q && !single_i && !byte0_ones_i && !byte1_ones_i;
  assign take_o     = room;
  assign marker_o   = ended_i ? '0 : byte0_i;

  always_comb begin
    escaped_d     = turn_i && escaped_q;
    filled_d      = filled_q;
    over_o        = 1'b0;
    token_valid_o = 1'b0;
    token_o       = '{kind: TokenData, two: 1'b0, data: {byte0_i, byte1_i}};
    if (turn_i && ended_i) begin
      over_o = 1'b1;
    end else if (turn_i && have_byte_i) begin
      if (!escaped_q && !byte0_ones_i) begin
        token_valid_o = 1'b1;
        token_o.two   = !single_i && !byte1_ones_i;
      end else if (token_ready_i && !escaped_q) begin
        escaped_d = 1'b1;
        filled_d  = 1'b0;
      end else if (token_ready_i && byte0_ones_i) begin
        filled_d = 1'b1;
      end else if (byte0_zero_i && !filled_q) begin
        token_valid_o      = 1'b1;
        token_o.data[15:8] = 8'hFF;
        if (token_ready_i) escaped_d = 1'b0;
      end else if (byte0_rst_i) begin
        token_valid_o = 1'b1;
        token_o.kind  = TokenRestart;
        token_o.data  = {13'd0, byte0_i[2:0]};
        if (token_ready_i) escaped_d = 1'b0;
      end else if (token_ready_i) begin
        over_o = 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    escaped_q <= escaped_d;
    filled_q  <= filled_d;
  end

endmodule
