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

  localparam int unsigned WindowBits = 64;
  localparam int unsigned Longest    = 16 + 11;  // a code and the bits of a DC difference
  localparam int unsigned FifoDepth  = 32;
  localparam int unsigned InFlight   = 6;        // symbols between the window and the FIFO, and one more

  typedef enum logic [2:0] {
    StIdle,
    StStart,    // counts MCUs, once the window is known
    StLoad,     // the tables of the first block
    StDecode,
    StRestart,  // between two restart intervals: nothing but RSTn may be left
    StRest,     // what is left of the file
    StEnd       // sends the end beat
  } state_e;
  state_e state_d, state_q;

  entropy_scan_t scan_q;
  status_e       status_d, status_q;

  // ---- Where in the image ----
  logic [2:0]  last_block;      // number of the last block of an MCU
  logic [2:0]  luma_last;
  logic [12:0] mcus_across;
  logic [12:0] down;            // MCU rows before the last that is wanted
  logic [15:0] last_row;
  logic        cut_q;           // it is not the image's last
  assign luma_last  = scan_q.scan.h_shift[1] ? 3'd3 :
                      {1'b0, scan_q.scan.h_shift[0] & scan_q.scan.v_shift,
                       scan_q.scan.h_shift[0] | scan_q.scan.v_shift};
  assign last_block = luma_last + (scan_q.scan.color ? 3'd2 : 3'd0);
  assign mcus_across = 13'((scan_q.scan.width + (16'd8 << scan_q.scan.h_shift) - 16'd1) >>
                           (3'd3 + 3'(scan_q.scan.h_shift)));
  assign last_row    = last_decoded_row(scan_q.scan, window_i.last_row);
  assign down        = last_row[15:3] >> scan_q.scan.v_shift;

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
  logic [WindowBits-1:0] window_q, filled;
  logic [6:0]  bits, bits_q;    // in the window; those before the last symbol was taken, which comes too late for an adder
  logic [4:0]  total_q;         // its bits
  logic [6:0]  filled_bits;
  logic        enough_q;        // for any symbol
  logic        take_data;       // a data token goes into the window
  logic        stopped;         // no more data before what token_i is
  logic        decoding;

  assign bits      = bits_q - 7'(total_q);
  assign stopped   = token_valid_i && token_i.kind != TokenData;
  assign take_data = decoding && token_valid_i && token_i.kind == TokenData && bits <= 7'(WindowBits - 16);

  logic [15:0] new_bits;
  assign new_bits    = token_i.two ? token_i.data : {token_i.data[15:8], 8'd0};
  assign filled      = (state_q == StLoad ? 64'd0 : window_q) | (take_data ? {new_bits, 48'd0} >> bits[5:0] : 64'd0);

  // The whole bytes in the window hold a 1. Padding is the first bits[2:0] bits, and below the last bit are zeros.
  logic rest_used;
  assign rest_used = window_q[WindowBits-8:0] != '0 || (window_q[WindowBits-1-:7] & (7'h7F >> bits[2:0])) != '0;

  assign filled_bits = bits + (take_data ? (token_i.two ? 7'd16 : 7'd8) : 7'd0);

  // ---- First stage: look up, shift ----
  logic       issue;            // a symbol is taken
  logic       is_dc;
  logic           short_dc, short_ac, none_dc, none_ac;
  huffman_entry_t short_entry_dc, short_entry_ac, long_entry_dc, long_entry_ac, short_entry, long_entry;
  logic           is_short;
  logic           long_q;       // the code is a long one: looked up for the second clock
  logic [4:0]     total;
  logic       load_dc, load_ac;
  logic       ready_dc, ready_ac;
  logic       enough, room, stop_issue;

  huffman_table u_dc (
    .clk_i, .rst_ni,
    .write_i      (huffman_i),
    .write_valid_i(huffman_valid_i && !huffman_i.ac),
    .write_ready_o(ready_dc),
    .load_i       (load_dc),
    .number_i     (scan_q.dc[start_component_q]),
    .window_i     (window_q[WindowBits-1-:16]),
    .short_o      (short_dc),
    .short_entry_o(short_entry_dc),
    .long_entry_o (long_entry_dc),
    .none_o       (none_dc)
  );
  huffman_table u_ac (
    .clk_i, .rst_ni,
    .write_i      (huffman_i),
    .write_valid_i(huffman_valid_i && huffman_i.ac),
    .write_ready_o(ready_ac),
    .load_i       (load_ac),
    .number_i     (scan_q.ac[start_component_q]),
    .window_i     (window_q[WindowBits-1-:16]),
    .short_o      (short_ac),
    .short_entry_o(short_entry_ac),
    .long_entry_o (long_entry_ac),
    .none_o       (none_ac)
  );
  assign huffman_ready_o = ready_ac && ready_dc;

  assign decoding = state_q == StDecode;
  assign enough   = enough_q || stopped;
  assign is_short = is_dc ? short_dc : short_ac;
  assign issue    = decoding && enough && room && !stop_issue && (is_short || long_q);

  assign short_entry = is_dc ? short_entry_dc : short_entry_ac;
  assign long_entry  = is_dc ? long_entry_dc : long_entry_ac;
  assign total       = (long_q ? long_entry.total : short_entry.total) & {5{issue}};

  // Shift by up to 31 in three steps of at most four choices, each one look-up table deep.
  logic [WindowBits-1:0] by_8, by_2, shifted;
  always_comb begin
    unique case (total[4:3])
      2'd0:    by_8 = filled;
      2'd1:    by_8 = {filled[WindowBits-9:0], 8'd0};
      2'd2:    by_8 = {filled[WindowBits-17:0], 16'd0};
      default: by_8 = {filled[WindowBits-25:0], 24'd0};
    endcase
    unique case (total[2:1])
      2'd0:    by_2 = by_8;
      2'd1:    by_2 = {by_8[WindowBits-3:0], 2'd0};
      2'd2:    by_2 = {by_8[WindowBits-5:0], 4'd0};
      default: by_2 = {by_8[WindowBits-7:0], 6'd0};
    endcase
    shifted = total[0] ? {by_2[WindowBits-2:0], 1'b0} : by_2;
  end

  always_ff @(posedge clk_i) begin
    window_q <= shifted;
    if (state_q == StLoad) begin
      bits_q   <= '0;
      total_q  <= '0;
      enough_q <= 1'b0;
    end else begin
      bits_q   <= filled_bits;
      total_q  <= total;
      enough_q <= filled_bits >= 7'(Longest) + 7'(total);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) long_q <= 1'b0;
    else long_q <= decoding && enough && !is_short && !stop_issue && !issue;
  end

  // ---- Second stage: position, end of the block, errors ----
  typedef struct packed {
    logic [7:0]  symbol;
    logic [4:0]  total;
    logic        none;
    logic        dc;
    logic [6:0]  bits;     // that were in the window
    logic [26:0] window;   // its top
  } taken_t;
  taken_t s1_q;
  logic   s1_valid_q;

  always_ff @(posedge clk_i) begin
    s1_q.symbol <= long_q ? long_entry.symbol : short_entry.symbol;
    s1_q.total  <= long_q ? long_entry.total : short_entry.total;
    s1_q.none   <= long_q && (is_dc ? none_dc : none_ac);
    s1_q.dc     <= is_dc;
    s1_q.bits   <= bits;
    s1_q.window <= window_q[WindowBits-1-:27];
  end

  logic [6:0] k_q, k_run;            // index of the next coefficient, in zigzag order
  logic [5:0] k;                     // of this one
  logic       end_of_block;          // EOB: no more coefficients are sent
  logic       block_done, mcu_done, interval_done, image_done;
  logic       error;
  status_e    error_status, stop_status;
  logic [3:0] size;
  logic [4:0] length;                // of the code

  assign size         = s1_q.symbol[3:0];
  assign length       = s1_q.total - 5'(size);
  assign end_of_block = !s1_q.dc && size == '0 && s1_q.symbol[7:4] != 4'd15;
  assign k_run        = k_q + (s1_q.dc ? 7'd0 : 7'(s1_q.symbol[7:4]));
  assign k            = end_of_block ? 6'd63 : k_run[5:0];
  // Every symbol becomes one coefficient: ZRL a zero 15 places on, EOB a zero in the last place.
  assign block_done    = end_of_block || k_run == 7'd63;
  assign mcu_done      = block_done && last_q;
  assign image_done    = mcu_done && across_left_q == '0 && down_left_q == '0;
  assign interval_done = mcu_done && scan_q.restart_interval != '0 && interval_left_q == '0;

  assign stop_status = token_i.kind == TokenRestart ? StatusRestartMismatch
                                                    : status_e'(token_i.data[7:0]);
  always_comb begin
    error        = 1'b1;
    error_status = StatusCorruptHuffman;
    if (s1_q.none) begin
      if (s1_q.bits < 7'd16) error_status = stop_status;
    end else if (7'(length) > s1_q.bits) begin
      error_status = stop_status;
    end else if (size > (s1_q.dc ? 4'd11 : 4'd10)) begin
      // beyond what 8-bit samples need
    end else if (7'(s1_q.total) > s1_q.bits) begin
      error_status = stop_status;
    end else if (!end_of_block && k_run > 7'd63) begin
      // beyond the block
    end else begin
      error = 1'b0;
    end
  end

  assign is_dc      = s1_valid_q ? block_done : k_q == '0;
  assign stop_issue = s1_valid_q && (error || image_done || interval_done);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) s1_valid_q <= 1'b0;
    else s1_valid_q <= issue;
  end

  // A block has a DC symbol and at least one AC symbol. With the DC symbol its AC table is brought up, and in the clock
  // after it the DC table of the next block, which can start one clock later.
  logic [2:0] next_block;
  assign load_ac    = issue && is_dc;
  assign load_dc    = state_q == StLoad || (s1_valid_q && s1_q.dc);
  assign start_last = start_block_q == last_block;
  assign next_block = start_last ? 3'd0 : start_block_q + 1'b1;

  always_ff @(posedge clk_i) begin
    if (state_q == StIdle) begin
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

    if (state_q == StStart) begin
      across_left_q    <= mcus_across - 1'b1;
      down_left_q      <= down;
      cut_q            <= down != 13'((scan_q.scan.height - 16'd1) >> (scan_q.scan.v_shift ? 4 : 3));
      restart_number_q <= '0;
    end
    if (state_q == StLoad) begin
      k_q              <= '0;
      interval_left_q  <= scan_q.restart_interval - 1'b1;
      fresh_interval_q <= 1'b1;
    end else if (s1_valid_q) begin
      k_q <= block_done ? 7'd0 : {1'b0, k} + 7'd1;
      if (mcu_done) begin
        across_left_q    <= across_left_q == '0 ? mcus_across - 1'b1 : across_left_q - 1'b1;
        down_left_q      <= down_left_q - 13'(across_left_q == '0);
        interval_left_q  <= interval_left_q - 1'b1;
        fresh_interval_q <= 1'b0;
      end
    end
    if (state_q == StRestart && state_d == StLoad) restart_number_q <= restart_number_q + 1'b1;
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
    s2_q <= '{k: k, last: block_done, dc: s1_q.dc, fresh: fresh_q && fresh_interval_q,
              component: component_q, size: size};
    s2_length_q <= length;
    s2_window_q <= s1_q.window;
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
      s2_valid_q <= s1_valid_q && !error;
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
  assign token_ready_o = take_data || state_q == StRest || (state_q == StRestart && state_d == StLoad);

  always_comb begin
    state_d  = state_q;
    status_d = status_q;
    unique case (state_q)
      StIdle: if (scan_valid_i) begin
        status_d = scan_i.status;
        state_d  = scan_i.status == StatusOk ? StStart : StEnd;
      end
      StStart: if (window_valid_i) state_d = StLoad;
      StLoad:  state_d = StDecode;
      StDecode: if (s1_valid_q && error) begin
        status_d = error_status;
        state_d  = StRest;
      end else if (s1_valid_q && image_done) begin
        state_d = StRest;
      end else if (s1_valid_q && interval_done) begin
        state_d = StRestart;
      end
      StRestart: if (token_valid_i) begin
        state_d = StRest;
        if (bits < 7'd8 && token_i.kind == TokenScanEnd) begin
          status_d = status_e'(token_i.data[7:0]);
        end else if (bits < 7'd8 && token_i.kind == TokenRestart && token_i.data[2:0] == restart_number_q) begin
          state_d = StLoad;
        end else begin
          status_d = StatusRestartMismatch;
        end
      end
      StRest: begin
        // Padding of less than a byte may be left, bytes 0 and restart markers.
        if (status_q == StatusOk && !cut_q && rest_used) status_d = StatusCorruptHuffman;
        if (token_valid_i && status_q == StatusOk && !cut_q && token_i.kind == TokenData &&
            (token_i.data[15:8] != '0 || (token_i.two && token_i.data[7:0] != '0))) begin
          status_d = StatusCorruptHuffman;
        end
        if (token_valid_i && token_i.kind == TokenFileEnd) begin
          if (status_d == StatusOk && !cut_q) status_d = status_e'(token_i.data[7:0]);
          state_d = StEnd;
        end
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
  assign symbol_o         = issue;
  assign wait_data_o      = decoding && !enough && !stop_issue;
  assign wait_transform_o = decoding && enough && !room && !stop_issue;

`ifndef SYNTHESIS
  a_fifo_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni) s4_valid_q |-> fifo_ready);
  a_window_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
    decoding && !(s1_valid_q && error) |-> bits <= 7'(WindowBits));
`endif

endmodule
