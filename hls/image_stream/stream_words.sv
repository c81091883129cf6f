// Beats of an AXI4-Stream to words of 16 bytes of a file.
//
// Interface   AXI4-Stream in, of 32, 64 or 128 bits, the file's first byte in bits 7..0. `tlast`
//             ends a file; `tkeep` counts in that beat alone, which may have no byte at all. Out
//             come words; `end_o` marks a file's last one, which has `bytes_o` bytes, 0 to 16. The
//             next file begins with a new word.
// Throughput  a beat a clock. Latency one clock from a word's last beat. tready, words and valid
//             come from registers.
// Bad input   a `tkeep` with gaps stands for as many bytes as it has ones, from the lowest on.
module stream_words #(
  parameter int unsigned InputBits = 32
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,

  input  logic [InputBits-1:0]   tdata_i,
  input  logic [InputBits/8-1:0] tkeep_i,
  input  logic                   tlast_i,
  input  logic                   tvalid_i,
  output logic                   tready_o,

  output logic [127:0]           word_o,
  output logic                   end_o,
  output logic [4:0]             bytes_o,
  output logic                   valid_o,
  input  logic                   ready_i
);

  localparam int unsigned Parts    = 128 / InputBits;
  localparam int unsigned PartBits = Parts == 1 ? 1 : $clog2(Parts);

  if (!(InputBits inside {32, 64, 128})) begin : gen_bad_width
    $fatal(1, "%m: InputBits must be 32, 64 or 128");
  end

  logic [Parts-1:0][InputBits-1:0] parts_q, parts;
  logic [PartBits-1:0]             part_q;  // that comes next
  logic                            accept, whole;
  logic [4:0]                      kept;    // bytes of the beat

  assign accept = tvalid_i && tready_o;
  assign whole  = tlast_i || part_q == PartBits'(Parts - 1);

  always_comb begin
    parts         = parts_q;
    parts[part_q] = tdata_i;
    kept          = '0;
    for (int unsigned i = 0; i < InputBits / 8; i++) kept += 5'(tkeep_i[i]);
    if (!tlast_i) kept = 5'(InputBits / 8);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) part_q <= '0;
    else if (accept) part_q <= whole ? '0 : part_q + 1'b1;
    if (accept) parts_q <= parts;
  end

  stream_register #(
    .Width(128 + 5 + 1)
  ) u_words (
    .clk_i, .rst_ni,
    .data_i ({parts, 5'(part_q) * 5'(InputBits / 8) + kept, tlast_i}),
    .valid_i(tvalid_i && whole),
    .ready_o(tready_o),
    .data_o ({word_o, bytes_o, end_o}),
    .valid_o,
    .ready_i
  );

endmodule
