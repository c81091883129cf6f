// The pass of the scaler along columns: an entry of the list for each step, over a row of pixels.
//
// Interface   entries and pairs of pixels in, pairs out, by ready/valid; a row begins with a new
//             pair. While `run_i` is low, all is forgotten. `done_o`: the list has ended, and took
//             and gave as many rows as it should. `bad_o`: it does not; nothing more comes then.
// Throughput  two pixels of a row a clock if `wide_i`, else one, and two clocks between rows; at
//             least ten clocks a row.
// Latency     13 clocks from a pixel to an output that it completes.
// Memory      4096 words of 24 sums, in UltraRAM: a word has the open outputs of two columns with
//             four weights a step, or of one column with eight. A gather has its last rows there.
module scaler_columns
  import headrace_pkg::*;
  import scaler_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         run_i,
  input  logic         wide_i,
  input  pass_t        pass_i,
  input  logic [15:0]  width_i,
  input  logic [15:0]  height_i,
  input  logic [15:0]  out_height_i,
  output logic         done_o,
  output logic         bad_o,

  input  entry_t       entry_i,
  input  logic         entry_valid_i,
  output logic         entry_ready_o,

  input  pixel_t [1:0] pixel_i,
  input  logic         both_i,
  input  logic         valid_i,
  output logic         ready_o,

  output pixel_t [1:0] pixel_o,
  output logic         both_o,
  output logic         valid_o,
  input  logic         ready_i
);

  // Clocks from reading a word until its next value can be read.
  localparam int unsigned Turn = 8;

  typedef logic [2:0] slot_t;

  logic gather, narrow;
  assign gather = pass_i.gather;
  assign narrow = !wide_i;

  typedef enum logic [2:0] {
    StFetch,  // an entry
    StSet,    // its weights in the order of the slots
    StRow,
    StDone,
    StBad
  } state_e;
  state_e state_q;

  // ---- Steps ----
  entry_t              entry_q;
  logic [31:0]         entries_q;            // that have not come
  logic [16:0]         taken_q, given_q;     // rows
  logic [HeldBits-1:0] word_q, last_word;
  logic [3:0]          pause_q;              // clocks until the next row may begin
  logic                issue, last, room, too_many;

  assign last_word     = wide_i ? HeldBits'((width_i - 16'd1) >> 1) : HeldBits'(width_i - 16'd1);
  assign last          = word_q == last_word;
  assign entry_ready_o = run_i && state_q == StFetch && entries_q != '0 && pause_q == '0;
  assign too_many      = taken_q + 17'(entry_q.take) > 17'(height_i) ||
                         given_q + 17'(entry_q.give) > 17'(out_height_i);

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) begin
      state_q   <= StFetch;
      entries_q <= pass_i.entries;
      taken_q   <= '0;
      given_q   <= '0;
      word_q    <= '0;
      pause_q   <= '0;
    end else begin
      if (pause_q != '0) pause_q <= pause_q - 4'd1;
      unique case (state_q)
        StFetch: begin
          if (entries_q == '0 && pause_q == '0) begin
            state_q <= taken_q == 17'(height_i) && given_q == 17'(out_height_i) ? StDone : StBad;
          end else if (entry_valid_i && entry_ready_o) begin
            state_q   <= StSet;
            entries_q <= entries_q - 32'd1;
          end
        end
        StSet: begin
          state_q <= too_many ? StBad : StRow;
          taken_q <= taken_q + 17'(entry_q.take);
          given_q <= given_q + 17'(entry_q.give);
        end
        StRow: begin
          if (issue) begin
            word_q <= last ? '0 : word_q + 1'b1;
            if (last) begin
              state_q <= StFetch;
              // Words of a short row come again while their values are on their way.
              if (last_word < HeldBits'(Turn)) pause_q <= 4'(Turn);
            end
          end
        end
        default: ;
      endcase
    end
    if (entry_ready_o) entry_q <= entry_i;
  end

  assign done_o = state_q == StDone;
  assign bad_o  = state_q == StBad;

  // ---- Of the row ----
  logic                             started_q;  // a row has been set before
  logic                             take_q, give_q;
  slot_t                            base_q, base;  // first open output, or the newest row
  logic [Lanes-1:0]                 fresh_q;       // slots that hold 0, whatever the memory has
  logic [Lanes-1:0][WeightBits-1:0] weight_q;      // by slot

  function automatic slot_t slot_of(slot_t number);
    return narrow ? number : number & 3'b011;
  endfunction

  always_comb begin
    base = base_q;
    if (gather ? entry_q.take : started_q && give_q) base = slot_of(base_q + 3'd1);
  end

  always_ff @(posedge clk_i) begin
    if (!run_i) begin
      started_q <= 1'b0;
      give_q    <= 1'b0;
      base_q    <= '0;
    end else if (state_q == StSet) begin
      started_q <= 1'b1;
      take_q    <= entry_q.take;
      give_q    <= entry_q.give;
      base_q    <= base;
      for (int s = 0; s < Lanes; s++) begin
        fresh_q[s]  <= !started_q || (!gather && give_q && slot_of(slot_t'(s)) == base_q);
        weight_q[s] <= entry_q.weight[slot_of(gather ? base - slot_t'(s) : slot_t'(s) - base)];
      end
    end
  end

  // ---- Pixels ----
  logic   right_q;  // the right pixel of the pair is next
  pixel_t left;

  assign issue   = state_q == StRow && room && (!take_q || valid_i);
  assign ready_o = issue && take_q && (wide_i || right_q || !both_i);
  assign left    = narrow && right_q ? pixel_i[1] : pixel_i[0];

  always_ff @(posedge clk_i) begin
    if (!run_i) right_q <= 1'b0;
    else if (issue && take_q && narrow) right_q <= !right_q && both_i;
  end

  // ---- The row memory ----
  (* ram_style = "ultra" *) sums_t [Lanes-1:0] held[HeldWords];
  sums_t [Lanes-1:0] read_1, read_2, written_5;
  logic [5:1]                valid_q, give_p, two_p;
  logic [5:1][HeldBits-1:0]  word_p;
  slot_t [5:1]               base_p;
  pixel_t [1:0]              pixel_1, pixel_2;
  logic [2:1]                take_p;

  always_ff @(posedge clk_i) begin
    if (valid_q[5]) held[word_p[5]] <= written_5;
    read_1 <= held[word_q];
    read_2 <= read_1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) valid_q <= '0;
    else valid_q <= {valid_q[4:1], issue};
    give_p  <= {give_p[4:1], give_q};
    two_p   <= {two_p[4:1], wide_i && !(last && width_i[0])};
    word_p  <= {word_p[4:1], word_q};
    base_p  <= {base_p[4:1], base_q};
    take_p  <= {take_p[1], take_q};
    pixel_1 <= {pixel_i[1], left};
    pixel_2 <= pixel_1;
  end

  // ---- Products. Lane l has slot l, or slot l % 4 of column l / 4 if wide. ----
  sums_t [Lanes-1:0]                before_3, before_4, product_4;
  logic [Lanes-1:0][2:0][7:0]       factor_3, factor_4;
  logic [Lanes-1:0][WeightBits-1:0] weight_3;

  function automatic logic signed [31:0] product(logic [WeightBits-1:0] weight,
                                                 logic [7:0] value);
    return 32'($signed(weight) * $signed({1'b0, value}));
  endfunction

  always_ff @(posedge clk_i) begin
    for (int l = 0; l < Lanes; l++) begin
      automatic slot_t  slot  = slot_of(slot_t'(l));
      automatic pixel_t pixel = pixel_2[wide_i && l >= WideLanes ? 1 : 0];
      weight_3[l] <= weight_q[slot];
      for (int c = 0; c < 3; c++) begin
        before_3[l][c] <= fresh_q[slot] ? '0 : read_2[l][c];
        if (gather && !(take_p[2] && slot == base_p[2])) begin
          factor_3[l][c] <= fresh_q[slot] ? '0 : read_2[l][c][7:0];
        end else begin
          factor_3[l][c] <= !take_p[2] ? '0 : c == 0 ? pixel.r : c == 1 ? pixel.g : pixel.b;
        end
        product_4[l][c] <= product(weight_3[l], factor_3[l][c]);
      end
    end
    before_4 <= before_3;
    factor_4 <= factor_3;
  end

  // ---- Sums, and what is kept of them ----
  sums_t [3:0] part_5;
  always_ff @(posedge clk_i) begin
    for (int c = 0; c < 3; c++) begin
      for (int l = 0; l < Lanes; l++) begin
        written_5[l][c] <= gather ? {24'd0, factor_4[l][c]} : before_4[l][c] + product_4[l][c];
      end
      for (int i = 0; i < 4; i++) part_5[i][c] <= product_4[2*i][c] + product_4[2*i+1][c];
    end
  end

  sums_t [1:0] sum_6, sum_7;
  logic        valid_6, two_6, valid_7, two_7;
  always_ff @(posedge clk_i) begin
    {valid_6, two_6} <= {valid_q[5] && give_p[5] && run_i, two_p[5]};
    {valid_7, two_7} <= {valid_6 && run_i, two_6};
    sum_7            <= sum_6;
    for (int c = 0; c < 3; c++) begin
      if (gather) begin
        sum_6[0][c] <= part_5[0][c] + part_5[1][c];
        sum_6[1][c] <= part_5[2][c] + part_5[3][c];
      end else begin
        sum_6[0][c] <= written_5[base_p[5]][c];
        sum_6[1][c] <= written_5[{1'b1, base_p[5][1:0]}][c];
      end
      if (gather && narrow) sum_7[0][c] <= sum_6[0][c] + sum_6[1][c];
    end
  end

  scaler_output u_output (
    .clk_i,
    .rst_ni (rst_ni && run_i),
    .width_i,
    .bits_i (pass_i.bits),
    .sum_i  (sum_7),
    .two_i  (two_7),
    .valid_i(valid_7),
    .room_o (room),
    .pixel_o, .both_o, .valid_o, .ready_i
  );

endmodule
