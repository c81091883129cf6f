// One scan: entropy-coded data and the words of its band as earlier scans left them, to the same
// words behind it.
//
// Reference   T.81 annexes F and G; the C++ (decode_blocks in progressive.cpp) check by check.
// Interface   Huffman tables while idle; `start_i` for a clock, with `scan_i` stable until
//             `done_o`, which comes for a clock with the status behind the token that ends the
//             scan. For each block of the pass come its words, unless the scan is the first of its
//             coefficients, and words leave; behind the last word of a block its number.
// Throughput  a clock for each word. A clock for an AC symbol with a short code, and another if it
//             has 16 bits or more: where a word has coefficients of earlier scans, one for the
//             symbol and one for its place, with all the correction bits before that. Four for
//             another AC symbol, a block with a DC symbol takes seven, or eight where eight words
//             are written.
// Stages      the window and the machine count zeros and coefficients of a word, but do not know
//             its places. Changes follow in five stages to the word itself, and it waits for the
//             writer.
// Bad input   the first error decides. The block that it is in is filled up, with anything; what
//             follows in the scan is read and dropped.
module band_decoder
  import headrace_pkg::*;
  import progressive_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  huffman_write_t huffman_i,
  input  logic           huffman_valid_i,
  output logic           huffman_ready_o,

  input  logic           start_i,
  input  logic           skip_i,          // with `start_i`: read and drop the scan
  input  band_scan_t     scan_i,
  output logic           done_o,
  output status_e        status_o,

  input  token_t         token_i,
  input  logic           token_valid_i,
  output logic           token_ready_o,

  input  block_t         block_i,
  input  logic           block_valid_i,
  output logic           block_ready_o,

  input  word_t          word_i,
  input  logic           word_valid_i,
  output logic           word_ready_o,

  output logic [127:0]   word_o,
  output logic           word_valid_o,
  input  logic           word_ready_i,
  output logic [BlockBits-1:0] written_o,  // the number of a block whose words have all left
  output logic           written_valid_o,
  input  logic           written_ready_i,

  output logic           symbol_o,         // events for the performance counters
  output logic           wait_data_o       // for bits of the file or words of the workspace
);

  localparam int unsigned WindowBits = 48;
  localparam int unsigned Longest    = 16 + 14;  // a code and the bits of an EOB run
  // A short code and the bits of an EOB run are 21.
  localparam int unsigned Short      = 24;
  localparam int unsigned Leaving    = 16;       // words between the machine and the writer
  localparam int unsigned Values     = 16;       // words between the reader and their last stage

  // Bits of the state: one is set.
  localparam int unsigned StIdle    = 0;
  localparam int unsigned StBlock   = 1;   // before a block with a DC symbol, behind an interval
  localparam int unsigned StWork    = 2;   // AC symbols, and corrections
  localparam int unsigned StSeek    = 3;   // the window stands for a look-up in all codes,
  localparam int unsigned StRead    = 4;   // the symbol is there and its code leaves the window,
  localparam int unsigned StTake    = 5;   // then its extra bits
  localparam int unsigned StFlush   = 6;   // behind an error: the other words of the block
  // Between two restart intervals: nothing but RSTn may be left.
  localparam int unsigned StRestart = 7;
  localparam int unsigned StRest    = 8;   // the rest of the scan
  localparam int unsigned States    = 9;

  function automatic logic [States-1:0] only(int unsigned state);
    return States'(1) << state;
  endfunction

  logic [States-1:0] state_d, state_q;

  // ---- What the scan is like, a clock after `scan_i` ----
  logic        refines_q, corrects_dc_q;
  logic        has_dc_q;        // each block begins with a DC symbol
  logic [15:0] interval_q;      // MCUs behind the first of a restart interval
  logic        first_scan_q;    // of its components: nothing is read, and whole blocks are written
  logic [2:0]  first_word_q, end_word_q;  // of the band
  logic        one_word_q;      // the band is in one word
  logic [2:0]  fill_words_q;    // words of zeros behind the band's
  logic [7:0]  first_mask_q, end_mask_q;  // the AC coefficients of the band in these
  logic [15:0] plus_q, minus_q; // the bit that the scan adds
  always_ff @(posedge clk_i) begin
    interval_q    <= scan_i.restart_interval - 1'b1;
    refines_q     <= scan_i.high != '0;
    first_scan_q  <= scan_i.first == '0 && scan_i.high == '0;
    has_dc_q      <= scan_i.first == '0 && scan_i.high == '0;
    corrects_dc_q <= scan_i.first == '0 && scan_i.high != '0;
    first_word_q  <= scan_i.first[5:3];
    end_word_q    <= scan_i.last[5:3];
    one_word_q    <= scan_i.first[5:3] == scan_i.last[5:3];
    fill_words_q  <= first_scan_q ? 3'd7 - scan_i.last[5:3] : 3'd0;
    first_mask_q  <= scan_i.first == '0 ? 8'hFE : 8'hFF << scan_i.first[2:0];
    end_mask_q    <= 8'hFF >> (3'd7 - scan_i.last[2:0]);
    plus_q        <= 16'd1 << scan_i.low;
    minus_q       <= 16'hFFFF << scan_i.low;
  end

  // Shifts as rows of multiplexers. Synthesis would let several shifts take turns at one shifter,
  // which makes a long path of what chooses between them.
  function automatic logic [WindowBits-1:0] left(logic [WindowBits-1:0] value, logic [3:0] by);
    logic [WindowBits-1:0] by_1;
    by_1 = by[1] ? (by[0] ? value << 3 : value << 2) : (by[0] ? value << 1 : value);
    return by[3] ? (by[2] ? by_1 << 12 : by_1 << 8) : (by[2] ? by_1 << 4 : by_1);
  endfunction
  // The same in another order. Of two shifts alike, or two differences, synthesis would make one
  // behind the choice.
  function automatic logic [WindowBits-1:0] left_down(logic [WindowBits-1:0] value,
                                                      logic [4:0] by);
    logic [WindowBits-1:0] by_16, by_4;
    by_16 = by[4] ? value << 16 : value;
    by_4  = by[3] ? (by[2] ? by_16 << 12 : by_16 << 8) : (by[2] ? by_16 << 4 : by_16);
    return by[1] ? (by[0] ? by_4 << 3 : by_4 << 2) : (by[0] ? by_4 << 1 : by_4);
  endfunction
  function automatic logic [31:0] right(logic [31:0] value, logic [4:0] by);
    logic [31:0] shifted;
    shifted = value;
    for (int unsigned i = 0; i < 5; i++) if (by[i]) shifted = shifted >> (1 << i);
    return shifted;
  endfunction

  // ---- The window: next bit on top, zeros below the last ----
  logic [WindowBits-1:0] window_q, filled;
  logic [6:0]  bits_q;          // negative in StTake: the data ended within the code
  logic [6:0]  filled_bits;
  logic        stopped;         // no more data before what token_i is
  logic        may_take, take_data;
  logic        look_now, look;  // a short code is looked up, and taken,
  short_code_t code;            // this
  logic        use_bits;        // so many correction bits are taken
  logic [3:0]  corrections;
  logic        restarted;       // RSTn is as it should be
  logic        rest_end;        // the scan's last token
  logic [4:0]  length;          // of the code, in StRead
  logic [3:0]  extra_q;         // in StTake, else none
  logic [4:0]  other;           // bits that leave, but for those of a short code
  logic        sixteen_q;       // bits of one of 16 and more, which leave a clock later

  // A token waits for a clock, with zeros behind a single byte.
  token_t token;
  logic   token_valid, token_ready, token_room;
  assign token_ready_o = token_room && !state_q[StIdle];
  stream_register #(
    .Width($bits(token_t))
  ) u_token (
    .clk_i, .rst_ni,
    .data_i ({token_i.kind, token_i.two, token_i.data[15:8],
              token_i.data[7:0] & {8{token_i.two || token_i.kind != TokenData}}}),
    .valid_i(token_valid_i && !state_q[StIdle]),
    .ready_o(token_room),
    .data_o (token),
    .valid_o(token_valid),
    .ready_i(token_ready)
  );

  assign stopped   = token_valid && token.kind != TokenData;
  // Not beside a look-up in the short codes: both would be a long path.
  assign may_take  = !state_q[StIdle] && !state_q[StRestart] && !state_q[StRest] &&
                     token_valid && token.kind == TokenData &&
                     !bits_q[6] && (!bits_q[5] || bits_q[4:0] == '0);  // 32, WindowBits - 16
  assign take_data = may_take && !look_now;

  logic [WindowBits-1:0] entering, entering_by_1, entering_by_4;
  assign entering      = {token.data, 32'd0};
  assign entering_by_1 = bits_q[1] ? (bits_q[0] ? entering >> 3 : entering >> 2)
                                   : (bits_q[0] ? entering >> 1 : entering);
  assign entering_by_4 = bits_q[3] ? (bits_q[2] ? entering_by_1 >> 12 : entering_by_1 >> 8)
                                   : (bits_q[2] ? entering_by_1 >> 4 : entering_by_1);
  assign filled        = !may_take ? window_q : window_q |
                         (bits_q[5] ? entering_by_4 >> 32
                                    : bits_q[4] ? entering_by_4 >> 16 : entering_by_4);
  assign filled_bits = bits_q + (!may_take ? 7'd0 : token.two ? 7'd16 : 7'd8);
  assign other       = state_q[StRead] ? length
                     : {sixteen_q, extra_q | (corrections & {4{use_bits}})};

  always_ff @(posedge clk_i) begin
    if (state_q[StIdle] || restarted) begin
      window_q <= '0;
      bits_q   <= '0;
    end else if (look) begin
      window_q <= left(window_q, code.total[3:0]);
      bits_q   <= bits_q - 7'(code.total[3:0]);
    end else if (!look_now) begin
      window_q <= left_down(filled, other);
      bits_q   <= filled_bits + {2'b11, ~other} + 7'd1;
    end
    sixteen_q <= look && code.total[4];
  end

  // ---- Symbols ----
  logic       sequential_q;
  logic       ac_q;             // the table of the next symbol
  logic [1:0] table_q, ac_table_q;
  logic       none;
  symbol_t    symbol;

  huffman_search u_search (
    .clk_i,
    .write_i      (huffman_i),
    .write_valid_i(huffman_valid_i),
    .ac_i         (ac_q),
    .number_i     (table_q),
    .window_i     (window_q[WindowBits-1-:16]),
    .length_o     (length),
    .none_o       (none),
    .symbol_o     (symbol)
  );

  short_codes u_short (
    .clk_i, .rst_ni,
    .write_i      (huffman_i),
    .write_valid_i(huffman_valid_i),
    .write_ready_o(huffman_ready_o),
    .progressive_i(!sequential_q),
    .refines_i    (refines_q),
    .wanted_i     (look_now),
    .number_i     (ac_table_q),
    .window_i     (window_q[WindowBits-1-:16]),
    .found_o      (look),
    .code_o       (code)
  );

  // A look-up in all codes takes a clock for the limits, one for the symbol: in the clock after one
  // in which the window began with the code and had all of its bits, `looked_up_q`, it goes on to
  // StRead.
  logic looked_up_q, enough, seek;
  assign enough = bits_q >= 7'(Longest) || stopped;
  always_ff @(posedge clk_i) looked_up_q <= (state_q[StSeek] || seek) && enough;

  // In StRead: what the symbol is; in StTake it is acted upon. Between the memory of the symbols
  // and these registers lies one LUT.
  logic        no_extra;        // a run of EOBs is one, without bits behind it
  logic        none_q, wrong_q, end_q;
  logic [3:0]  run_symbol_q;
  logic [4:0]  drop_q;          // what `ext` has more than the extra bits
  logic [15:0] ext;             // the bits behind the code

  assign no_extra = symbol.band_end && sequential_q;

  always_ff @(posedge clk_i) begin
    sequential_q <= !scan_i.progressive;
    none_q       <= none;
    drop_q       <= symbol.drop;  // of no meaning where `no_extra`
    run_symbol_q <= symbol.run;
    // An AND, so that synthesis makes no reset of it: that is a long wire from the memory.
    extra_q      <= symbol.extra & {4{state_q[StRead] && !no_extra}};
    end_q        <= symbol.band_end;
    wrong_q      <= !ac_q ? symbol.above_11 : refines_q ? symbol.above_1 : symbol.above_10;
  end

  logic    symbol_error;
  logic    symbol_short;       // the data ends within it
  logic    failed_q, short_q;  // the same a clock later
  status_e stop_status;
  assign stop_status = token.kind == TokenRestart ? StatusRestartMismatch
                     : status_e'(token.data[7:0]);
  always_comb begin
    symbol_error = none_q || wrong_q || bits_q[6] || 6'(extra_q) > bits_q[5:0];
    if (none_q) symbol_short = bits_q < 7'd16;
    else symbol_short = bits_q[6] || !wrong_q;  // of an error
  end

  always_ff @(posedge clk_i) begin
    failed_q <= state_q[StTake] && symbol_error;
    short_q  <= symbol_short;
  end

  logic [14:0] run_of_bands;    // T.81 G.1.2.2: a one and the extra bits
  assign ext          = window_q[WindowBits-1-:16];
  assign run_of_bands = 15'(right({15'd0, 1'b1, ext}, drop_q));

  // ---- The word that comes next ----
  logic [2:0]  next_q, next;
  logic        next_last_q;     // of its block
  logic [7:0]  next_mask_q;     // its AC coefficients of the band
  logic        load, read, take, next_there;

  logic        wrap, next_end;  // it is the first of a block, the last of the band
  assign wrap       = state_q[StIdle] || next_last_q;
  assign next       = wrap ? first_word_q : next_q + 3'd1;
  assign next_end   = wrap ? one_word_q : next_q + 3'd1 == end_word_q;

  always_ff @(posedge clk_i) begin
    if (state_q[StIdle] || read) begin
      next_q      <= next;
      next_last_q <= next_end;
      next_mask_q <= (wrap ? first_mask_q : 8'hFF) & (next_end ? end_mask_q : 8'hFF);
    end
  end

  // Small sums and comparisons as gates: synthesis would take carry chains, which are longer.
  function automatic logic [3:0] sum(logic [3:0] a, logic [3:0] b, logic carry);
    logic [3:0] total;
    logic       into;
    into = carry;
    for (int i = 0; i < 4; i++) begin
      total[i] = a[i] ^ b[i] ^ into;
      into     = (a[i] & b[i]) | (into & (a[i] | b[i]));
    end
    return total;
  endfunction
  function automatic logic less(logic [3:0] a, logic [3:0] b);
    logic found;
    found = 1'b0;
    for (int i = 0; i < 4; i++) if (a[i] != b[i]) found = b[i];
    return found;
  endfunction

  // Of eight places: how many there are before the place.
  function automatic logic [3:0] count_of(logic [7:0] places);
    logic [2:0][3:0] part;
    for (int i = 0; i < 3; i++) begin
      part[i] = {2'd0,
                 (places[2*i] & places[2*i+1]), places[2*i] ^ places[2*i+1]};
    end
    return sum(sum(part[0], part[1], places[6]), part[2], places[7]);
  endfunction
  function automatic logic [7:0][2:0] places_before(logic [7:0] places);
    logic [7:0][2:0] count;
    for (int i = 0; i < 8; i++) begin
      count[i] = 3'(count_of(places & ~(8'hFF << i)));
    end
    return count;
  endfunction

  // What the machine knows of a word: the coefficients of the band that earlier scans sent, and the
  // zeros between them. Before the n-th of the zeros are `sent_before[n]` of those.
  typedef struct packed {
    logic [7:0]      sent;
    logic [7:0]      zero;
    logic [3:0]      sent_count;
    logic [3:0]      zero_count;
    logic [7:0][2:0] sent_before;
    logic            ends_in_zero;
  } next_word_t;
  function automatic next_word_t counted(logic [7:0] sent, logic [7:0] zero);
    next_word_t      counts;
    logic [7:0][2:0] zeros_before, sents_before;
    zeros_before      = places_before(zero);
    sents_before      = places_before(sent);
    counts            = '{sent: sent, zero: zero, default: '0};
    counts.sent_count = count_of(sent);
    counts.zero_count = count_of(zero);
    for (int i = 0; i < 8; i++) if (sent[i] || zero[i]) counts.ends_in_zero = zero[i];
    for (int n = 0; n < 8; n++) begin
      for (int i = n; i < 8; i++) begin
        if (zero[i] && zeros_before[i] == 3'(n)) counts.sent_before[n] |= sents_before[i];
      end
    end
    return counts;
  endfunction

  // Up to two wait, so that whether one is taken does not depend on whether one is loaded. Before
  // them stands one that is not counted yet. The coefficients go by a queue of their own.
  next_word_t       waiting_q[2], new_word;
  logic [1:0]       there_q;         // of each
  logic             put_q, get_q;    // the place for the next one, that of the first one
  logic             first_there_q;
  logic [7:0]       first_sent_q, first_zero_q;
  logic [7:0][15:0] first_value_q, old_value;
  logic             pop_value;

  assign read         = !state_q[StIdle] && (first_scan_q || word_valid_i) &&
                        (!first_there_q || there_q != 2'b11);
  assign take         = first_there_q && there_q != 2'b11;
  assign word_ready_o = read && !first_scan_q;
  assign new_word     = waiting_q[get_q];
  assign next_there   = there_q != '0;

  always_ff @(posedge clk_i) begin
    if (state_q[StIdle]) begin
      first_there_q <= 1'b0;
      there_q       <= '0;
      put_q         <= 1'b0;
      get_q         <= 1'b0;
    end else begin
      if (read) first_there_q <= 1'b1;
      else if (take) first_there_q <= 1'b0;
      for (int unsigned i = 0; i < 2; i++) begin
        if (take && put_q == 1'(i)) there_q[i] <= 1'b1;
        else if (load && get_q == 1'(i)) there_q[i] <= 1'b0;
      end
      put_q <= put_q ^ take;
      get_q <= get_q ^ load;
    end
    if (read) begin
      first_value_q <= word_i.value;
      first_sent_q  <= corrects_dc_q ? 8'h01 : first_scan_q ? 8'h00 : word_i.some & next_mask_q;
      first_zero_q  <= first_scan_q ? next_mask_q : ~word_i.some & next_mask_q;
    end
    for (int unsigned i = 0; i < 2; i++) begin
      if (take && put_q == 1'(i)) waiting_q[i] <= counted(first_sent_q, first_zero_q);
    end
  end

  stream_fifo #(
    .Width(128),
    .Depth(Values)
  ) u_values (
    .clk_i,
    .rst_ni (rst_ni && !state_q[StIdle]),
    .data_i (first_value_q),
    .valid_i(take && !first_scan_q),
    .ready_o(),
    .data_o (old_value),
    .valid_o(),
    .ready_i(pop_value),
    .count_o()
  );

  // ---- The word ----
  next_word_t  word_q;          // from the next coefficient on; `sent` and `zero` of all
  logic        there;           // there is one,
  logic        fresh_q;         // and nothing of it has changed
  logic        none_sent_q;     // from the next coefficient on
  logic        empty_q;         // and no zeros either
  logic [2:0]  number_q;        // of the word in its block, here or the next
  logic        last_q;          // it is the band's last
  logic        placing_q;       // a coefficient, after `run_q` more zeros,
  logic [3:0]  run_q;
  logic        rest_q;          // or no more new ones in this block
  // Blocks, this one too, whose band has no new coefficient any more; before a block, the last one
  // too.
  logic [14:0] eob_run_q;
  logic [1:0]  component_q;
  logic        room_q;          // for words that leave
  logic        pass_end_q, interval_end_q;  // the block that ended was the last one

  logic work, begin_block, fits, exact, all, enough_bits, place, pass, skip, flush, advance;
  logic block_end;
  logic last_bits_q, too_few_q;  // the last bits of a scan or interval are enough, or too few
  logic bit_missing, want_symbol, look_over, look_beyond, takes_dc, last_of_interval;
  logic more_bands;              // the next block has no new coefficients either
  logic run_comes_q;             // a run of EOBs is worked out
  logic [3:0] left_zeros;        // behind the place
  logic       holds_short;       // bits of any short code
  logic [3:0] left_before;       // coefficients that were sent, before the zero in question
  logic       few_bits;          // less than a byte
  assign few_bits    = bits_q[6:3] == '0;
  assign work        = state_q[StWork] && !sixteen_q;
  assign fits        = less(run_q, word_q.zero_count);
  assign left_zeros  = sum(word_q.zero_count, ~run_q, 1'b0);
  assign exact       = fits && left_zeros == '0;
  assign all         = rest_q || !fits;
  assign left_before = {1'b0, word_q.sent_before[run_q[2:0]]};
  assign corrections = all ? word_q.sent_count : left_before;
  assign enough_bits = !few_bits || none_sent_q || last_bits_q;
  assign place       = work && there && placing_q && fits && enough_bits;
  assign pass        = work && there && (rest_q || (placing_q && !fits)) && enough_bits && room_q &&
                       !(run_comes_q && last_q);
  assign skip        = work && there && empty_q && !placing_q && !rest_q && room_q;
  assign flush       = state_q[StFlush] && room_q && block_valid_i;
  assign bit_missing = work && too_few_q;
  assign use_bits    = place || pass;
  assign advance     = pass || skip || flush;
  assign block_end   = advance && last_q;
  assign begin_block = state_q[StBlock] && !placing_q && !pass_end_q && !interval_end_q &&
                       block_valid_i && there;
  assign takes_dc    = state_q[StTake] && !ac_q && !symbol_error;

  // Where a scan or an interval ends, a clock sees whether less than a byte has the bits.
  logic few, too_few;
  assign few     = work && there && (placing_q || rest_q) && !enough_bits && stopped && !too_few_q;
  assign too_few = less({1'b0, bits_q[2:0]}, corrections);
  always_ff @(posedge clk_i) begin
    too_few_q   <= few && too_few;
    last_bits_q <= (few && !too_few) || (last_bits_q && !use_bits && work);
  end

  // A symbol is taken where there is none, while the one before it is placed, or while a block
  // leaves: without corrections in this word the window waits for neither.
  assign want_symbol = work && !placing_q && !rest_q && !(there && empty_q && last_q);
  assign look_over   = work && there && placing_q && fits && none_sent_q && !(exact && last_q);
  assign more_bands  = eob_run_q[14:1] != '0;
  assign look_beyond = work && there && room_q && last_q && none_sent_q && !run_comes_q &&
                       (rest_q || (empty_q && !placing_q)) && !has_dc_q && !more_bands &&
                       !block_i.pass_last && !last_of_interval;
  assign holds_short = !bits_q[6] && (bits_q[5] || (bits_q[4] && bits_q[3]));
  assign look_now    = (want_symbol || look_over || look_beyond) && holds_short;
  assign seek        = want_symbol && !look && (holds_short || stopped);

  assign block_ready_o = block_end;
  assign load          = next_there && !state_q[StIdle] && (!there || advance);

  always_ff @(posedge clk_i) begin
    if (state_q[StIdle]) there <= 1'b0;
    else if (load) there <= 1'b1;
    else if (advance) there <= 1'b0;

    if (load) fresh_q <= 1'b1;
    else if (place || takes_dc) fresh_q <= 1'b0;

    if (state_q[StIdle]) begin
      number_q <= first_word_q;
      last_q   <= one_word_q;
    end else if (advance) begin
      number_q <= last_q ? first_word_q : number_q + 3'd1;
      last_q   <= last_q ? one_word_q : number_q + 3'd1 == end_word_q;
    end

    if (load) begin
      word_q      <= new_word;
      none_sent_q <= new_word.sent_count == '0;
      empty_q     <= new_word.sent_count == '0 && new_word.zero_count == '0;
    end else if (place) begin
      word_q.zero_count <= left_zeros;
      word_q.sent_count <= sum(word_q.sent_count, ~left_before, 1'b1);
      none_sent_q       <= word_q.sent_count == left_before;
      empty_q           <= exact && word_q.ends_in_zero;
      for (int unsigned n = 0; n < 8; n++) begin
        word_q.sent_before[n] <= '0;
        for (int unsigned r = 0; n + r + 1 < 8; r++) begin
          if (run_q[2:0] == 3'(r)) begin
            word_q.sent_before[n] <= 3'(sum({1'b0, word_q.sent_before[n+r+1]},
                                            {1'b1, ~word_q.sent_before[r]}, 1'b1));
          end
        end
      end
    end
  end

  // `restarted` acts a clock later on what is not looked at before, in StBlock: short paths.
  logic restarted_q;
  always_ff @(posedge clk_i) restarted_q <= restarted;

  // ---- The band of the block ----
  logic [20:0] raw_q;            // the bits from the symbol on,
  logic [2:0]  skip_q;           // so many of its code
  logic [3:0]  size_q;
  logic [14:0] short_run;        // blocks of a run of EOBs with a short code
  assign short_run = 15'(right({15'd0, 1'b1, 16'((raw_q << skip_q) >> 5)}, 5'd16 - 5'(size_q)));
  always_ff @(posedge clk_i) begin
    if (state_q[StIdle]) begin
      placing_q  <= 1'b0;
      rest_q     <= 1'b0;
    end else if (state_q[StBlock]) begin
      component_q <= block_i.component;
      ac_q        <= !has_dc_q;
      table_q     <= has_dc_q ? scan_i.dc[block_i.component] : scan_i.ac[block_i.component];
      ac_table_q  <= scan_i.ac[block_i.component];
      rest_q      <= corrects_dc_q;
      placing_q   <= 1'b0;
    end else if (state_q[StTake]) begin
      ac_q        <= 1'b1;
      table_q     <= ac_table_q;
      rest_q      <= ac_q && end_q;
      placing_q   <= ac_q && !end_q;
      run_q       <= run_symbol_q;
    end else if (work) begin
      if (look) begin
        placing_q <= !code.ends;
        rest_q    <= code.ends;
        run_q     <= code.run;
      end else begin
        if (place) placing_q <= 1'b0;
        if (pass) run_q <= sum(run_q, ~word_q.zero_count, 1'b1);  // counts only while placing
        if (block_end) rest_q <= corrects_dc_q || more_bands;
      end
    end
    if (state_q[StTake] || look) begin
      raw_q  <= window_q[WindowBits-1-:21];
      skip_q <= state_q[StTake] ? 3'd0 : 3'(code.total - 5'(code.size));
      size_q <= state_q[StTake] ? extra_q : code.size;
    end

    run_comes_q <= look && code.ends && code.size != '0;
    if (state_q[StIdle] || restarted_q) eob_run_q <= '0;
    else if (run_comes_q) eob_run_q <= short_run;
    else if (state_q[StTake] && ac_q && end_q && scan_i.progressive) eob_run_q <= run_of_bands;
    else if (block_end && eob_run_q != '0) eob_run_q <= eob_run_q - 1'b1;
  end

  // ---- The stages of a change ----
  typedef struct packed {
    logic       valid;
    logic       fresh;     // the first of its word
    logic       done;      // the word leaves behind it,
    logic       last;      // as its block's last
    logic       dc;
    logic       new_predictors;
    logic [1:0] component;
  } change_t;
  change_t c1_q, c2_q, c3_q, c4_q, c5_q;

  // First: what changes. A DC symbol is not there before the next clock.
  logic [7:0]  sent_q1, zero_q1;
  logic        place_q1, all_q1;
  logic [3:0]  run_q1;
  logic [7:0]  bits_q1;         // that correct
  logic [16:0] raw_q1;
  logic [2:0]  skip_q1;
  logic [3:0]  size_q1;
  always_ff @(posedge clk_i) begin
    c1_q <= '{valid: place || advance || takes_dc || restarted,
              fresh: fresh_q && !restarted, done: advance, last: last_q,
              dc: takes_dc, new_predictors: restarted || state_q[StIdle],
              component: component_q};
    sent_q1  <= word_q.sent;
    zero_q1  <= word_q.zero;
    place_q1 <= place;
    all_q1   <= pass;
    run_q1   <= run_q;
    bits_q1  <= window_q[WindowBits-1-:8];
    raw_q1   <= takes_dc ? window_q[WindowBits-1-:17] : raw_q[20:4];
    skip_q1  <= takes_dc ? 3'd0 : skip_q;
    size_q1  <= takes_dc ? extra_q : size_q;
    if (!rst_ni) c1_q.valid <= 1'b0;
  end

  // Second: in which places.
  logic [7:0]      rest_sent_q, rest_zero_q;  // of the word, behind the last change
  logic [7:0]      sent, zero, new_sent, new_zero, placed, corrected, beyond;
  logic [7:0][2:0] zeros_before, sents_before;
  logic [7:0]      placed_q2, corrected_q2, bits_q2;
  logic [7:0][2:0] sents_before_q2;
  logic [10:0]     ext_q2;
  logic [3:0]      size_q2;
  always_comb begin
    sent         = c1_q.fresh ? sent_q1 : rest_sent_q;
    zero         = c1_q.fresh ? zero_q1 : rest_zero_q;
    zeros_before = places_before(zero);
    sents_before = places_before(sent);
    for (int unsigned i = 0; i < 8; i++) begin
      placed[i]    = place_q1 && zero[i] && {1'b0, zeros_before[i]} == run_q1;
      beyond[i]    = less(run_q1, {1'b0, zeros_before[i]});
      corrected[i] = sent[i] && (all_q1 || (place_q1 && !beyond[i]));
      new_zero[i]  = zero[i] && (!place_q1 || beyond[i]);
      new_sent[i]  = sent[i] && !corrected[i];
    end
  end
  always_ff @(posedge clk_i) begin
    c2_q <= c1_q;
    if (!rst_ni) c2_q.valid <= 1'b0;
    if (c1_q.valid) begin
      rest_sent_q <= new_sent;
      rest_zero_q <= new_zero;
    end
    placed_q2 <= placed;
    corrected_q2    <= corrected;
    sents_before_q2 <= sents_before;
    bits_q2         <= bits_q1;
    ext_q2  <= 11'((raw_q1 << skip_q1) >> 6);
    size_q2 <= size_q1;
  end

  // Third: by what. T.81 F.2.2.1, EXTEND: the first of the extra bits is the inverted sign.
  logic        negative;
  logic [15:0] value_q3;
  logic [7:0]  placed_q3, corrected_q3;
  assign negative = !ext_q2[10] && size_q2 != '0;
  always_ff @(posedge clk_i) begin
    c3_q <= c2_q;
    if (!rst_ni) c3_q.valid <= 1'b0;
    value_q3     <= 16'(right({{16{negative}}, ext_q2, 5'd0}, 5'd16 - 5'(size_q2))) +
                    16'(negative);
    placed_q3    <= placed_q2;
    for (int unsigned i = 0; i < 8; i++) begin
      corrected_q3[i] <= corrected_q2[i] && bits_q2[3'd7-sents_before_q2[i]];
    end
  end

  // Fourth: the predictors.
  logic [2:0][15:0] predictor_q;
  logic [15:0]      predicted, value_q4;
  logic [7:0]       placed_q4, corrected_q4;
  assign predicted = predictor_q[c3_q.component] + value_q3;
  always_ff @(posedge clk_i) begin
    c4_q <= c3_q;
    if (!rst_ni) c4_q.valid <= 1'b0;
    if (c3_q.new_predictors) predictor_q <= '0;
    else if (c3_q.dc) predictor_q[c3_q.component] <= predicted;
    value_q4     <= c3_q.dc ? predicted : value_q3;
    placed_q4    <= {placed_q3[7:1], placed_q3[0] || c3_q.dc};
    corrected_q4 <= corrected_q3;
  end

  logic [15:0] value_q5;
  logic [7:0]  placed_q5, corrected_q5;
  always_ff @(posedge clk_i) begin
    c5_q <= c4_q;
    if (!rst_ni) c5_q.valid <= 1'b0;
    value_q5     <= value_q4 << scan_i.low;
    placed_q5    <= placed_q4;
    corrected_q5 <= corrected_q4;
  end

  // Fifth: the word.
  logic [7:0][15:0] changed_q, base;
  logic             changed_done_q, changed_last_q;
  assign pop_value = c5_q.valid && c5_q.fresh;
  assign base      = !c5_q.fresh ? changed_q : first_scan_q ? '0 : old_value;
  always_ff @(posedge clk_i) begin
    if (c5_q.valid) begin
      for (int unsigned i = 0; i < 8; i++) begin
        changed_q[i] <= placed_q5[i] ? value_q5
                      : !corrected_q5[i] ? base[i]
                      : corrects_dc_q ? base[i] | plus_q
                      : base[i] + (base[i][15] ? minus_q : plus_q);
      end
    end
    changed_done_q <= rst_ni && c5_q.valid && c5_q.done;
    changed_last_q <= c5_q.last;
  end

  // ---- Words leave; those of zeros come behind the band's ----
  logic [7:0][15:0] leaving;
  logic             leaving_last, leaving_valid, leave, leaves_last, pop;
  logic [2:0]       fill_q;               // words of zeros that are left, while
  logic             filling_q;
  logic             fill_last_q;          // it is one
  logic             no_fill_q;            // there are none
  logic [$clog2(Leaving):0] claims_q;   // words that are on their way
  logic             drained_q;

  stream_fifo #(
    .Width(129),
    .Depth(Leaving)
  ) u_leaving (
    .clk_i, .rst_ni,
    .data_i ({changed_last_q, changed_q}),
    .valid_i(changed_done_q),
    .ready_o(),
    .data_o ({leaving_last, leaving}),
    .valid_o(leaving_valid),
    .ready_i(pop),
    .count_o()
  );

  logic [BlockBits-1:0] number;
  stream_fifo #(
    .Width(BlockBits),
    .Depth(Leaving)
  ) u_numbers (
    .clk_i, .rst_ni,
    .data_i (block_i.number),
    .valid_i(block_end),
    .ready_o(),
    .data_o (number),
    .valid_o(),
    .ready_i(leave && leaves_last),
    .count_o()
  );

  assign leaves_last  = filling_q ? fill_last_q : leaving_last && no_fill_q;
  assign word_o       = leaving & {128{!filling_q}};
  assign word_valid_o = (leaving_valid || filling_q) && (!leaves_last || !written_valid_o);
  assign leave        = word_valid_o && word_ready_i;
  assign pop          = leave && !filling_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      filling_q       <= 1'b0;
      claims_q        <= '0;
      room_q          <= 1'b0;
      drained_q       <= 1'b0;
      written_valid_o <= 1'b0;
    end else begin
      if (leave) filling_q <= filling_q ? !fill_last_q : leaving_last && !no_fill_q;
      claims_q  <= claims_q + ($clog2(Leaving) + 1)'(advance) - ($clog2(Leaving) + 1)'(pop);
      room_q    <= claims_q < ($clog2(Leaving) + 1)'(Leaving - 2);
      drained_q <= state_q[StRest] && claims_q == '0 && !filling_q;
      if (leave && leaves_last) written_valid_o <= 1'b1;
      else if (written_ready_i) written_valid_o <= 1'b0;
    end
    if (leave && leaves_last) written_o <= number;
    no_fill_q <= fill_words_q == '0;
    if (leave) begin
      fill_q      <= filling_q ? fill_q - 1'b1 : fill_words_q;
      fill_last_q <= filling_q ? fill_q == 3'd2 : fill_words_q == 3'd1;
    end
  end

  // ---- The scan ----
  logic [15:0] interval_left_q;             // MCUs after this one in its restart interval
  logic [2:0]  restart_number_q;
  logic        restarts_q;
  logic        none_left_q;
  assign last_of_interval = restarts_q && none_left_q && block_i.mcu_last;

  always_ff @(posedge clk_i) begin
    if (state_q[StIdle]) begin
      pass_end_q       <= 1'b0;
      restart_number_q <= '0;
    end else if (block_end) begin
      pass_end_q <= block_i.pass_last;
    end
    if (state_q[StIdle] || restarted) interval_end_q <= 1'b0;
    else if (block_end) interval_end_q <= last_of_interval;
    restarts_q <= scan_i.restart_interval != '0;
    if (state_q[StIdle] || restarted_q) begin
      interval_left_q <= interval_q;
      none_left_q     <= interval_q == '0;
    end else if (block_end && block_i.mcu_last) begin
      interval_left_q <= interval_left_q - 1'b1;
      none_left_q     <= interval_left_q == 16'd1;
    end
    if (restarted) restart_number_q <= restart_number_q + 1'b1;
  end

  // The whole bytes in the window hold a 1. Padding is the first bits_q[2:0] bits, and below the
  // last bit are zeros.
  logic rest_used, rest_used_q;  // a clock late: the rest takes two at least
  assign rest_used = window_q[WindowBits-8:0] != '0 ||
                     (window_q[WindowBits-1-:7] & (7'h7F >> bits_q[2:0])) != '0;

  assign restarted = state_q[StRestart] && few_bits && token_valid &&
                     token.kind == TokenRestart &&
                     token.data[2:0] == restart_number_q;
  assign rest_end  = state_q[StRest] && token_valid && token.kind == TokenScanEnd && drained_q;
  assign token_ready = take_data || restarted ||
                       (state_q[StRest] && (token.kind != TokenScanEnd || drained_q));

  always_comb begin
    state_d = state_q == '0 ? only(StRest) : '0;  // no state: an upset, which ends as an error
    if (state_q[StIdle]) state_d |= !start_i ? only(StIdle) : skip_i ? only(StRest) : only(StBlock);
    if (state_q[StBlock]) begin
      if (placing_q || pass_end_q) state_d |= only(StRest);
      else if (interval_end_q) state_d |= only(StRestart);
      else state_d |= !begin_block ? only(StBlock) : has_dc_q ? only(StSeek) : only(StWork);
    end
    if (state_q[StWork]) begin
      if (bit_missing) state_d |= only(StFlush);
      else if (seek) state_d |= only(StSeek);
      else if (block_end && (placing_q || has_dc_q || block_i.pass_last || last_of_interval)) begin
        state_d |= only(StBlock);
      end else state_d |= only(StWork);
    end
    if (state_q[StSeek]) state_d |= looked_up_q ? only(StRead) : only(StSeek);
    if (state_q[StRead]) state_d |= only(StTake);
    if (state_q[StTake]) state_d |= symbol_error ? only(StFlush) : only(StWork);
    if (state_q[StFlush]) state_d |= block_end ? only(StRest) : only(StFlush);
    if (state_q[StRestart]) begin
      state_d |= restarted ? only(StBlock) : token_valid ? only(StRest) : only(StRestart);
    end
    if (state_q[StRest]) state_d |= rest_end ? only(StIdle) : only(StRest);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) state_q <= only(StIdle);
    else state_q <= state_d;
  end

  logic    no_restart_q;         // where RSTn should be there is another token
  status_e no_restart_status_q;
  // Behind the last block padding of less than a byte may be left, bytes 0 and restart markers.
  logic data_used;
  assign data_used = token_valid && token.kind == TokenData && token.data != '0;
  always_ff @(posedge clk_i) begin
    if (start_i) status_o <= StatusOk;
    if (state_q[StBlock] && placing_q) status_o <= StatusCorruptHuffman;
    if (failed_q) status_o <= short_q ? stop_status : StatusCorruptHuffman;
    if (bit_missing) status_o <= stop_status;
    if (state_q == '0) status_o <= StatusCorruptHuffman;
    rest_used_q <= state_q[StRest] && rest_used;
    if (state_q[StRest] && status_o == StatusOk && (rest_used_q || data_used)) begin
      status_o <= StatusCorruptHuffman;
    end
    if (no_restart_q) status_o <= no_restart_status_q;
  end
  // A clock late: the rest of the scan takes one at least.
  always_ff @(posedge clk_i) begin
    no_restart_q        <= state_q[StRestart] && token_valid && !restarted;
    no_restart_status_q <= few_bits && token.kind == TokenScanEnd ? status_e'(token.data[7:0])
                         : StatusRestartMismatch;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) done_o <= 1'b0;
    else done_o <= rest_end;
  end

  always_ff @(posedge clk_i) begin
    symbol_o    <= (state_q[StTake] && !symbol_error) || look;
    wait_data_o <= (!stopped && ((state_q[StSeek] && !enough) ||
                                 (want_symbol && !holds_short) ||
                                 (work && there && (placing_q || rest_q) && !enough_bits))) ||
                   ((work || (state_q[StBlock] && block_valid_i && !interval_end_q)) && !there);
  end

`ifndef SYNTHESIS
  a_window_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
    take_data |-> bits_q <= 7'(WindowBits - 16));
  a_window_holds_a_short_code: assert property (@(posedge clk_i) disable iff (!rst_ni)
    look |-> bits_q >= 7'(Short) && code.total <= 5'(Short));
  a_window_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
    state_q[StTake] && !symbol_error |-> 7'(extra_q) <= bits_q);
  a_window_holds_what_is_used: assert property (@(posedge clk_i) disable iff (!rst_ni)
    use_bits && !look |-> 7'(corrections) <= bits_q);
  a_a_run_is_worked_out_before_its_block_ends: assert property (
    @(posedge clk_i) disable iff (!rst_ni) block_end |-> !run_comes_q);
  a_no_corrections_beside_a_symbol: assert property (@(posedge clk_i) disable iff (!rst_ni)
    use_bits && look |-> corrections == '0);
  a_leaving_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
    claims_q <= ($clog2(Leaving) + 1)'(Leaving));
  a_a_block_ends: assert property (@(posedge clk_i) disable iff (!rst_ni)
    block_end |-> block_valid_i);
`endif

endmodule
