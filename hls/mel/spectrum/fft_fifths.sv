// The part of a DFT of 200 complex points that is DFTs of 25: first_fifths() and second_fifths() of
// mel.cpp.
//
// Interface   a frame in 120 consecutive clocks, the first one told by `start_i`: for r = 0 to 39
//             points r + 40 and r + 160, r + 80 and r + 120, then r with zero. Out for the last
//             three stages of the FFT: 100 consecutive clocks with points b and b + 4 of each DFT
//             of 8; in each other's place where `swapped_o` says so.
// Products    by the rotates of the first four stages of the FFT, which these frames do not use:
//             [0] and [1] turn the points between the two passes, [2] and [3] are those of the two
//             passes. `turn_index_o` leaves a clock before the numbers, which come back four clocks
//             later.
// Throughput  frames begin at least 135 clocks apart. Latency 290 clocks.
// Memory      200 points between the passes, and behind the second, two frames each, in two banks.
//             Of the points that are written together one goes to each bank, and so it is with
//             those that are read together.
module fft_fifths
  import mel_pkg::*;
(
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             start_i,
  input  point_t           low_i,
  input  point_t           high_i,

  output logic  [3:0][7:0] turn_index_o,
  output wide_t [3:0]      turn_re_o,
  output wide_t [3:0]      turn_im_o,
  input  half_t [3:0]      turn_re_i,
  input  half_t [3:0]      turn_im_i,

  output logic             start_o,
  output logic             swapped_o,
  output point_t           low_o,
  output point_t           high_o
);

  // Results 3 and 4 of a DFT of 5 lie in the bank where 2 and 1 do not.
  function automatic logic other_bank(logic [2:0] number);
    return number[2] || number[1:0] == 2'd3;
  endfunction

  // In which of the three clocks of a DFT a result leaves.
  function automatic logic [1:0] slot_of(logic [2:0] number);
    return number == 3'd0 ? 2'd2 : {1'b0, number[1]};
  endfunction

  // (number + 2 b) modulo 5 and (number - 2 b) modulo 5, number in front of b
  logic [63:0][2:0] forward, back;
  for (genvar i = 0; i < 64; i++) begin : gen_modulo
    assign forward[i] = 3'((i / 8 + i % 8 * 2) % 5);
    assign back[i]    = 3'((i / 8 + i % 8 * 3) % 5);
  end

  // ---- First pass ----
  logic        out_1;
  half_point_t low_1, high_1;
  logic        flip_1;
  logic [1:0]  index_1;

  dft5 i_first (
    .clk_i,
    .rst_ni,
    .start_i,
    .low_i,
    .high_i,
    .negate_i     (1'b0),
    .turn_index_o (index_1),
    .turn_re_o    (turn_re_o[2]),
    .turn_im_o    (turn_im_o[2]),
    .turn_re_i    (turn_re_i[2]),
    .turn_im_i    (turn_im_i[2]),
    .flip_i       (flip_1),
    .start_o      (out_1),
    .low_o        (low_1),
    .high_o       (high_1)
  );
  assign turn_index_o[2] = 8'(index_1);

  // What leaves next: DFT r, clock `slot`. The points turn while they go to memory.
  logic [9:1]      start_q;
  logic            busy_1_q;
  logic [5:0]      r_q;
  logic [1:0]      slot_1_q;
  logic [5:1]      write_1_q;
  logic [5:1][7:0] write_1_address_q;
  logic            end_1;

  assign flip_1          = other_bank(forward[r_q]);
  assign turn_index_o[0] = {r_q, slot_1_q};
  assign turn_index_o[1] = {r_q, slot_1_q};
  assign turn_re_o[0]    = low_1.re[34:0];
  assign turn_im_o[0]    = low_1.im[34:0];
  assign turn_re_o[1]    = high_1.re[34:0];
  assign turn_im_o[1]    = high_1.im[34:0];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      start_q   <= '0;
      busy_1_q  <= 1'b0;
      write_1_q <= '0;
    end else begin
      start_q   <= {start_q[8:1], start_i};
      write_1_q <= {write_1_q[4:1], busy_1_q};
      if (start_q[9]) busy_1_q <= 1'b1;
      else if (r_q == 6'd39 && slot_1_q == 2'd2) busy_1_q <= 1'b0;
    end
  end
  always_ff @(posedge clk_i) begin
    write_1_address_q <= {write_1_address_q[4:1], {r_q, slot_1_q}};
    if (!busy_1_q) begin
      r_q      <= '0;
      slot_1_q <= '0;
    end else begin
      slot_1_q <= slot_1_q == 2'd2 ? 2'd0 : slot_1_q + 2'd1;
      if (slot_1_q == 2'd2) r_q <= r_q + 6'd1;
    end
  end
  assign end_1 = write_1_q[5] && !write_1_q[4];

  // ---- Between the passes ----
  (* ram_style = "block" *) logic [67:0] low_memory_1[512];
  (* ram_style = "block" *) logic [67:0] high_memory_1[512];
  logic        page_1_q, read_page_1_q;
  logic        busy_2_q;
  logic [2:0]  c_q, b_q;
  logic [1:0]  slot_2_q;
  logic [2:0]  near_number, far_number, low_number, high_number;
  logic        other_2, end_2;
  point_t      low_2, high_2, low_3, high_3;
  logic [2:1]  start_2_q, other_2_q;
  logic        last_2_q;  // point 0

  assign other_2     = other_bank(c_q);
  assign near_number = slot_2_q == 2'd0 ? 3'd1 : slot_2_q == 2'd1 ? 3'd2 : 3'd0;
  assign far_number  = slot_2_q == 2'd0 ? 3'd4 : slot_2_q == 2'd1 ? 3'd3 : 3'd0;
  assign low_number  = back[{other_2 ? far_number : near_number, b_q}];
  assign high_number = back[{other_2 ? near_number : far_number, b_q}];
  assign end_2       = busy_2_q && c_q == 3'd4 && b_q == 3'd7 && slot_2_q == 2'd2;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      page_1_q  <= 1'b0;
      busy_2_q  <= 1'b0;
      start_2_q <= '0;
    end else begin
      if (end_1) page_1_q <= !page_1_q;
      if (end_1) busy_2_q <= 1'b1;
      else if (end_2) busy_2_q <= 1'b0;
      start_2_q <= {start_2_q[1], busy_2_q && c_q == '0 && b_q == '0 && slot_2_q == '0};
    end
  end
  always_ff @(posedge clk_i) begin
    if (end_1) read_page_1_q <= page_1_q;
    if (!busy_2_q) begin
      c_q      <= '0;
      b_q      <= '0;
      slot_2_q <= '0;
    end else begin
      slot_2_q <= slot_2_q == 2'd2 ? 2'd0 : slot_2_q + 2'd1;
      if (slot_2_q == 2'd2) begin
        b_q <= b_q + 3'd1;
        if (b_q == 3'd7) c_q <= c_q + 3'd1;
      end
    end
    other_2_q <= {other_2_q[1], other_2};
    last_2_q  <= slot_2_q == 2'd2;
  end

  always_ff @(posedge clk_i) begin
    if (write_1_q[5]) begin
      low_memory_1[{page_1_q, write_1_address_q[5]}] <= {turn_re_i[0][33:0], turn_im_i[0][33:0]};
    end
    low_2 <= low_memory_1[{read_page_1_q, low_number, b_q, slot_of(c_q)}];
    if (last_2_q && other_2_q[1]) low_3 <= '0;
    else low_3 <= low_2;
  end
  always_ff @(posedge clk_i) begin
    if (write_1_q[5]) begin
      high_memory_1[{page_1_q, write_1_address_q[5]}] <= {turn_re_i[1][33:0], turn_im_i[1][33:0]};
    end
    high_2 <= high_memory_1[{read_page_1_q, high_number, b_q, slot_of(c_q)}];
    if (last_2_q && !other_2_q[1]) high_3 <= '0;
    else high_3 <= high_2;
  end

  // ---- Second pass ----
  logic        out_2, flip_2;
  logic [1:0]  index_2;
  half_point_t low_4, high_4;

  dft5 i_second (
    .clk_i,
    .rst_ni,
    .start_i      (start_2_q[2]),
    .low_i        (low_3),
    .high_i       (high_3),
    .negate_i     (other_2_q[2]),
    .turn_index_o (index_2),
    .turn_re_o    (turn_re_o[3]),
    .turn_im_o    (turn_im_o[3]),
    .turn_re_i    (turn_re_i[3]),
    .turn_im_i    (turn_im_i[3]),
    .flip_i       (flip_2),
    .start_o      (out_2),
    .low_o        (low_4),
    .high_o       (high_4)
  );
  assign turn_index_o[3] = 8'(index_2);

  logic [11:3] start_3_q;
  logic        busy_3_q, write_3_q, end_3;
  logic [5:0]  n_q;  // 8 c + b
  logic [1:0]  slot_3_q;
  logic [7:0]  write_3_address_q;

  assign flip_2 = n_q[2];
  assign end_3  = write_3_q && !busy_3_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      start_3_q <= '0;
      busy_3_q  <= 1'b0;
      write_3_q <= 1'b0;
    end else begin
      start_3_q <= {start_3_q[10:3], start_2_q[2]};
      write_3_q <= busy_3_q;
      if (start_3_q[11]) busy_3_q <= 1'b1;
      else if (n_q == 6'd39 && slot_3_q == 2'd2) busy_3_q <= 1'b0;
    end
  end
  always_ff @(posedge clk_i) begin
    write_3_address_q <= {n_q, slot_3_q};
    if (!busy_3_q) begin
      n_q      <= '0;
      slot_3_q <= '0;
    end else begin
      slot_3_q <= slot_3_q == 2'd2 ? 2'd0 : slot_3_q + 2'd1;
      if (slot_3_q == 2'd2) n_q <= n_q + 6'd1;
    end
  end

  // ---- Behind the second pass ----
  (* ram_style = "block" *) logic [67:0] low_memory_3[512];
  (* ram_style = "block" *) logic [67:0] high_memory_3[512];
  logic       page_3_q, read_page_3_q, busy_4_q, end_4, other_4;
  logic [2:0] d_q, c_4_q;
  logic [1:0] b_4_q;
  point_t     low_5, high_5;
  logic [2:1] start_4_q, swapped_q;

  assign other_4 = other_bank(d_q);
  assign end_4   = busy_4_q && d_q == 3'd4 && c_4_q == 3'd4 && b_4_q == 2'd3;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      page_3_q  <= 1'b0;
      busy_4_q  <= 1'b0;
      start_4_q <= '0;
    end else begin
      if (end_3) page_3_q <= !page_3_q;
      if (end_3) busy_4_q <= 1'b1;
      else if (end_4) busy_4_q <= 1'b0;
      start_4_q <= {start_4_q[1], busy_4_q && d_q == '0 && c_4_q == '0 && b_4_q == '0};
    end
  end
  always_ff @(posedge clk_i) begin
    if (end_3) read_page_3_q <= page_3_q;
    if (!busy_4_q) begin
      d_q   <= '0;
      c_4_q <= '0;
      b_4_q <= '0;
    end else begin
      b_4_q <= b_4_q + 2'd1;
      if (b_4_q == 2'd3) begin
        c_4_q <= c_4_q == 3'd4 ? 3'd0 : c_4_q + 3'd1;
        if (c_4_q == 3'd4) d_q <= d_q + 3'd1;
      end
    end
    swapped_q <= {swapped_q[1], other_4};
  end

  always_ff @(posedge clk_i) begin
    if (write_3_q) begin
      low_memory_3[{page_3_q, write_3_address_q}] <= {low_4.re[35:2], low_4.im[35:2]};
    end
    low_5 <= low_memory_3[{read_page_3_q, c_4_q, other_4, b_4_q, slot_of(d_q)}];
    low_o <= low_5;
  end
  always_ff @(posedge clk_i) begin
    if (write_3_q) begin
      high_memory_3[{page_3_q, write_3_address_q}] <= {high_4.re[35:2], high_4.im[35:2]};
    end
    high_5 <= high_memory_3[{read_page_3_q, c_4_q, !other_4, b_4_q, slot_of(d_q)}];
    high_o <= high_5;
  end
  assign start_o   = start_4_q[2];
  assign swapped_o = swapped_q[2];

`ifndef SYNTHESIS
  a_half_fits: assert property (@(posedge clk_i) disable iff (!rst_ni)
    write_1_q[1] |-> low_1.re[35] == low_1.re[34] && low_1.im[35] == low_1.im[34] &&
                     high_1.re[35] == high_1.re[34] && high_1.im[35] == high_1.im[34]);
  a_first_written: assert property (@(posedge clk_i) disable iff (!rst_ni)
    out_1 |-> write_1_q[1] && !write_1_q[2]);
  a_second_written: assert property (@(posedge clk_i) disable iff (!rst_ni)
    out_2 |-> write_3_q && write_3_address_q == '0);
`endif

endmodule
