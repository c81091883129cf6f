// One scan: entropy-coded data and the words of its band as earlier scans left them, to the same
// words behind it.
//
// Reference   T.81 annexes F and G; the C++ (decode_blocks in progressive.cpp) check by check.
// Interface   Huffman tables while idle; `start_i` for a clock, with `scan_i` stable until
//             `done_o`, which comes for a clock with the status behind the token that ends the
//             scan. For each block of the pass come its words, unless the scan is the first of its
//             coefficients, and words leave; behind the last word of a block its number.
// Throughput  three clocks for a symbol and its coefficient, six for a DC one; one for a correction
//             bit, with the zeros before it; one for each word, two if a run of zeros goes on in
//             it, and one for each block.
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

  // Bits of the state: one is set.
  localparam int unsigned StIdle    = 0;
  localparam int unsigned StBlock   = 1;   // before a block, or behind the last one of an interval
  localparam int unsigned StWord    = 2;   // waits for a word
  // Places the coefficient, or corrects one before it, or the word leaves; else waits.
  localparam int unsigned StWork    = 3;
                                           // for a symbol
  localparam int unsigned StRead    = 4;   // the symbol is there and its code leaves the window,
  localparam int unsigned StTake    = 5;   // then its extra bits
  localparam int unsigned StPredict = 6;   // of a DC coefficient
  localparam int unsigned StPlaceDc = 7;
  localparam int unsigned StFlush   = 8;   // behind an error: the other words of the block
  // Between two restart intervals: nothing but RSTn may be left.
  localparam int unsigned StRestart = 9;
  localparam int unsigned StRest    = 10;  // the rest of the scan
  localparam int unsigned States    = 11;

  function automatic logic [States-1:0] only(int unsigned state);
    return States'(1) << state;
  endfunction

  logic [States-1:0] state_d, state_q;

  // ---- What the scan is like, a clock after `scan_i` ----
  logic        refines_q, corrects_dc_q;
  logic [15:0] interval_q;      // MCUs behind the first of a restart interval
  logic        first_scan_q;    // of its components: nothing is read, and whole blocks are written
  // Of the band; last_word_q of what is written.
  logic [2:0]  first_word_q, last_word_q, end_word_q;
  logic        one_word_q;      // the band is in one word
  logic [7:0]  first_mask_q, end_mask_q;  // the band in these
  logic [15:0] plus_q, minus_q; // the bit that the scan adds
  always_ff @(posedge clk_i) begin
    interval_q    <= scan_i.restart_interval - 1'b1;
    refines_q     <= scan_i.high != '0;
    first_scan_q  <= scan_i.first == '0 && scan_i.high == '0;
    corrects_dc_q <= scan_i.first == '0 && scan_i.high != '0;
    first_word_q  <= scan_i.first[5:3];
    last_word_q   <= first_scan_q ? 3'd7 : scan_i.last[5:3];
    end_word_q    <= scan_i.last[5:3];
    one_word_q    <= scan_i.first[5:3] == scan_i.last[5:3];
    first_mask_q  <= 8'hFF << scan_i.first[2:0];
    end_mask_q    <= 8'hFF >> (3'd7 - scan_i.last[2:0]);
    plus_q        <= 16'd1 << scan_i.low;
    minus_q       <= 16'hFFFF << scan_i.low;
  end

  // Shifts as rows of multiplexers. Synthesis would let several shifts take turns at one shifter,
  // which makes a long path of what chooses between them.
  function automatic logic [WindowBits-1:0] left(logic [WindowBits-1:0] value, logic [3:0] by);
    logic [WindowBits-1:0] shifted;
    shifted = value;
    for (int unsigned i = 0; i < 4; i++) if (by[i]) shifted = shifted << (1 << i);
    return shifted;
  endfunction
  function automatic logic [31:0] right(logic [31:0] value, logic [4:0] by);
    logic [31:0] shifted;
    shifted = value;
    for (int unsigned i = 0; i < 5; i++) if (by[i]) shifted = shifted >> (1 << i);
    return shifted;
  endfunction

  // ---- The window: next bit on top, zeros below the last ----
  logic [WindowBits-1:0] window_q, behind_code, behind;
  logic [22:0] by_bits;
  logic [6:0]  bits_q;          // negative in StTake: the data ended within the code
  logic        stopped;         // no more data before what token_i is
  logic        take_data, enough;
  logic        some_bit_q;      // there is a bit
  logic        room_q;          // for two bytes
  logic        use_symbol, use_bit;
  logic        restarted;       // RSTn is as it should be
  logic        rest_end;        // the scan's last token
  logic [4:0]  length;          // of the code, in StRead
  logic [3:0]  extra_q;         // in StTake, else none

  assign stopped   = token_valid_i && token_i.kind != TokenData;
  assign take_data = !state_q[StIdle] && !state_q[StRead] && !state_q[StTake] &&
                     !state_q[StRestart] && !state_q[StRest] &&
                     token_valid_i && token_i.kind == TokenData && room_q;
  assign enough    = bits_q >= 7'(Longest) || stopped;

  logic [15:0] new_bits;
  assign new_bits = token_i.two ? token_i.data : {token_i.data[15:8], 8'd0};
  assign by_bits  = 23'(right({new_bits, 16'd0}, {2'd0, bits_q[2:0]}) >> 9);
  assign behind_code = left(length[4] ? window_q << 16 : window_q, length[3:0]);
  assign behind      = left(window_q, extra_q);
  // What enters, and that and the window a bit further on.
  logic [WindowBits+6:0] entering;
  logic [WindowBits-1:0] entering_on, behind_on;
  logic [6:0]            bits_more, bits_more_on;
  always_comb begin
    entering = '0;
    for (int unsigned byte_at = 0; byte_at <= 4; byte_at++) begin
      if (bits_q[5:3] == 3'(byte_at)) entering[54-8*byte_at-:23] |= by_bits;
    end
    entering_on  = use_bit ? entering[WindowBits+5-:WindowBits]
                           : entering[WindowBits+6-:WindowBits];
    behind_on    = use_bit ? behind << 1 : behind;
    bits_more    = bits_q + (token_i.two ? 7'd16 : 7'd8);
    bits_more_on = bits_q + (token_i.two ? 7'd15 : 7'd7);
  end

  always_ff @(posedge clk_i) begin
    room_q <= bits_q <= (take_data ? 7'(WindowBits - 32) : 7'(WindowBits - 16));
    if (state_q[StIdle] || restarted) begin
      window_q   <= '0;
      bits_q     <= '0;
      some_bit_q <= 1'b0;
    end else if (state_q[StRead]) begin
      window_q   <= behind_code;
      bits_q     <= bits_q - 7'(length);
    end else begin
      window_q   <= behind_on | (entering_on & {WindowBits{take_data}});
      unique case ({take_data, use_bit})
        2'b00: bits_q <= bits_q - 7'(extra_q);
        2'b01: bits_q <= bits_q - 7'd1;
        2'b10: bits_q <= bits_more;
        2'b11: bits_q <= bits_more_on;
      endcase
      some_bit_q <= take_data || (state_q[StTake] ? bits_q > 7'(extra_q)
                                                  : bits_q[6:1] != '0 || (bits_q[0] && !use_bit));
    end
  end

  // ---- Symbols ----
  logic       ac_q;             // the table of the next symbol
  logic [1:0] table_q;
  logic       none;
  symbol_t    symbol;

  huffman_search u_search (
    .clk_i,
    .write_i      (huffman_i),
    .write_valid_i(huffman_valid_i),
    .ac_i         (ac_q),
    .number_i     (table_q),
    .window_i     (behind[WindowBits-1-:16]),
    .length_o     (length),
    .none_o       (none),
    .symbol_o     (symbol)
  );

  // A look-up takes a clock for the limits, one for the symbol: in the clock after one in which the
  // window began with the code and had all of its bits, `looked_up_q`, it goes on to StRead.
  logic looked_up_q;
  always_ff @(posedge clk_i) begin
    if (state_q[StTake]) looked_up_q <= ac_q && (stopped || bits_q >= 7'(Longest) + 7'(extra_q));
    else looked_up_q <= (state_q[StWord] || state_q[StWork]) && enough && !use_bit;
  end

  // In StRead: what the symbol is; in StTake it is acted upon. Between the memory of the symbols
  // and these registers lies one LUT.
  logic        no_extra;        // a run of EOBs is one, without bits behind it
  logic        sequential_q;
  logic        none_q, wrong_q, end_q;
  logic [3:0]  run_symbol_q;
  logic        some_q;          // extra bits
  logic [4:0]  drop_q;          // what `ext` has more than these
  logic [15:0] ext;             // the bits behind the code

  assign no_extra = symbol.band_end && sequential_q;

  always_ff @(posedge clk_i) begin
    sequential_q <= !scan_i.progressive;
    none_q       <= none;
    some_q       <= symbol.some;
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
  assign stop_status = token_i.kind == TokenRestart ? StatusRestartMismatch
                     : status_e'(token_i.data[7:0]);
  always_comb begin
    symbol_error = none_q || wrong_q || bits_q[6] || 6'(extra_q) > bits_q[5:0];
    if (none_q) symbol_short = bits_q < 7'd16;
    else symbol_short = bits_q[6] || !wrong_q;  // of an error
  end

  always_ff @(posedge clk_i) begin
    failed_q <= state_q[StTake] && symbol_error;
    short_q  <= symbol_short;
  end

  // T.81 F.2.2.1, EXTEND: the first of the extra bits is the inverted sign.
  logic        negative;
  logic [15:0] value;
  logic [14:0] run_of_bands;    // T.81 G.1.2.2: a one and the extra bits
  assign ext          = window_q[WindowBits-1-:16];
  assign negative     = !ext[15] && some_q;
  assign value        = 16'(right({{16{negative}}, ext}, drop_q)) + 16'(negative);
  assign run_of_bands = 15'(right({15'd0, 1'b1, ext}, drop_q));

  // ---- The word that comes next ----
  logic [2:0]  next_q, next;
  logic        next_last_q;     // of its block
  logic        next_past_q;     // behind the band
  logic [2:0]  next_k_q, next_end_q;  // its first and last coefficient of the band
  logic [7:0]  next_mask_q;     // these and those between, if earlier scans may have sent them
  logic        load, read, take, next_there;

  logic       wrap, next_end;   // it is the first of a block, the last of the band
  assign wrap       = state_q[StIdle] || next_last_q;
  assign next       = wrap ? first_word_q : next_q + 3'd1;
  assign next_end   = wrap ? one_word_q : next_q + 3'd1 == end_word_q;

  always_ff @(posedge clk_i) begin
    if (state_q[StIdle] || read) begin
      next_q      <= next;
      next_last_q <= first_scan_q ? !wrap && next_q == 3'd6 : next_end;
      next_past_q <= !wrap && next_q >= end_word_q;
      next_k_q    <= wrap ? scan_i.first[2:0] : 3'd0;
      next_end_q  <= next_end ? scan_i.last[2:0] : 3'd7;
      next_mask_q <= first_scan_q ? '0
                   : (wrap ? first_mask_q : 8'hFF) & (next_end ? end_mask_q : 8'hFF);
    end
  end

  // The first of some coefficients.
  function automatic logic [3:0] lowest(logic [7:0] some, logic [3:0] if_none);
    logic [3:0] found;
    found = if_none;
    for (int i = 7; i >= 0; i--) if (some[i]) found = 4'(i);
    return found;
  endfunction

  function automatic logic [7:0] without_lowest(logic [7:0] some);
    logic [7:0] left_over;
    for (int unsigned i = 0; i < 8; i++) begin
      left_over[i] = some[i] && (some & 8'((9'd1 << i) - 9'd1)) != '0;
    end
    return left_over;
  endfunction

  // Up to two wait with what there is to know of them, so that whether one is taken does not depend
  // on whether one is loaded.
  typedef struct packed {
    logic [7:0][15:0] value;
    logic             none_sent; // of the band
    logic             no_second;
    logic [3:0]       second;    // of those sent,
    logic [7:0]       rest;      // and these without the first two
    logic [2:0]       number;
    logic             last;      // of its block
    logic             past;      // behind the band
    logic [2:0]       k;
    logic [2:0]       end_k;
    logic [3:0]       target;
    logic [3:0]       zeros;
  } next_word_t;
  next_word_t  waiting_q[2], new_word;
  logic [1:0]  there_q;         // of each
  logic        put_q, get_q;    // the place for the next one, that of the first one

  // Before them stands one of which the first coefficient is known.
  typedef struct packed {
    logic [7:0][15:0] value;
    logic [7:0]       rest;      // of those sent, without the first
    logic             none_sent;
    logic [3:0]       target;
    logic [2:0]       number;
    logic             last;
    logic             past;
    logic [2:0]       k;
    logic [2:0]       end_k;
  } first_word_t;
  first_word_t first_q;
  logic        first_there_q;
  logic [7:0]  next_sent;

  assign read         = !state_q[StIdle] && (first_scan_q || word_valid_i) &&
                        (!first_there_q || there_q != 2'b11);
  assign take         = first_there_q && there_q != 2'b11;
  assign next_sent    = word_i.some & next_mask_q;
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
      first_q <= '{
        value:     first_scan_q ? '0 : word_i.value,
        rest:      without_lowest(next_sent),
        none_sent: next_sent == '0,
        target:    lowest(next_sent, 4'(next_end_q) + 4'd1),
        number:    next_q,
        last:      next_last_q,
        past:      next_past_q,
        k:         next_k_q,
        end_k:     next_end_q
      };
    end
    for (int unsigned i = 0; i < 2; i++) begin
      if (take && put_q == 1'(i)) begin
        waiting_q[i] <= '{
          value:     first_q.value,
          none_sent: first_q.none_sent,
          no_second: first_q.rest == '0,
          second:    lowest(first_q.rest, 4'(first_q.end_k) + 4'd1),
          rest:      without_lowest(first_q.rest),
          number:    first_q.number,
          last:      first_q.last,
          past:      first_q.past,
          k:         first_q.k,
          end_k:     first_q.end_k,
          target:    first_q.target,
          zeros:     first_q.target - 4'(first_q.k)
        };
      end
    end
  end

  // ---- The word ----
  logic [7:0][15:0] word_q;
  logic [2:0]  number_q;        // of the word in its block
  logic        last_of_block_q;
  // Its coefficients of the band that earlier scans sent, from the next one on: the first, what it
  // was, the second, the rest.
  logic        none_sent_q;     // not even a first
  logic [3:0]  target_q;        // or behind end_k_q
  logic [15:0] was_q;
  logic        no_second_q;
  logic [3:0]  second_q;        // or behind end_k_q
  logic [7:0]  sent_q;
  logic [2:0]  k_q, end_k_q;    // the next coefficient and the band's last in this word
  logic        past_q;          // k_q is behind that
  logic [3:0]  zeros_q;         // from k_q to there
  logic        placing_q;       // a coefficient, `value_q`, after `run_q` more zeros,
  logic [3:0]  run_q;
  logic [15:0] value_q;
  logic        rest_q;          // or no more new ones in this block
  // Blocks, this one too, whose band has no new coefficient any more; before a block, the last one
  // too.
  logic [14:0] eob_run_q;
  logic [2:0][15:0] predictor_q;
  logic [1:0]  component_q;

  logic [15:0] corrected;
  assign corrected = was_q + (was_q[15] ? minus_q : plus_q);

  // Of a coefficient that is to be placed: it fits into the zeros before the target, and exactly;
  // or `blocked_q`, it does not. In a new word that is known a clock later.
  logic fits_q, exact_q, blocked_q;

  logic work, begin_block, finish, place, correct, dc_bit, bit_missing, word_done;
  logic [2:0] at;
  assign work      = state_q[StWork];
  assign word_done = past_q || (none_sent_q && (rest_q || blocked_q));
  assign at        = k_q + run_q[2:0];
  assign place     = work && fits_q;
  assign correct   = work && !none_sent_q && (rest_q || blocked_q) && some_bit_q;
  assign dc_bit    = work && !past_q && corrects_dc_q && some_bit_q;
  assign bit_missing = work && (corrects_dc_q ? !past_q : !none_sent_q && (rest_q || blocked_q)) &&
                       !some_bit_q && stopped;

  assign word_o       = word_q;
  assign word_valid_o = ((work && word_done) || state_q[StFlush]) &&
                        (!last_of_block_q || !written_valid_o);
  assign finish       = work && word_done && (!last_of_block_q || !written_valid_o) && word_ready_i;
  assign load         = next_there &&
                        ((finish && !last_of_block_q) || state_q[StWord] || begin_block);
  logic block_end;               // its last word leaves
  assign block_end     = word_valid_o && word_ready_i && last_of_block_q;
  assign block_ready_o = block_end;

  assign use_bit    = correct || dc_bit;
  assign use_symbol = state_q[StTake];

  // At most one of these. What a coefficient becomes does not wait for whether it changes: a word
  // is loaded only outside of StWork, or when the one before it is done.
  logic fresh;
  assign fresh = !work || word_done;
  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < 8; i++) begin
      if (load || (place && at == 3'(i)) ||
          (correct && window_q[WindowBits-1] && target_q[2:0] == 3'(i))) begin
        word_q[i] <= fresh ? new_word.value[i] : fits_q ? value_q << scan_i.low : corrected;
      end
    end
    if (dc_bit && window_q[WindowBits-1]) word_q[0] <= word_q[0] | plus_q;
    if (state_q[StPlaceDc]) word_q[0] <= predictor_q[component_q] << scan_i.low;
  end

  always_ff @(posedge clk_i) begin
    if (load) begin
      number_q        <= new_word.number;
      last_of_block_q <= new_word.last;
    end else if (state_q[StFlush] && word_valid_o && word_ready_i) begin
      number_q        <= number_q + 3'd1;
      last_of_block_q <= number_q + 3'd1 == last_word_q;
    end

    if (load) begin
      none_sent_q <= new_word.none_sent;
      target_q    <= new_word.target;
      was_q       <= new_word.value[new_word.target[2:0]];
      no_second_q <= new_word.no_second;
      second_q    <= new_word.second;
      sent_q      <= new_word.rest;
      k_q         <= new_word.k;
      end_k_q     <= new_word.end_k;
      past_q      <= new_word.past;
      zeros_q     <= new_word.zeros;
    end else if (place) begin
      k_q        <= at + 3'd1;
      zeros_q    <= zeros_q - run_q - 4'd1;
      past_q     <= none_sent_q && exact_q;
    end else if (correct) begin
      none_sent_q <= no_second_q;
      target_q    <= second_q;
      was_q       <= word_q[second_q[2:0]];
      no_second_q <= sent_q == '0;
      second_q    <= lowest(sent_q, 4'(end_k_q) + 4'd1);
      sent_q      <= without_lowest(sent_q);
      k_q         <= target_q[2:0] + 3'd1;
      past_q      <= target_q[2:0] == end_k_q;
      zeros_q     <= second_q - target_q - 4'd1;
    end else if (dc_bit) begin
      past_q <= 1'b1;
    end else if (state_q[StPlaceDc]) begin
      k_q       <= 3'd1;
      zeros_q   <= zeros_q - 4'd1;
      past_q    <= end_k_q == '0;
    end
  end

  logic [4:0] behind_run;        // k_q after it
  assign behind_run = 5'(k_q) + 5'(run_q) + 5'd1;
  always_ff @(posedge clk_i) begin
    {fits_q, exact_q, blocked_q} <= '0;
    if (use_symbol && ac_q && !end_q) begin
      fits_q    <= run_symbol_q < zeros_q;
      exact_q   <= run_symbol_q + 5'd1 == 5'(zeros_q);
      blocked_q <= run_symbol_q >= zeros_q;
    end else if (correct) begin
      fits_q    <= placing_q && behind_run < 5'(second_q);
      exact_q   <= behind_run + 5'd1 == 5'(second_q);
      blocked_q <= placing_q && behind_run >= 5'(second_q);
    end else if (work && placing_q && !fits_q && !finish) begin
      fits_q    <= run_q < zeros_q;
      exact_q   <= run_q + 5'd1 == 5'(zeros_q);
      blocked_q <= run_q >= zeros_q;
    end
  end

  // `restarted` acts a clock later on what is not looked at before, in StBlock: short paths.
  logic restarted_q;
  always_ff @(posedge clk_i) restarted_q <= restarted;

  // ---- The band of the block ----
  always_ff @(posedge clk_i) begin
    if (state_q[StIdle]) begin
      placing_q   <= 1'b0;
    end else if (state_q[StBlock]) begin
      component_q <= block_i.component;
      ac_q        <= scan_i.first != '0;
      table_q     <= scan_i.first != '0 ? scan_i.ac[block_i.component]
                   : scan_i.dc[block_i.component];
      rest_q      <= eob_run_q[14:1] != '0 && !restarted_q;
      placing_q   <= 1'b0;
    end else if (state_q[StPlaceDc]) begin
      ac_q        <= 1'b1;
      table_q     <= scan_i.ac[component_q];
    end else if (state_q[StTake]) begin
      rest_q      <= end_q;
      placing_q   <= ac_q && !end_q;
      run_q       <= run_symbol_q;
      value_q     <= value;
    end else if (work) begin
      if (place) placing_q <= 1'b0;
      if (correct || finish) run_q <= run_q - zeros_q;  // counts only while placing
    end

    if (state_q[StIdle] || restarted_q) begin
      eob_run_q   <= '0;
      predictor_q <= '0;
    end else begin
      if (state_q[StTake] && end_q && scan_i.progressive) eob_run_q <= run_of_bands;
      else if (begin_block && eob_run_q != '0) eob_run_q <= eob_run_q - 1'b1;
      if (state_q[StPredict]) predictor_q[component_q] <= predictor_q[component_q] + value_q;
    end
  end

  // ---- The scan ----
  logic        pass_end_q, interval_end_q;  // the block that ended was the last one
  logic [15:0] interval_left_q;             // MCUs after this one in its restart interval
  logic [2:0]  restart_number_q;

  always_ff @(posedge clk_i) begin
    if (state_q[StIdle]) begin
      pass_end_q       <= 1'b0;
      restart_number_q <= '0;
    end else if (block_end) begin
      pass_end_q <= block_i.pass_last;
    end
    if (state_q[StIdle] || restarted) interval_end_q <= 1'b0;
    else if (block_end && block_i.mcu_last) begin
      interval_end_q <= scan_i.restart_interval != '0 && interval_left_q == '0;
    end
    if (state_q[StIdle] || restarted_q) interval_left_q <= interval_q;
    else if (block_end && block_i.mcu_last) interval_left_q <= interval_left_q - 1'b1;
    if (restarted) restart_number_q <= restart_number_q + 1'b1;
    if (block_end) written_o <= block_i.number;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) written_valid_o <= 1'b0;
    else if (block_end) written_valid_o <= 1'b1;
    else if (written_ready_i) written_valid_o <= 1'b0;
  end

  // The whole bytes in the window hold a 1. Padding is the first bits_q[2:0] bits, and below the
  // last bit are zeros.
  logic rest_used;
  assign rest_used = window_q[WindowBits-8:0] != '0 ||
                     (window_q[WindowBits-1-:7] & (7'h7F >> bits_q[2:0])) != '0;

  logic few_bits;                // less than a byte
  assign few_bits  = bits_q[6:3] == '0;
  assign restarted = state_q[StRestart] && few_bits && token_valid_i &&
                     token_i.kind == TokenRestart &&
                     token_i.data[2:0] == restart_number_q;
  assign begin_block = state_q[StBlock] && !placing_q && !pass_end_q && !interval_end_q &&
                       block_valid_i && next_there;
  assign rest_end  = state_q[StRest] && token_valid_i && token_i.kind == TokenScanEnd;
  assign token_ready_o = take_data || (state_q[StRest]) || restarted;

  always_comb begin
    state_d = state_q == '0 ? only(StRest) : '0;  // no state: an upset, which ends as an error
    if (state_q[StIdle]) state_d |= !start_i ? only(StIdle) : skip_i ? only(StRest) : only(StBlock);
    if (state_q[StBlock]) begin
      if (placing_q || pass_end_q) state_d |= only(StRest);
      else if (interval_end_q) state_d |= only(StRestart);
      else state_d |= begin_block ? only(StWork) : only(StBlock);
    end
    if (state_q[StWord]) state_d |= next_there ? only(StWork) : only(StWord);
    if (state_q[StWork]) begin
      if (word_done) begin
        if (!finish) state_d |= only(StWork);
        else if (last_of_block_q) state_d |= only(StBlock);
        else if (!next_there) state_d |= only(StWord);
        else state_d |= looked_up_q && !placing_q && !rest_q && !new_word.past ? only(StRead)
                                                                               : only(StWork);
      end else if (place) begin
        state_d |= looked_up_q && (!none_sent_q || !exact_q) ? only(StRead) : only(StWork);
      end else if (placing_q || rest_q || corrects_dc_q) begin  // a bit
        state_d |= bit_missing ? only(StFlush) : only(StWork);
      end else begin
        state_d |= looked_up_q ? only(StRead) : only(StWork);
      end
    end
    if (state_q[StRead]) state_d |= only(StTake);
    if (state_q[StTake]) begin
      state_d |= symbol_error ? only(StFlush) : ac_q ? only(StWork) : only(StPredict);
    end
    if (state_q[StPredict]) state_d |= only(StPlaceDc);
    if (state_q[StPlaceDc]) state_d |= only(StWork);
    if (state_q[StFlush]) state_d |= block_end ? only(StRest) : only(StFlush);
    if (state_q[StRestart]) begin
      state_d |= restarted ? only(StBlock) : token_valid_i ? only(StRest) : only(StRestart);
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
  assign data_used = token_valid_i && token_i.kind == TokenData &&
                     (token_i.data[15:8] != '0 || (token_i.two && token_i.data[7:0] != '0));
  always_ff @(posedge clk_i) begin
    if (start_i) status_o <= StatusOk;
    if (state_q[StBlock] && placing_q) status_o <= StatusCorruptHuffman;
    if (failed_q) status_o <= short_q ? stop_status : StatusCorruptHuffman;
    if (bit_missing) status_o <= stop_status;
    if (state_q == '0) status_o <= StatusCorruptHuffman;
    if (state_q[StRest] && status_o == StatusOk && (rest_used || data_used)) begin
      status_o <= StatusCorruptHuffman;
    end
    if (no_restart_q) status_o <= no_restart_status_q;
  end
  // A clock late: the rest of the scan takes one at least.
  always_ff @(posedge clk_i) begin
    no_restart_q        <= state_q[StRestart] && token_valid_i && !restarted;
    no_restart_status_q <= few_bits && token_i.kind == TokenScanEnd ? status_e'(token_i.data[7:0])
                         : StatusRestartMismatch;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) done_o <= 1'b0;
    else done_o <= rest_end;
  end

  logic wants_bit;
  assign wants_bit = corrects_dc_q || placing_q || rest_q;
  always_ff @(posedge clk_i) begin
    symbol_o    <= state_q[StTake] && !symbol_error;
    wait_data_o <= (work && !word_done && !place && !stopped &&
                    (wants_bit ? !fits_q && !use_bit && !some_bit_q : !enough)) ||
                   ((state_q[StWord] || (state_q[StBlock] && block_valid_i && !interval_end_q)) &&
                    !next_there);
  end

`ifndef SYNTHESIS
  a_nothing_is_placed_in_a_done_word: assert property (@(posedge clk_i) disable iff (!rst_ni)
    place || correct |-> !word_done);
  a_window_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
    take_data |-> bits_q <= 7'(WindowBits - 16));
  a_window_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
    state_q[StTake] && !symbol_error |-> 7'(extra_q) <= bits_q);
`endif

endmodule
