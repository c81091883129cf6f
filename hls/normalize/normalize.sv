// Normalize: each channel's value looked up in a table of 256 entries.
//
// Reference   normalize.cpp; an entry holds the bits of the output type (float32, float16 or int8)
//             in its low 32, 16 or 8 bits.
// Interface   tables written an entry a clock, between images; beats in, sample beats out, both
//             until `last`.
// Throughput  two pixels a clock. Latency two clocks.
// Memory      three tables of 256 x 32 bits, twice, for two look-ups a clock: six half block RAMs.
// Bad input   there is none; upstream errors pass.
module normalize
  import headrace_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         table_we_i,
  input  logic [1:0]   table_channel_i,  // 0 red
  input  logic [7:0]   table_index_i,
  input  logic [31:0]  table_value_i,

  input  beat_t        beat_i,
  input  logic         beat_valid_i,
  output logic         beat_ready_o,

  output sample_beat_t sample_o,
  output logic         sample_valid_o,
  input  logic         sample_ready_i
);

  logic         valid_1_q, valid_2_q, go;
  beat_t        beat_1_q;  // all but the pixels
  sample_beat_t sample_d, sample_q;

  assign go             = sample_ready_i || !valid_2_q;
  assign beat_ready_o   = go;
  assign sample_valid_o = valid_2_q;
  assign sample_o       = sample_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_1_q <= 1'b0;
      valid_2_q <= 1'b0;
    end else if (go) begin
      valid_1_q <= beat_valid_i;
      valid_2_q <= valid_1_q;
    end
  end

  for (genvar lane = 0; lane < 2; lane++) begin : gen_lane
    for (genvar c = 0; c < 3; c++) begin : gen_channel
      (* ram_style = "block" *) logic [31:0] memory[256];
      logic [31:0] value_1_q;
      always_ff @(posedge clk_i) begin
        if (table_we_i && table_channel_i == 2'(c)) memory[table_index_i] <= table_value_i;
        // Red is the first field of pixel_t.
        if (go) value_1_q <= memory[beat_i.pixel[lane][8*(2-c)+:8]];
      end
      assign sample_d.value[lane][c] = value_1_q;
    end
  end

  assign sample_d.keep   = beat_1_q.keep;
  assign sample_d.last   = beat_1_q.last;
  assign sample_d.status = beat_1_q.status;

  always_ff @(posedge clk_i) begin
    if (go) begin
      beat_1_q <= beat_i;
      sample_q <= sample_d;
    end
  end

`ifndef SYNTHESIS
  a_sample_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    sample_valid_o && !sample_ready_i |=> sample_valid_o && $stable(sample_o));
`endif

endmodule
