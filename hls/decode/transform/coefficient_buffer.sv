// Dequantises coefficients, puts them into their places and hands out the columns of whole blocks.
//
// Reference   T.81 A.3.4 and A.3.6; transform_columns in decode.cpp: products keep 16 bits, as
//             libjpeg-turbo's do.
// Interface   quantisation tables are written, and latched, while no coefficients are on their way.
//             `room_i` allows the next block; `block_o` marks the clock in which it is begun, and
//             its eight columns follow one a clock. A block that is not `wanted_i` is dropped
//             instead; a clock after `next_o`, `wanted_i` is of the next one. After the last block
//             of an image comes the status, `done_valid_o`; until it has left, nothing is taken.
//             `first_row_only_o`: no coefficient below the first row was other than zero before
//             dequantisation.
// Throughput  a beat a clock in, of one coefficient or two; two clocks for a beat whose two are
//             both in even rows or both in odd ones. One column a clock out; a clock for a block
//             that is dropped. Latency 10 clocks from a block's last coefficient to its first
//             column.
// Memory      512 blocks in two UltraRAM, one for the even rows and one for the odd ones, as
//             columns with write enables by row. Neighbours in zigzag order are in both but at the
//             border. Blocks with fewer than 8 beats come faster than they are transformed, and
//             often many in a row (skies, chroma): the more of them fit, the less they hold up what
//             comes behind. 4 blocks cost up to 12 % of the clocks of a photo in 4:4:4, 64 5 %, 512
//             2 %. What was not sent is zero by a mask that goes with the block (block RAM), so
//             that nothing needs to be cleared. The four tables, and those of the three components,
//             are in half a block RAM for each of the two coefficients.
// Bad input   a block that is cut off by the end beat is dropped.
module coefficient_buffer
  import headrace_pkg::*;
(
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             quant_we_i,
  input  logic             quant_latch_i,      // the table's value becomes the component's
  input  logic [1:0]       quant_table_i,
  input  logic [1:0]       quant_component_i,
  input  logic [5:0]       quant_index_i,      // in zigzag order, as in the file
  input  logic [15:0]      quant_value_i,
  input  logic             by_component_i,     // `quant` of a coefficient is its component

  input  coefficient_t     coefficient_i,
  input  logic             coefficient_valid_i,
  output logic             coefficient_ready_o,

  input  logic             room_i,
  output logic             block_o,
  input  logic             wanted_i,       // the oldest block is
  output logic             next_o,         // it is begun or dropped

  output logic [7:0][15:0] column_o,       // signed, [0] is the top
  output logic             first_row_only_o,
  output logic             column_valid_o,

  output status_e          done_status_o,
  output logic             done_valid_o,
  input  logic             done_ready_i
);

  // Row and column of the coefficient at a place in zigzag order.
  function automatic logic [5:0] place_of(logic [5:0] index);
    unique case (index)
      6'd0:  return {3'd0, 3'd0};
      6'd1:  return {3'd0, 3'd1};
      6'd2:  return {3'd1, 3'd0};
      6'd3:  return {3'd2, 3'd0};
      6'd4:  return {3'd1, 3'd1};
      6'd5:  return {3'd0, 3'd2};
      6'd6:  return {3'd0, 3'd3};
      6'd7:  return {3'd1, 3'd2};
      6'd8:  return {3'd2, 3'd1};
      6'd9:  return {3'd3, 3'd0};
      6'd10: return {3'd4, 3'd0};
      6'd11: return {3'd3, 3'd1};
      6'd12: return {3'd2, 3'd2};
      6'd13: return {3'd1, 3'd3};
      6'd14: return {3'd0, 3'd4};
      6'd15: return {3'd0, 3'd5};
      6'd16: return {3'd1, 3'd4};
      6'd17: return {3'd2, 3'd3};
      6'd18: return {3'd3, 3'd2};
      6'd19: return {3'd4, 3'd1};
      6'd20: return {3'd5, 3'd0};
      6'd21: return {3'd6, 3'd0};
      6'd22: return {3'd5, 3'd1};
      6'd23: return {3'd4, 3'd2};
      6'd24: return {3'd3, 3'd3};
      6'd25: return {3'd2, 3'd4};
      6'd26: return {3'd1, 3'd5};
      6'd27: return {3'd0, 3'd6};
      6'd28: return {3'd0, 3'd7};
      6'd29: return {3'd1, 3'd6};
      6'd30: return {3'd2, 3'd5};
      6'd31: return {3'd3, 3'd4};
      6'd32: return {3'd4, 3'd3};
      6'd33: return {3'd5, 3'd2};
      6'd34: return {3'd6, 3'd1};
      6'd35: return {3'd7, 3'd0};
      6'd36: return {3'd7, 3'd1};
      6'd37: return {3'd6, 3'd2};
      6'd38: return {3'd5, 3'd3};
      6'd39: return {3'd4, 3'd4};
      6'd40: return {3'd3, 3'd5};
      6'd41: return {3'd2, 3'd6};
      6'd42: return {3'd1, 3'd7};
      6'd43: return {3'd2, 3'd7};
      6'd44: return {3'd3, 3'd6};
      6'd45: return {3'd4, 3'd5};
      6'd46: return {3'd5, 3'd4};
      6'd47: return {3'd6, 3'd3};
      6'd48: return {3'd7, 3'd2};
      6'd49: return {3'd7, 3'd3};
      6'd50: return {3'd6, 3'd4};
      6'd51: return {3'd5, 3'd5};
      6'd52: return {3'd4, 3'd6};
      6'd53: return {3'd3, 3'd7};
      6'd54: return {3'd4, 3'd7};
      6'd55: return {3'd5, 3'd6};
      6'd56: return {3'd6, 3'd5};
      6'd57: return {3'd7, 3'd4};
      6'd58: return {3'd7, 3'd5};
      6'd59: return {3'd6, 3'd6};
      6'd60: return {3'd5, 3'd7};
      6'd61: return {3'd6, 3'd7};
      6'd62: return {3'd7, 3'd6};
      default: return {3'd7, 3'd7};
    endcase
  endfunction

  localparam int unsigned Lanes        = config_pkg::Symbols;
  localparam int unsigned Blocks       = 512;
  localparam int unsigned AddressWidth = $clog2(Blocks);
  typedef logic [AddressWidth:0] number_t;  // of a block: one bit more than its address

  // ---- Taking coefficients: there must be a place for every block that is begun ----
  number_t taken_q, written_q;  // next block to be taken, to be complete
  number_t head_q, head_d;      // next to leave
  number_t after_head_q;        // and the one behind it
  number_t in_use;
  logic    full_q;              // in_use is Blocks
  logic    accept, takes_block, done_taken_q;
  logic    split_q;             // the second of a beat follows
  logic    block_ends, drop;    // the block at the head has left; it is not wanted

  assign in_use              = taken_q - head_q;
  assign coefficient_ready_o = !full_q && !done_taken_q && !split_q;
  assign accept              = coefficient_valid_i && coefficient_ready_o;
  assign takes_block         = accept && coefficient_i.last && !coefficient_i.done;

  coefficient_t c_q, c_q2, c_q3, c_q4, c_q5;
  logic         valid_q, valid_q2, valid_q3, valid_q4, valid_q5;
  logic         two, same_bank;
  logic         last_q;

  // Whether a coefficient is in an odd row, by its index.
  function automatic logic odd_row(logic [5:0] index);
    logic [5:0] place;
    place = place_of(index);
    return place[3];
  endfunction
  assign two       = Lanes == 2 && coefficient_i.two;
  assign same_bank = two && odd_row(coefficient_i.index[0]) == odd_row(coefficient_i.index[1]);

  // Two of one bank go on one by one.
  always_ff @(posedge clk_i) begin
    last_q <= coefficient_i.last;
    if (split_q) begin
      c_q.value[0] <= c_q.value[1];
      c_q.index[0] <= c_q.index[1];
      c_q.last     <= last_q;
    end else begin
      c_q      <= coefficient_i;
      c_q.two  <= two && !same_bank;
      c_q.last <= coefficient_i.last && !same_bank;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      taken_q                                 <= '0;
      full_q                                  <= 1'b0;
      done_taken_q                            <= 1'b0;
      split_q                                 <= 1'b0;
      {valid_q, valid_q2, valid_q3, valid_q4, valid_q5} <= '0;
    end else begin
      if (takes_block) taken_q <= taken_q + 1'b1;
      if (takes_block && !(block_ends || drop)) full_q <= in_use == number_t'(Blocks - 1);
      else if ((block_ends || drop) && !takes_block) full_q <= 1'b0;
      if (accept && coefficient_i.done) done_taken_q <= 1'b1;
      else if (done_valid_o && done_ready_i) done_taken_q <= 1'b0;
      {valid_q, valid_q2, valid_q3, valid_q4, valid_q5} <=
          {accept || split_q, valid_q, valid_q2, valid_q3, valid_q4};
      split_q <= accept && same_bank;
    end
  end

  // ---- Dequantisation ----
  // The tables of the file; behind them those of the components. A value is latched over what reads
  // for coefficients.
  logic        quant_we_q, latch_q, latch_q2, latch_q3;
  logic [7:0]  quant_address_q, latched_q, latched_q2, latched_q3;
  logic [15:0] quant_value_q;
  logic [Lanes-1:0][15:0] factor_q2, factor_q3;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) {latch_q, latch_q2, latch_q3} <= '0;
    else {latch_q, latch_q2, latch_q3} <= {quant_latch_i, latch_q, latch_q2};
  end

  always_ff @(posedge clk_i) begin
    quant_we_q      <= quant_we_i;
    quant_address_q <= {quant_table_i, quant_index_i};
    latched_q       <= {quant_component_i, quant_index_i};
    latched_q2      <= latched_q;
    latched_q3      <= latched_q2;
    quant_value_q   <= quant_value_i;
    c_q2            <= c_q;
    c_q3            <= c_q2;
    c_q4            <= c_q3;
    c_q5            <= c_q4;
  end

  logic [Lanes-1:0][15:0] product_q4, product_q5;
  logic [Lanes-1:0][5:0]  place_q3, place_q4, place_q5;   // row, column
  logic [Lanes-1:0]       below_q3, below_q4, below_q5;   // not zero and not in the first row

  for (genvar i = 0; i < Lanes; i++) begin : gen_lane
    (* ram_style = "block" *) logic [15:0] quant[512];
    always_ff @(posedge clk_i) begin
      if (quant_we_q || latch_q3) begin
        quant[latch_q3 ? {1'b1, latched_q3} : {1'b0, quant_address_q}] <=
            latch_q3 ? factor_q3[0] : quant_value_q;
      end
      factor_q2[i]  <= quant[latch_q ? {1'b0, quant_address_q}
                                     : {by_component_i, c_q.quant, c_q.index[i]}];
      factor_q3[i]  <= factor_q2[i];
      place_q3[i]   <= place_of(c_q2.index[i]);
      product_q4[i] <= c_q3.value[i] * factor_q3[i];  // keeps 16 bits
      place_q4[i]   <= place_q3[i];
      below_q3[i]   <= c_q2.value[i] != '0 && (i == 0 || c_q2.two);
      below_q4[i]   <= below_q3[i] && place_q3[i][5:3] != '0;
      product_q5[i] <= product_q4[i];
      place_q5[i]   <= place_q4[i];
      below_q5[i]   <= below_q4[i];
    end
  end

  // ---- Writing ----
  typedef struct packed {
    logic            first_row_only;
    logic [7:0][7:0] mask;  // [column][row]
  } block_t;

  // What is read is complete, so it is never what is written in the same clock (no_rw_check).
  (* ram_style = "block", no_rw_check *) block_t blocks[Blocks];
  logic [7:0][7:0] mask_q, mask_d;
  logic            below_any_q, below_any_d;
  block_t          new_block;
  logic            block_we, done_q;
  status_e         status_q;

  always_comb begin
    mask_d = mask_q;
    for (int unsigned i = 0; i < Lanes; i++) begin
      if (i == 0 || c_q5.two) mask_d[place_q5[i][2:0]][place_q5[i][5:3]] = 1'b1;
    end
    below_any_d = below_any_q || below_q5 != '0;
    block_we    = valid_q5 && c_q5.last && !c_q5.done;
    new_block   = '{first_row_only: !below_any_d, mask: mask_d};
  end

  always_ff @(posedge clk_i) begin
    if (block_we) blocks[written_q[AddressWidth-1:0]] <= new_block;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      written_q   <= '0;
      mask_q      <= '0;
      below_any_q <= 1'b0;
      done_q      <= 1'b0;
    end else begin
      if (block_we) written_q <= written_q + 1'b1;
      if (block_we || (valid_q5 && c_q5.done)) begin
        mask_q      <= '0;
        below_any_q <= 1'b0;
      end else if (valid_q5) begin
        mask_q      <= mask_d;
        below_any_q <= below_any_d;
      end
      if (valid_q5 && c_q5.done) done_q <= 1'b1;
      else if (done_ready_i && done_valid_o) done_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_q5 && c_q5.done) status_q <= c_q5.status;
  end

  // ---- Reading: the mask a clock ahead, then eight columns ----
  block_t           block_q, block_q2;
  // The block at the head is complete, and block_q is of it. Else all have left that were complete
  // a clock before.
  logic             whole_q;
  logic [2:0]       x_q, x_q2;
  logic             reading_q, reading;
  logic             reading_q2, reading_q3, only_q3;
  logic [7:0]       mask_q3;
  logic [7:0][15:0] data_q2, data_q3;

  assign block_o       = whole_q && !reading_q && room_i && wanted_i;
  assign drop          = whole_q && !reading_q && !wanted_i;
  assign next_o        = block_o || drop;
  assign reading       = block_o || reading_q;
  assign block_ends    = reading_q && x_q == 3'd7;
  assign head_d        = block_ends || drop ? after_head_q : head_q;
  assign done_valid_o  = done_q && !whole_q;  // the end comes behind the last block
  assign done_status_o = status_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q         <= '0;
      after_head_q   <= number_t'(1);
      whole_q        <= 1'b0;
      x_q            <= '0;
      reading_q      <= 1'b0;
      reading_q2     <= 1'b0;
      reading_q3     <= 1'b0;
      column_valid_o <= 1'b0;
    end else begin
      head_q  <= head_d;
      if (block_ends || drop) after_head_q <= after_head_q + 1'b1;
      whole_q <= head_d != written_q;
      if (reading) x_q <= x_q + 1'b1;
      if (block_ends) reading_q <= 1'b0;
      else if (block_o) reading_q <= 1'b1;
      reading_q2     <= reading;
      reading_q3     <= reading_q2;
      column_valid_o <= reading_q3;
    end
  end

  for (genvar b = 0; b < 2; b++) begin : gen_bank  // even and odd rows
    (* ram_style = "ultra", no_rw_check *) logic [3:0][15:0] columns[8 * Blocks];
    logic        we;
    logic [5:0]  place;
    logic [15:0] product;
    always_comb begin
      we      = valid_q5 && place_q5[0][3] == 1'(b);
      place   = place_q5[0];
      product = product_q5[0];
      for (int unsigned i = 1; i < Lanes; i++) begin
        if (c_q5.two && place_q5[i][3] == 1'(b)) begin
          we      = valid_q5;
          place   = place_q5[i];
          product = product_q5[i];
        end
      end
    end
    always_ff @(posedge clk_i) begin
      for (int unsigned y = 0; y < 4; y++) begin
        if (we && place[5:4] == 2'(y)) begin
          columns[{written_q[AddressWidth-1:0], place[2:0]}][y] <= product;
        end
      end
    end
    logic [3:0][15:0] data;
    always_ff @(posedge clk_i) data <= columns[{head_q[AddressWidth-1:0], x_q}];
    for (genvar i = 0; i < 4; i++) begin : gen_row
      assign data_q2[2*i+b] = data[i];
    end
  end

  always_ff @(posedge clk_i) begin
    block_q  <= blocks[head_d[AddressWidth-1:0]];
    data_q3  <= data_q2;
    block_q2 <= block_q;  // a register at the memory's output
    x_q2     <= x_q;
    mask_q3  <= block_q2.mask[x_q2];
    only_q3  <= block_q2.first_row_only;
    first_row_only_o <= only_q3;
    for (int unsigned y = 0; y < 8; y++) begin
      column_o[y] <= mask_q3[y] ? data_q3[y] : '0;
    end
  end

`ifndef SYNTHESIS
  a_one_use_of_the_tables: assert property (@(posedge clk_i) disable iff (!rst_ni)
      !(latch_q && valid_q) && !(latch_q3 && quant_we_q));
  a_none_is_read_and_written: assert property (@(posedge clk_i) disable iff (!rst_ni)
      reading && valid_q5 |-> head_q[AddressWidth-1:0] != written_q[AddressWidth-1:0]);
  a_all_have_left: assert property (@(posedge clk_i) disable iff (!rst_ni)
      done_valid_o |-> head_q == written_q);
  a_blocks_in_order: assert property (@(posedge clk_i) disable iff (!rst_ni)
      in_use <= number_t'(Blocks) && full_q == in_use[AddressWidth] &&
                number_t'(written_q - head_q) <= in_use);
`endif

endmodule
