// The blocks of a pass, in the order of its MCUs.
//
// Interface   `start_i` for a clock, with `pass_i` stable until the last block has left; blocks
//             come as a stream. `stop_i` drops those that are left.
// Throughput  one block a clock. Latency one clock.
module block_walk
  import progressive_pkg::*;
(
  input  logic   clk_i,
  input  logic   rst_ni,

  input  logic   start_i,
  input  logic   stop_i,
  input  pass_t  pass_i,

  output block_t block_o,
  output logic   block_valid_o,
  input  logic   block_ready_i
);

  logic        running_q;
  logic [1:0]  c_q, x_q, y_q;     // component, column and row in the MCU
  logic [BlockXBits+1:0] line_q;  // blocks of the component from the MCU's first row to this one
  logic [BlockXBits-1:0] across_left_q;  // MCUs after this one in its row
  logic [BlockYBits-1:0] down_left_q;
  // The first block of each component in this MCU, in this row of MCUs.
  logic [2:0][BlockBits-1:0] at_q, row_q;

  logic        step, x_end, y_end, mcu_end, row_end;
  logic [1:0]  first_c, next_c;
  logic        more;              // components after this one

  assign step    = running_q && (!block_valid_o || block_ready_i);
  assign first_c = pass_i.members[0] ? 2'd0 : pass_i.members[1] ? 2'd1 : 2'd2;
  assign next_c  = c_q == 2'd0 && pass_i.members[1] ? 2'd1 : 2'd2;
  assign more    = (c_q == 2'd0 && pass_i.members[2:1] != '0) || (c_q == 2'd1 && pass_i.members[2]);
  assign x_end   = x_q == pass_i.end_x[c_q];
  assign y_end   = y_q == pass_i.end_y[c_q];
  assign mcu_end = x_end && y_end && !more;
  assign row_end = across_left_q == '0;

  logic [2:0][BlockBits-1:0] row_below;
  for (genvar c = 0; c < 3; c++) begin : g_row_below
    assign row_below[c] = row_q[c] + BlockBits'(pass_i.mcu_row[c]);
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      {c_q, x_q, y_q} <= {first_c, 4'd0};
      line_q          <= '0;
      across_left_q   <= pass_i.last_mcu_x;
      down_left_q     <= pass_i.last_mcu_y;
      at_q            <= pass_i.base;
      row_q           <= pass_i.base;
    end else if (step) begin
      x_q <= x_end ? 2'd0 : x_q + 1'b1;
      if (x_end) y_q <= y_end ? 2'd0 : y_q + 1'b1;
      if (x_end) line_q <= y_end ? '0 : line_q + (BlockXBits + 2)'(pass_i.row[c_q]);
      if (x_end && y_end) c_q <= more ? next_c : first_c;
      if (mcu_end) begin
        across_left_q <= row_end ? pass_i.last_mcu_x : across_left_q - 1'b1;
        down_left_q   <= down_left_q - BlockYBits'(row_end);
        for (int unsigned c = 0; c < 3; c++) begin
          if (row_end) row_q[c] <= row_below[c];
          at_q[c] <= row_end ? row_below[c] : at_q[c] + BlockBits'(pass_i.end_x[c]) + 1'b1;
        end
      end
    end
    if (step) begin
      block_o.number    <= at_q[c_q] + BlockBits'(line_q + (BlockXBits + 2)'(x_q));
      block_o.component <= c_q;
      block_o.seen      <= (!row_end || x_q <= pass_i.last_x[c_q]) &&
                           (!pass_i.to_bottom || down_left_q != '0 || y_q <= pass_i.last_y[c_q]);
      block_o.mcu_last  <= mcu_end;
      block_o.pass_last <= mcu_end && row_end && down_left_q == '0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || stop_i) begin
      running_q     <= 1'b0;
      block_valid_o <= 1'b0;
    end else begin
      if (start_i) running_q <= 1'b1;
      else if (step && mcu_end && row_end && down_left_q == '0) running_q <= 1'b0;
      if (step) block_valid_o <= 1'b1;
      else if (block_ready_i) block_valid_o <= 1'b0;
    end
  end

endmodule
