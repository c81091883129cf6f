// The four Huffman tables of a class (DC or AC), and the look-up of the code at the top of a window
// of 16 bits.
//
// Reference   T.81 annex C and F.2.2.3, canonical codes.
// Interface   `write_i` as the headers are read (only those of this class; `write_ready_o` low
//             while a short code is still being spread); `load_i` makes table `number_i` the one
//             that the next clock's look-ups use.
// Throughput  one look-up a clock. Codes of up to ShortBits bits are found directly by the next
//             ShortBits bits, within the clock; longer ones by comparison with the limits of all
//             lengths at once, two clocks later. What comes next in the stream depends on the
//             length found here, so each gate of the short way limits the clock of the whole
//             compute unit, and in photos only 2 to 4 % of the symbols go the long one.
// Memory      4 * 2^ShortBits short entries of 14 bits in distributed RAM and 1024 long ones in
//             block RAM.
module huffman_table
  import headrace_pkg::*;
#(
  parameter int unsigned ShortBits = 7  // 6 or more
) (
  input  logic           clk_i,
  input  logic           rst_ni,

  input  huffman_write_t write_i,
  input  logic           write_valid_i,
  output logic           write_ready_o,

  input  logic           load_i,
  input  logic [1:0]     number_i,

  input  logic [15:0]    window_i,
  output logic           short_o,        // the code has at most ShortBits bits
  output huffman_entry_t short_entry_o,  // then this is it,
  output huffman_entry_t long_entry_o,   // else this, of the window two clocks ago
  // Of the window two clocks ago: no code of the table is at its top.
  output logic           none_o,

  // A second look-up among codes of up to 6 bits, if ShortBits is 6; complete unless spreading.
  output logic           spreading_o,
  input  logic [1:0]     second_number_i,
  input  logic [5:0]     second_place_i,
  output huffman_entry_t second_entry_o
);

  localparam int unsigned GroupBits = 6;  // as many words as a LUT RAM has
  localparam int unsigned Banks     = 1 << (ShortBits - GroupBits);

  // ---- Writing ----
  // A code of n <= ShortBits bits stands at 2^(ShortBits-n) neighbouring places. The banks are
  // chosen by the low bits of the place and written together, so that even a code of one bit takes
  // only 32 clocks.
  huffman_write_t       write_q;
  logic                 write_valid_q;
  logic [ShortBits-1:0] place_q;   // next place in the short table
  // Groups of places, one in each bank, that the symbol still takes, less one.
  logic [GroupBits-1:0] groups_q, groups_d;

  huffman_entry_t     new_entry;
  logic               is_short;    // a symbol with a short code
  logic [ShortBits:0] places;      // that it takes
  logic [Banks-1:0]   bank_we;

  assign new_entry.total  = write_q.length + 5'(write_q.value[3:0]);
  assign new_entry.ends   = write_q.ac && write_q.value[3:0] == '0 && write_q.value[7:4] != 4'd15;
  assign new_entry.symbol = write_q.value;
  assign is_short         = write_q.symbol && write_q.length <= 5'(ShortBits);
  assign places           = (ShortBits + 1)'(1 << ShortBits) >> write_q.length;

  always_comb begin
    for (int unsigned b = 0; b < Banks; b++) begin
      bank_we[b] = write_valid_q && is_short &&
                   (places >= (ShortBits + 1)'(Banks) ||
                    (((ShortBits + 1)'(b) - {1'b0, place_q}) &
                      (ShortBits + 1)'(Banks - 1)) < places);
    end
    if (write_valid_i && write_ready_o) begin
      groups_d = write_i.symbol && write_i.length < 5'(GroupBits)
                 ? GroupBits'((1 << GroupBits) >> write_i.length) - 1'b1 : '0;
    end else begin
      groups_d = groups_q - GroupBits'(groups_q != '0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (write_valid_i && write_ready_o) write_q <= write_i;
    if (write_valid_i && write_ready_o && write_i.first) begin
      place_q <= '0;
    end else if (write_valid_q && is_short) begin
      place_q <= place_q +
                 (places < (ShortBits + 1)'(Banks) ? ShortBits'(places) : ShortBits'(Banks));
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_valid_q <= 1'b0;
      groups_q      <= '0;
      write_ready_o <= 1'b1;
    end else begin
      write_valid_q <= write_valid_i || !write_ready_o;
      groups_q      <= groups_d;
      write_ready_o <= groups_d == '0;
    end
  end

  // ---- Short codes ----
  huffman_entry_t [Banks-1:0] short_entries;
  logic [1:0]                 number_q;

  for (genvar b = 0; b < Banks; b++) begin : gen_bank
    (* ram_style = "distributed" *) huffman_entry_t memory[4 << GroupBits];
    always_ff @(posedge clk_i) begin
      if (bank_we[b]) memory[{write_q.number, place_q[ShortBits-1-:GroupBits]}] <= new_entry;
    end
    assign short_entries[b] = memory[{number_q, window_i[15-:GroupBits]}];
  end

  assign spreading_o = write_valid_q && is_short;
  if (ShortBits == GroupBits) begin : gen_second
    assign second_entry_o = gen_bank[0].memory[{second_number_i, second_place_i}];
  end else begin : gen_second
    assign second_entry_o = '0;
  end

  // ---- Long codes ----
  // Limits and offsets of all tables, and those of the table in use.
  (* ram_style = "distributed" *) logic [ShortBits-1:0] short_limits[4];
  logic [ShortBits-1:0]     short_limit_q;
  logic [15:0]              limit_q[ShortBits+1:16];
  logic [7:0]               offset_q[ShortBits+1:16];
  logic [17:ShortBits]      above;                     // the code is longer than n bits
  logic [7:0]               place_of[ShortBits+1:17];  // of the symbol, if the code has n bits
  assign above[ShortBits] = 1'b1;
  assign above[17]        = 1'b0;  // above all there is none, and its place does not count
  assign place_of[17]     = '0;

  always_ff @(posedge clk_i) begin
    if (write_valid_q && !write_q.symbol && write_q.length == 5'(ShortBits)) begin
      short_limits[write_q.number] <= write_q.limit[15-:ShortBits];
    end
    if (load_i) begin
      number_q      <= number_i;
      short_limit_q <= short_limits[number_i];
    end
  end

  for (genvar n = ShortBits + 1; n <= 16; n++) begin : gen_length
    (* ram_style = "distributed" *) logic [23:0] limits[4];
    always_ff @(posedge clk_i) begin
      if (write_valid_q && !write_q.symbol && write_q.length == n) begin
        limits[write_q.number] <= {write_q.limit, write_q.offset};
      end
      if (load_i) {limit_q[n], offset_q[n]} <= limits[number_i];
    end
    assign above[n]    = window_i[15-:n] >= limit_q[n][15-:n];  // it has zeros behind
    assign place_of[n] = 8'(window_i >> (16 - n)) + offset_q[n];
  end

  // Two lengths at a time.
  logic [7:0] long_place;
  always_comb begin
    long_place = '0;
    for (int n = ShortBits + 1; n <= 16; n += 2) begin
      if (above[n-1] && !above[n+1]) long_place |= above[n] ? place_of[n+1] : place_of[n];
    end
  end

  (* ram_style = "block" *) huffman_entry_t long_memory[1024];
  huffman_entry_t long_entry_q;
  logic           none_q;
  always_ff @(posedge clk_i) begin
    if (write_valid_q && write_q.symbol && !is_short) begin
      long_memory[{write_q.number, write_q.index}] <= new_entry;
    end
    long_entry_q <= long_memory[{number_q, long_place}];
    long_entry_o <= long_entry_q;  // a register at the memory's output
    none_q       <= above[16];
    none_o       <= none_q;
  end

  assign short_o       = window_i[15-:ShortBits] < short_limit_q;
  assign short_entry_o = short_entries[(window_i >> (16 - ShortBits)) & 16'(Banks - 1)];

`ifndef SYNTHESIS
  // Places of the short table that the symbols of this definition have taken, counted apart.
  logic [ShortBits+1:0] taken_q;
  logic [ShortBits:0]   taken_now;
  assign taken_now = is_short && write_valid_q
                   ? (places < (ShortBits + 1)'(Banks) ? places : (ShortBits + 1)'(Banks)) : '0;
  always_ff @(posedge clk_i) begin
    if (!rst_ni || (write_valid_i && write_ready_o && write_i.first)) taken_q <= '0;
    else taken_q <= taken_q + (ShortBits + 2)'(taken_now);
  end

  // Tables of both classes wait for each other, outside.
  a_write_when_ready: assert property (@(posedge clk_i) disable iff (!rst_ni)
    write_valid_i |-> write_ready_o);
  a_code_has_1_to_16_bits: assert property (@(posedge clk_i) disable iff (!rst_ni)
    write_valid_i |-> write_i.length inside {[5'd1:5'd16]});
  // The code of all ones is nobody's.
  a_short_codes_fit: assert property (@(posedge clk_i) disable iff (!rst_ni)
    taken_q + (ShortBits + 2)'(taken_now) < (ShortBits + 2)'(1 << ShortBits));
  a_short_code_is_written: assert property (@(posedge clk_i) disable iff (!rst_ni)
    write_valid_q && is_short |-> bank_we != '0);
  a_others_are_not: assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(write_valid_q && is_short) |-> bank_we == '0);
  a_waits_while_spreading: assert property (@(posedge clk_i) disable iff (!rst_ni)
    groups_q != '0 |-> !write_ready_o && spreading_o);

  c_code_spreads: cover property (@(posedge clk_i) disable iff (!rst_ni) groups_q != '0);
  c_code_of_1_bit: cover property (@(posedge clk_i) disable iff (!rst_ni)
    write_valid_q && write_q.symbol && write_q.length == 5'd1);
  c_code_of_16_bits: cover property (@(posedge clk_i) disable iff (!rst_ni)
    write_valid_q && write_q.symbol && write_q.length == 5'd16);
  c_table_replaced: cover property (@(posedge clk_i) disable iff (!rst_ni)
    write_valid_q && write_q.first && write_q.number == number_q);
`endif

endmodule
