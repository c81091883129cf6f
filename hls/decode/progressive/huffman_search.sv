// The eight Huffman tables, and the symbol whose code is at the top of a window of 16 bits, by
// comparison with the limits of all lengths at once.
//
// Reference   T.81 annex C and F.2.2.3, canonical codes.
// Interface   `write_i` while nothing is looked up. A window and a table number stand in one clock;
//             the length and whether there is a code are known two clocks later, with the symbol.
// Throughput  one look-up a clock. Unlike decode's huffman_table nothing here is in a loop of one
//             clock, so short codes need no memory of their own.
// Memory      2048 symbols in a block RAM, limits and offsets in distributed RAM.
module huffman_search
  import headrace_pkg::*;
  import progressive_pkg::*;
(
  input  logic           clk_i,

  input  huffman_write_t write_i,
  input  logic           write_valid_i,

  input  logic           ac_i,
  input  logic [1:0]     number_i,
  input  logic [15:0]    window_i,

  output logic [4:0]     length_o,
  output logic           none_o,   // no code of the table is at its top
  output symbol_t        symbol_o  // straight from the memory
);

  logic [16:0]      above_q;       // [n]: the code is longer than n bits
  logic [16:1][7:0] place_q;       // of the symbol, if the code has n bits
  logic [2:0]       table_q;

  assign above_q[0] = 1'b1;

  for (genvar n = 1; n <= 16; n++) begin : gen_length
    // A limit has no more bits set than its codes have; the offset stands below it.
    (* ram_style = "distributed" *) logic [n+7:0] limits[8];
    logic [n-1:0] limit;
    logic [7:0]   offset;
    assign {limit, offset} = limits[{ac_i, number_i}];
    always_ff @(posedge clk_i) begin
      if (write_valid_i && !write_i.symbol && write_i.length == 5'(n)) begin
        limits[{write_i.ac, write_i.number}] <= {write_i.limit[15-:n], write_i.offset};
      end
      above_q[n] <= window_i[15-:n] >= limit;
      place_q[n] <= 8'(window_i[15-:n]) + offset;
    end
  end

  logic [7:0] place;
  logic [4:0] length;
  always_comb begin
    place  = '0;
    length = '0;
    for (int n = 1; n <= 16; n++) begin
      if (above_q[n-1] && !above_q[n]) begin
        place  |= place_q[n];
        length |= 5'(n);
      end
    end
  end

  (* ram_style = "block" *) symbol_t symbols[2048];
  always_ff @(posedge clk_i) begin
    if (write_valid_i && write_i.symbol) begin
      symbols[{write_i.ac, write_i.number, write_i.index}] <= symbol_of(write_i.ac, write_i.value);
    end
    table_q  <= {ac_i, number_i};
    symbol_o <= symbols[{table_q, place}];
    length_o <= length;
    none_o   <= above_q[16];
  end

endmodule
