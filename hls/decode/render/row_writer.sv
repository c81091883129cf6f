// Puts the rows of blocks into the row memories, as long as there is a free MCU row.
//
// Reference   T.81 A.2.3, take_block in decode.cpp: an MCU has its luma blocks row by row, then
//             those of Cb, then of Cr; gray luma only. Which MCUs come: see block_window.
// Interface   `run_i` is high while an image with layout `layout_i` is in work; low it resets the
//             positions. `release_i` gives an MCU row free. `committed_o` marks the clock in which
//             the last word of an MCU row is written; `ended_o` follows all of them, with the
//             status of the end beat, and `sound_o` if that is StatusOk.
// Throughput  one word a clock. Latency 2 clocks to the memory.
// Bad input   rows beyond the last MCU row are taken and dropped, so that the end beat is always
//             reached.
module row_writer
  import headrace_pkg::*;
  import render_pkg::*;
(
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  layout_t                       layout_i,
  input  logic                          run_i,

  input  samples_t                      samples_i,
  input  logic                          samples_valid_i,
  output logic                          samples_ready_o,
  output logic                          wait_rows_o,  // samples wait for a free MCU row

  output logic                          luma_write_o,
  output logic                          cb_write_o,
  output logic                          cr_write_o,
  output logic [LumaAddressWidth-1:0]   address_o,
  output logic [63:0]                   data_o,

  input  logic                          release_i,
  output logic                          committed_o,
  output logic                          ended_o,
  output logic                          sound_o,
  output status_e                       status_o
);

  typedef enum logic [1:0] {
    Luma,
    Cb,
    Cr
  } component_e;

  // ---- Position of the next word ----
  logic [2:0]  y_q;
  component_e  component_q;
  logic [2:0]  block_q;      // of its component in the MCU
  logic [WordBits-1:0] mcu_q;
  logic [WordBits-1:0] next_mcu_q;  // known as last_block_q is
  logic [12:0] mcu_row_q;
  logic        all_q;        // the last MCU row is complete
  logic        done_q;       // the end beat was taken
  logic [RingBits:0] used_q, used_more; // MCU rows that are complete and not given free; one more
  logic        full_q;       // these are all that fit
  logic        commit;
  logic        free, accept, take;
  logic [1:0]  blocks_h;     // log2 of the component's blocks across and down an MCU
  logic [1:0]  blocks_v;
  logic [2:0]  last_block_q; // of the component, known with the second row of its first block
  logic        block_ends, component_ends, mcu_ends, row_ends;

  assign used_more       = used_q + 1'b1;
  assign free            = !full_q || all_q;
  assign samples_ready_o = run_i && !done_q && free;
  assign wait_rows_o     = run_i && !done_q && !free && samples_valid_i;
  assign accept          = samples_valid_i && samples_ready_o;
  assign take            = accept && !samples_i.done && !all_q;

  assign blocks_h   = layout_i.blocks_h[component_q];
  assign blocks_v   = layout_i.blocks_v[component_q];
  assign block_ends     = y_q == 3'd7;
  assign component_ends = block_ends && block_q == last_block_q;
  assign mcu_ends       = component_ends && component_q == (layout_i.color ? Cr : Luma);
  assign row_ends       = mcu_ends && mcu_q == layout_i.last_mcu;
  assign commit         = take && row_ends;

  always_ff @(posedge clk_i) begin
    next_mcu_q   <= mcu_q == layout_i.last_mcu ? layout_i.first_mcu
                  : mcu_q == layout_i.end_mcu  ? layout_i.last_mcu
                                               : mcu_q + 1'b1;
    last_block_q <= {(blocks_h[1] && blocks_v != '0) || (blocks_v[1] && blocks_h != '0),
                     blocks_h[1] || blocks_v[1] || (blocks_h[0] && blocks_v[0]),
                     blocks_h != '0 || blocks_v != '0};
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) begin
      y_q         <= '0;
      component_q <= Luma;
      block_q     <= '0;
      mcu_q       <= layout_i.first_mcu;
      mcu_row_q   <= '0;
      all_q       <= 1'b0;
      done_q      <= 1'b0;
      used_q      <= '0;
      full_q      <= 1'b0;
    end else begin
      if (commit && !release_i) begin
        used_q <= used_more;
        full_q <= used_more[layout_i.ring_log2];
      end else if (release_i && !commit) begin
        used_q <= used_q - 1'b1;
        full_q <= 1'b0;
      end
      if (accept && samples_i.done) done_q <= 1'b1;
      if (take) begin
        y_q <= y_q + 1'b1;
        if (block_ends) block_q <= component_ends ? '0 : block_q + 1'b1;
        if (mcu_ends) component_q <= Luma;
        else if (component_ends) component_q <= component_q == Luma ? Cb : Cr;
        if (mcu_ends) mcu_q <= next_mcu_q;
        if (row_ends) mcu_row_q <= mcu_row_q + 1'b1;
        if (row_ends && mcu_row_q == layout_i.last_mcu_row) all_q <= 1'b1;
      end
    end
  end

  // ---- Row and word of that position, then addresses ----
  logic [LumaAddressWidth-1:0]   row_d, row_q;
  logic [WordBits-1:0]           word_d, word_q;
  logic [3:0]                    stride_log2_q;
  logic                          take_q, commit_q, ended_q;
  component_e                    component_q2;
  logic [63:0]                   data_q;
  status_e                       status_q;
  logic [1:0]                    down;   // row of the block in its MCU

  always_comb begin
    unique case (blocks_h)
      2'd0:    {down, word_d} = {block_q[1:0], mcu_q};
      2'd1:    {down, word_d} = {block_q[2:1], mcu_q[WordBits-2:0], block_q[0]};
      default: {down, word_d} = {1'b0, block_q[2], mcu_q[WordBits-3:0], block_q[1:0]};
    endcase
    unique case (blocks_v)
      2'd0:    row_d = {mcu_row_q[LumaAddressWidth-4:0], y_q};
      2'd1:    row_d = {mcu_row_q[LumaAddressWidth-5:0], down[0], y_q};
      default: row_d = {mcu_row_q[LumaAddressWidth-6:0], down, y_q};
    endcase
  end

  always_ff @(posedge clk_i) begin
    row_q         <= row_d;
    word_q        <= word_d;
    stride_log2_q <= layout_i.stride_log2[component_q];
    component_q2  <= component_q;
    data_q        <= samples_i.value;
    if (accept) status_q <= samples_i.status;

    address_o <= (row_q << stride_log2_q) | LumaAddressWidth'(word_q);
    data_o    <= data_q;
    status_o  <= status_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) begin
      take_q                                 <= 1'b0;
      commit_q                               <= 1'b0;
      ended_q                                <= 1'b0;
      {luma_write_o, cb_write_o, cr_write_o} <= '0;
      committed_o                            <= 1'b0;
      ended_o                                <= 1'b0;
      sound_o                                <= 1'b0;
    end else begin
      take_q       <= take;
      commit_q     <= commit;
      ended_q      <= done_q;
      luma_write_o <= take_q && component_q2 == Luma;
      cb_write_o   <= take_q && component_q2 == Cb;
      cr_write_o   <= take_q && component_q2 == Cr;
      committed_o  <= commit_q;
      ended_o      <= ended_q;
      sound_o      <= ended_q && status_q == StatusOk;
    end
  end

`ifndef SYNTHESIS
  a_never_more_than_fit: assert property (@(posedge clk_i) disable iff (!rst_ni)
      run_i |-> used_q <= (RingBits+1)'(1) << layout_i.ring_log2);
`endif

endmodule
