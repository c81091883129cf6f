// Words of the workspace to coefficients as transform takes them.
//
// Interface   blocks of the last pass, and eight words for each that is seen; a coefficient for
//             each that is not zero, and one for the last place of each block. `quant` is the
//             component.
// Throughput  one coefficient a clock; a word without any takes one.
module coefficient_send
  import headrace_pkg::*;
  import progressive_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  block_t       block_i,
  input  logic         block_valid_i,
  output logic         block_ready_o,

  input  word_t        word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output coefficient_t coefficient_o,
  output logic         coefficient_valid_o,
  input  logic         coefficient_ready_i,
  // For a clock: the last block's last coefficient has been taken.
  output logic         done_o
);

  word_t      word_q;       // `some`: still to be sent
  logic       valid_q;
  logic [2:0] number_q;     // of the next word of its block
  logic       end_q;        // the word is its block's last, of the pass' last
  logic       pass_end_q;
  logic [1:0] component_q;
  logic [2:0] base_q;       // number of the word
  logic       empty_q;      // its block is not seen
  logic       take, go;
  logic       left_q;       // more than one is still to be sent
  logic [7:0] some, less;
  logic [2:0] lowest;

  always_comb begin
    lowest = 3'd7;
    for (int i = 7; i >= 0; i--) if (word_q.some[i]) lowest = 3'(i);
  end
  assign less = word_q.some & (word_q.some - 8'd1);
  // The last place is sent in any case: it ends the block.
  assign some = !block_i.seen ? 8'h80 : word_i.some | {number_q == 3'd7, 7'd0};
  assign coefficient_valid_o = valid_q && word_q.some != '0;
  assign coefficient_o = '{done: 1'b0, status: StatusOk, quant: component_q,
                           last: end_q && !left_q, two: 1'b0,
                           value: {16'd0, empty_q ? 16'd0 : word_q.value[lowest]},
                           index: {6'd0, base_q, lowest}};
  // The word is gone with its last coefficient.
  assign go   = !valid_q || word_q.some == '0 || (!left_q && coefficient_ready_i);
  assign take = go && block_valid_i && (word_valid_i || !block_i.seen);
  assign word_ready_o  = take && block_i.seen;
  assign block_ready_o = take && (number_q == 3'd7 || !block_i.seen);
  assign done_o        = valid_q && pass_end_q && !left_q && coefficient_ready_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q  <= 1'b0;
      number_q <= '0;
    end else begin
      valid_q <= take || (valid_q && !go);
      if (take && block_i.seen) number_q <= number_q + 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (take) begin
      word_q.value <= word_i.value;
      word_q.some  <= some;
      left_q       <= (some & (some - 8'd1)) != '0;
      base_q       <= block_i.seen ? number_q : 3'd7;
      end_q        <= number_q == 3'd7 || !block_i.seen;
      pass_end_q   <= (number_q == 3'd7 || !block_i.seen) && block_i.pass_last;
      component_q  <= block_i.component;
      empty_q      <= !block_i.seen;
    end else if (coefficient_ready_i) begin
      word_q.some <= less;
      left_q      <= (less & (less - 8'd1)) != '0;
    end
  end

endmodule
