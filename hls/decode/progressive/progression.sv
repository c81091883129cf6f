// Which bits of which coefficients the scans of a file have sent so far, and whether a scan goes on
// from there.
//
// Reference   T.81 G.1.1.1; extend_progression and complete_status in jpeg_parser.cpp.
// Interface   `clear_i` where a file begins or is given up. `start_i` for a clock, with the scan
//             stable until `done_o`, which comes for a clock. `sound_o` tells a clock later whether
//             the scan goes on: every coefficient of the band is sent for the first time or by
//             one bit more than before, and no AC coefficient before the DC coefficient of its
//             component. The band is noted as sent.
//             With `file_end_i` nothing is noted, and sound means that the file is complete: the DC
//             coefficients of all components have been sent, and the first nine AC coefficients to
//             their last bit. While a component's first scan is looked at, `first_o` goes with each
//             of its 64 coefficients.
// Throughput  a coefficient a clock: those of the band, all 64 of a component's first scan.
// Memory      192 lowest bits in distributed RAM. A component's first scan sends its DC coefficient
//             and notes all others, so that nothing needs to be cleared.
module progression
(
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       clear_i,

  input  logic       start_i,
  input  logic       file_end_i,
  input  logic       color_i,     // three components; else gray
  input  logic [2:0] members_i,   // of the scan, a bit for each component
  input  logic [5:0] band_first_i,
  input  logic [5:0] band_last_i,
  input  logic [3:0] high_i,
  input  logic [3:0] low_i,
  output logic       done_o,
  output logic       sound_o,

  output logic       first_o,
  output logic [1:0] component_o,
  output logic [5:0] index_o      // of the coefficient, in zigzag order
);

  localparam logic [3:0] Unsent  = 4'd15;  // no bit of a coefficient is known; bits are 0 to 13
  // Libjpeg guesses the AC coefficients up to here that lack bits.
  localparam logic [5:0] Guessed = 6'd9;

  logic       running_q, enters_q;   // enters: the component is to be looked at, or passed over
  logic [1:0] component_q;
  logic [5:0] index_q, end_q;
  logic [2:0] sent_q;                // the component's DC coefficient has been
  logic [2:0] walks;                 // components
  logic       first_scan;            // of its components
  logic       walking, over;
  logic [3:0] level, expected, new_level;

  assign walks       = file_end_i ? {{2{color_i}}, 1'b1} : members_i;
  assign first_scan  = band_first_i == '0 && high_i == '0 && !file_end_i;
  assign walking     = running_q && !enters_q;
  assign over        = running_q && (enters_q ? !walks[component_q] : index_q == end_q);
  assign first_o     = walking && first_scan;
  assign component_o = component_q;
  assign index_o     = index_q;

  (* ram_style = "distributed" *) logic [3:0] levels[256];
  assign level     = levels[{component_q, index_q}];
  assign expected  = file_end_i ? 4'd0 : high_i == '0 ? Unsent : high_i;
  assign new_level = index_q <= band_last_i ? low_i : Unsent;

  // What is noted and what is compared follow a clock later, in time for `done_o`.
  logic       write_q, fails_q, compares_q;
  logic [7:0] write_at_q;
  logic [3:0] write_level_q, level_q;
  always_ff @(posedge clk_i) begin
    write_q       <= walking && !file_end_i;
    write_at_q    <= {component_q, index_q};
    write_level_q <= new_level;
    level_q       <= level;
    fails_q       <= walking && sent_q[component_q] == first_scan;
    compares_q    <= walking && !first_scan;
    if (write_q) levels[write_at_q] <= write_level_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      running_q <= 1'b0;
      done_o    <= 1'b0;
    end else begin
      if (start_i) running_q <= 1'b1;
      else if (over && component_q == 2'd2) running_q <= 1'b0;
      done_o <= over && component_q == 2'd2;
    end
  end

  always_ff @(posedge clk_i) begin
    end_q <= file_end_i ? Guessed : first_scan ? 6'd63 : band_last_i;
    if (start_i) begin
      component_q <= '0;
      enters_q    <= 1'b1;
      sound_o     <= 1'b1;
    end else begin
      if (over) component_q <= component_q + 1'b1;
      enters_q <= over || (enters_q && !running_q);
      if (fails_q || (compares_q && level_q != expected)) sound_o <= 1'b0;
    end
    index_q <= walking ? index_q + 1'b1 : file_end_i ? 6'd1 : band_first_i;
    if (clear_i) sent_q <= '0;
    else if (first_o && over) sent_q[component_q] <= 1'b1;
  end

endmodule
