// Packs the bytes of one plane into 128-bit words with strobes.
//
// Interface   `begin_i` for a clock sets where in its first word the plane begins; then up to 8
//             bytes a clock, first byte lowest; `flush_i` for a clock, with no bytes, gives what is
//             left. Words come two clocks later, without back-pressure. Bytes before the first and
//             after the last have no strobe.
// Throughput  8 bytes a clock.
// Method      bytes are rotated to their lane of an 8-byte half, which halves are then paired to
//             words: a rotator over 8 lanes costs a quarter of one over 16 that takes the same
//             bytes.
module store_pack (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         begin_i,
  input  logic [3:0]   offset_i,
  input  logic [63:0]  data_i,
  input  logic [3:0]   count_i,  // bytes, 0 to 8
  input  logic         flush_i,

  output logic [143:0] word_o,   // {16 strobes, 16 bytes}
  output logic         valid_o
);

  // First clock: fill the half.
  logic [7:0][7:0] data;
  logic [2:0]      fill_q;        // lane of the next byte
  logic [7:0][7:0] acc_q, half_q;
  logic [7:0]      acc_strobe_q, half_strobe_q;
  logic            half_valid_q, flush_q;
  logic [7:0][7:0] rotated;       // lane j: byte (j - fill) mod 8
  logic [7:0]      now, wrapped;  // lanes of this half, and of the next, that get a byte
  logic [3:0]      filled;
  logic            full;

  assign data   = data_i;
  assign filled = {1'b0, fill_q} + count_i;  // at most 15: it wraps once
  assign full   = filled[3];

  always_comb begin
    for (int unsigned j = 0; j < 8; j++) begin
      rotated[j] = data[3'(j) - fill_q];
      now[j]     = 4'(j) >= {1'b0, fill_q} && (4'(j) < filled);
      wrapped[j] = full && 4'(j) < {1'b0, filled[2:0]};
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned j = 0; j < 8; j++) begin
      half_q[j] <= now[j] ? rotated[j] : acc_q[j];
      if (now[j] || wrapped[j]) acc_q[j] <= rotated[j];
    end
    half_strobe_q <= acc_strobe_q | now;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      fill_q       <= '0;
      acc_strobe_q <= '0;
      half_valid_q <= 1'b0;
      flush_q      <= 1'b0;
    end else begin
      fill_q       <= begin_i ? offset_i[2:0] : filled[2:0];
      acc_strobe_q <= begin_i || flush_i ? '0 : full ? wrapped : acc_strobe_q | now;
      half_valid_q <= full || (flush_i && acc_strobe_q != '0);
      flush_q      <= flush_i;
    end
  end

  // Second clock: pair the halves.
  logic        high_q;  // the next half is the upper one
  logic [63:0] low_q;
  logic [7:0]  low_strobe_q;

  always_ff @(posedge clk_i) begin
    if (half_valid_q && !high_q) low_q <= half_q;
    word_o[63:0]    <= half_valid_q && !high_q ? half_q : low_q;
    word_o[127:64]  <= half_q;
    word_o[135:128] <= half_valid_q && !high_q ? half_strobe_q : low_strobe_q;
    word_o[143:136] <= half_valid_q && high_q ? half_strobe_q : '0;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      high_q       <= 1'b0;
      low_strobe_q <= '0;
      valid_o      <= 1'b0;
    end else begin
      if (begin_i) begin
        high_q       <= offset_i[3];
        low_strobe_q <= '0;
      end else if (half_valid_q) begin
        high_q       <= !high_q;
        low_strobe_q <= high_q ? '0 : half_strobe_q;
      end
      valid_o <= (half_valid_q && (high_q || flush_q)) || (flush_q && low_strobe_q != '0);
    end
  end

`ifndef SYNTHESIS
  a_eight_bytes: assert property (@(posedge clk_i) disable iff (!rst_ni) count_i <= 4'd8);
  a_flush_alone: assert property (@(posedge clk_i) disable iff (!rst_ni)
      flush_i |-> count_i == '0 && !begin_i);
`endif

endmodule
