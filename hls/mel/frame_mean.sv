// The share of its mean that each frame loses: (1 - a) times the sum of its 400 samples, by 400.
//
// Reference   mean_of() of mel.cpp.
// Interface   samples with `valid_i`; `block_end_i` a clock behind the last one of every 80. The
//             first frame begins with the first block, each other one two blocks later, and a frame
//             has five. `ready_o` tells two clocks ahead of the next frame's mean, which stays
//             until it is replaced, 20 clocks behind its `read_i` or later. Without `enable_i` it
//             is 0, always ready. `clear_i` begins a sound.
// Arithmetic  sums since the beginning of the sound, by block, of which two differ by a frame's.
//             The product takes a clock for each of 25 bits of 1 - a, the division one for each of
//             48 bits.
// Latency     77 clocks from the last block's end.
// Memory      16 sums: the ring of samples has fewer blocks.
module frame_mean
  import audio_pkg::*;
  import mel_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        enable_i,
  input  logic [23:0] preemphasis_i,  // LSB 2^-24

  input  logic        clear_i,
  input  sample_t     sample_i,
  input  logic        valid_i,
  input  logic        block_end_i,

  input  logic        read_i,
  output logic        ready_o,
  output emphasised_t mean_o
);

  // In the numerator, LSB 2^-45: half a place of 2^-39, and a multiple of the divisor by which it
  // is above 0.
  localparam logic [57:0] Added = 58'd12800 + (58'd25 << 52);

  // ---- Sums since the beginning, modulo 2^33 ----
  (* ram_style = "distributed" *) logic [32:0] sums[16];
  logic [32:0] total_q;
  logic [3:0]  block_q;   // the next one's end
  logic [4:0]  blocks_q;  // from the beginning of the frame on

  // ---- A frame's sum, its product with 1 - a, the division by 25 ----
  typedef enum logic [2:0] {
    StWait,      // for the blocks, and for the frame before to be read
    StSum,
    StMultiply,
    StAdd,
    StDivide,
    StDone
  } state_e;

  state_e             state_q;
  logic        [3:0]  first_q;   // the sum in front of the frame
  logic        [3:0]  end_q;     // and that at its end
  logic signed [32:0] sum_q;
  logic        [24:0] factor_q;  // its bits that are left, from the top
  logic signed [57:0] product_q;
  logic        [47:0] dividend_q;
  logic        [42:0] quotient_q;
  logic        [4:0]  rest_q;    // below 25
  logic        [5:0]  rest;
  logic        [5:0]  bits_q;    // done
  logic               begins, ready_q;

  assign begins  = enable_i && state_q == StWait && blocks_q >= 5'd5;
  assign rest    = {rest_q, dividend_q[47]};
  assign ready_o = !enable_i || ready_q;
  assign mean_o  = enable_i ? {!quotient_q[42], quotient_q[41:0]} : '0;

  always_ff @(posedge clk_i) begin
    if (clear_i) sums[0] <= '0;
    else if (block_end_i) sums[block_q] <= total_q;
  end

  always_ff @(posedge clk_i) begin
    if (clear_i || !enable_i) begin
      total_q  <= '0;
      block_q  <= 4'd1;
      blocks_q <= '0;
      first_q  <= '0;
      end_q    <= 4'd5;
    end else begin
      if (valid_i) total_q <= total_q + 33'(sample_i);
      if (block_end_i) block_q <= block_q + 4'd1;
      blocks_q <= blocks_q + 5'(block_end_i) - (begins ? 5'd2 : 5'd0);
      if (state_q == StSum) begin
        first_q <= first_q + 4'd2;
        end_q   <= end_q + 4'd2;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      state_q <= StWait;
      ready_q <= 1'b0;
    end else begin
      if (state_q == StDivide && bits_q == 6'd45) ready_q <= 1'b1;
      else if (read_i) ready_q <= 1'b0;
      unique case (state_q)
        StWait:     if (begins) state_q <= StSum;
        StSum:      state_q <= StMultiply;
        StMultiply: if (bits_q == 6'd24) state_q <= StAdd;
        StAdd:      state_q <= StDivide;
        StDivide:   if (bits_q == 6'd47) state_q <= StDone;
        StDone:     if (read_i || !ready_q) state_q <= StWait;
        default:    state_q <= StWait;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      StSum: begin
        sum_q     <= sums[end_q] - sums[first_q];
        factor_q  <= 25'h1000000 - {1'b0, preemphasis_i};
        product_q <= '0;
        bits_q    <= '0;
      end
      StMultiply: begin
        product_q <= {product_q[56:0], 1'b0} + (factor_q[24] ? 58'(sum_q) : '0);
        factor_q  <= {factor_q[23:0], 1'b0};
        bits_q    <= bits_q + 6'd1;
      end
      StAdd: begin
        {dividend_q, quotient_q[9:0]} <= product_q + Added;  // their bits do not stay
        rest_q                         <= '0;
        bits_q                         <= '0;
      end
      StDivide: begin
        dividend_q <= {dividend_q[46:0], 1'b0};
        quotient_q <= {quotient_q[41:0], rest >= 6'd25};
        rest_q     <= 5'(rest >= 6'd25 ? rest - 6'd25 : rest);
        bits_q     <= bits_q + 6'd1;
      end
      default: ;
    endcase
  end

`ifndef SYNTHESIS
  a_sums_within_memory: assert property (@(posedge clk_i) disable iff (!rst_ni)
    !enable_i || blocks_q < 5'd16);
`endif

endmodule
