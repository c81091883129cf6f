// Transposition of 8x8 blocks: columns in, rows out.
//
// Interface   the eight columns of a block come in consecutive clocks and its eight rows leave in
//             consecutive clocks; nothing stalls.
// Throughput  a column in and a row out every clock. Latency 11 clocks from the first column to the
//             first row.
// Memory      two blocks in eight banks of distributed RAM. Row y of column x lies in bank (x + y)
//             mod 8 at address y, so that a whole column is written and a whole row is read at
//             once; in front of and behind the banks the values are rotated.
module transpose #(
  parameter int unsigned Width = 16
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic [7:0][Width-1:0] column_i,  // [0] is the top
  input  logic                  valid_i,

  output logic [7:0][Width-1:0] row_o,     // [0] is the left one
  output logic                  valid_o
);

  // Element i of the result is element i - by of the argument.
  function automatic logic [7:0][Width-1:0] rotate(logic [7:0][Width-1:0] in, logic [2:0] by);
    logic [7:0][Width-1:0] out;
    for (int unsigned i = 0; i < 8; i++) out[i] = in[3'(i) - by];
    return out;
  endfunction

  // ---- Columns in ----
  logic [2:0]            x_q, x_q2;
  logic                  side_q, side_q2;   // the block that is written
  logic                  write_q;
  logic [7:0][Width-1:0] rotated_q;
  logic                  complete_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      x_q        <= '0;
      side_q     <= 1'b0;
      write_q    <= 1'b0;
      complete_q <= 1'b0;
    end else begin
      if (valid_i) x_q <= x_q + 1'b1;
      if (valid_i && x_q == 3'd7) side_q <= !side_q;
      write_q    <= valid_i;
      complete_q <= write_q && x_q2 == 3'd7;
    end
  end

  always_ff @(posedge clk_i) begin
    x_q2      <= x_q;
    side_q2   <= side_q;
    rotated_q <= rotate(column_i, x_q);
  end

  // ---- Rows out ----
  logic [2:0]            y_q, y_q2;
  logic                  read_side_q;
  logic                  reading_q, reading, read_q, valid_q;
  logic [7:0][Width-1:0] read_data, data_q;

  assign reading = complete_q || reading_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      y_q         <= '0;
      read_side_q <= 1'b0;
      reading_q   <= 1'b0;
      read_q      <= 1'b0;
      valid_q     <= 1'b0;
    end else begin
      if (reading) y_q <= y_q + 1'b1;
      if (reading && y_q == 3'd7) begin
        read_side_q <= !read_side_q;
        reading_q   <= 1'b0;
      end else if (complete_q) begin
        reading_q <= 1'b1;
      end
      read_q  <= reading;
      valid_q <= read_q;
    end
  end

  for (genvar b = 0; b < 8; b++) begin : gen_bank
    (* ram_style = "distributed" *) logic [Width-1:0] memory[16];
    logic [2:0] y;  // the row that goes into this bank
    assign y = 3'(b) - x_q2;
    always_ff @(posedge clk_i) begin
      if (write_q) memory[{side_q2, y}] <= rotated_q[b];
    end
    assign read_data[b] = memory[{read_side_q, y_q}];
  end

  always_ff @(posedge clk_i) begin
    data_q <= read_data;
    y_q2   <= y_q;
    row_o  <= rotate(data_q, -y_q2);
  end

  assign valid_o = valid_q;

`ifndef SYNTHESIS
  // Blocks are at least eight clocks apart, so one is read out when the next is complete.
  a_one_at_a_time: assert property (@(posedge clk_i) disable iff (!rst_ni)
      !(complete_q && reading_q));
`endif

endmodule
