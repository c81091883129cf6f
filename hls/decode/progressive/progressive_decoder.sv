// Files of several scans: coefficients gather in a workspace in memory, scan by scan, and leave
// behind the last one.
//
//   workspace -> workspace_read -> band_decoder -> axi_write -> workspace     for each scan
//   workspace -> workspace_read -> coefficient_send -> coefficients           at the end
//
// Reference   T.81 annexes F and G; progressive.hpp, which says how the workspace is laid out.
//             Equal to the C++ in coefficients and status.
// Interface   beside entropy_decoder: table writes, a band_scan_t, then its tokens up to
//             TokenScanEnd, again and again until a band_scan_t with `file_end` or a status, behind
//             which there are no tokens. Out come the coefficients that the window needs and a beat
//             with `done` and the final status. `quant` is the component: the table is the one that
//             it has at its first scan. The workspace is aligned to a block, 128 bytes, and large
//             enough; it may hold anything. It is read and written over AXI4, a block of a scan's
//             band in a burst.
// Throughput  see band_decoder. Words are fetched 64 blocks ahead; a scan begins when all of the
//             one before it are written, which takes at least twice memory's latency.
// Reset       not with reads or writes under way.
// Bad input   ends in a status: the first that a scan ends in, or that of the last band_scan_t;
//             StatusBusError if memory answered with an error. Behind one the file's other scans
//             are passed over.
module progressive_decoder
  import headrace_pkg::*;
  import progressive_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  logic [63:0]    workspace_i,

  input  huffman_write_t huffman_i,
  input  logic           huffman_valid_i,
  output logic           huffman_ready_o,

  input  logic [BlockBits-1:0] mcus_i,     // of the image, from its first scan on
  input  band_scan_t     scan_i,
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

  output logic           busy_o,
  output logic           symbol_o,         // events for the performance counters
  output logic           wait_data_o,      // for bits of the file or words of the workspace
  output logic           wait_transform_o,

  output logic [63:0]    araddr_o,
  output logic [7:0]     arlen_o,
  output logic [2:0]     arsize_o,
  output logic [1:0]     arburst_o,
  output logic           arvalid_o,
  input  logic           arready_i,
  input  logic [127:0]   rdata_i,
  input  logic [1:0]     rresp_i,
  input  logic           rvalid_i,
  output logic           rready_o,
  output logic [63:0]    awaddr_o,
  output logic [7:0]     awlen_o,
  output logic [2:0]     awsize_o,
  output logic [1:0]     awburst_o,
  output logic           awvalid_o,
  input  logic           awready_i,
  output logic [127:0]   wdata_o,
  output logic [15:0]    wstrb_o,
  output logic           wlast_o,
  output logic           wvalid_o,
  input  logic           wready_i,
  input  logic [1:0]     bresp_i,
  input  logic           bvalid_i,
  output logic           bready_o
);

  localparam int unsigned Ahead = 64;  // blocks whose words are asked for

  typedef enum logic [3:0] {
    StIdle,      // between scans, and between files
    StSettle,    // what is worked out of the scan and the window, step by step,
    StPass,      // and the pass
    StStart,
    StDecode,
    StDrain,     // words under way, read and written
    StSend,
    StEnd        // sends the end beat
  } state_e;
  state_e state_d, state_q;
  logic   idle_q, tables_ready;

  band_scan_t  scan_q;
  status_e     status_q;
  logic        sending_q;      // this is the last pass
  pass_t       pass_d, pass_q;
  logic        begun_q;        // a scan of this file has been taken

  // ---- From the scan to the pass ----
  localparam int unsigned SettleClocks = 4;
  logic [1:0] settle_left_q;
  logic       alone;           // one component: an MCU is a block
  logic       row_below_q;
  logic [15:0] right_q, bottom_q, next_row_q, last_row_q;
  logic [BlockXBits-1:0] mcu_x_q;             // the image's last MCU
  logic [BlockYBits-1:0] mcu_y_q, wanted_mcu_y_q;
  // The last blocks of each component that are seen.
  logic [2:0][BlockXBits-1:0] seen_x_q;
  logic [2:0][BlockYBits-1:0]    seen_y_q;

  assign alone = scan_q.members == 3'b001 || scan_q.members == 3'b010 || scan_q.members == 3'b100;

  always_ff @(posedge clk_i) begin
    right_q     <= scan_q.scan.width - 16'd1;
    bottom_q    <= scan_q.scan.height - 16'd1;
    row_below_q <= needs_row_below(scan_q.scan);
    mcu_x_q     <= BlockXBits'(right_q[15:3] >> scan_q.scan.h_shift);
    mcu_y_q     <= BlockYBits'(bottom_q[15:3] >> scan_q.scan.v_shift);
    for (int unsigned c = 0; c < 3; c++) begin
      seen_x_q[c] <= BlockXBits'(right_q[15:3] >> (scan_q.scan.h_shift - h_shifts(scan_q.scan)[c]));
      seen_y_q[c] <= BlockYBits'(bottom_q[15:3] >>
                                 (scan_q.scan.v_shift - v_shifts(scan_q.scan)[c]));
    end
    // The last row that has to be decoded: the filter between rows of chroma may want the row
    // below.
    next_row_q     <= window_i.last_row + 16'(row_below_q);
    last_row_q     <= window_i.last_row >= bottom_q ? bottom_q : next_row_q;
    wanted_mcu_y_q <= BlockYBits'(last_row_q[15:3] >> scan_q.scan.v_shift);
    if (state_q != StSettle) settle_left_q <= 2'(SettleClocks - 1);
    else if (!sending_q || window_valid_i) settle_left_q <= settle_left_q - 1'b1;
  end

  always_comb begin
    pass_d = '0;
    pass_d.members    = sending_q ? {{2{scan_q.scan.color}}, 1'b1} : scan_q.members;
    pass_d.last_mcu_x = mcu_x_q;
    pass_d.last_mcu_y = sending_q ? wanted_mcu_y_q : mcu_y_q;
    pass_d.to_bottom  = pass_d.last_mcu_y == mcu_y_q;
    pass_d.base[1]    = mcus_i << (3'(scan_q.scan.h_shift) + 3'(scan_q.scan.v_shift));
    pass_d.base[2]    = pass_d.base[1] +
                        (mcus_i << (3'(scan_q.scan.chroma_h[0]) + 3'(scan_q.scan.chroma_v[0])));
    for (int unsigned c = 0; c < 3; c++) begin
      pass_d.row[c]     = ((BlockXBits + 1)'(mcu_x_q) + 1'b1) << h_shifts(scan_q.scan)[c];
      pass_d.mcu_row[c] = (BlockXBits + 3)'(pass_d.row[c]);
      if (!alone || sending_q) begin
        pass_d.mcu_row[c] = pass_d.mcu_row[c] << v_shifts(scan_q.scan)[c];
        pass_d.end_x[c]   = last_of(h_shifts(scan_q.scan)[c]);
        pass_d.end_y[c]   = last_of(v_shifts(scan_q.scan)[c]);
        pass_d.last_x[c]  = seen_x_q[c][1:0] & pass_d.end_x[c];
        pass_d.last_y[c]  = seen_y_q[c][1:0] & pass_d.end_y[c];
      end else if (scan_q.members[c]) begin
        pass_d.last_mcu_x = seen_x_q[c];
        pass_d.last_mcu_y = seen_y_q[c];
      end
    end
  end

  always_ff @(posedge clk_i) if (state_q == StPass) pass_q <= pass_d;

  // ---- Blocks of the pass: their words are asked for ahead, and they wait for their turn ----
  logic   start, stop, clear, first_scan;
  logic   read_idle, read_error, write_idle, write_error;
  block_t ahead, next_block, block;
  logic   next_block_valid, next_block_ready;
  logic   ahead_valid, ahead_ready, room, reads, read_ready;
  logic   block_valid, block_ready;
  word_t  word;
  logic   word_valid, word_ready;
  logic [2:0] first_word, last_word;

  assign start       = state_q == StStart;
  assign first_scan  = !sending_q && scan_q.first == '0 && scan_q.high == '0;
  assign stop        = state_q == StDrain || state_q == StIdle || state_q == StEnd;
  assign clear       = state_q == StIdle && !begun_q;
  assign first_word  = sending_q ? 3'd0 : scan_q.first[5:3];
  assign last_word   = sending_q ? 3'd7 : scan_q.last[5:3];
  assign reads       = !first_scan && (!sending_q || ahead.seen);
  assign ahead_ready = room && (!reads || read_ready);

  block_walk u_walk (
    .clk_i, .rst_ni,
    .start_i      (start),
    .stop_i       (stop),
    .pass_i       (pass_q),
    .block_o      (ahead),
    .block_valid_o(ahead_valid),
    .block_ready_i(ahead_ready)
  );

  workspace_read u_read (
    .clk_i, .rst_ni,
    .base_i       (workspace_i),
    .first_word_i (first_word),
    .last_word_i  (last_word),
    .stop_i       (stop),
    .clear_i      (clear),
    .idle_o       (read_idle),
    .bus_error_o  (read_error),
    .block_i      (ahead.number),
    .block_valid_i(ahead_valid && reads && room),
    .block_ready_o(read_ready),
    .word_o       (word),
    .word_valid_o (word_valid),
    .word_ready_i (word_ready),
    .araddr_o, .arlen_o, .arsize_o, .arburst_o, .arvalid_o, .arready_i,
    .rdata_i, .rresp_i, .rvalid_i, .rready_o
  );

  stream_fifo #(
    .Width($bits(block_t)),
    .Depth(Ahead)
  ) u_blocks (
    .clk_i,
    .rst_ni (rst_ni && !stop),
    .data_i (ahead),
    .valid_i(ahead_valid && ahead_ready),
    .ready_o(room),
    .data_o (next_block),
    .valid_o(next_block_valid),
    .ready_i(next_block_ready),
    .count_o()
  );

  stream_register #(.Width($bits(block_t))) u_block (
    .clk_i,
    .rst_ni (rst_ni && !stop),
    .data_i (next_block),
    .valid_i(next_block_valid),
    .ready_o(next_block_ready),
    .data_o (block),
    .valid_o(block_valid),
    .ready_i(block_ready)
  );

  // ---- The decoder, or the last pass ----
  logic         decoded, sent, decoder_block_ready, send_block_ready, decoder_word_ready,
                send_word_ready;
  status_e      scan_status;
  logic [127:0] new_word;
  logic         new_word_valid, new_word_ready;
  logic [BlockBits-1:0] written;
  logic         written_valid, written_ready;
  coefficient_t coefficient;
  logic         coefficient_valid;
  logic         skip;

  // Behind an error scans are only read.
  assign skip        = state_q == StIdle && scan_valid_i && tables_ready &&
                       scan_i.status == StatusOk &&
                       !scan_i.file_end &&
                       status_q != StatusOk && begun_q;
  assign block_ready = sending_q ? send_block_ready : decoder_block_ready;
  assign word_ready  = sending_q ? send_word_ready : decoder_word_ready;

  band_decoder u_band (
    .clk_i, .rst_ni,
    .huffman_i,
    .huffman_valid_i(huffman_valid_i && huffman_ready_o),
    .huffman_ready_o(tables_ready),
    .start_i        (skip || (start && !sending_q)),
    .skip_i         (skip),
    .scan_i         (scan_q),
    .done_o         (decoded),
    .status_o       (scan_status),
    .token_i, .token_valid_i, .token_ready_o,
    .block_i        (block),
    .block_valid_i  (block_valid && !sending_q),
    .block_ready_o  (decoder_block_ready),
    .word_i         (word),
    .word_valid_i   (word_valid && !sending_q),
    .word_ready_o   (decoder_word_ready),
    .word_o         (new_word),
    .word_valid_o   (new_word_valid),
    .word_ready_i   (new_word_ready),
    .written_o      (written),
    .written_valid_o(written_valid),
    .written_ready_i(written_ready),
    .symbol_o, .wait_data_o
  );

  logic [31:0] upper_next_q;     // a short carry
  logic [25:0] lower;
  assign lower = {1'b0, workspace_i[31:7]} + 26'(written);
  always_ff @(posedge clk_i) upper_next_q <= workspace_i[63:32] + 32'd1;

  axi_write #(
    .BurstWords(8),
    .Depth     (32)
  ) u_write (
    .clk_i, .rst_ni,
    .clear_i        (clear && write_idle),
    .idle_o         (write_idle),
    .bus_error_o    (write_error),
    .address_i      ({lower[25] ? upper_next_q : workspace_i[63:32], lower[24:0], first_word,
                      4'd0}),
    .words_i        (first_scan ? 29'd8 : 29'(last_word - first_word) + 29'd1),
    .command_valid_i(written_valid),
    .command_ready_o(written_ready),
    .word_i         (new_word),
    .word_valid_i   (new_word_valid),
    .word_ready_o   (new_word_ready),
    .awaddr_o, .awlen_o, .awsize_o, .awburst_o, .awvalid_o, .awready_i,
    .wdata_o, .wstrb_o, .wlast_o, .wvalid_o, .wready_i,
    .bresp_i, .bvalid_i, .bready_o
  );

  coefficient_send u_send (
    .clk_i, .rst_ni,
    .block_i            (block),
    .block_valid_i      (block_valid && sending_q),
    .block_ready_o      (send_block_ready),
    .word_i             (word),
    .word_valid_i       (word_valid && sending_q),
    .word_ready_o       (send_word_ready),
    .coefficient_o      (coefficient),
    .coefficient_valid_o(coefficient_valid),
    .coefficient_ready_i(coefficient_ready_i),
    .done_o             (sent)
  );

  assign coefficient_valid_o = coefficient_valid || state_q == StEnd;
  always_ff @(posedge clk_i) wait_transform_o <= coefficient_valid && !coefficient_ready_i;
  assign coefficient_o       = state_q == StEnd ? '{done: 1'b1, status: status_q, default: '0}
                             : coefficient;

  // ---- Control ----
  assign scan_ready_o    = state_q == StIdle && tables_ready;
  // A clock late, which is early enough: the parser writes no table before a scan's tokens have
  // gone.
  always_ff @(posedge clk_i) idle_q <= rst_ni && state_q == StIdle && state_d == StIdle;
  assign huffman_ready_o = idle_q && tables_ready;
  assign busy_o          = state_q != StIdle || begun_q;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StIdle: if (scan_valid_i && tables_ready) begin
        if (scan_i.status != StatusOk) state_d = StEnd;
        else if (begun_q && status_q != StatusOk) state_d = scan_i.file_end ? StEnd : StDecode;
        else state_d = StSettle;
      end
      StSettle:   if (settle_left_q == '0) state_d = StPass;
      StPass:     state_d = StStart;
      StStart:    state_d = sending_q ? StSend : StDecode;
      StDecode:   if (decoded) state_d = StDrain;
      StDrain: begin
        if (read_idle && write_idle && !written_valid) state_d = sending_q ? StEnd : StIdle;
      end
      StSend:     if (sent) state_d = StDrain;
      StEnd:      if (coefficient_ready_i) state_d = StIdle;
      default:    state_d = StIdle;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
      begun_q <= 1'b0;
    end else begin
      state_q <= state_d;
      if (state_q == StIdle && scan_valid_i && tables_ready) begun_q <= 1'b1;
      else if (state_q == StEnd && coefficient_ready_i) begun_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StIdle && scan_valid_i && tables_ready) begin
      scan_q    <= scan_i;
      sending_q <= scan_i.file_end;
      if (!begun_q || status_q == StatusOk) status_q <= scan_i.status;
    end else if (state_q == StDecode && decoded) begin
      if (status_q == StatusOk) status_q <= scan_status;
    end else if (state_q == StDrain && (read_error || write_error)) begin
      status_q <= StatusBusError;
    end
  end

`ifndef SYNTHESIS
  a_state_is_one: assert property (@(posedge clk_i) disable iff (!rst_ni)
    state_q inside {StIdle, StSettle, StPass, StStart, StDecode, StDrain, StSend, StEnd});
  a_coefficient_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    coefficient_valid_o && !coefficient_ready_i |=>
    coefficient_valid_o && $stable(coefficient_o));
  a_scan_begins_on_written_words: assert property (@(posedge clk_i) disable iff (!rst_ni)
    start |-> read_idle && write_idle && !awvalid_o && !wvalid_o);
  a_nothing_under_way_between_files: assert property (@(posedge clk_i) disable iff (!rst_ni)
    !busy_o |-> !awvalid_o && !wvalid_o && !arvalid_o);
  a_last_pass_only_reads: assert property (@(posedge clk_i) disable iff (!rst_ni)
    sending_q && state_q inside {StSend, StEnd} |-> !awvalid_o && !wvalid_o && !token_ready_o);
  a_coefficients_of_the_last_pass: assert property (@(posedge clk_i) disable iff (!rst_ni)
    coefficient_valid_o |-> sending_q || state_q == StEnd);
  a_done_once: assert property (@(posedge clk_i) disable iff (!rst_ni)
    coefficient_valid_o |-> coefficient_o.done == (state_q == StEnd));
  a_no_pass_behind_an_error: assert property (@(posedge clk_i) disable iff (!rst_ni)
    start |-> status_q == StatusOk);
  a_band_in_its_block: assert property (@(posedge clk_i) disable iff (!rst_ni)
    start && !sending_q |-> scan_q.first <= scan_q.last && scan_q.members != '0);
  a_write_in_a_scan: assert property (@(posedge clk_i) disable iff (!rst_ni)
    written_valid |-> state_q inside {StDecode, StDrain} && !sending_q);

  c_scan_passed_over: cover property (@(posedge clk_i) disable iff (!rst_ni) skip);
  c_memory_error: cover property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == StDrain && (read_error || write_error));
  c_memory_error_in_the_last_pass: cover property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == StDrain && sending_q && read_error);
  c_waits_for_writes: cover property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == StDrain && read_idle && !write_idle);
  c_drops_reads: cover property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == StDrain && !read_idle);
  c_blocks_ahead_full: cover property (@(posedge clk_i) disable iff (!rst_ni)
    ahead_valid && !room);
  c_waits_for_the_window: cover property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == StSettle && sending_q && !window_valid_i);
`endif

endmodule
