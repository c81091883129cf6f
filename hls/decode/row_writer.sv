// Puts the rows of blocks into the row memories, as long as there is a free MCU row.
//
// Reference   T.81 A.2.3, take_beat in decode.cpp: an MCU has its luma blocks row by row, then Cb,
//             then Cr; gray luma only.
// Interface   `run_i` is high while an image with layout `layout_i` is in work; low it resets the
//             positions. `release_i` gives an MCU row free. `committed_o` marks the clock in which
//             the last word of an MCU row is written; `ended_o` follows all of them, with the
//             status of the end beat.
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
  output logic [LumaAddressWidth-1:0]   luma_address_o,
  output logic                          cb_write_o,
  output logic                          cr_write_o,
  output logic [ChromaAddressWidth-1:0] chroma_address_o,
  output logic [63:0]                   data_o,

  input  logic                          release_i,
  output logic                          committed_o,
  output logic                          ended_o,
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
  logic [1:0]  block_q;      // of luma in its MCU
  logic [WordBits-1:0] mcu_q;
  logic [12:0] mcu_row_q;
  logic        all_q;        // the last MCU row is complete
  logic        done_q;       // the end beat was taken
  logic [RingBits:0] used_q; // MCU rows that are complete and not given free
  logic        free, accept, take;
  logic [1:0]  last_block;
  logic        block_ends, luma_ends, mcu_ends, row_ends;

  assign free            = !used_q[layout_i.ring_log2] || all_q;
  assign samples_ready_o = run_i && !done_q && free;
  assign wait_rows_o     = run_i && !done_q && !free && samples_valid_i;
  assign accept          = samples_valid_i && samples_ready_o;
  assign take            = accept && !samples_i.done && !all_q;

  assign last_block = {layout_i.h_shift[1] || (layout_i.h_shift[0] && layout_i.v_shift),
                       layout_i.h_shift != '0 || layout_i.v_shift};
  assign block_ends = y_q == 3'd7;
  assign luma_ends  = block_ends && component_q == Luma && block_q == last_block;
  assign mcu_ends   = layout_i.color ? block_ends && component_q == Cr : luma_ends;
  assign row_ends   = mcu_ends && mcu_q == layout_i.last_mcu;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) begin
      y_q         <= '0;
      component_q <= Luma;
      block_q     <= '0;
      mcu_q       <= '0;
      mcu_row_q   <= '0;
      all_q       <= 1'b0;
      done_q      <= 1'b0;
      used_q      <= '0;
    end else begin
      used_q <= used_q + (RingBits+1)'(take && row_ends) - (RingBits+1)'(release_i);
      if (accept && samples_i.done) done_q <= 1'b1;
      if (take) begin
        y_q <= y_q + 1'b1;
        if (block_ends && component_q == Luma) block_q <= luma_ends ? '0 : block_q + 1'b1;
        if (mcu_ends) component_q <= Luma;
        else if (luma_ends) component_q <= Cb;
        else if (block_ends && component_q == Cb) component_q <= Cr;
        if (mcu_ends) mcu_q <= row_ends ? '0 : mcu_q + 1'b1;
        if (row_ends) mcu_row_q <= mcu_row_q + 1'b1;
        if (row_ends && mcu_row_q == layout_i.last_mcu_row) all_q <= 1'b1;
      end
    end
  end

  // ---- Row and word of that position, then addresses ----
  logic [LumaAddressWidth-1:0]   luma_row_q;
  logic [WordBits-1:0]           luma_word_d, luma_word_q, mcu_q2;
  logic [ChromaAddressWidth-1:0] chroma_row_q;
  logic                          take_q, commit_q, ended_q;
  component_e                    component_q2;
  logic [63:0]                   data_q;
  status_e                       status_q;
  logic                          below;  // the luma block is in the second row of its MCU

  always_comb begin
    unique case (layout_i.h_shift)
      2'd0:    luma_word_d = mcu_q;
      2'd1:    luma_word_d = {mcu_q[WordBits-2:0], block_q[0]};
      default: luma_word_d = {mcu_q[WordBits-3:0], block_q};
    endcase
    below = layout_i.h_shift[0] ? block_q[1] : block_q[0];
  end

  always_ff @(posedge clk_i) begin
    luma_row_q   <= layout_i.v_shift ? {mcu_row_q[LumaAddressWidth-5:0], below, y_q}
                                     : {mcu_row_q[LumaAddressWidth-4:0], y_q};
    luma_word_q  <= luma_word_d;
    chroma_row_q <= {mcu_row_q[ChromaAddressWidth-4:0], y_q};
    mcu_q2       <= mcu_q;
    component_q2 <= component_q;
    data_q       <= samples_i.value;
    if (accept) status_q <= samples_i.status;

    luma_address_o   <= (luma_row_q << (layout_i.chroma_stride_log2 + 4'(layout_i.h_shift)))
                      | LumaAddressWidth'(luma_word_q);
    chroma_address_o <= (chroma_row_q << layout_i.chroma_stride_log2)
                      | ChromaAddressWidth'(mcu_q2);
    data_o           <= data_q;
    status_o         <= status_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) begin
      take_q                                 <= 1'b0;
      commit_q                               <= 1'b0;
      ended_q                                <= 1'b0;
      {luma_write_o, cb_write_o, cr_write_o} <= '0;
      committed_o                            <= 1'b0;
      ended_o                                <= 1'b0;
    end else begin
      take_q       <= take;
      commit_q     <= take && row_ends;
      ended_q      <= done_q;
      luma_write_o <= take_q && component_q2 == Luma;
      cb_write_o   <= take_q && component_q2 == Cb;
      cr_write_o   <= take_q && component_q2 == Cr;
      committed_o  <= commit_q;
      ended_o      <= ended_q;
    end
  end

`ifndef SYNTHESIS
  a_never_more_than_fit: assert property (@(posedge clk_i) disable iff (!rst_ni)
      run_i |-> used_q <= (RingBits+1)'(1) << layout_i.ring_log2);
`endif

endmodule
