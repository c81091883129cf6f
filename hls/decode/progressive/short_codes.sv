// The AC codes of up to ShortBits bits in tables 0 and 1 that need nothing but to be taken, found
// within a clock by the next ShortBits bits.
//
// Reference   T.81 annex C and F.2.2.3, canonical codes.
// Interface   `write_i` while nothing is looked up, those of AC tables; `write_ready_o` is low
//             while a code is still being spread over its places. The table `number_i` stands from
//             two clocks before a look-up on. `found_o`: one is wanted, the code at the top of the
//             window is one of these, and all short symbols of its table exist in such a scan.
// Throughput  one look-up a clock. A code of n bits takes 2^(6-n) clocks to write, one at least.
// Memory      2 * 2^ShortBits entries of 14 bits in distributed RAM.
module short_codes
  import headrace_pkg::*;
  import progressive_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  huffman_write_t write_i,
  input  logic           write_valid_i,
  output logic           write_ready_o,

  input  logic           progressive_i,  // there are runs of EOBs
  input  logic           refines_i,      // symbols of a refinement
  input  logic           wanted_i,
  input  logic [1:0]     number_i,
  input  logic [15:0]    window_i,
  output logic           found_o,
  output short_code_t    code_o
);

  localparam int unsigned GroupBits = 6;  // as many words as a LUT RAM has
  localparam int unsigned Banks     = 1 << (ShortBits - GroupBits);

  // The banks are chosen by the low bits of the place and written together.
  huffman_write_t       write_q;
  logic                 write_valid_q;
  logic [ShortBits-1:0] place_q;   // next place
  logic [GroupBits-1:0] groups_q, groups_d;  // places in each bank that are left, less one
  logic                 ac, is_short, ends;
  logic [ShortBits:0]   places;    // that the symbol takes
  logic [Banks-1:0]     bank_we;
  short_code_t          entry;

  assign ac       = write_valid_i && write_i.ac && write_ready_o;
  assign is_short = write_q.symbol && write_q.length <= 5'(ShortBits);
  assign places   = (ShortBits + 1)'(1 << ShortBits) >> write_q.length;
  assign ends     = write_q.value[3:0] == '0 && write_q.value[7:4] != 4'd15;

  always_comb begin
    entry.size  = ends ? write_q.value[7:4] : write_q.value[3:0];
    entry.total = write_q.length + 5'(entry.size);
    entry.ends  = ends;
    entry.run   = write_q.value[7:4];
    for (int unsigned b = 0; b < Banks; b++) begin
      bank_we[b] = write_valid_q && is_short &&
                   (places >= (ShortBits + 1)'(Banks) ||
                    (((ShortBits + 1)'(b) - {1'b0, place_q}) &
                      (ShortBits + 1)'(Banks - 1)) < places);
    end
    if (ac) begin
      groups_d = write_i.symbol && write_i.length < 5'(GroupBits)
                 ? GroupBits'((1 << GroupBits) >> write_i.length) - 1'b1 : '0;
    end else begin
      groups_d = groups_q - GroupBits'(groups_q != '0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (ac) write_q <= write_i;
    if (ac && write_i.first) place_q <= '0;
    else if (write_valid_q && is_short) begin
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
      write_valid_q <= ac || !write_ready_o;
      groups_q      <= groups_d;
      write_ready_o <= groups_d == '0;
    end
  end

  // A memory for each table and bank, so that one choice of four stands behind them.
  short_code_t [1:0][Banks-1:0] codes;  // [table][bank]
  for (genvar n = 0; n < 2; n++) begin : gen_table
    for (genvar b = 0; b < Banks; b++) begin : gen_bank
      (* ram_style = "distributed" *) short_code_t memory[1 << GroupBits];
      always_ff @(posedge clk_i) begin
        if (bank_we[b] && write_q.number == 2'(n)) memory[place_q[ShortBits-1-:GroupBits]] <= entry;
      end
      assign codes[n][b] = memory[window_i[15-:GroupBits]];
    end
  end

  // Behind the last short code the places hold what they held before.
  (* ram_style = "distributed" *) logic [ShortBits-1:0] limits[4];
  logic [ShortBits-1:0] limit_q;
  always_ff @(posedge clk_i) begin
    if (write_valid_q && !write_q.symbol && write_q.length == 5'(ShortBits)) begin
      limits[write_q.number] <= write_q.limit[15-:ShortBits];
    end
    limit_q <= limits[number_i];
  end

  // Whether all short symbols of a table exist in such a scan. Where one does not, none counts:
  // what is found is known without the memory.
  typedef struct packed {
    logic first;       // in the first scan of a band,
    logic refine;      // in later ones,
    logic sequential;  // and in a sequential file
  } kinds_t;
  kinds_t       kinds;     // of the symbol
  kinds_t [1:0] all_q;
  logic         usable_q;
  assign kinds.first      = write_q.value[3:0] <= 4'd10;
  assign kinds.refine     = write_q.value[3:0] <= 4'd1;
  assign kinds.sequential = kinds.first && (!ends || write_q.value[7:4] == '0);

  always_ff @(posedge clk_i) begin
    for (int unsigned n = 0; n < 2; n++) begin
      if (ac && write_i.first && write_i.number == 2'(n)) all_q[n] <= '1;
      else if (write_valid_q && is_short && write_q.number == 2'(n)) all_q[n] <= all_q[n] & kinds;
    end
    usable_q <= !number_i[1] && (refines_i ? all_q[number_i[0]].refine
                               : progressive_i ? all_q[number_i[0]].first
                               : all_q[number_i[0]].sequential);
  end

  assign code_o  = window_i[16-ShortBits] ? (number_i[0] ? codes[1][1] : codes[0][1])
                                          : (number_i[0] ? codes[1][0] : codes[0][0]);
  assign found_o = wanted_i && usable_q && window_i[15-:ShortBits] < limit_q;

endmodule
