// Filterbank: runs the program of the mel filters over each frame's spectrum.
//
// Reference   filterbank() of mel.cpp, and what logarithm() adds up of it. A step of the program is
//             a clock.
// Interface   ProgramSteps words of the program, with `load_i` high, when no frame is inside.
//             `ready_i` tells of a frame in spectrum's memory, `read_o` that it has been read.
//             Energies leave frame after frame, filter 0 first, the floor added, which depends on
//             the frame's exponent: that of the frame which leaves next stands at `exponent_i`.
// Throughput  a frame in as many clocks as its program has steps, or as there are filters if they
//             are more.
// Memory      the program; energies of both lanes, four frames each.
module filterbank
  import mel_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         load_i,
  input  logic [7:0]   load_index_i,
  input  logic [127:0] load_word_i,
  input  logic         points_400_i,
  input  logic [7:0]   n_mels_i,
  input  logic         floor_added_i,
  input  logic [31:0]  log_floor_i,

  input  logic         ready_i,
  output logic         read_o,
  output logic [1:0]   slot_o,  // to spectrum, and the powers of Latency clocks later
  output logic [7:0]   k_o,
  input  power_t       up_i,
  input  power_t       down_i,

  output logic         given_o,         // the next frame's exponent is wanted
  input  exponent_t    exponent_i,

  output energy_t      energy_o,
  output exponent_t    energy_exponent_o,
  output logic         energy_last_o,  // of the frame
  output logic         energy_valid_o,
  input  logic         energy_ready_i
);

  localparam int unsigned Latency = 13;  // of spectrum

  // ---- The program ----
  (* ram_style = "block" *) logic [98:0] program_memory[ProgramSteps];
  logic [98:0] loaded, step_1, step_2;
  logic [7:0]  last_step_q;
  logic        last_found_q;

  // rising, falling, emit of the lane down, then of the lane up, then advance
  assign loaded = {load_word_i[111:88], load_word_i[87:64], load_word_i[112],
                   load_word_i[47:24], load_word_i[23:0], load_word_i[48], load_word_i[49]};

  always_ff @(posedge clk_i) begin
    if (load_i) begin
      if (load_index_i == '0 || !last_found_q) last_step_q <= load_index_i;
      last_found_q <= load_word_i[50] || (load_index_i != '0 && last_found_q);
    end
  end

  // ---- Steps of a frame, without a gap between frames ----
  logic [2:0] frames_ready_q;   // in spectrum's memory, not begun
  logic [2:0] frames_inside_q;  // begun, and not yet all given out
  logic       running_q, begins, at_last_q, ends, given;  // at_last_q: at the last step
  logic [7:0] step_q;
  logic [1:0] slot_q;

  assign ends   = running_q && at_last_q;
  assign begins = frames_ready_q != '0 && frames_inside_q < 3'(Slots) && (!running_q || ends);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      frames_ready_q  <= '0;
      frames_inside_q <= '0;
      running_q       <= 1'b0;
      slot_q          <= '1;
    end else begin
      frames_ready_q  <= frames_ready_q + 3'(ready_i) - 3'(begins);
      frames_inside_q <= frames_inside_q + 3'(begins) - 3'(given);
      if (begins) running_q <= 1'b1;
      else if (ends) running_q <= 1'b0;
      if (begins) slot_q <= slot_q + 2'd1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (begins) step_q <= '0;
    else step_q <= step_q + 8'd1;
    at_last_q <= begins ? last_step_q == '0 : step_q + 8'd1 == last_step_q;
  end

  // The slot is the same in spectrum's memory and in that of energies: both count frames.
  logic [3+Latency+5:1]      valid_q, last_q;  // from the read of the program on
  logic [2:1]                first_q;
  logic [3+Latency+5:1][1:0] slot_pipe_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= '0;
      last_q  <= '0;
    end else begin
      valid_q <= {valid_q[3+Latency+4:1], running_q};
      last_q  <= {last_q[3+Latency+4:1], ends};
    end
  end
  always_ff @(posedge clk_i) begin
    first_q     <= {first_q[1], step_q == '0};
    slot_pipe_q <= {slot_pipe_q[3+Latency+4:1], slot_q};
  end

  always_ff @(posedge clk_i) begin
    if (load_i) program_memory[load_index_i] <= loaded;
    step_1 <= program_memory[step_q];
  end

  logic       advance_q;  // the step before advances
  logic [7:0] k_q, middle;
  assign middle = points_400_i ? 8'd100 : 8'd128;
  always_ff @(posedge clk_i) begin
    step_2 <= step_1;
    if (valid_q[2]) begin
      advance_q <= step_2[0];
      k_q       <= first_q[2] || (advance_q && k_q == middle) ? 8'd1 : k_q + 8'(advance_q);
    end
  end
  assign k_o    = k_q;
  assign slot_o = slot_pipe_q[3];
  assign read_o = last_q[4];  // the memory's output has it

  // ---- Lanes ----
  logic [97:0] entries;
  logic        emit_up, emit_down;
  energy_t     up_energy, down_energy;
  logic [8:0]  up_count, down_count, up_total, down_total;

  delay_line #(.Width(98), .Depth(1 + Latency)) i_entries (
    .clk_i, .rst_ni, .data_i(step_2[98:1]), .data_o(entries)
  );

  filter_lane i_up (
    .clk_i,
    .rst_ni,
    .valid_i  (valid_q[3+Latency]),
    .last_i   (last_q[3+Latency]),
    .entry_i  (entries[48:0]),
    .power_i  (up_i),
    .emit_o   (emit_up),
    .energy_o (up_energy),
    .count_o  (up_count),
    .total_o  (up_total)
  );
  filter_lane i_down (
    .clk_i,
    .rst_ni,
    .valid_i  (valid_q[3+Latency]),
    .last_i   (last_q[3+Latency]),
    .entry_i  (entries[97:49]),
    .power_i  (down_i),
    .emit_o   (emit_down),
    .energy_o (down_energy),
    .count_o  (down_count),
    .total_o  (down_total)
  );

  // ---- Energies of frames ----
  // No entry that counts is read while it is written: frames leave when they are whole.
  (* ram_style = "block", no_rw_check *) energy_t up_memory[Slots*MaxMels];
  (* ram_style = "block", no_rw_check *) energy_t down_memory[Slots*MaxMels];
  logic [Slots-1:0][8:0] up_total_q, down_total_q;
  logic [1:0]            write_slot;
  logic                  whole;
  assign write_slot = slot_pipe_q[3+Latency+5];
  assign whole      = last_q[3+Latency+5];

  always_ff @(posedge clk_i) begin
    if (whole) begin
      up_total_q[write_slot]   <= up_total;
      down_total_q[write_slot] <= down_total;
    end
  end

  // ---- What leaves: both lanes' sums and the floor ----
  logic [2:0] frames_whole_q;
  logic [1:0] out_slot_q;
  logic [7:0] mel_q, end_q, from_top;  // end_q: the last one
  logic       go, giving;

  assign giving   = frames_whole_q != '0;
  assign given    = go && giving && mel_q == end_q;
  assign from_top = end_q - mel_q;
  assign go       = energy_ready_i || !energy_valid_o;

  always_ff @(posedge clk_i) end_q <= n_mels_i - 8'd1;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      frames_whole_q <= '0;
      out_slot_q     <= '0;
      mel_q          <= '0;
    end else begin
      frames_whole_q <= frames_whole_q + 3'(whole) - 3'(given);
      if (given) out_slot_q <= out_slot_q + 2'd1;
      if (go && giving) mel_q <= given ? '0 : mel_q + 8'd1;
    end
  end

  logic [4:1] out_valid_q, out_last_q;
  logic [2:1] has_up_q, has_down_q;
  energy_t    up_1, down_1, up_2, down_2, sum_3, sum_4, floor_3;
  exponent_t  exponent_1, exponent_2, exponent_3, exponent_4;
  logic [41:0] floor_2;

  assign given_o = given;

  always_ff @(posedge clk_i) begin
    if (emit_up && up_count < 9'(MaxMels)) up_memory[{write_slot, up_count[6:0]}] <= up_energy;
    if (go) up_1 <= up_memory[{out_slot_q, mel_q[6:0]}];
  end
  always_ff @(posedge clk_i) begin
    if (emit_down && down_count < 9'(MaxMels)) begin
      down_memory[{write_slot, down_count[6:0]}] <= down_energy;
    end
    if (go) down_1 <= down_memory[{out_slot_q, from_top[6:0]}];
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) out_valid_q <= '0;
    else if (go) out_valid_q <= {out_valid_q[3:1], giving};
  end
  always_ff @(posedge clk_i) begin
    if (go) begin
      out_last_q <= {out_last_q[3:1], given};
      has_up_q   <= {has_up_q[1], {1'b0, mel_q} < up_total_q[out_slot_q]};
      has_down_q <= {has_down_q[1], {1'b0, from_top} < down_total_q[out_slot_q]};
      up_2       <= up_1;
      down_2     <= down_1;
      sum_3      <= (has_up_q[2] ? up_2 : '0) + (has_down_q[2] ? down_2 : '0);
      sum_4      <= sum_3 + floor_3;

      // Of frames whose floor is added the exponent is below 16.
      exponent_1 <= exponent_i;
      exponent_2 <= exponent_1;
      exponent_3 <= exponent_2;
      exponent_4 <= exponent_3;
      floor_2    <= {6'd0, log_floor_i, 4'd0} << {exponent_1[1:0], 1'b0};
      floor_3    <= floor_added_i ? {22'd0, floor_2} << {exponent_2[3:2], 3'd0} : '0;
    end
  end

  assign energy_o          = sum_4;
  assign energy_exponent_o = exponent_4;
  assign energy_last_o     = out_last_q[4];
  assign energy_valid_o    = out_valid_q[4];

`ifndef SYNTHESIS
  a_slots: assert property (@(posedge clk_i) disable iff (!rst_ni)
    frames_ready_q <= 3'(Slots) && frames_inside_q <= 3'(Slots) &&
                      frames_whole_q <= frames_inside_q);
  a_load_when_empty: assert property (@(posedge clk_i) disable iff (!rst_ni)
    load_i |-> !running_q && frames_inside_q == '0);
`endif

endmodule
