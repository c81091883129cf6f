// Points of a frame: its windowed samples times 2^exponent, by which the greatest of them gets its
// first bit.
//
// Reference   the end of frame(), and scale(), of mel.cpp.
// Interface   pairs of windowed points t and t + 128 of frames in 128 consecutive clocks, the first
//             one told by `start_i`; of frames of 400 samples the second ones of t = 120 to 127 are
//             the first ones. `begin_i` has told of the frame before, when `room_o` said that there
//             is space. When `room_i` says so, too, the frame leaves in the order of fft;
//             `begin_o` comes with its exponent some clocks before `start_o`.
// Throughput  a frame every 129 clocks, of 400 samples every 136.
// Memory      two frames, of each points below 128, or 120, and from there on.
module frame_points
  import mel_pkg::*;
(
  input  logic            clk_i,
  input  logic            rst_ni,
  input  logic            points_400_i,
  input  exponent_t       max_exponent_i,

  output logic            room_o,
  input  logic            begin_i,
  input  logic            start_i,
  input  windowed_point_t low_i,
  input  windowed_point_t high_i,

  input  logic            room_i,
  output logic            begin_o,
  output exponent_t       exponent_o,
  output logic            start_o,
  output point_t          low_o,
  output point_t          high_o
);

  // ---- In: the magnitudes' bits, and the exponent behind them ----
  logic [6:0]      next_q, number;
  logic            busy_q, write, page_q, end_1_q, end_2_q, end_3_q;
  logic [3:0][34:0] magnitude;
  logic [34:0]     all_q, magnitudes_q;
  logic [39:0]     padded;
  logic [7:0]      group_q;     // of magnitudes, with the first bit
  logic [2:0]      groups_q;    // zeros in front of it
  logic [5:0]      zeros;
  exponent_t [1:0] exponent_q;  // of the pages

  assign number = start_i ? '0 : next_q;
  assign write  = start_i || busy_q;
  assign magnitude[0] = low_i.re[42:8] ^ {35{low_i.re[43]}};
  assign magnitude[1] = low_i.im[42:8] ^ {35{low_i.im[43]}};
  assign magnitude[2] = high_i.re[42:8] ^ {35{high_i.re[43]}};
  assign magnitude[3] = high_i.im[42:8] ^ {35{high_i.im[43]}};

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q  <= 1'b0;
      end_1_q <= 1'b0;
      end_2_q <= 1'b0;
      end_3_q <= 1'b0;
      page_q  <= 1'b0;
    end else begin
      busy_q  <= write && number != 7'd127;
      end_1_q <= write && number == 7'd127;
      end_2_q <= end_1_q;
      end_3_q <= end_2_q;
      if (end_1_q) page_q <= !page_q;
    end
  end
  always_ff @(posedge clk_i) begin
    next_q <= number + 7'd1;
    all_q  <= magnitude[0] | magnitude[1] | magnitude[2] | magnitude[3];
    // A clock behind `number`.
    magnitudes_q <= (next_q == 7'd1 ? '0 : magnitudes_q) | all_q;
  end

  assign padded = {magnitudes_q, 5'b11111};
  always_comb begin
    zeros = {groups_q, 3'd7};
    for (int unsigned i = 0; i < 8; i++) if (group_q[i]) zeros = {groups_q, 3'(7 - i)};
  end
  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < 5; i++) begin
      if (padded[8*i+:8] != '0) begin
        group_q  <= padded[8*i+:8];
        groups_q <= 3'(4 - i);
      end
    end
    if (end_3_q) begin
      exponent_q[!page_q] <= zeros > {1'b0, max_exponent_i} ? max_exponent_i : zeros[4:0];
    end
  end

  // ---- Which frame leaves ----
  logic [1:0] held_q, whole_q;  // begun, and complete
  logic       read_page_q, reading_q, read_start, read_end;
  logic [7:0] clock_q;
  logic [5:0] r_q;
  logic [1:0] slot_q;

  assign room_o     = held_q != 2'd2;
  assign read_start = !reading_q && whole_q != '0 && room_i;
  assign read_end   = reading_q && clock_q == (points_400_i ? 8'd134 : 8'd127);
  assign begin_o    = read_start;
  assign exponent_o = exponent_q[read_page_q];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      held_q      <= '0;
      whole_q     <= '0;
      reading_q   <= 1'b0;
      read_page_q <= 1'b0;
    end else begin
      held_q  <= held_q + 2'(begin_i) - 2'(read_end);
      whole_q <= whole_q + 2'(end_3_q) - 2'(read_end);
      if (read_start) reading_q <= 1'b1;
      else if (read_end) reading_q <= 1'b0;
      if (read_end) read_page_q <= !read_page_q;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!reading_q) begin
      clock_q <= '0;
      r_q     <= '0;
      slot_q  <= '0;
    end else begin
      clock_q <= clock_q + 8'd1;
      slot_q  <= slot_q == 2'd2 ? 2'd0 : slot_q + 2'd1;
      if (slot_q == 2'd2) r_q <= r_q + 6'd1;
    end
  end

  // ---- Memory, from where points come in the order of fft ----
  (* ram_style = "block" *) windowed_point_t low_memory[256];
  (* ram_style = "block" *) windowed_point_t high_memory[256];
  logic [6:0]      low_address, high_address;
  windowed_point_t low_1, high_1, low_2, high_2;
  logic [5:1]      start_q;
  logic [4:1]      alone_q;  // point r, which comes without another one

  always_comb begin
    unique case (slot_q)
      2'd0:    {low_address, high_address} = {7'd40 + 7'(r_q), 7'd32 + 7'(r_q)};
      2'd1:    {low_address, high_address} = {7'd80 + 7'(r_q), 7'd120 + 7'(r_q)};
      default: {low_address, high_address} = {7'(r_q), 7'(r_q)};
    endcase
    if (!points_400_i) {low_address, high_address} = {clock_q[6:0], clock_q[6:0]};
  end

  always_ff @(posedge clk_i) begin
    if (write) low_memory[{page_q, number}] <= low_i;
    low_1 <= low_memory[{read_page_q, low_address}];
    low_2 <= low_1;
  end
  always_ff @(posedge clk_i) begin
    if (write) high_memory[{page_q, number}] <= high_i;
    high_1 <= high_memory[{read_page_q, high_address}];
    high_2 <= high_1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) start_q <= '0;
    else start_q <= {start_q[4:1], reading_q && clock_q == '0};
  end
  always_ff @(posedge clk_i) alone_q <= {alone_q[3:1], points_400_i && slot_q == 2'd2};

  // ---- The exponent, in three steps ----
  exponent_t        exponent_1, exponent_2, exponent_3, exponent_4;
  windowed_t [3:0]  in_2, by_16_3, by_4_4;
  component_t [3:0] out_5;
  assign in_2 = {low_2.re, low_2.im, high_2.re, high_2.im};

  always_ff @(posedge clk_i) begin
    exponent_1 <= exponent_q[read_page_q];
    exponent_2 <= exponent_1;
    exponent_3 <= exponent_2;
    exponent_4 <= exponent_3;
  end

  for (genvar i = 0; i < 4; i++) begin : gen_component
    windowed_t by_1_5;
    assign by_1_5 = by_4_4[i] << exponent_4[0];
    always_ff @(posedge clk_i) begin
      by_16_3[i] <= in_2[i] << {exponent_2[4:3], 3'd0};
      by_4_4[i]  <= by_16_3[i] << {exponent_3[2:1], 1'b0};
      if (i < 2 && alone_q[4]) out_5[i] <= '0;
      else out_5[i] <= {by_1_5[43], by_1_5[43:11]};
    end
  end
  assign low_o   = {out_5[3], out_5[2]};
  assign high_o  = {out_5[1], out_5[0]};
  assign start_o = start_q[5];

`ifndef SYNTHESIS
  a_space: assert property (@(posedge clk_i) disable iff (!rst_ni)
    held_q <= 2'd2 && whole_q <= held_q);
`endif

endmodule
