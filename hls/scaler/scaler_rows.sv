// The pass of the scaler along rows: for each row, the entries of a table from the first to the
// last.
//
// Interface   the table is written before `run_i` rises. While that is low, all is forgotten but
//             the table. Pairs of pixels in and out by ready/valid; a row begins with a new pair.
// Throughput  an entry a clock: two steps if `wide_i`, else one.
// Latency     14 clocks from a pixel to an output that it completes.
// Memory      the table: 4096 entries of 196 bits, in UltraRAM.
module scaler_rows
  import headrace_pkg::*;
  import scaler_pkg::*;
(
  input  logic                 clk_i,
  input  logic                 rst_ni,

  input  logic                 table_we_i,
  input  logic [EntryBits-1:0] table_index_i,
  input  entry_t               table_entry_i,

  input  logic                 run_i,
  input  logic                 wide_i,
  input  pass_t                pass_i,
  input  logic [15:0]          height_i,
  input  logic [15:0]          out_width_i,

  input  pixel_t [1:0]         pixel_i,
  input  logic                 both_i,
  input  logic                 valid_i,
  output logic                 ready_o,

  output pixel_t [1:0]         pixel_o,
  output logic                 both_o,
  output logic                 valid_o,
  input  logic                 ready_i
);

  logic gather;
  assign gather = pass_i.gather;

  // ---- The table, read ahead ----
  (* ram_style = "ultra" *) entry_t entries[Entries];
  logic [EntryBits-1:0] index_q, last_index;
  logic [15:0]          row_q;
  logic                 more_q, valid_1, first_1, valid_2, first_2;
  entry_t               entry_1, entry_2;
  logic                 step, go, room;

  assign last_index = EntryBits'(pass_i.entries - 32'd1);
  assign step       = !valid_2 || go;

  always_ff @(posedge clk_i) begin
    if (table_we_i) entries[table_index_i] <= table_entry_i;
  end
  always_ff @(posedge clk_i) begin
    if (step) begin
      entry_1 <= entries[index_q];
      entry_2 <= entry_1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) begin
      valid_1 <= 1'b0;
      valid_2 <= 1'b0;
      more_q  <= 1'b1;
      index_q <= '0;
      row_q   <= '0;
    end else if (step) begin
      valid_1 <= more_q;
      valid_2 <= valid_1;
      if (more_q) begin
        index_q <= index_q == last_index ? '0 : index_q + 1'b1;
        if (index_q == last_index) begin
          row_q  <= row_q + 16'd1;
          more_q <= row_q + 16'd1 != height_i;
        end
      end
    end
    if (step) begin
      first_1 <= index_q == '0;
      first_2 <= first_1;
    end
  end

  // ---- Pixels, up to two a clock ----
  logic [2:0]   held;
  logic [1:0]   used;
  pixel_t [1:0] next;
  logic         take_b, give_b;

  assign take_b = entry_2.take_b && wide_i;
  assign give_b = entry_2.give_b && wide_i;
  assign used   = 2'(entry_2.take) + 2'(take_b);
  assign go     = valid_2 && 3'(used) <= held && room;

  pixel_gear u_gear (
    .clk_i,
    .rst_ni (rst_ni && run_i),
    .pixel_i, .both_i, .valid_i, .ready_o,
    .pixel_o(next),
    .held_o (held),
    .used_i (go ? used : 2'd0)
  );

  // ---- What the weights multiply ----
  pixel_t [Lanes-1:0] window_q, window_a, window_b;  // the last pixels, the newest first
  pixel_t             pixel_a, pixel_b;

  assign pixel_a  = entry_2.take ? next[0] : '0;
  assign pixel_b  = take_b ? next[entry_2.take ? 1 : 0] : '0;
  assign window_a = entry_2.take ? {window_q[Lanes-2:0], pixel_a} : window_q;
  assign window_b = take_b ? {window_a[Lanes-2:0], pixel_b} : window_a;

  always_ff @(posedge clk_i) begin
    if (!run_i) window_q <= '0;
    else if (go) window_q <= window_b;
  end

  logic                             valid_3, first_3, give_3, give_b_3;
  pixel_t [Lanes-1:0]               pixel_3;
  logic [Lanes-1:0][WeightBits-1:0] weight_3;

  always_ff @(posedge clk_i) begin
    valid_3  <= go && run_i;
    first_3  <= first_2;
    give_3   <= entry_2.give;
    give_b_3 <= give_b;
    weight_3 <= entry_2.weight;
    for (int l = 0; l < Lanes; l++) begin
      if (wide_i && l >= WideLanes) pixel_3[l] <= gather ? window_b[l-WideLanes] : pixel_b;
      else pixel_3[l] <= gather ? window_a[l] : pixel_a;
    end
  end

  // ---- Products ----
  sums_t [Lanes-1:0] product_4;
  logic              valid_4, first_4, give_4, give_b_4;

  function automatic logic signed [31:0] product(logic [WeightBits-1:0] weight,
                                                 logic [7:0] value);
    return 32'($signed(weight) * $signed({1'b0, value}));
  endfunction

  always_ff @(posedge clk_i) begin
    {valid_4, first_4, give_4, give_b_4} <= {valid_3, first_3, give_3, give_b_3};
    for (int l = 0; l < Lanes; l++) begin
      product_4[l][0] <= product(weight_3[l], pixel_3[l].r);
      product_4[l][1] <= product(weight_3[l], pixel_3[l].g);
      product_4[l][2] <= product(weight_3[l], pixel_3[l].b);
    end
  end

  // ---- Sums of a clock: of a scatter by open output, before its steps; of a gather by halves ----
  sums_t [Lanes-1:0] part_5;
  logic              valid_5, first_5, give_5, give_b_5;

  always_ff @(posedge clk_i) begin
    {valid_5, first_5, give_5, give_b_5} <= {valid_4, first_4, give_4, give_b_4};
    for (int c = 0; c < 3; c++) begin
      for (int l = 0; l < Lanes; l++) part_5[l][c] <= product_4[l][c];
      if (gather) begin
        for (int l = 0; l < WideLanes; l++) begin
          part_5[l][c] <= product_4[2*l][c] + product_4[2*l+1][c];
        end
      end else if (wide_i) begin
        for (int l = WideLanes; l < Lanes; l++) part_5[l][c] <= '0;
        // The second step's first open output is the second one if the first step gives one.
        for (int l = 0; l < WideLanes; l++) begin
          if (!give_4) part_5[l][c] <= product_4[l][c] + product_4[WideLanes+l][c];
          else if (l > 0) part_5[l][c] <= product_4[l][c] + product_4[WideLanes+l-1][c];
        end
        if (give_4) part_5[WideLanes][c] <= product_4[Lanes-1][c];
      end
    end
  end

  // ---- Open outputs ----
  sums_t [Lanes-1:0] open_q, total;
  logic [1:0]        shift;
  sums_t [1:0]       sum_6;
  logic              valid_6, two_6;

  assign shift = 2'(give_5) + 2'(give_b_5);
  always_comb begin
    for (int l = 0; l < Lanes; l++) begin
      for (int c = 0; c < 3; c++) total[l][c] = (first_5 ? '0 : open_q[l][c]) + part_5[l][c];
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_5) begin
      for (int l = 0; l < Lanes; l++) begin
        unique case (shift)
          2'd0:    open_q[l] <= total[l];
          2'd1:    open_q[l] <= l + 1 < Lanes ? total[(l+1)%Lanes] : '0;
          default: open_q[l] <= l + 2 < Lanes ? total[(l+2)%Lanes] : '0;
        endcase
      end
    end
    valid_6 <= valid_5 && run_i && (give_5 || give_b_5);
    two_6   <= give_5 && give_b_5;
    for (int c = 0; c < 3; c++) begin
      if (gather) begin
        sum_6[0][c] <= part_5[0][c] + part_5[1][c];
        sum_6[1][c] <= part_5[2][c] + part_5[3][c];
        if (wide_i && !give_5) sum_6[0][c] <= part_5[2][c] + part_5[3][c];
      end else begin
        sum_6[0][c] <= total[0][c];
        sum_6[1][c] <= total[1][c];
      end
    end
  end

  sums_t [1:0] sum_7;
  logic        valid_7, two_7;
  always_ff @(posedge clk_i) begin
    valid_7 <= valid_6 && run_i;
    two_7   <= two_6;
    sum_7   <= sum_6;
    for (int c = 0; c < 3; c++) begin
      if (gather && !wide_i) sum_7[0][c] <= sum_6[0][c] + sum_6[1][c];
    end
  end

  scaler_output u_output (
    .clk_i,
    .rst_ni (rst_ni && run_i),
    .width_i(out_width_i),
    .bits_i (pass_i.bits),
    .sum_i  (sum_7),
    .two_i  (two_7),
    .valid_i(valid_7),
    .room_o (room),
    .pixel_o, .both_o, .valid_o, .ready_i
  );

endmodule
