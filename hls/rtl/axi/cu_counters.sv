// What happened in a run, counted for the performance registers.
//
// Interface   `clear_i` for a clock when a run is taken; counts while `running_i`, and stands after
//             it. `event_counts_o` tells in how many clocks each bit of `events_i` was high.
module cu_counters
  import cu_pkg::*;
#(
  parameter int unsigned Events = 1
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,

  input  logic                    clear_i,
  input  logic                    running_i,
  input  logic                    write_i,       // memory took a word of the output
  input  logic                    write_wait_i,  // a word of the output waits
  input  logic [Events-1:0]       events_i,

  output cu_counts_t              counts_o,
  output logic [Events-1:0][31:0] event_counts_o
);

  logic [Events-1:0] events_q;  // registered, as the others are: they come from far away
  logic              write_q, write_wait_q, written_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      counts_o       <= '0;
      event_counts_o <= '0;
      events_q       <= '0;
      write_q        <= 1'b0;
      write_wait_q   <= 1'b0;
      written_q      <= 1'b0;
    end else if (running_i) begin
      events_q     <= events_i;
      write_q      <= write_i;
      write_wait_q <= write_wait_i;
      written_q    <= written_q || write_q;
      counts_o.cycles     <= counts_o.cycles + 1'b1;
      counts_o.wait_write <= counts_o.wait_write + 32'(write_wait_q);
      if (write_q) counts_o.last_output <= counts_o.cycles;
      if (write_q && !written_q) counts_o.first_output <= counts_o.cycles;
      for (int unsigned i = 0; i < Events; i++) begin
        event_counts_o[i] <= event_counts_o[i] + 32'(events_q[i]);
      end
    end
  end

endmodule
