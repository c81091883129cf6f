// JFIF's and Adobe's mark: the APP0 or APP14 segment behind its length.
//
// Reference   parse_application in jpeg_parser.cpp: the first 14 bytes decide the colour space.
// Interface   `begin_i` for a clock, then a byte a clock while `turn_i`, as many as are needed: the
//             rest of the segment is left. The outputs stand until the next start.
// Bad input   a segment without the mark changes nothing.
module application_segment
  import parse_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  logic        begin_i,
  input  logic        turn_i,
  input  logic        app14_i,            // the segment is APP14; else it is APP0
  input  logic        empty_i,            // no bytes of the segment are left
  input  logic [7:0]  byte_i,
  input  logic        have_byte_i,
  output request_t    request_o,

  output logic        jfif_o,             // of any version
  output logic        adobe_o,
  output logic [7:0]  adobe_transform_o
);

  logic       end_q;        // all bytes are read that are needed
  logic       ends;
  logic [3:0] step_q;       // of the byte
  logic       read_q;       // step_q is 14
  logic       match_q;      // the name so far is the one that is looked for
  logic       differs_q;    // but for the letter a clock ago; the end is two clocks behind it
  logic [7:0] transform_q;

  // The letters of "JFIF", 0 and of "Adobe".
  function automatic logic [7:0] letter(logic adobe, logic [2:0] place);
    unique case ({adobe, place})
      {1'b0, 3'd0}: return "J";
      {1'b0, 3'd1}: return "F";
      {1'b0, 3'd2}: return "I";
      {1'b0, 3'd3}: return "F";
      {1'b1, 3'd0}: return "A";
      {1'b1, 3'd1}: return "d";
      {1'b1, 3'd2}: return "o";
      {1'b1, 3'd3}: return "b";
      {1'b1, 3'd4}: return "e";
      default:      return 8'd0;
    endcase
  endfunction

  assign ends = empty_i || read_q;

  always_comb begin
    request_o       = '0;
    request_o.wants = turn_i && !end_q && !ends;
    request_o.take  = request_o.wants;
    request_o.one   = request_o.take && have_byte_i;
    request_o.over  = turn_i && end_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) end_q <= 1'b0;
    else end_q <= turn_i && !end_q && ends;
  end

  always_ff @(posedge clk_i) begin
    differs_q <= request_o.one && step_q < 4'd5 && byte_i != letter(app14_i, step_q[2:0]);
    if (begin_i) match_q <= 1'b1;
    else if (differs_q) match_q <= 1'b0;
    if (begin_i) begin
      step_q  <= '0;
      read_q  <= 1'b0;
    end else if (request_o.take && have_byte_i) begin
      step_q <= step_q + 1'b1;
      read_q <= step_q == 4'd13;
      if (step_q == 4'd11) transform_q <= byte_i;
    end

    if (start_i) begin
      jfif_o  <= 1'b0;
      adobe_o <= 1'b0;
    end else if (request_o.over && match_q) begin
      if (!app14_i && read_q) jfif_o <= 1'b1;
      if (app14_i && step_q >= 4'd12) begin
        adobe_o           <= 1'b1;
        adobe_transform_o <= transform_q;
      end
    end
  end

endmodule
