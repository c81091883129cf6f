// The loop of an entropy decoder and nothing else, with the table in LUT RAM: the window, the
// look-up of how many bits leave it, and the shift. A step a clock.
//
// With Bits = 6 a word tells one symbol, of four tables; with 8 it tells two, of two tables.
module loop_lut_ram #(
  parameter int unsigned Bits = 6
) (
  input  logic        clk_i,
  input  logic        write_i,
  input  logic [8:0]  write_at_i,
  input  logic [4:0]  write_total_i,
  input  logic [2:0]  table_i,
  input  logic [31:0] next_i,     // what stands behind the window
  output logic [31:0] window_o
);

  localparam int unsigned Tables = Bits == 6 ? 4 : 2;
  localparam int unsigned Address = Bits + $clog2(Tables);

  (* ram_style = "distributed" *) logic [4:0] totals[Tables << Bits];
  logic [$clog2(Tables)-1:0] table_q;
  logic [31:0] window_q;
  logic [4:0]  total;

  assign total    = totals[{table_q, window_q[31-:Bits]}];
  assign window_o = window_q;

  always_ff @(posedge clk_i) begin
    if (write_i) totals[write_at_i[Address-1:0]] <= write_total_i;
    table_q  <= table_i[$clog2(Tables)-1:0];
    window_q <= 32'(({window_q, next_i} << total) >> 32);
  end

endmodule
