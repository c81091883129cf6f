// The blocks of a pass, in the order of its MCUs.
//
// Interface   `start_i` for a clock, with `pass_i` stable until the last block has left; blocks come as a stream. `stop_i`
//             drops those that are left.
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
  logic [1:0]  c_q, x_q;          // component, column and row in the MCU
  logic        y_q;
  logic [AcrossBits-1:0] across_left_q;  // MCUs after this one in its row
  logic [12:0] down_left_q;
  logic [2:0][BlockBits-1:0] at_q, row_q;  // the first block of each component in this MCU, in this row of MCUs

  logic        step, x_end, y_end, mcu_end, row_end;
  logic [1:0]  first_c, next_c;
  logic        more;              // components after this one
  logic [AcrossBits-1:0] offset;

  assign step    = running_q && (!block_valid_o || block_ready_i);
  assign first_c = pass_i.members[0] ? 2'd0 : pass_i.members[1] ? 2'd1 : 2'd2;
  assign next_c  = c_q == 2'd0 && pass_i.members[1] ? 2'd1 : 2'd2;
  assign more    = (c_q == 2'd0 && pass_i.members[2:1] != '0) || (c_q == 2'd1 && pass_i.members[2]);
  assign x_end   = c_q != 2'd0 || x_q == {pass_i.h_shift[1], pass_i.h_shift != '0};
  assign y_end   = c_q != 2'd0 || y_q == pass_i.v_shift;
  assign mcu_end = x_end && y_end && !more;
  assign row_end = across_left_q == '0;
  assign offset  = (y_q ? pass_i.luma_row : '0) + AcrossBits'(x_q);

  function automatic logic [BlockBits-1:0] row_step(logic [1:0] c);
    return c == 2'd0 ? BlockBits'(pass_i.luma_row) << pass_i.v_shift : BlockBits'(pass_i.chroma_row);
  endfunction

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      {c_q, x_q, y_q} <= {first_c, 3'd0};
      across_left_q   <= pass_i.across - 1'b1;
      down_left_q     <= pass_i.down - 1'b1;
      at_q            <= pass_i.base;
      row_q           <= pass_i.base;
    end else if (step) begin
      x_q <= x_end ? 2'd0 : x_q + 1'b1;
      if (x_end) y_q <= !y_end;
      if (x_end && y_end) c_q <= more ? next_c : first_c;
      if (mcu_end) begin
        across_left_q <= row_end ? pass_i.across - 1'b1 : across_left_q - 1'b1;
        down_left_q   <= down_left_q - 13'(row_end);
        for (int unsigned c = 0; c < 3; c++) begin
          if (row_end) row_q[c] <= row_q[c] + row_step(2'(c));
          at_q[c] <= row_end ? row_q[c] + row_step(2'(c))
                             : at_q[c] + (c == 0 ? BlockBits'(1) << pass_i.h_shift : BlockBits'(1));
        end
      end
    end
    if (step) begin
      block_o.number    <= at_q[c_q] + BlockBits'(offset);
      block_o.component <= c_q;
      block_o.seen      <= c_q != 2'd0 || ((!row_end || x_q <= pass_i.last_x) &&
                           (!pass_i.to_bottom || down_left_q != '0 || y_q <= pass_i.last_y));
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
