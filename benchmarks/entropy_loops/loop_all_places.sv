// The loop of an entropy decoder whose look-ups run ahead of it, one for each bit of the file.
//
// Sixteen bits come in a clock, and each place has a look-up of its own in a block RAM with a
// register at its output: eight RAMs with two ports. The loop has no table: the place of the
// symbol, a choice of one of 32 totals, and an adder. A total has at most 16 bits here. A decoder
// needs these RAMs once for the AC tables and once for the DC tables.
module loop_all_places (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             write_i,
  input  logic [8:0]       write_at_i,
  input  logic [4:0]       write_total_i,
  input  logic             table_i,
  input  logic [15:0][7:0] windows_i,   // at each of the next 16 places
  output logic             wants_o,     // the next 16 places
  output logic [4:0]       place_o
);

  logic [15:0][4:0] found, found_q;
  logic [31:0][4:0] totals_q;
  logic [4:0]       place_q, total;
  logic             table_q, wants;

  for (genvar r = 0; r < 8; r++) begin : gen_ram
    (* ram_style = "block" *) logic [4:0] memory[512];
    // While the table is written no port is free for look-ups.
    logic [8:0] at;
    assign at = write_i ? write_at_i : {table_q, windows_i[2*r]};
    always_ff @(posedge clk_i) begin
      if (write_i) memory[at] <= write_total_i;
      else found[2*r] <= memory[at];
      found[2*r+1] <= memory[{table_q, windows_i[2*r+1]}];
    end
  end

  assign total   = totals_q[place_q];
  assign wants   = place_q[4];
  assign wants_o = wants;
  assign place_o = place_q;

  always_ff @(posedge clk_i) begin
    table_q <= table_i;
    found_q <= found;
    if (wants) totals_q <= {found_q, totals_q[31:16]};
    if (!rst_ni) place_q <= '1;
    else place_q <= {1'b0, place_q[3:0]} + total;  // behind the 16 that leave
  end

endmodule
