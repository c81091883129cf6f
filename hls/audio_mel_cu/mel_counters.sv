// What happened in a run, counted for the performance registers.
//
// Interface   `clear_i` for a clock when a run is taken; counts while `running_i`, and stands afterwards.
module mel_counters
  import audio_mel_cu_pkg::*;
(
  input  logic      clk_i,
  input  logic      rst_ni,

  input  logic      clear_i,
  input  logic      running_i,
  input  logic      tables_i,      // tables are on their way
  input  logic      pcm_wait_i,    // a sample of the file waits
  input  logic      write_i,       // memory took a word of the output
  input  logic      write_wait_i,  // a word of the output waits

  output counters_t counters_o
);

  counters_t counters_q;
  logic      tables_q, pcm_wait_q, write_q, write_wait_q, written_q;  // registered: they come from far away

  assign counters_o = counters_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      counters_q   <= '0;
      tables_q     <= 1'b0;
      pcm_wait_q   <= 1'b0;
      write_q      <= 1'b0;
      write_wait_q <= 1'b0;
      written_q    <= 1'b0;
    end else if (running_i) begin
      tables_q     <= tables_i;
      pcm_wait_q   <= pcm_wait_i;
      write_q      <= write_i;
      write_wait_q <= write_wait_i;
      written_q    <= written_q || write_q;
      counters_q.cycles     <= counters_q.cycles + 1'b1;
      counters_q.tables     <= counters_q.tables + 32'(tables_q);
      counters_q.wait_pcm   <= counters_q.wait_pcm + 32'(pcm_wait_q);
      counters_q.wait_write <= counters_q.wait_write + 32'(write_wait_q);
      if (write_q) counters_q.last_output <= counters_q.cycles;
      if (write_q && !written_q) counters_q.first_output <= counters_q.cycles;
    end
  end

endmodule
