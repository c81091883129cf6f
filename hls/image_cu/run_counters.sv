// What happened in a run, counted for the performance registers.
//
// Interface   `clear_i` for a clock when a run is taken; counts while `running_i`, and stands afterwards.
module run_counters
  import headrace_pkg::*;
  import image_cu_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  logic           clear_i,
  input  logic           running_i,
  input  decode_events_t events_i,
  input  logic           write_i,       // memory took a word of the tensor
  input  logic           write_wait_i,  // a word of the tensor waits

  output counters_t      counters_o
);

  counters_t      counters_q;
  decode_events_t events_q;  // registered: they come from far away
  logic           write_q, write_wait_q, written_q;

  assign counters_o = counters_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      counters_q   <= '0;
      events_q     <= '0;
      write_q      <= 1'b0;
      write_wait_q <= 1'b0;
      written_q    <= 1'b0;
    end else if (running_i) begin
      events_q     <= events_i;
      write_q      <= write_i;
      write_wait_q <= write_wait_i;
      written_q    <= written_q || write_q;
      counters_q.cycles         <= counters_q.cycles + 1'b1;
      counters_q.symbols        <= counters_q.symbols + 32'(events_q.symbol);
      counters_q.header         <= counters_q.header + 32'(events_q.header);
      counters_q.wait_data      <= counters_q.wait_data + 32'(events_q.wait_data);
      counters_q.wait_transform <= counters_q.wait_transform + 32'(events_q.wait_transform);
      counters_q.wait_rows      <= counters_q.wait_rows + 32'(events_q.wait_rows);
      counters_q.wait_output    <= counters_q.wait_output + 32'(events_q.wait_output);
      counters_q.wait_write     <= counters_q.wait_write + 32'(write_wait_q);
      if (write_q) counters_q.last_output <= counters_q.cycles;
      if (write_q && !written_q) counters_q.first_output <= counters_q.cycles;
    end
  end

endmodule
