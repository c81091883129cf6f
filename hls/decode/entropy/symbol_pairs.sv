// Two AC symbols by one look-up: tables of what stands at the top of a window of 8 bits.
//
// Reference   T.81 F.2.2.2. Two symbols are one step if both are plain: the first has a coefficient
//             other than zero, the second has one too or is EOB, all but the second's extra bits
//             lie in the window, and they advance by at most 16 coefficients. Anything else is a
//             step of one symbol, and codes of more than 8 bits are none.
// Interface   the writes that go to the AC tables, also for a clock each. For tables 0 and 1 steps
//             are worked out from them as soon as all codes of up to 8 bits are there, by the
//             second port of the short table (`short_...`), which is complete unless `spreading_i`.
//             `load_i` makes table `number_i` the one that the next clock's look-ups use.
//             `usable_o` tells that its steps are complete; until then nothing else counts.
// Throughput  one look-up a clock: `step_o` within it, `pair_o` a clock later. A table takes 256
//             clocks and two for each code of up to 8 bits, beside whatever else goes on.
// Memory      512 words of 12 bits of distributed RAM; half a block RAM for the pairs, and half of
//             one for the symbols by their place.
// Limits      a block of 64 coefficients must not end within a pair but by EOB: the user takes
//             steps only where 16 coefficients are left.
// Bad input   a table that is written again while it is worked out begins anew. A symbol of more
//             than 10 extra bits has `bad`.
module symbol_pairs
  import headrace_pkg::*;
  import entropy_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  huffman_write_t write_i,
  input  logic           write_valid_i,
  input  logic           spreading_i,

  output logic           short_number_o,
  output logic [5:0]     short_place_o,
  input  huffman_entry_t short_entry_i,

  input  logic           load_i,
  input  logic [1:0]     number_i,

  input  logic [7:0]     window_i,
  output logic           usable_o,
  output step_t          step_o,
  output pair_t          pair_o    // of the window one clock ago
);

  localparam logic [3:0] MaxSize = 4'd10;

  // ---- Writing: the symbols by their place, and when all short ones are there ----
  typedef struct packed {
    logic [3:0] length;
    logic [7:0] value;
  } code_t;

  logic            write;              // to one of the two tables
  logic            is_short, begins;   // a symbol with a short code; the first write of a table
  logic            short_q, number_q;  // of the write one clock ago
  logic [7:0]      place_q;            // behind its code
  logic [1:0][7:0] end_q;              // behind all codes of up to 8 bits
  logic [1:0][5:0] short_end_q;        // and of up to 6
  logic [1:0]      complete;           // the table's short codes are

  assign write    = write_valid_i && !write_i.number[1];
  assign is_short = write && write_i.symbol && write_i.length <= 5'(PairBits);
  assign begins   = write && !write_i.symbol && write_i.length == 5'd1;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) short_q <= 1'b0;
    else short_q <= is_short;
  end
  always_ff @(posedge clk_i) begin
    number_q <= write_i.number[0];
    if (is_short) begin
      place_q <= (write_i.first ? 8'd0 : place_q) + 8'(9'd256 >> write_i.length);
    end
    if (write && !write_i.symbol && write_i.length == 5'(PairBits)) begin
      end_q[write_i.number[0]] <= write_i.limit[15:8];
    end
    if (write && !write_i.symbol && write_i.length == 5'd6) begin
      short_end_q[write_i.number[0]] <= write_i.limit[15:10];
    end
  end
  for (genvar n = 0; n < 2; n++) begin : gen_complete
    assign complete[n] = short_q && number_q == 1'(n) && place_q == end_q[n];
  end

  (* ram_style = "block" *) code_t codes[512];
  code_t      code_q;
  logic       building_q;              // the number of the table in work
  logic [7:0] index_q;                 // of the next code
  always_ff @(posedge clk_i) begin
    if (is_short) codes[{write_i.number[0], write_i.index}] <= {write_i.length[3:0], write_i.value};
    code_q <= codes[{building_q, index_q}];
  end

  // ---- Windows in order, code by code ----
  typedef enum logic [2:0] {
    StIdle,
    StFetch,  // the next code is read
    StCode,
    StStep,   // the windows that begin with it, one a clock
    StRest    // those that begin with a longer one
  } state_e;
  state_e     state_d, state_q;
  logic [1:0] waiting_q, ready_q;
  logic [7:0] window_q;
  logic [7:0] left_q;                  // windows after this one that begin with the code
  code_t      first_q;
  logic       emit, begun, over;
  logic       valid_q1, valid_q2, valid_q3;  // of the stages below

  assign emit  = state_q == StStep || state_q == StRest;
  assign begun = state_q == StIdle && waiting_q != '0 && !spreading_i && !begins &&
                 {valid_q1, valid_q2, valid_q3} == '0;
  assign over  = begins && write_i.number[0] == building_q;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StIdle:  if (begun) state_d = StFetch;
      StFetch: state_d = StCode;
      StCode:  state_d = window_q == end_q[building_q] ? StRest : StStep;
      StStep:  if (window_q == '1) state_d = StIdle;
               else if (left_q == '0) state_d = StFetch;
      StRest:  if (window_q == '1) state_d = StIdle;
      default: state_d = StIdle;
    endcase
    if (over) state_d = StIdle;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q   <= StIdle;
      waiting_q <= '0;
    end else begin
      state_q <= state_d;
      for (int unsigned n = 0; n < 2; n++) begin
        if (begins && write_i.number[0] == 1'(n)) waiting_q[n] <= 1'b0;
        else if (complete[n]) waiting_q[n] <= 1'b1;
        else if (begun && waiting_q[0] == (n == 0)) waiting_q[n] <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (begun) building_q <= !waiting_q[0];
    if (state_q == StIdle) begin
      window_q   <= '0;
      index_q    <= '0;
    end else if (emit) begin
      window_q <= window_q + 1'b1;
    end
    if (state_q == StCode) begin
      first_q <= code_q;
      left_q  <= 8'((9'd256 >> code_q.length) - 9'd1);
      index_q <= index_q + 1'b1;
    end else begin
      left_q <= left_q - 1'b1;
    end
  end

  // ---- In three stages: what follows the first symbol; both; writing ----
  typedef struct packed {
    logic [7:0] window;
    logic       found;
    logic [4:0] total;   // of the first
    code_t      first;
  } work_t;
  work_t      w1_q, w2_q;
  logic [5:0] place_q1;
  logic       short_found_q2;
  huffman_entry_t second_q2;
  logic [4:0] first_total;
  logic [7:0] behind;

  assign first_total    = 5'(first_q.length) + 5'(first_q.value[3:0]);
  assign behind         = first_total[4:3] != '0 ? 8'd0 : window_q << first_total[2:0];
  assign short_number_o = building_q;
  assign short_place_o  = place_q1;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || over) {valid_q1, valid_q2, valid_q3} <= '0;
    else {valid_q1, valid_q2, valid_q3} <= {emit, valid_q1, valid_q2};
  end
  always_ff @(posedge clk_i) begin
    w1_q           <= '{window: window_q, found: state_q == StStep, total: first_total,
                        first: first_q};
    place_q1       <= behind[7:2];
    w2_q           <= w1_q;
    second_q2      <= short_entry_i;
    short_found_q2 <= place_q1 < short_end_q[building_q];
  end

  logic [3:0] first_run, first_size, second_run, second_size;
  logic [4:0] second_begin;  // where its extra bits do
  logic [5:0] both_total;
  logic [4:0] both_run;      // less one
  logic       first_ends, pairs;
  step_t      step_q3;
  pair_t      pair_q3;
  logic [7:0] window_q3;

  assign first_run    = w2_q.first.value[7:4];
  assign first_size   = w2_q.first.value[3:0];
  assign first_ends   = first_size == '0 && first_run != 4'd15;
  assign second_run   = second_q2.symbol[7:4];
  assign second_size  = second_q2.symbol[3:0];
  assign both_total   = 6'(w2_q.total) + 6'(second_q2.total);
  assign both_run     = second_q2.ends ? 5'(first_run) : 5'(first_run) + 5'(second_run) + 5'd1;
  assign second_begin = 5'(both_total - 6'(second_size));
  assign pairs        = first_size != '0 && first_size <= MaxSize && w2_q.total <= 5'(PairBits) &&
                        short_found_q2 && (second_q2.ends || second_size != '0) &&
                        second_size <= MaxSize && 6'(second_begin) <= 6'(PairBits) &&
                        both_total <= 6'(MaxTotal) && !both_run[4];

  always_ff @(posedge clk_i) begin
    window_q3       <= w2_q.window;
    step_q3.found   <= w2_q.found && (first_size > MaxSize || w2_q.total <= 5'(MaxTotal));
    step_q3.total   <= pairs ? both_total[4:0]
                     : first_size > MaxSize ? 5'(w2_q.first.length) : w2_q.total;
    step_q3.run     <= pairs ? both_run[3:0] : first_run;
    step_q3.ends    <= pairs ? second_q2.ends : first_ends;
    step_q3.bad     <= first_size > MaxSize;
    pair_q3.two     <= pairs;
    pair_q3.second  <= '{length: second_begin, run: second_run, size: second_size};
    pair_q3.first   <= '{length: 5'(w2_q.first.length), run: first_run, size: first_size};
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      ready_q <= '0;
    end else begin
      for (int unsigned n = 0; n < 2; n++) begin
        if (begins && write_i.number[0] == 1'(n)) ready_q[n] <= 1'b0;
        else if (valid_q3 && window_q3 == '1 && building_q == 1'(n)) ready_q[n] <= 1'b1;
      end
    end
  end

  // ---- Look-up ----
  logic        in_use_q;
  step_t [1:0] steps;
  for (genvar b = 0; b < 2; b++) begin : gen_bank
    (* ram_style = "distributed" *) step_t memory[256];
    always_ff @(posedge clk_i) begin
      if (valid_q3 && window_q3[0] == 1'(b)) memory[{building_q, window_q3[7:1]}] <= step_q3;
    end
    assign steps[b] = memory[{in_use_q, window_i[7:1]}];
  end
  assign step_o = steps[window_i[0]];

  (* ram_style = "block" *) pair_t pair_memory[512];
  always_ff @(posedge clk_i) begin
    if (valid_q3) pair_memory[{building_q, window_q3}] <= pair_q3;
    pair_o <= pair_memory[{in_use_q, window_i}];
  end

  always_ff @(posedge clk_i) begin
    if (load_i) in_use_q <= number_i[0];
  end
  logic other_q;  // a table that has no steps
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      usable_o <= 1'b0;
      other_q  <= 1'b1;
    end else begin
      if (load_i) other_q <= number_i[1];
      usable_o <= load_i ? !number_i[1] && ready_q[number_i[0]] : !other_q && ready_q[in_use_q];
    end
  end

`ifndef SYNTHESIS
  a_in_order: assert property (@(posedge clk_i) disable iff (!rst_ni)
      state_q == StCode |-> window_q <= end_q[building_q]);
  a_short_codes_stand: assert property (@(posedge clk_i) disable iff (!rst_ni)
      state_q != StIdle && write && write_i.symbol && write_i.length <= 5'(PairBits) |->
        write_i.number[0] != building_q);
`endif

endmodule
