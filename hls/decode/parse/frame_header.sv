// Frame header: the SOF segment behind its length.
//
// Reference   T.81 B.2.2; parse_frame and sampling_status in jpeg_parser.cpp.
// Interface   `begin_i` for a clock, then a byte a clock while `turn_i`. The outputs stand from the
//             segment's end until the next start.
// Bad input   a request to fail, a clock after it is known; if the sampling factors do not go
//             together, `unfit_o` a clock after the segment's last byte.
module frame_header
  import headrace_pkg::*;
  import config_pkg::Samplings;
  import parse_pkg::*;
(
  input  logic            clk_i,
  input  logic            rst_ni,

  input  logic            start_i,
  input  logic            begin_i,
  input  logic            turn_i,
  input  logic            failed_i,      // the headers have just failed
  input  logic [15:0]     length_i,      // bytes of the segment
  input  logic [7:0]      byte_i,
  input  logic            have_byte_i,
  output request_t        request_o,
  output logic            unfit_o,

  output scan_t           frame_o,       // without `rgb`
  output logic            sized_o,       // the size is known
  output logic [2:0][7:0] id_o,          // by component
  output logic [2:0][1:0] quant_o,       // table number by component
  output logic [2:0]      quant_wide_o   // the component's table number is above 3
);

  // Whether factors are of those taken, whatever the other components have.
  function automatic logic known(logic [7:0] factors, logic chroma);
    if (Samplings) return factors inside {8'h11, 8'h12, 8'h14, 8'h21, 8'h22, 8'h24, 8'h41, 8'h42};
    return factors == 8'h11 || (!chroma && factors inside {8'h12, 8'h21, 8'h22});
  endfunction

  typedef enum logic [1:0] {
    StSizes,      // precision, height, width, number of components
    StComponents, // three bytes each
    StCheck
  } state_e;

  state_e          state_d, state_q;
  scan_t           frame_d, frame_q;
  logic [2:0][7:0] id_d, id_q;
  logic [2:0][1:0] quant_d, quant_q;
  logic [2:0]      quant_wide_d, quant_wide_q;
  logic [2:0]      step_d, step_q;            // byte of the sizes or of a component
  logic [1:0]      component_d, component_q;
  logic            one_d, one_q, three_d, three_q;  // so many components
  logic            match_d, match_q;          // precision, then sampling factors are those taken
  logic            framed_d, framed_q;        // all factors of three components are known
  logic            last_d, last_q;            // the next byte is the last
  logic            fail_d, fail_q;
  status_e         failure_d, failure_q;
  logic            length_9_q, length_15_q, no_width_q;
  logic            beyond_q;                  // it is larger than those taken, or has no rows

  assign frame_o      = frame_q;
  assign id_o         = id_q;
  assign quant_o      = quant_q;
  assign quant_wide_o = quant_wide_q;

  // Whether the sampling factors of three components go together: luma has the greatest; an MCU has
  // at most ten blocks (T.81 B.2.3), so that eight of luma leave one each, and four, four and four
  // are too many; two MCU rows fit the row memories, which are made for two rows of blocks of luma
  // and one of chroma as wide as it.
  logic       factors_fit, over_half_q, over_quarter_q;
  logic [1:0] four_blocks;
  always_comb begin
    for (int unsigned c = 0; c < 2; c++) begin
      four_blocks[c] = frame_q.chroma_h[c] + frame_q.chroma_v[c] == 2'd2;
    end
    factors_fit = four_blocks != 2'b11 && !(frame_q.v_shift[1] && over_half_q);
    for (int unsigned c = 0; c < 2; c++) begin
      if (frame_q.chroma_h[c] > frame_q.h_shift) factors_fit = 1'b0;
      if (frame_q.chroma_v[c] > frame_q.v_shift) factors_fit = 1'b0;
      if (frame_q.h_shift + frame_q.v_shift == 2'd3 &&
          {frame_q.chroma_h[c], frame_q.chroma_v[c]} != '0) begin
        factors_fit = 1'b0;
      end
      if (frame_q.chroma_h[c] == frame_q.h_shift &&
          ((frame_q.chroma_v[c][0] && over_half_q) ||
           (frame_q.chroma_v[c][1] && over_quarter_q))) begin
        factors_fit = 1'b0;
      end
    end
  end
  assign unfit_o = framed_q && !factors_fit;

  always_comb begin
    state_d      = turn_i ? state_q : StSizes;
    frame_d      = frame_q;
    id_d         = id_q;
    quant_d      = quant_q;
    quant_wide_d = quant_wide_q;
    step_d       = step_q;
    component_d  = component_q;
    one_d        = one_q;
    three_d      = three_q;
    match_d      = match_q;
    framed_d     = 1'b0;

    request_o         = '0;
    request_o.wants   = turn_i && state_q != StCheck;
    request_o.take    = request_o.wants;
    request_o.fail    = turn_i && fail_q;
    request_o.failure = turn_i ? failure_q : '0;
    fail_d            = 1'b0;
    failure_d         = StatusCorruptHeader;

    if (turn_i) begin
      unique case (state_q)
        StSizes: if (have_byte_i) begin
          one_d        = byte_i == 8'd1;
          three_d      = byte_i == 8'd3;
          step_d       = step_q + 1'b1;
          unique case (step_q)
            3'd0:    match_d = byte_i == 8'd8;  // precision
            3'd1:    frame_d.height[15:8] = byte_i;
            3'd2:    frame_d.height[7:0]  = byte_i;
            3'd3:    frame_d.width[15:8]  = byte_i;
            3'd4:    frame_d.width[7:0]   = byte_i;
            default: state_d = StCheck;
          endcase
        end
        StCheck: begin
          state_d       = StComponents;
          step_d        = '0;
          frame_d.color = three_q;
          if (!match_q) begin
            fail_d    = 1'b1;
            failure_d = StatusPrecision;
          end else if (!one_q && !three_q) begin
            fail_d    = 1'b1;
            failure_d = StatusComponents;
          end else if (!(three_q ? length_15_q : length_9_q) || no_width_q) begin
            fail_d = 1'b1;
          end else if (beyond_q) begin
            fail_d    = 1'b1;
            failure_d = StatusTooLarge;
          end
        end
        StComponents: if (have_byte_i) begin
          step_d = step_q + 1'b1;
          unique case (step_q[1:0])
            2'd0: id_d[component_q] = byte_i;
            2'd1: if (!frame_q.color) begin
              // A scan of one component has one block per MCU, whatever its factors.
              match_d = byte_i[7:4] inside {[4'd1:4'd4]} && byte_i[3:0] inside {[4'd1:4'd4]};
            end else begin
              // 1, 2, 4 -> 0, 1, 2
              if (component_q == '0) begin
                frame_d.h_shift = byte_i[6:5];
                frame_d.v_shift = byte_i[2:1];
              end else begin
                frame_d.chroma_h[component_q[1]] = byte_i[6:5];
                frame_d.chroma_v[component_q[1]] = byte_i[2:1];
              end
              match_d = match_q && known(byte_i, component_q != '0);
            end
            default: begin
              quant_d[component_q]      = byte_i[1:0];
              quant_wide_d[component_q] = byte_i[7:2] != '0;
              step_d                    = '0;
              component_d               = component_q + 1'b1;
              if (last_q) begin
                framed_d       = frame_q.color;
                request_o.over = match_q;
                fail_d         = !match_q;
                failure_d      = StatusSampling;
              end
            end
          endcase
        end
        default: state_d = StSizes;
      endcase
    end
    if (begin_i) begin
      step_d      = '0;
      component_d = '0;
      match_d     = 1'b1;
    end
    last_d = step_d[1:0] == 2'd2 && (!frame_d.color || component_d == 2'd2);
    if (start_i) begin
      frame_d = '0;
      quant_d = '0;
    end
    if (!Samplings) begin  // constants, so that tools leave out what follows from others
      frame_d.h_shift[1] = 1'b0;
      frame_d.v_shift[1] = 1'b0;
      frame_d.chroma_h   = '0;
      frame_d.chroma_v   = '0;
    end
  end

  // What StCheck and the end look at, a clock before.
  always_ff @(posedge clk_i) begin
    length_9_q     <= length_i == 16'd9;
    length_15_q    <= length_i == 16'd15;
    no_width_q     <= frame_q.width == '0;
    beyond_q       <= frame_q.height == '0 || frame_q.height > 16'(MaxJpegHeight) ||
                      frame_q.width > 16'(MaxWidth);
    over_half_q    <= frame_q.width > 16'(MaxWidth / 2);
    over_quarter_q <= frame_q.width > 16'(MaxWidth / 4);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StSizes;
      sized_o <= 1'b0;
    end else begin
      state_q <= state_d;
      sized_o <= (sized_o || (turn_i && state_q == StComponents && !failed_i && !fail_q)) &&
                 !start_i;
    end
  end

  always_ff @(posedge clk_i) begin
    frame_q      <= frame_d;
    id_q         <= id_d;
    quant_q      <= quant_d;
    quant_wide_q <= quant_wide_d;
    step_q       <= step_d;
    component_q  <= component_d;
    one_q        <= one_d;
    three_q      <= three_d;
    match_q      <= match_d;
    framed_q     <= framed_d;
    last_q       <= last_d;
    fail_q       <= fail_d;
    failure_q    <= failure_d;
  end

endmodule
