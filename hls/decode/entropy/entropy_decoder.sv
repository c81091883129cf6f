// Entropy-coded data to coefficients: one Huffman symbol or two, codes and extra bits, every clock.
//
// Reference   T.81 F.2.2; the C++ (entropy in decode.cpp) check by check.
// Interface   table writes before; then one entropy_scan_t, then tokens up to TokenFileEnd if its
//             status is StatusOk. Out come the coefficients and a beat with `done` and the final
//             status.
// Throughput  one symbol a clock, also from block to block and from component to component; two AC
//             symbols where 8 bits tell them and the block has more than 16 coefficients to come
//             (symbol_pairs, with config_pkg::Symbols = 2). Three clocks for a code of more than 8
//             bits (DC, last coefficients of a block, tables 2 and 3: 6; with one symbol a clock:
//             7), six for a restart marker. What follows a symbol in the stream is known only with
//             its length, so the loop is look-up -> shift within a clock. Nothing else is in it:
//             that a block ends is known with the symbol, errors and the end of an interval a clock
//             later, when what was taken is dropped. Symbols and extra bits follow in stages
//             outside the loop.
// Why so      docs/notes/hardware.md; benchmarks/entropy_ways.py counts what other tables give.
// Latency     5 clocks from the bits to the coefficient.
// Bad input   the first error decides; what follows is read up to TokenFileEnd and dropped. So is
//             what follows the last MCU row that the window needs, if that is not the image's:
//             `stop_o` says that none of it is wanted.
module entropy_decoder
  import headrace_pkg::*;
  import entropy_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  huffman_write_t huffman_i,
  input  logic           huffman_valid_i,
  output logic           huffman_ready_o,

  input  entropy_scan_t  scan_i,
  input  logic           scan_valid_i,
  output logic           scan_ready_o,
  // Of the image, once `window_valid_i` is high; until the end beat.
  input  window_t        window_i,
  input  logic           window_valid_i,

  input  token_t         token_i,
  input  logic           token_valid_i,
  output logic           token_ready_o,

  output coefficient_t   coefficient_o,
  output logic           coefficient_valid_o,
  input  logic           coefficient_ready_i,

  output logic           stop_o,           // no more tokens are wanted
  output logic           busy_o,
  output logic           symbol_o,         // events for the performance counters: one or two
  output logic           second_o,         // two
  output logic           wait_data_o,
  output logic           wait_transform_o
);

  // In half bytes where nothing else is said.
  // Of the window: more than the 27 of the longest code and a DC difference.
  localparam int unsigned TopBits  = 32;
  localparam int unsigned Top      = TopBits / 4;
  localparam int unsigned Reserve  = 24;
  localparam int unsigned Whole    = Top + Reserve;
  localparam int unsigned Zero     = 7;   // what a symbol of up to 16 + 15 bits can lack
  // The first bit of count_q that says enough for a short code.
  localparam int unsigned Enough   = Top + Zero + 5;
  localparam int unsigned FifoDepth    = 32;
  localparam bit          Pairs        = config_pkg::Symbols == 2;
  // Symbols between the window and the FIFO, and two more.
  localparam int unsigned InFlight     = 7;
  localparam int unsigned Lanes        = config_pkg::Symbols;

  typedef enum logic [3:0] {
    StIdle    = 4'd0,
    StStart   = 4'd1,  // waits for the window
    StCount   = 4'd2,  // counts MCUs
    StLoad    = 4'd3,  // the tables of the first block
    StRestart = 4'd4,  // between two restart intervals: nothing but RSTn may be left
    StRest    = 4'd5,  // what is left of the file
    StEnd     = 4'd6,  // sends the end beat
    StDecode  = 4'd8   // a bit of its own, as it is part of the loop
  } state_e;
  state_e state_d, state_q;

  entropy_scan_t scan_q;
  status_e       status_d, status_q;

  // ---- Where in the image ----
  logic [2:0][2:0] blocks_less_one;  // of each component in an MCU
  logic [1:0]  last_component;
  logic [15:0] width_last, height_last_q;
  logic [12:0] across_q;        // MCUs after the first of a row
  logic [15:0] last_row_q;      // that is wanted
  logic        row_below_q;     // is needed by the last one of an MCU row
  logic        cut_q;           // it is not the image's last
  // Of 1, 2, 4 or 8.
  function automatic logic [2:0] less_one(logic [1:0] h, logic [1:0] v);
    return {(h[1] && v != '0) || (v[1] && h != '0), h[1] || v[1] || (h[0] && v[0]),
            h != '0 || v != '0};
  endfunction
  assign blocks_less_one = {less_one(scan_q.scan.chroma_h[1], scan_q.scan.chroma_v[1]),
                            less_one(scan_q.scan.chroma_h[0], scan_q.scan.chroma_v[0]),
                            less_one(scan_q.scan.h_shift, scan_q.scan.v_shift)};
  assign last_component  = scan_q.scan.color ? 2'd2 : 2'd0;
  assign width_last      = scan_q.scan.width - 16'd1;

  // The block that starts next, and the one that the symbol in the second stage is of.
  logic [2:0]  start_left_q;    // blocks after it of its component
  logic [1:0]  start_component_q;
  logic        start_last, start_fresh_q;  // it is the last of its MCU; the first of its component
  logic [1:0]  component_q;
  logic        last_q, fresh_q;

  logic [12:0] across_left_q;   // MCUs after the current one in its row
  logic [12:0] down_left_q;     // rows after its row
  logic [15:0] interval_left_q; // MCUs after it in its restart interval
  logic        fresh_interval_q; // it is the first of the interval
  logic [2:0]  restart_number_q;

  // ---- The window: next bit on top, zeros below the last ----
  // Symbols leave the top. The reserve behind it moves up by half bytes only, and `offset_q` says
  // how many bits of its first are in the top already: so what moves up into the top is chosen by a
  // single look-up table a bit, beside the Huffman tables, and new bytes can be put in without
  // knowing the next symbol's length.
  logic [TopBits-1:0]   top_q, top_held;       // held: with new bytes
  logic [4*Reserve-1:0] reserve_q, reserve_held;
  logic [TopBits-1:0]   next;                  // the word behind the top
  logic [1:0]           offset_q;
  // How much is in the window, what is in both counted twice: bit n + Zero is set if there are n
  // half bytes. Below zero behind a symbol that had too few bits. A bit for each number, so that it
  // moves as the reserve does, without an adder.
  logic [Whole+Zero:0]  count_q, count_held;
  logic                 take_data;             // a data token goes into the window
  logic                 stopped;               // no more data before what token_i is
  logic                 decoding, empty;
  // Decoding, with room; decoding or about to: registers of their own, for the loop.
  logic                 go_q, takes_q;
  logic                 space_q;               // there was for two bytes, even had no symbol left
  // The token is the marker that is due; the last, and what is left is known.
  logic                 restart, file_end;

  assign decoding   = state_q[3];
  assign empty      = state_q == StStart || state_q == StRestart;
  assign stopped    = token_valid_i && token_i.kind != TokenData;
  assign take_data  = takes_q && space_q && token_valid_i && token_i.kind == TokenData;
  assign count_held = empty      ? (Whole + Zero + 1)'(1 << Zero) :
                      !take_data ? count_q : token_i.two ? count_q << 4 : count_q << 2;

  logic [15:0] new_bits;
  assign new_bits = {token_i.data[15:8], token_i.two ? token_i.data[7:0] : 8'd0};
  always_comb begin
    {top_held, reserve_held} = empty ? '0 : {top_q, reserve_q};
    for (int unsigned i = 0; i < Whole; i++) begin
      logic [3:0] part;
      part = '0;
      for (int unsigned j = 0; j < 4; j++) begin
        if (count_q[i-j+Zero]) part |= new_bits[15-4*j-:4];
      end
      if (take_data && i < Top) top_held[TopBits-1-4*i-:4] |= part;
      if (take_data && i >= Top) reserve_held[4*(Whole-1-i)+:4] |= part;
    end
  end

  assign next = offset_q[1]
              ? (offset_q[0] ? reserve_q[4*Reserve-4-:TopBits] : reserve_q[4*Reserve-3-:TopBits])
              : (offset_q[0] ? reserve_q[4*Reserve-2-:TopBits] : reserve_q[4*Reserve-1-:TopBits]);

  // ---- First stage: look up, shift ----
  logic       issue;            // a symbol is taken
  logic       is_dc_q;          // it is a DC one
  logic           short_dc, short_ac, none_dc, none_ac;
  logic           steps;        // what is taken is what symbol_pairs says
  logic           usable;       // it has the table
  step_t          step;
  pair_t          pair;         // of the clock before
  // That the reserve moves by, behind whole bytes; three say that no symbol is taken.
  logic [1:0]     halves;
  huffman_entry_t short_entry_dc, short_entry_ac, long_entry_dc, long_entry_ac;
  huffman_entry_t other_entry;  // of a single symbol
  logic [4:0]     total;        // bits of what is taken
  logic           ends;         // it says that the block ends
  logic       is_short;
  logic       seek_q, long_q;   // the code is a long one: its second clock, its third
  logic       load_dc, load_ac;
  logic       ready_dc, ready_ac;
  logic       enough, enough_long, room, room_q;

  // For symbol_pairs.
  logic           spreading, second_number;
  logic [5:0]     second_place;
  huffman_entry_t second_entry;

  huffman_table #(
    .ShortBits(6)
  ) u_dc (
    .clk_i, .rst_ni,
    .write_i      (huffman_i),
    .write_valid_i(huffman_valid_i && !huffman_i.ac),
    .write_ready_o(ready_dc),
    .load_i       (load_dc),
    .number_i     (scan_q.dc[start_component_q]),
    .window_i     (top_q[TopBits-1-:16]),
    .short_o      (short_dc),
    .short_entry_o(short_entry_dc),
    .long_entry_o (long_entry_dc),
    .none_o       (none_dc),
    .spreading_o  (),
    .second_number_i('0),
    .second_place_i ('0),
    .second_entry_o ()
  );
  huffman_table #(
    .ShortBits(Pairs ? 6 : 7)
  ) u_ac (
    .clk_i, .rst_ni,
    .write_i      (huffman_i),
    .write_valid_i(huffman_valid_i && huffman_i.ac),
    .write_ready_o(ready_ac),
    .load_i       (load_ac),
    .number_i     (scan_q.ac[start_component_q]),
    .window_i     (top_q[TopBits-1-:16]),
    .short_o      (short_ac),
    .short_entry_o(short_entry_ac),
    .long_entry_o (long_entry_ac),
    .none_o       (none_ac),
    .spreading_o  (spreading),
    .second_number_i({1'b0, second_number}),
    .second_place_i (second_place),
    .second_entry_o (second_entry)
  );
  assign huffman_ready_o = ready_ac && ready_dc;

  if (Pairs) begin : gen_pairs
    symbol_pairs u_pairs (
      .clk_i, .rst_ni,
      .write_i       (huffman_i),
      .write_valid_i (huffman_valid_i && huffman_i.ac),
      .spreading_i   (spreading),
      .short_number_o(second_number),
      .short_place_o (second_place),
      .short_entry_i (second_entry),
      .load_i        (load_ac),
      .number_i      (scan_q.ac[start_component_q]),
      .window_i      (top_q[TopBits-1-:PairBits]),
      .usable_o      (usable),
      .step_o        (step),
      .pair_o        (pair)
    );
  end else begin : gen_single
    assign {second_number, second_place, usable, step, pair} = '0;
  end

  // The top must stay full while there are data. What is short has at most MaxTotal bits, else it
  // is an error.
  assign is_short = steps ? step.found : is_dc_q ? short_dc : short_ac;
  assign issue    = go_q && (long_q ? enough_long : is_short && enough);

  assign other_entry = long_q  ? (is_dc_q ? long_entry_dc : long_entry_ac)
                               : (is_dc_q ? short_entry_dc : short_entry_ac);
  assign total       = steps ? step.total : other_entry.total;
  assign ends        = steps ? step.ends : other_entry.ends;

  // Whether it will be is worked out for every length beside the look-up.
  // So many are in the window; long: if no symbol was taken in the clock before.
  logic       filled_q, filled_long_q;
  logic [8:0] filled;                   // [n]: they will be when it moves by n halves
  logic [2:0] filled_by_8;
  assign enough      = filled_q || stopped;
  assign enough_long = filled_long_q || stopped;
  always_comb begin
    for (int unsigned n = 0; n <= 8; n++) begin
      filled[n] = !take_data ? (count_q >> (Enough + n)) != '0 :
                  token_i.two ? (count_q >> (Enough + n - 4)) != '0
                              : (count_q >> (Enough + n - 2)) != '0;
    end
    for (int unsigned n = 0; n <= 2; n++) begin
      filled_by_8[n] = total[4] ? (total[3] ? filled[n+6] : filled[n+4])
                                      : (total[3] ? filled[n+2] : filled[n]);
    end
  end
  always_ff @(posedge clk_i) begin
    filled_q      <= halves[1] ? (halves[0] ? filled[0] : filled_by_8[2])
                   : (halves[0] ? filled_by_8[1] : filled_by_8[0]);
    filled_long_q <= filled[3];
  end

  // Shift by up to 31 in three steps of at most four choices, each one look-up table deep.
  logic [TopBits+6:0] by_8;
  logic [TopBits:0]   by_2;
  assign by_8 = total[4]
              ? (total[3] ? {top_q[7:0], next[31-:31]}  : {top_q[15:0], next[31-:23]})
              : (total[3] ? {top_q[23:0], next[31-:15]} : {top_q, next[31-:7]});
  assign by_2 = total[2] ? (total[1] ? by_8[32-:33] : by_8[34-:33])
                               : (total[1] ? by_8[36-:33] : by_8[38-:33]);

  // The reserve moves with it by whole bytes, then by up to two halves more, where one may end
  // within the last two bits.
  logic [4*Reserve-1:0] reserve_by_8;
  logic [Whole+Zero:0]  count_by_8;
  logic [1:0]           offset;
  logic                 half_ends;           // it ends
  assign reserve_by_8 = total[4] ? (total[3] ? reserve_held << 24 : reserve_held << 16)
                                       : (total[3] ? reserve_held << 8 : reserve_held);
  assign count_by_8   = total[4] ? (total[3] ? count_held >> 6 : count_held >> 4)
                                       : (total[3] ? count_held >> 2 : count_held);
  // An adder of two bits, written out so that it becomes no carry chain.
  assign offset = {offset_q[1] ^ total[1] ^ (offset_q[0] && total[0]),
                   offset_q[0] ^ total[0]};
  assign half_ends = (offset_q[1] && total[1]) ||
                     (offset_q[0] && total[0] && (offset_q[1] || total[1]));
  assign halves = !issue ? 2'd3 : {half_ends && total[2], half_ends != total[2]};

  always_ff @(posedge clk_i) begin
    top_q     <= !issue ? top_held : total[0] ? by_2[31:0] : by_2[32:1];
    reserve_q <= halves[1] ? (halves[0] ? reserve_held : reserve_by_8 << 8)
               : (halves[0] ? reserve_by_8 << 4 : reserve_by_8);
    count_q   <= halves[1] ? (halves[0] ? count_held : count_by_8 >> 2)
               : (halves[0] ? count_by_8 >> 1 : count_by_8);
    offset_q  <= issue ? offset : empty ? 2'd0 : offset_q;
    space_q   <= count_held[Whole+Zero-:4] == '0;
  end

  typedef struct packed {
    logic               pair;    // symbol_pairs tells the symbols: what is here is of both
    logic               bad;     // it says that they are an error
    logic [3:0]         run;
    logic [3:0]         size;    // of a single one
    logic [4:0]         total;
    logic               ends;
    logic               last;    // of its block
    logic               none;
    logic               dc;
    // Bits were in the window, with those that came with it,
    logic               below_8, below_16;
    logic [2:0]         begun;   // its first byte lacked so many,
    logic [TopBits-1:0] window;  // this was its top,
    logic               more;    // and whether one of the next word is 1
  } taken_t;
  taken_t s1_q;                 // the symbol in the second stage
  logic   s1_valid_q, s1_counts;

  // The block ends with this symbol: it says so, or its run is what is missing to the 63rd
  // coefficient. What comes next is then a DC symbol.
  logic [6:0] k_q;              // index behind the symbols in front of the one in the second stage
  logic [6:0] k_run, k_next;    // of that one's coefficient; behind it
  logic       last;
  assign k_run  = k_q + 7'(s1_q.run);
  assign k_next = s1_valid_q ? k_run + 7'd1 : k_q;
  // The block must go on behind the next 16 coefficients: without an adder, from what is known of
  // the symbol in the second stage.
  assign steps = usable && !is_dc_q && !long_q &&
                 (!k_q[5] || (!k_q[4] && !k_q[3] && !s1_q.run[3]));
  assign last   = !is_dc_q && (ends || (!steps && k_next[5:4] == 2'b11 &&
                                        other_entry.symbol[7:4] == ~k_next[3:0]));

  always_ff @(posedge clk_i) begin
    if (state_q == StLoad) is_dc_q <= 1'b1;
    else if (issue) is_dc_q <= last;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) {seek_q, long_q} <= '0;
    else begin
      seek_q <= decoding && enough && !is_short && !issue && !long_q;
      long_q <= decoding && (seek_q || long_q) && !issue;
    end
  end

  // ---- Second stage: position, end of the block, errors ----
  // Whether this symbol was the last of its interval, or wrong, is seen when the next may have been
  // taken: that one does not count, and these registers keep what there was in front of it.
  logic odd;                     // half bytes
  always_comb begin
    odd = 1'b0;
    for (int unsigned n = 1; n <= Whole; n += 2) odd |= count_q[n+Zero];
  end

  always_ff @(posedge clk_i) begin
    if (decoding) begin
      s1_q.pair   <= steps;
      s1_q.bad    <= steps && step.bad;
      s1_q.run    <= steps ? step.run : other_entry.symbol[7:4];  // DC: 0
      s1_q.size   <= steps ? 4'd0 : other_entry.symbol[3:0];
      s1_q.total  <= total;
      s1_q.ends   <= ends;
      s1_q.last   <= last;
      s1_q.none   <= long_q && (is_dc_q ? none_dc : none_ac);
      s1_q.dc     <= is_dc_q;
      s1_q.below_8  <= count_held[Zero+1:Zero] != '0 || (count_held[Zero+2] && offset_q != '0);
      s1_q.below_16 <= count_held[Zero+3:Zero] != '0 || (count_held[Zero+4] && offset_q != '0);
      s1_q.begun    <= {odd, offset_q};
      s1_q.window <= top_q;
      s1_q.more   <= next != '0;
    end
  end
  assign s1_counts = s1_valid_q && decoding;

  logic       mcu_done, interval_done, image_done;
  logic       lacks_code, lacks_bits;
  logic       error;
  status_e    error_status, stop_status;
  assign mcu_done      = s1_q.last && last_q;
  assign image_done    = mcu_done && across_left_q == '0 && down_left_q == '0;
  assign interval_done = mcu_done && scan_q.restart_interval != '0 && interval_left_q == '0;

  assign stop_status = token_i.kind == TokenRestart ? StatusRestartMismatch
                                                    : status_e'(token_i.data[7:0]);
  // The window is by now that behind the symbol. Less than no bits: its bits were too few; less
  // than none with its extra bits put back: those of its code, too.
  logic [1:0] short_of;          // half bytes below zero, if less than four
  assign short_of   = {count_q[Zero-2] || count_q[Zero-3], count_q[Zero-1] || count_q[Zero-3]};
  assign lacks_bits = count_q[Zero-1:0] != '0 || (count_q[Zero] && offset_q != '0);
  assign lacks_code = count_q[Zero-4:0] != '0 ||
                      (count_q[Zero-:4] != '0 && s1_q.size < {short_of, offset_q});
  always_comb begin
    error        = 1'b1;
    error_status = StatusCorruptHuffman;
    if (s1_q.none) begin
      if (s1_q.below_16) error_status = stop_status;
    end else if (lacks_code) begin
      error_status = stop_status;
    end else if (s1_q.bad || s1_q.size > (s1_q.dc ? 4'd11 : 4'd10)) begin
      // beyond what 8-bit samples need
    end else if (lacks_bits) begin
      error_status = stop_status;
    end else if (!s1_q.ends && k_run > 7'd63) begin
      // beyond the block
    end else begin
      error = 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) s1_valid_q <= 1'b0;
    else s1_valid_q <= issue;
  end

  // A block has a DC symbol and at least one AC symbol. With the DC symbol its AC table is brought
  // up, and in the clock after it the DC table of the next block, which can start one clock later.
  logic [1:0] next_component;    // behind the last of one
  assign load_ac    = issue && is_dc_q;
  assign load_dc    = state_q == StLoad || (s1_valid_q && s1_q.dc);
  assign start_last = start_left_q == '0 && start_component_q == last_component;
  assign next_component = start_component_q == last_component ? 2'd0 : start_component_q + 1'b1;

  always_ff @(posedge clk_i) begin
    if (empty) begin
      start_left_q      <= blocks_less_one[0];
      start_component_q <= '0;
      start_fresh_q     <= 1'b1;
    end else if (load_ac) begin
      start_left_q      <= start_left_q == '0 ? blocks_less_one[next_component]
                         : start_left_q - 1'b1;
      start_fresh_q     <= start_left_q == '0;
      if (start_left_q == '0) start_component_q <= next_component;
      component_q       <= start_component_q;
      last_q            <= start_last;
      fresh_q           <= start_fresh_q;
    end

    last_row_q <= window_i.last_row >= height_last_q ? height_last_q
                                                     : window_i.last_row + 16'(row_below_q);
    if (state_q == StCount) begin
      across_q         <= 13'(width_last >> (3'd3 + 3'(scan_q.scan.h_shift)));
      across_left_q    <= 13'(width_last >> (3'd3 + 3'(scan_q.scan.h_shift)));
      down_left_q      <= last_row_q[15:3] >> scan_q.scan.v_shift;
      cut_q            <= last_row_q[15:5] != height_last_q[15:5] ||
                          (!scan_q.scan.v_shift[1] && last_row_q[4] != height_last_q[4]) ||
                          (scan_q.scan.v_shift == '0 && last_row_q[3] != height_last_q[3]);
      restart_number_q <= '0;
    end
    if (state_q == StLoad) begin
      k_q              <= '0;
      interval_left_q  <= scan_q.restart_interval - 1'b1;
      fresh_interval_q <= 1'b1;
    end else if (s1_counts) begin
      k_q <= s1_q.last ? 7'd0 : k_run + 7'd1;
      if (mcu_done) begin
        across_left_q    <= across_left_q == '0 ? across_q : across_left_q - 1'b1;
        if (across_left_q == '0) down_left_q <= down_left_q - 1'b1;
        interval_left_q  <= interval_left_q - 1'b1;
        fresh_interval_q <= 1'b0;
      end
    end
    if (restart) restart_number_q <= restart_number_q + 1'b1;
  end

  // What is left behind the last symbol: less than a byte, the padding, is not looked at.
  logic rest_q, rest_known_q, rest_token;
  always_ff @(posedge clk_i) begin
    rest_known_q <= state_q == StRest;
    rest_q       <= state_q == StRest &&
                    ((s1_q.window & ('1 >> (3'd0 - s1_q.begun))) != '0 || s1_q.more ||
                     next != '0 || reserve_q[4*Reserve-TopBits-1:0] != '0);
  end

  // ---- Third to fifth stage: place, extra bits, sign, prediction ----
  // A symbol becomes one coefficient: ZRL a zero 15 places on, EOB a zero in the last place. EOB
  // behind another symbol needs none.
  typedef struct packed {
    logic       ends;
    logic       last;
    logic       dc;
    logic       fresh;      // DC: the first of its component in a restart interval
    logic [1:0] component;
    logic       two;        // symbols
  } place_t;
  place_t s2_q, s3_q, s4_q;
  logic   s2_valid_q, s3_valid_q, s4_valid_q;
  symbol_t [Lanes-1:0]      s2_symbol_q, s3_symbol_q;
  logic [5:0]               s2_k_q, s3_k_q;       // behind the symbols before; of the first
  logic [26:0]              s2_window_q;
  logic [Lanes-1:0][10:0]   s3_bits_q;
  logic [1:0][5:0]          s4_k_q;
  logic [1:0][15:0]         s4_value_q;
  logic [15:0]              s4_sum;
  logic [2:0][15:0]         predictor_q;

  // T.81 F.2.2.1, EXTEND: the first of the extra bits is the inverted sign. Below zero, 2^size - 1
  // is taken from it: ones in front, and one more.
  function automatic logic [15:0] extend(logic [10:0] bits, logic [3:0] size);
    logic        negative;
    logic [10:0] extra;
    negative = !bits[10] && size != '0;
    extra    = bits >> (4'd11 - size);
    return (16'(extra) | (negative ? 16'hFFFF << size : 16'd0)) + 16'(negative);
  endfunction

  assign s4_sum = !s4_q.dc || s4_q.fresh ? s4_value_q[0]
                : s4_value_q[0] + predictor_q[s4_q.component];

  always_ff @(posedge clk_i) begin
    s2_q <= '{ends: s1_q.ends, last: s1_q.last, dc: s1_q.dc, fresh: fresh_q && fresh_interval_q,
              component: component_q, two: s1_q.pair && pair.two};
    s2_k_q         <= k_q[5:0];
    s2_symbol_q[0] <= s1_q.pair ? pair.first
                    : '{length: s1_q.total - 5'(s1_q.size), run: s1_q.run, size: s1_q.size};
    s2_window_q    <= s1_q.window[TopBits-1-:27];
    s3_q           <= s2_q;
    s3_symbol_q    <= s2_symbol_q;
    s3_k_q         <= s2_q.ends && s2_symbol_q[0].size == '0 ? 6'd63
                    : s2_k_q + 6'(s2_symbol_q[0].run);
    s4_q           <= s3_q;
    s4_k_q[0]      <= s3_k_q;
    for (int unsigned i = 0; i < Lanes; i++) begin
      s3_bits_q[i]  <= 11'((s2_window_q << s2_symbol_q[i].length) >> 16);
      s4_value_q[i] <= extend(s3_bits_q[i], s3_symbol_q[i].size);
    end
    if (s4_valid_q && s4_q.dc) predictor_q[s4_q.component] <= s4_sum;
  end

  if (Pairs) begin : gen_second
    always_ff @(posedge clk_i) begin
      s2_symbol_q[1] <= pair.second;
      s4_k_q[1]      <= s3_k_q + 6'(s3_symbol_q[1].run) + 6'd1;
    end
  end else begin : gen_second
    assign {s4_k_q[1], s4_value_q[1]} = '0;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      s2_valid_q <= 1'b0;
      s3_valid_q <= 1'b0;
      s4_valid_q <= 1'b0;
    end else begin
      s2_valid_q <= s1_counts && !error;
      s3_valid_q <= s2_valid_q;
      s4_valid_q <= s3_valid_q;
    end
  end

  coefficient_t new_coefficient;
  logic         end_beat, fifo_ready;
  logic [$clog2(FifoDepth):0] fifo_count;

  assign end_beat = state_q == StEnd && !s1_valid_q && !s2_valid_q && !s3_valid_q && !s4_valid_q;
  assign new_coefficient = '{done: end_beat, status: end_beat ? status_q : StatusOk,
                             quant: scan_q.quant[s4_q.component], last: s4_q.last,
                             two: !end_beat && s4_q.two && !s4_q.ends,
                             value: {s4_value_q[1], s4_sum}, index: s4_k_q};
  assign room = fifo_count <= 6'(FifoDepth - InFlight);

  stream_fifo #(
    .Width($bits(coefficient_t)),
    .Depth(FifoDepth)
  ) u_coefficients (
    .clk_i, .rst_ni,
    .data_i (new_coefficient),
    .valid_i(s4_valid_q || end_beat),
    .ready_o(fifo_ready),
    .data_o (coefficient_o),
    .valid_o(coefficient_valid_o),
    .ready_i(coefficient_ready_i),
    .count_o(fifo_count)
  );

  // ---- Control ----
  assign scan_ready_o  = state_q == StIdle;
  assign file_end      = state_q == StRest && rest_known_q && token_valid_i &&
                         token_i.kind == TokenFileEnd;
  assign restart       = state_q == StRestart && token_valid_i && token_i.kind == TokenRestart &&
                         token_i.data[2:0] == restart_number_q && s1_q.below_8;
  assign rest_token    = token_valid_i && token_i.kind == TokenData &&
                         (token_i.data[15:8] != '0 || (token_i.two && token_i.data[7:0] != '0));
  assign token_ready_o = take_data || restart || file_end ||
                         (state_q == StRest && token_i.kind != TokenFileEnd);

  always_comb begin
    state_d  = state_q;
    status_d = status_q;
    unique case (state_q)
      StIdle: if (scan_valid_i) begin
        status_d = scan_i.status;
        state_d  = scan_i.status == StatusOk ? StStart : StEnd;
      end
      StStart: if (window_valid_i) state_d = StCount;
      StCount: state_d = StLoad;
      StLoad:  state_d = StDecode;
      StDecode: if (s1_counts && error) begin
        status_d = error_status;
        state_d  = StRest;
      end else if (s1_counts && image_done) begin
        state_d = StRest;
      end else if (s1_counts && interval_done) begin
        state_d = StRestart;
      end
      StRestart: if (token_valid_i) begin
        state_d = StRest;
        if (s1_q.below_8 && token_i.kind == TokenScanEnd) begin
          status_d = status_e'(token_i.data[7:0]);
        end else if (restart) begin
          state_d = StLoad;
        end else begin
          status_d = StatusRestartMismatch;
        end
      end
      StRest: begin
        // Padding of less than a byte may be left, bytes 0 and restart markers.
        if (status_q == StatusOk && !cut_q) begin
          if (rest_q || rest_token) status_d = StatusCorruptHuffman;
          else if (file_end) status_d = status_e'(token_i.data[7:0]);
        end
        if (file_end) state_d = StEnd;
      end
      StEnd: if (end_beat && fifo_ready) state_d = StIdle;
      default: state_d = StIdle;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
      go_q    <= 1'b0;
      takes_q <= 1'b0;
    end else begin
      state_q <= state_d;
      go_q    <= state_d == StDecode && room;
      takes_q <= state_d == StDecode || state_d == StLoad;
    end
  end
  always_ff @(posedge clk_i) begin
    status_q <= status_d;
    room_q   <= room;
    if (scan_valid_i && scan_ready_o) begin
      scan_q        <= scan_i;
      height_last_q <= scan_i.scan.height - 16'd1;
      row_below_q   <= needs_row_below(scan_i.scan);
    end
  end

  assign stop_o           = state_q == StRest && cut_q;
  assign busy_o           = state_q != StIdle;
  assign symbol_o         = s2_valid_q;
  assign second_o         = s2_valid_q && s2_q.two;
  assign wait_data_o      = decoding && !enough;
  assign wait_transform_o = decoding && enough && !room_q;

`ifndef SYNTHESIS
  a_filled: assert property (@(posedge clk_i) disable iff (!rst_ni)
      decoding |-> filled_q == ((count_q >> Enough) != '0) &&
                   (!long_q || filled_long_q == ((count_q >> (Enough + 3)) != '0)));
  a_fifo_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
      s4_valid_q |-> fifo_ready);
  a_top_is_full: assert property (@(posedge clk_i) disable iff (!rst_ni)
    issue && !stopped |=> count_q[Whole+Zero:Top+Zero] != '0 || error);
  a_one_count: assert property (@(posedge clk_i) disable iff (!rst_ni)
      decoding |-> $onehot0(count_q));
`endif

endmodule
