// Packs the bytes of one plane into words with strobes.
//
// Interface   `begin_i` for a clock sets where in its first word the plane begins; then up to 8
//             bytes a clock, first byte lowest; `flush_i` for a clock, with no bytes, gives what is
//             left. Words come two clocks later, without back-pressure. Bytes before the first and
//             after the last have no strobe.
// Throughput  8 bytes a clock.
// Method      bytes are rotated to their lane of an 8-byte part, which parts are then put together
//             to words: a rotator over 8 lanes costs a quarter of one over 16 that takes the same
//             bytes.
module store_pack #(
  parameter  int unsigned Bytes = 16,  // of a word; a power of two, at least 16
  localparam int unsigned PlaceBits = $clog2(Bytes)
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         begin_i,
  input  logic [PlaceBits-1:0] offset_i,
  input  logic [63:0]  data_i,
  input  logic [3:0]   count_i,  // bytes, 0 to 8
  input  logic         flush_i,

  output logic [9*Bytes-1:0] word_o,  // {strobes, bytes}
  output logic         valid_o
);

  // First clock: fill the part.
  logic [7:0][7:0] data;
  logic [2:0]      fill_q;        // lane of the next byte
  logic [7:0][7:0] acc_q, part_q;
  logic [7:0]      acc_strobe_q, part_strobe_q;
  logic            part_valid_q, flush_q;
  logic [7:0][7:0] rotated;       // lane j: byte (j - fill) mod 8
  logic [7:0]      now, wrapped;  // lanes of this part, and of the next, that get a byte
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

  // Lanes without a strobe hold anything, so bytes may enter all lanes that are free or become so.
  always_ff @(posedge clk_i) begin
    for (int unsigned j = 0; j < 8; j++) begin
      part_q[j] <= 3'(j) >= fill_q ? rotated[j] : acc_q[j];
      if (full || 3'(j) >= fill_q) acc_q[j] <= rotated[j];
    end
    part_strobe_q <= acc_strobe_q | now;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      fill_q       <= '0;
      acc_strobe_q <= '0;
      part_valid_q <= 1'b0;
      flush_q      <= 1'b0;
    end else begin
      fill_q       <= begin_i ? offset_i[2:0] : filled[2:0];
      acc_strobe_q <= begin_i || flush_i ? '0 : full ? wrapped : acc_strobe_q | now;
      part_valid_q <= full || (flush_i && acc_strobe_q != '0);
      flush_q      <= flush_i;
    end
  end

  // Second clock: put the parts together. The last one of a word is not kept.
  localparam int unsigned Parts = Bytes / 8;
  logic [PlaceBits-4:0]        next_q;  // place of the next part
  logic [Parts-2:0][7:0][7:0]  kept_q;
  logic [Parts-2:0][7:0]       kept_strobe_q;
  logic                        last;    // of a word

  assign last = next_q == '1;

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < Parts; i++) begin
      if (i == Parts - 1) begin
        word_o[64*i+:64]        <= part_q;
        word_o[8*Bytes+8*i+:8]  <= part_valid_q && last ? part_strobe_q : '0;
      end else begin
        if (part_valid_q && next_q == (PlaceBits - 3)'(i)) begin
          kept_q[i]              <= part_q;
          word_o[64*i+:64]       <= part_q;
          word_o[8*Bytes+8*i+:8] <= part_strobe_q;
        end else begin
          word_o[64*i+:64]       <= kept_q[i];
          word_o[8*Bytes+8*i+:8] <= kept_strobe_q[i];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      next_q        <= '0;
      kept_strobe_q <= '0;
      valid_o       <= 1'b0;
    end else begin
      if (begin_i) begin
        next_q        <= offset_i[PlaceBits-1:3];
        kept_strobe_q <= '0;
      end else if (part_valid_q) begin
        next_q <= next_q + 1'b1;
        for (int unsigned i = 0; i < Parts - 1; i++) begin
          if (last) kept_strobe_q[i] <= '0;
          else if (next_q == (PlaceBits - 3)'(i)) kept_strobe_q[i] <= part_strobe_q;
        end
      end
      valid_o <= (part_valid_q && (last || flush_q)) || (flush_q && kept_strobe_q != '0);
    end
  end

`ifndef SYNTHESIS
  a_eight_bytes: assert property (@(posedge clk_i) disable iff (!rst_ni) count_i <= 4'd8);
  a_flush_alone: assert property (@(posedge clk_i) disable iff (!rst_ni)
      flush_i |-> count_i == '0 && !begin_i);
`endif

endmodule
