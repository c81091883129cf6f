// The four Huffman tables of a class (DC or AC) with a look-up without a clock's latency: window of 16 bits to symbol.
//
// Reference   T.81 annex C and F.2.2.3, canonical codes.
// Interface   `write_i` as the headers are read (only those of this class; `ready_o` low while a short code is still
//             being spread); `load_i` makes table `number_i` the one that the next clock's look-ups use. An entry belongs to
//             the code at the top of `window_i`.
// Throughput  one look-up a clock. Codes of up to 8 bits are found directly by the next 8 bits; longer ones by
//             comparison with the limits of the 8 lengths, all at once. What comes next in the stream depends on the
//             length found here in the same clock, which is why this is logic and LUT RAM and not block RAM.
// Memory      per class 1024 short and 1024 long entries of 13 bits in distributed RAM.
module huffman_table
  import headrace_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  huffman_write_t write_i,
  input  logic           write_valid_i,
  output logic           write_ready_o,

  input  logic           load_i,
  input  logic [1:0]     number_i,

  input  logic [15:0]    window_i,
  output logic           short_o,        // the code has at most 8 bits
  output huffman_entry_t short_entry_o,  // then this is it,
  output huffman_entry_t long_entry_o,   // else this, which comes later
  output logic           none_o          // no code of the table is at the top of the window
);

  // ---- Writing ----
  // A code of n <= 8 bits stands at 2^(8-n) neighbouring places. Four banks by the two low bits of the place, written
  // together, so that even a code of one bit takes only 32 clocks.
  huffman_write_t write_q;
  logic           write_valid_q;
  logic [7:0]     place_q;   // next place in the short table
  logic [5:0]     groups_q;  // groups of four places that the symbol still takes, less one

  huffman_entry_t new_entry;
  logic       is_short;      // a symbol with a short code
  logic [3:0] bank_we;

  assign new_entry.total  = write_q.length + 5'(write_q.value[3:0]);
  assign new_entry.symbol = write_q.value;
  assign is_short         = write_q.symbol && write_q.length <= 5'd8;
  assign write_ready_o    = !write_valid_q || groups_q == '0;

  always_comb begin
    unique case (write_q.length)
      5'd8:    bank_we = 4'b0001 << place_q[1:0];
      5'd7:    bank_we = place_q[1] ? 4'b1100 : 4'b0011;
      default: bank_we = 4'b1111;
    endcase
    if (!write_valid_q || !is_short) bank_we = '0;
  end

  always_ff @(posedge clk_i) begin
    if (write_valid_i && write_ready_o) begin
      write_q  <= write_i;
      groups_q <= write_i.symbol && write_i.length < 5'd6 ? 6'((7'd64 >> write_i.length[2:0]) - 7'd1)
                                                          : '0;
    end else begin
      groups_q <= groups_q - 6'(groups_q != '0);
    end
    if (write_valid_i && write_ready_o && write_i.first) begin
      place_q <= '0;
    end else if (write_valid_q && is_short) begin
      place_q <= place_q + (write_q.length >= 5'd7 ? 8'd1 << (4'd8 - write_q.length[3:0]) : 8'd4);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) write_valid_q <= 1'b0;
    else write_valid_q <= (write_valid_i && write_ready_o) || (write_valid_q && !write_ready_o);
  end

  // ---- Short codes ----
  huffman_entry_t [3:0] short_entries;
  logic [1:0]   number_q;

  for (genvar b = 0; b < 4; b++) begin : gen_bank
    (* ram_style = "distributed" *) huffman_entry_t memory[256];
    always_ff @(posedge clk_i) begin
      if (bank_we[b]) memory[{write_q.number, place_q[7:2]}] <= new_entry;
    end
    assign short_entries[b] = memory[{number_q, window_i[15:10]}];
  end

  // ---- Long codes ----
  // Limits and offsets of all tables, and those of the table in use.
  (* ram_style = "distributed" *) logic [7:0] short_limits[4];
  logic [7:0] short_limit_q;
  logic [15:0] limit_q[9:16];
  logic [7:0]  offset_q[9:16];

  always_ff @(posedge clk_i) begin
    if (write_valid_q && !write_q.symbol && write_q.length == 5'd8) begin
      short_limits[write_q.number] <= write_q.limit[15:8];
    end
    if (load_i) begin
      number_q      <= number_i;
      short_limit_q <= short_limits[number_i];
    end
  end

  logic [16:9] above;          // the code is longer than n bits
  logic [7:0]  place_of[9:16]; // of the symbol, if the code has n bits
  for (genvar n = 9; n <= 16; n++) begin : gen_length
    (* ram_style = "distributed" *) logic [23:0] limits[4];
    always_ff @(posedge clk_i) begin
      if (write_valid_q && !write_q.symbol && write_q.length == n) begin
        limits[write_q.number] <= {write_q.limit, write_q.offset};
      end
      if (load_i) {limit_q[n], offset_q[n]} <= limits[number_i];
    end
    assign above[n]    = window_i >= limit_q[n];
    assign place_of[n] = window_i[16-n+:8] + offset_q[n];
  end

  logic [7:0] long_place;
  always_comb begin
    long_place = above[9] ? 8'd0 : place_of[9];
    for (int n = 10; n <= 16; n++) begin
      if (above[n-1] && !above[n]) long_place |= place_of[n];
    end
  end

  (* ram_style = "distributed" *) huffman_entry_t long_memory[1024];
  always_ff @(posedge clk_i) begin
    if (write_valid_q && write_q.symbol && !is_short) begin
      long_memory[{write_q.number, write_q.index}] <= new_entry;
    end
  end

  assign short_o       = window_i[15:8] < short_limit_q;
  assign short_entry_o = short_entries[window_i[9:8]];
  assign long_entry_o  = long_memory[{number_q, long_place}];
  assign none_o        = above[16];

endmodule
