// Entropy-coded data to coefficients: one Huffman symbol, code and extra bits, every clock.
//
// Reference   T.81 F.2.2; the C++ (entropy in decode.cpp) check by check.
// Interface   table writes before; then one entropy_scan_t, then tokens up to TokenFileEnd if its status is StatusOk.
//             Out come the coefficients and a beat with `done` and the final status.
// Throughput  one symbol a clock, also from block to block and from component to component; two clocks for a code of more
//             than 9 bits, five for a restart marker. What follows a symbol in the stream is known only with its length,
//             so the loop is shift -> look-up -> shift within a clock. Whether the next symbol is a DC one is known a
//             little later, so both tables are asked and the answer chosen. Extra bits follow in three stages outside
//             the loop.
// Latency     5 clocks from the bits to the coefficient.
// Bad input   the first error decides; what follows is read up to TokenFileEnd and dropped. So is what follows the last
//             MCU row that the window needs, if that is not the image's: `stop_o` says that none of it is wanted.
module entropy_decoder
  import headrace_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  huffman_write_t huffman_i,
  input  logic           huffman_valid_i,
  output logic           huffman_ready_o,

  input  entropy_scan_t  scan_i,
  input  logic           scan_valid_i,
  output logic           scan_ready_o,
  input  window_t        window_i,         // of the image, once `window_valid_i` is high; until the end beat
  input  logic           window_valid_i,

  input  token_t         token_i,
  input  logic           token_valid_i,
  output logic           token_ready_o,

  output coefficient_t   coefficient_o,
  output logic           coefficient_valid_o,
  input  logic           coefficient_ready_i,

  output logic           stop_o,           // no more tokens are wanted
  output logic           busy_o,
  output logic           symbol_o,         // events for the performance counters
  output logic           wait_data_o,
  output logic           wait_transform_o
);

  localparam int unsigned TopBits      = 32;       // of the window: more than a symbol takes
  localparam int unsigned ReserveBytes = 12;
  localparam int unsigned WindowBytes  = TopBits / 8 + ReserveBytes;
  localparam int unsigned Lacking      = 4;        // bytes that a symbol of 16 + 15 bits can lack
  localparam int unsigned FifoDepth    = 32;
  localparam int unsigned InFlight     = 6;        // symbols between the window and the FIFO, and one more

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
  logic [2:0]  last_block;      // number of the last block of an MCU
  logic [2:0]  luma_last;
  logic [15:0] width_last, height_last_q;
  logic [12:0] across_q;        // MCUs after the first of a row
  logic [15:0] last_row_q;      // that is wanted
  logic        cut_q;           // it is not the image's last
  assign luma_last   = scan_q.scan.h_shift[1] ? 3'd3 :
                       {1'b0, scan_q.scan.h_shift[0] & scan_q.scan.v_shift,
                        scan_q.scan.h_shift[0] | scan_q.scan.v_shift};
  assign last_block  = luma_last + (scan_q.scan.color ? 3'd2 : 3'd0);
  assign width_last = scan_q.scan.width - 16'd1;

  // The block that starts next, and the one that the symbol in the second stage is of.
  logic [2:0]  start_block_q;
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
  // Symbols leave the top. The reserve behind it moves up by whole bytes only, and `offset_q` says how many bits of its
  // first byte are in the top already: so the shift of the bits in between takes little, and new bytes come in at bytes.
  logic [TopBits-1:0]        top_q, top_held;       // held: with new bytes
  logic [8*ReserveBytes-1:0] reserve_q, reserve_held;
  logic [TopBits-1:0]        next;                  // the word behind the top
  logic [2:0]                offset_q;
  // How many bytes are in the window, with the one that is in both: bit n + Lacking is set if n are. Below zero behind a
  // symbol that had too few bits. One bit each, so that it moves as the bytes do, and nothing is added.
  logic [WindowBytes+Lacking:0] bytes_q, bytes_held;
  logic                      take_data;             // a data token goes into the window
  logic                      stopped;               // no more data before what token_i is
  logic                      decoding, empty;
  logic                      restart, file_end;     // the token is the marker that is due; the last, and what is left is known

  assign decoding   = state_q[3];
  assign empty      = state_q == StStart || state_q == StRestart;
  assign stopped    = token_valid_i && token_i.kind != TokenData;
  assign take_data  = (decoding || state_q == StLoad) && token_valid_i && token_i.kind == TokenData &&
                      !bytes_q[WindowBytes+Lacking] && !bytes_q[WindowBytes+Lacking-1];
  assign bytes_held = empty ? (WindowBytes + Lacking + 1)'(1 << Lacking) : !take_data ? bytes_q : token_i.two ? bytes_q << 2 : bytes_q << 1;

  always_comb begin
    {top_held, reserve_held} = empty ? '0 : {top_q, reserve_q};
    for (int unsigned i = 0; i < WindowBytes; i++) begin
      logic [7:0] new_byte;
      new_byte = (take_data && bytes_q[i+Lacking] ? token_i.data[15:8] : 8'd0) |
                 (take_data && token_i.two && bytes_q[i+Lacking-1] ? token_i.data[7:0] : 8'd0);
      if (i < TopBits / 8) top_held[TopBits-1-8*i-:8] |= new_byte;
      else reserve_held[8*(WindowBytes-1-i)+:8] |= new_byte;
    end
  end

  localparam int unsigned Behind = 8 * ReserveBytes - 1;
  logic [TopBits+3:0] next_4;
  assign next_4 = offset_q[2] ? reserve_q[Behind-4-:TopBits+4] : reserve_q[Behind-:TopBits+4];
  assign next   = offset_q[1] ? (offset_q[0] ? next_4[TopBits:1]   : next_4[TopBits+1:2])
                              : (offset_q[0] ? next_4[TopBits+2:3] : next_4[TopBits+3:4]);

  // ---- First stage: look up, shift ----
  logic       issue;            // a symbol is taken
  logic       is_dc_q;          // it is a DC one
  logic           short_dc, short_ac, none_dc, none_ac;
  huffman_entry_t short_entry_dc, short_entry_ac, long_entry_dc, long_entry_ac, other_entry, entry;
  logic       is_short;
  logic       long_q;           // the code is a long one: looked up for the second clock
  logic       load_dc, load_ac;
  logic       ready_dc, ready_ac;
  logic       enough, room;

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
    .none_o       (none_dc)
  );
  huffman_table #(
    .ShortBits(7)
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
    .none_o       (none_ac)
  );
  assign huffman_ready_o = ready_ac && ready_dc;

  // The top must stay full while there are data: four bytes more than it has, as no symbol has more.
  assign enough   = bytes_q[WindowBytes+Lacking:2*TopBits/8+Lacking+1] != '0 ||
                    (bytes_q[2*TopBits/8+Lacking] && offset_q == '0) || stopped;
  assign is_short = is_dc_q ? short_dc : short_ac;
  assign issue    = decoding && enough && room && (is_short || long_q);

  assign other_entry = !long_q ? short_entry_dc : is_dc_q ? long_entry_dc : long_entry_ac;
  assign entry       = is_dc_q || long_q ? other_entry : short_entry_ac;

  // Shift by up to 31 in three steps of at most four choices, each one look-up table deep.
  logic [TopBits+6:0] by_8;
  logic [TopBits:0]   by_2;
  assign by_8 = entry.total[4] ? (entry.total[3] ? {top_q[7:0], next[31-:31]}  : {top_q[15:0], next[31-:23]})
                               : (entry.total[3] ? {top_q[23:0], next[31-:15]} : {top_q, next[31-:7]});
  assign by_2 = entry.total[2] ? (entry.total[1] ? by_8[32-:33] : by_8[34-:33])
                               : (entry.total[1] ? by_8[36-:33] : by_8[38-:33]);

  // The reserve's bytes; one more if the first, which was begun, ends within the last three bits.
  logic [3:0]                   offset;
  logic [8*ReserveBytes-1:0]    reserve_by_8;
  logic [WindowBytes+Lacking:0] bytes_by_8;
  assign reserve_by_8 = entry.total[4] ? (entry.total[3] ? reserve_held << 24 : reserve_held << 16)
                                       : (entry.total[3] ? reserve_held << 8 : reserve_held);
  assign bytes_by_8   = entry.total[4] ? (entry.total[3] ? bytes_held >> 3 : bytes_held >> 2)
                                       : (entry.total[3] ? bytes_held >> 1 : bytes_held);
  always_comb begin  // an adder, written out so that it becomes no carry chain
    logic carry_1, carry_2;
    carry_1   = offset_q[0] && entry.total[0];
    carry_2   = (offset_q[1] && entry.total[1]) || (carry_1 && (offset_q[1] || entry.total[1]));
    offset[0] = offset_q[0] ^ entry.total[0];
    offset[1] = offset_q[1] ^ entry.total[1] ^ carry_1;
    offset[2] = offset_q[2] ^ entry.total[2] ^ carry_2;
    offset[3] = (offset_q[2] && entry.total[2]) || (carry_2 && (offset_q[2] || entry.total[2]));
  end

  always_ff @(posedge clk_i) begin
    top_q     <= !issue ? top_held : entry.total[0] ? by_2[31:0] : by_2[32:1];
    reserve_q <= !issue ? reserve_held : offset[3] ? reserve_by_8 << 8 : reserve_by_8;
    offset_q  <= issue ? offset[2:0] : empty ? 3'd0 : offset_q;
    bytes_q   <= !issue ? bytes_held : offset[3] ? bytes_by_8 >> 1 : bytes_by_8;
  end

  typedef struct packed {
    logic [7:0]         symbol;
    logic [4:0]         total;
    logic               ends;
    logic               last;    // of its block
    logic               none;
    logic               dc;
    logic [2:0]         offset;  // in front of it
    logic               below_8, below_16;  // bits were in the window, with those that came with it
    logic [TopBits-1:0] window;  // its top
    logic               more;    // and whether one of the next word is 1
  } taken_t;
  taken_t s1_q;                 // the symbol in the second stage
  logic   s1_valid_q, s1_counts;

  // The block ends with this symbol: it says so, or its run is what is missing to the 63rd coefficient. What comes next is
  // then a DC symbol.
  logic [6:0] k_q;              // index behind the symbols in front of the one in the second stage
  logic [6:0] k_run, k_next;    // of that one's coefficient; behind it
  logic       last;
  assign k_run  = k_q + (s1_q.dc ? 7'd0 : 7'(s1_q.symbol[7:4]));
  assign k_next = s1_valid_q ? k_run + 7'd1 : k_q;
  assign last   = !is_dc_q && (entry.ends || (k_next[5:4] == 2'b11 && entry.symbol[7:4] == ~k_next[3:0]));

  always_ff @(posedge clk_i) begin
    if (state_q == StLoad) is_dc_q <= 1'b1;
    else if (issue) is_dc_q <= last;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) long_q <= 1'b0;
    else long_q <= decoding && enough && !is_short && !issue;
  end

  // ---- Second stage: position, end of the block, errors ----
  // Whether this symbol was the last of its interval, or wrong, is seen when the next may have been taken: that one does
  // not count, and these registers keep what there was in front of it.
  always_ff @(posedge clk_i) begin
    if (decoding) begin
      s1_q.symbol <= entry.symbol;
      s1_q.total  <= entry.total;
      s1_q.ends   <= entry.ends;
      s1_q.last   <= last;
      s1_q.none   <= long_q && (is_dc_q ? none_dc : none_ac);
      s1_q.dc     <= is_dc_q;
      s1_q.offset   <= offset_q;
      s1_q.below_8  <= bytes_held[Lacking] || (bytes_held[Lacking+1] && offset_q != '0);
      s1_q.below_16 <= bytes_held[Lacking] || bytes_held[Lacking+1] || (bytes_held[Lacking+2] && offset_q != '0);
      s1_q.window <= top_q;
      s1_q.more   <= next != '0;
    end
  end
  assign s1_counts = s1_valid_q && decoding;

  logic [5:0] k;                     // index of its coefficient, in zigzag order
  logic       mcu_done, interval_done, image_done;
  logic       lacks_code, lacks_bits;
  logic       error;
  status_e    error_status, stop_status;
  logic [3:0] size;
  logic [4:0] length;                // of the code

  assign size   = s1_q.symbol[3:0];
  assign length = s1_q.total - 5'(size);
  // Every symbol becomes one coefficient: ZRL a zero 15 places on, EOB a zero in the last place.
  assign k      = s1_q.ends ? 6'd63 : k_run[5:0];
  assign mcu_done      = s1_q.last && last_q;
  assign image_done    = mcu_done && across_left_q == '0 && down_left_q == '0;
  assign interval_done = mcu_done && scan_q.restart_interval != '0 && interval_left_q == '0;

  assign stop_status = token_i.kind == TokenRestart ? StatusRestartMismatch
                                                    : status_e'(token_i.data[7:0]);
  // The window is by now that behind the symbol. Less than no bits: its bits were too few, and less than none with its
  // extra bits put back: those of its code, too.
  assign lacks_bits  = bytes_q[Lacking-1:0] != '0 || (bytes_q[Lacking] && offset_q != '0);
  assign lacks_code  = bytes_q[Lacking-2:0] != '0 ||
                       (bytes_q[Lacking-1] && (!size[3] || size[2:0] < offset_q)) ||
                       (bytes_q[Lacking] && !size[3] && size[2:0] < offset_q);
  always_comb begin
    error        = 1'b1;
    error_status = StatusCorruptHuffman;
    if (s1_q.none) begin
      if (s1_q.below_16) error_status = stop_status;
    end else if (lacks_code) begin
      error_status = stop_status;
    end else if (size > (s1_q.dc ? 4'd11 : 4'd10)) begin
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

  // A block has a DC symbol and at least one AC symbol. With the DC symbol its AC table is brought up, and in the clock
  // after it the DC table of the next block, which can start one clock later.
  logic [2:0] next_block;
  assign load_ac    = issue && is_dc_q;
  assign load_dc    = state_q == StLoad || (s1_valid_q && s1_q.dc);
  assign start_last = start_block_q == last_block;
  assign next_block = start_last ? 3'd0 : start_block_q + 1'b1;

  always_ff @(posedge clk_i) begin
    if (empty) begin
      start_block_q     <= '0;
      start_component_q <= '0;
      start_fresh_q     <= 1'b1;
    end else if (load_ac) begin
      start_block_q     <= next_block;
      start_component_q <= next_block <= luma_last ? 2'd0 : 2'(next_block - luma_last);
      start_fresh_q     <= next_block == '0 || next_block > luma_last;
      component_q       <= start_component_q;
      last_q            <= start_last;
      fresh_q           <= start_fresh_q;
    end

    height_last_q <= scan_q.scan.height - 16'd1;
    last_row_q    <= last_decoded_row(scan_q.scan, window_i.last_row);
    if (state_q == StCount) begin
      across_q         <= 13'(width_last >> (3'd3 + 3'(scan_q.scan.h_shift)));
      across_left_q    <= 13'(width_last >> (3'd3 + 3'(scan_q.scan.h_shift)));
      down_left_q      <= last_row_q[15:3] >> scan_q.scan.v_shift;
      cut_q            <= last_row_q[15:4] != height_last_q[15:4] ||
                          (!scan_q.scan.v_shift && last_row_q[3] != height_last_q[3]);
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
        down_left_q      <= down_left_q - 13'(across_left_q == '0);
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
                    ((s1_q.window & ('1 >> (3'd0 - s1_q.offset))) != '0 || s1_q.more ||
                     next != '0 || reserve_q[8*ReserveBytes-TopBits-1:0] != '0);
  end

  // ---- Third to fifth stage: extra bits, sign, prediction ----
  typedef struct packed {
    logic [5:0] k;
    logic       last;
    logic       dc;
    logic       fresh;      // DC: the first of its component in a restart interval
    logic [1:0] component;
    logic [3:0] size;
  } place_t;
  place_t s2_q, s3_q, s4_q;
  logic   s2_valid_q, s3_valid_q, s4_valid_q;
  logic [4:0]  s2_length_q;
  logic [26:0] s2_window_q;
  logic [10:0] s3_bits_q, s3_extra;
  logic signed [15:0] s4_value_q, s4_sum;
  logic [2:0][15:0]   predictor_q;

  // T.81 F.2.2.1, EXTEND: the first of the extra bits is the inverted sign.
  assign s3_extra = s3_bits_q >> (4'd11 - s3_q.size);
  assign s4_sum   = !s4_q.dc || s4_q.fresh ? s4_value_q : s4_value_q + predictor_q[s4_q.component];

  always_ff @(posedge clk_i) begin
    s2_q <= '{k: k, last: s1_q.last, dc: s1_q.dc, fresh: fresh_q && fresh_interval_q,
              component: component_q, size: size};
    s2_length_q <= length;
    s2_window_q <= s1_q.window[TopBits-1-:27];
    s3_q        <= s2_q;
    s3_bits_q   <= 11'((s2_window_q << s2_length_q) >> 16);
    s4_q        <= s3_q;
    s4_value_q  <= s3_bits_q[10] || s3_q.size == '0 ? 16'(s3_extra)
                                                   : 16'(s3_extra) - (16'd1 << s3_q.size) + 16'd1;
    if (s4_valid_q && s4_q.dc) predictor_q[s4_q.component] <= s4_sum;
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
  assign new_coefficient = '{done: end_beat, status: end_beat ? status_q : StatusOk, value: s4_sum,
                             index: s4_q.k, quant: scan_q.quant[s4_q.component], last: s4_q.last};
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
  assign file_end      = state_q == StRest && rest_known_q && token_valid_i && token_i.kind == TokenFileEnd;
  assign restart       = state_q == StRestart && token_valid_i && token_i.kind == TokenRestart &&
                         token_i.data[2:0] == restart_number_q && s1_q.below_8;
  assign rest_token    = token_valid_i && token_i.kind == TokenData &&
                         (token_i.data[15:8] != '0 || (token_i.two && token_i.data[7:0] != '0));
  assign token_ready_o = take_data || restart || file_end || (state_q == StRest && token_i.kind != TokenFileEnd);

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
    if (!rst_ni) state_q <= StIdle;
    else state_q <= state_d;
  end
  always_ff @(posedge clk_i) begin
    status_q <= status_d;
    if (scan_valid_i && scan_ready_o) scan_q <= scan_i;
  end

  assign stop_o           = state_q == StRest && cut_q;
  assign busy_o           = state_q != StIdle;
  assign symbol_o         = s1_counts;
  assign wait_data_o      = decoding && !enough;
  assign wait_transform_o = decoding && enough && !room;

`ifndef SYNTHESIS
  a_fifo_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni) s4_valid_q |-> fifo_ready);
  a_top_is_full: assert property (@(posedge clk_i) disable iff (!rst_ni)
    issue && !stopped |=> bytes_q[WindowBytes+Lacking:TopBits/8+Lacking] != '0);
  a_one_count: assert property (@(posedge clk_i) disable iff (!rst_ni) decoding |-> $onehot0(bytes_q));
`endif

endmodule
