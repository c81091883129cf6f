// Words of the workspace to coefficients as transform takes them.
//
// Interface   blocks of the last pass, and eight words for each that is seen; a coefficient for
//             each that is not zero, and one for the last place of each block. `quant` is the
//             component.
// Throughput  a beat of two neighbours in a word a clock, or of one where a beat holds no more or
//             the word has no other; a word without any takes a clock.
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

  localparam bit Two = config_pkg::Symbols == 2;

  logic [7:0][15:0] value_q;
  logic [7:0] rest_q;       // what is to be sent behind these:
  logic [2:0] first_q, second_q;
  logic       some_q;       // there is a first,
  logic       two_q;        // and a second, that goes with it
  logic       left_q;       // more is still to be sent
  logic       valid_q;
  logic [2:0] number_q;     // of the next word of its block
  logic       end_q;        // the word is its block's last, of the pass' last
  logic       pass_end_q;
  logic [1:0] component_q;
  logic [2:0] base_q;       // number of the word
  logic       empty_q;      // its block is not seen
  logic       take, go;
  logic [7:0] some, next;   // of the word that comes, to be sent next
  logic [7:0] behind_first, behind;

  function automatic logic [2:0] lowest(logic [7:0] places);
    logic [2:0] found;
    found = 3'd7;
    for (int i = 7; i >= 0; i--) if (places[i]) found = 3'(i);
    return found;
  endfunction

  // Of places: those above the lowest, and those above the second. As gates: differences would be
  // carry chains.
  typedef struct packed {
    logic [7:0] behind_one;
    logic [7:0] behind_two;
  } behind_t;
  function automatic behind_t behind_of(logic [7:0] places);
    logic [7:0] one, two;  // there are so many below
    one = places << 1;
    two = '0;
    for (int unsigned n = 1; n < 8; n *= 2) begin
      two = two | (two << n) | (one & (one << n));
      one = one | (one << n);
    end
    return '{behind_one: places & one, behind_two: places & two};
  endfunction

  behind_t rests;

  // The last place is sent in any case: it ends the block.
  assign some = !block_i.seen ? 8'h80 : word_i.some | {number_q == 3'd7, 7'd0};
  assign next = take ? some : rest_q;
  assign rests        = behind_of(next);
  assign behind_first = rests.behind_one;
  assign behind       = Two ? rests.behind_two : behind_first;

  assign coefficient_valid_o = valid_q && some_q;
  assign coefficient_o = '{done: 1'b0, status: StatusOk, quant: component_q,
                           last: end_q && !left_q, two: two_q,
                           value: {value_q[second_q] & {16{two_q}},
                                   empty_q ? 16'd0 : value_q[first_q]},
                           index: {{base_q, second_q} & {6{two_q}}, base_q, first_q}};
  // The word is gone with its last coefficient.
  assign go   = !valid_q || !some_q || (!left_q && coefficient_ready_i);
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
    if (take || coefficient_ready_i) begin
      some_q   <= next != '0;
      first_q  <= lowest(next);
      two_q    <= Two && behind_first != '0;
      second_q <= lowest(behind_first);
      left_q   <= behind != '0;
      rest_q   <= behind;
    end
    if (take) begin
      value_q     <= word_i.value;
      base_q      <= block_i.seen ? number_q : 3'd7;
      end_q       <= number_q == 3'd7 || !block_i.seen;
      pass_end_q  <= (number_q == 3'd7 || !block_i.seen) && block_i.pass_last;
      component_q <= block_i.component;
      empty_q     <= !block_i.seen;
    end
  end

endmodule
