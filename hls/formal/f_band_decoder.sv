// The properties of band_decoder's state machine: it is in one state, and from no state at all, as
// an upset may leave it, it goes to the rest of the scan.
//
// Only the machine is kept. All that it reads of the data path is cut, and so is free. The
// registers begin with any value, with no reset before.
module f_band_decoder (
  input logic clk_i,
  input logic rst_ni,
  input logic start_i,
  input logic skip_i
);

  localparam int unsigned Idle = 0, Rest = 8, States = 9;

  // verilator lint_off PINMISSING
  band_decoder u (.clk_i, .rst_ni, .start_i, .skip_i);
  // verilator lint_on PINMISSING

  logic past_q = 1'b0, reset_q = 1'b0, one_q = 1'b0, none_q = 1'b0, rest_q = 1'b0;
  logic one;
  assign one = u.state_q != '0 && (u.state_q & (u.state_q - 1'b1)) == '0;

  always_ff @(posedge clk_i) begin
    past_q  <= 1'b1;
    reset_q <= !rst_ni;
    one_q   <= one;
    none_q  <= u.state_q == '0;
    rest_q  <= u.state_q[Rest] && u.rest_end;
  end

  always_comb begin
    if (past_q) begin
      a_one_state_leads_to_one: assert (!one_q || one);
      a_reset_leads_to_idle: assert (!reset_q || u.state_q == States'(1) << Idle);
      a_none_leads_to_rest: assert (!none_q || reset_q || u.state_q == States'(1) << Rest);
      a_rest_leads_to_idle: assert (!rest_q || u.state_q[Idle]);
      c_leaves_no_state: cover (none_q && !reset_q);
      c_scans: cover (one_q && u.state_q[Rest]);
    end
  end

endmodule
