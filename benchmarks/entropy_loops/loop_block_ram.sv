// The loop of an entropy decoder and nothing else, with the table in block RAM. A word of the RAM
// tells one symbol or two alike.
//
// Without Register a step takes a clock, and the RAM's output itself chooses the shift. With it the
// output is registered, and a step takes two clocks.
module loop_block_ram #(
  parameter bit Register = 1'b0
) (
  input  logic        clk_i,
  input  logic        write_i,
  input  logic [8:0]  write_at_i,
  input  logic [4:0]  write_total_i,
  input  logic        table_i,
  input  logic [31:0] next_i,     // what stands behind the window
  output logic [31:0] window_o
);

  (* ram_style = "block" *) logic [17:0] totals[1024];
  logic [17:0] word_q;
  logic [4:0]  total;
  logic [31:0] window_q, window_d;
  logic        table_q;

  assign window_d = 32'(({window_q, next_i} << total) >> 32);
  assign window_o = window_q;

  always_ff @(posedge clk_i) begin
    if (write_i) totals[{1'b0, write_at_i}] <= 18'(write_total_i);
    // The address register within the RAM takes what the window becomes.
    word_q   <= totals[{1'b0, table_q, window_d[31-:8]}];
    table_q  <= table_i;
    window_q <= window_d;
  end

  if (Register) begin : gen_register
    logic [4:0] total_q;
    logic       turn_q = 1'b0;
    always_ff @(posedge clk_i) begin
      turn_q  <= !turn_q;
      total_q <= turn_q ? word_q[4:0] : '0;  // no shift in every second clock
    end
    assign total = total_q;
  end else begin : gen_none
    assign total = word_q[4:0];
  end

endmodule
