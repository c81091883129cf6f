// Takes the three tables of normalize from memory's words and writes them entry by entry.
//
// Interface   `start_i` for a clock; then 192 words of four entries, lowest first: 256 of red, of
//             green, of blue. `done_o` rises when all are written and stands until the next start.
// Throughput  an entry a clock: 768 clocks, beside decode's header.
module table_load (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  output logic         done_o,

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output logic         table_we_o,
  output logic [1:0]   table_channel_o,
  output logic [7:0]   table_index_o,
  output logic [31:0]  table_value_o
);

  localparam logic [9:0] Entries = 10'd768;

  logic [9:0] entry_q;

  assign word_ready_o = entry_q[1:0] == 2'd3;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      entry_q    <= '0;
      table_we_o <= 1'b0;
      done_o     <= 1'b0;
    end else begin
      table_we_o <= word_valid_i && !start_i;
      if (start_i) entry_q <= '0;
      else if (word_valid_i) entry_q <= entry_q + 1'b1;
      done_o <= !start_i && (done_o || entry_q == Entries);
    end
  end

  always_ff @(posedge clk_i) begin
    {table_channel_o, table_index_o} <= entry_q;
    table_value_o                    <= word_i[32*entry_q[1:0]+:32];
  end

endmodule
