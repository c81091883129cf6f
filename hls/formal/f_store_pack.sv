// The properties of store_pack: the words that come out have the bytes that went in, each in the
// place where the address puts it, with strobes for these and no others, two clocks after a byte or
// the flush, and none is left behind a flush. f_store assumes so of it, and proves what is assumed
// here.
//
// Method      `mark_i` is free. The byte of lane `lane_i` that comes while it is high is followed:
//             its place in the plane says in which word and lane it must leave. Places and words
//             are counted modulo four words: no more are within.
//
// Of the bytes one bit is kept: each travels like the first.
module f_store_pack #(
  parameter int unsigned Bytes = 16,  // of a word
  localparam int unsigned Lane = $clog2(Bytes)
) (
  input logic       clk_i,
  input logic       rst_ni,
  input logic       begin_i,
  input logic [Lane-1:0] offset_i,
  input logic [7:0] bits_i,   // of each byte
  input logic [3:0] count_i,
  input logic       flush_i,
  input logic       mark_i,
  input logic [2:0] lane_i
);

  logic [63:0]  data_i;
  logic [9*Bytes-1:0] word_o;
  logic         valid_o;
  logic         past_q = 1'b0, up_q = 1'b0;
  logic [1:0]   comes_q;     // bytes or a flush, one and two clocks ago

  for (genvar i = 0; i < 8; i++) begin : gen_byte
    assign data_i[8*i+:8] = 8'(bits_i[i]);
  end
  store_pack #(.Bytes(Bytes)) u (.*);

  logic        open_q;      // from a begin to the flush
  logic [1:0]  flushed_q;   // clocks since the flush, up to 3
  logic [Lane+1:0] place_q; // of the next byte
  logic [Lane-1:0] offset_q;
  logic        some_q;      // bytes came
  logic        first_q;     // no word has left
  logic [1:0]  word_q;      // the next that leaves
  logic        follows_q, bit_q;
  logic [Lane+1:0] followed_q;  // its place
  logic        leaves;
  logic [Bytes-1:0] expected;
  logic [Lane+1:0] behind;  // places between the next word's first byte and the next byte

  logic [Bytes-1:0] strobes;
  assign strobes = word_o[9*Bytes-1:8*Bytes];
  assign leaves = valid_o && follows_q && word_q == followed_q[Lane+1:Lane];
  assign behind = place_q - {word_q, Lane'(0)};

  always_comb begin
    for (int unsigned l = 0; l < Bytes; l++) begin
      expected[l] = (!first_q || Lane'(l) >= offset_q) &&
                    (word_q != place_q[Lane+1:Lane] || Lane'(l) < place_q[Lane-1:0]);
    end
  end

  always_ff @(posedge clk_i) begin
    past_q  <= 1'b1;
    up_q    <= rst_ni;
    comes_q <= {2{rst_ni}} & {comes_q[0], count_i != '0 || flush_i};
    if (!rst_ni) begin
      open_q    <= 1'b0;
      flushed_q <= 2'd3;
      follows_q <= 1'b0;
      some_q    <= 1'b0;
      first_q   <= 1'b1;
      place_q   <= '0;
      offset_q  <= '0;
      word_q    <= '0;
    end else begin
      if (begin_i) begin
        open_q    <= 1'b1;
        flushed_q <= '0;
        place_q   <= (Lane + 2)'(offset_i);
        offset_q  <= offset_i;
        some_q    <= 1'b0;
        first_q   <= 1'b1;
        word_q    <= '0;
      end else if (open_q || flushed_q != 2'd3) begin
        if (flush_i) open_q <= 1'b0;
        if (!open_q && flushed_q != 2'd3) flushed_q <= flushed_q + 1'b1;
        place_q <= place_q + (Lane + 2)'(count_i);
        if (count_i != '0) some_q <= 1'b1;
        if (valid_o) first_q <= 1'b0;
        if (valid_o) word_q <= word_q + 1'b1;
      end
      if (!follows_q && mark_i && open_q && 4'(lane_i) < count_i) begin
        follows_q  <= 1'b1;
        followed_q <= place_q + (Lane + 2)'(lane_i);
        bit_q      <= bits_i[lane_i];
      end else if (leaves) begin
        follows_q <= 1'b0;
      end
    end
  end

  // ---- Where the unit has what came, part by part ----
  // A part is 8 bytes. `taken_q` is the number of the part that comes next to its second clock.
  logic [Lane-2:0] taken_q, part, followed_part;
  logic first_part_q, part_first_q;  // no part is full; the one on its way is the plane's first
  logic first_word_q, out_first_q;   // no word is; the one that is shown is the plane's first
  logic moves;                       // until the clock behind the flush
  logic [2:0]       begin_lane, follow_lane;
  logic [Lane-4:0]  begin_part, slot, follow_slot;
  logic [7:0]       lanes_from, lanes_to;  // of the first part, and of the one that is not full
  logic [Bytes-1:0] kept, kept_lanes;
  logic             at_home;               // the followed byte is where it should be
  assign part          = place_q[Lane+1:3];
  assign begin_lane    = offset_q[2:0];
  assign begin_part    = offset_q[Lane-1:3];
  assign slot          = taken_q[Lane-4:0];
  assign followed_part = followed_q[Lane+1:3];
  assign follow_slot   = followed_part[Lane-4:0];
  assign follow_lane   = followed_q[2:0];
  assign lanes_from    = 8'hff << begin_lane;
  assign lanes_to      = ~(8'hff << place_q[2:0]);
  assign moves         = open_q || flushed_q == '0;
  assign kept          = Bytes'(u.kept_strobe_q);

  always_ff @(posedge clk_i) begin
    part_first_q <= first_part_q;
    out_first_q  <= first_word_q;
    if (!rst_ni) begin
      taken_q <= '0;
    end else if (begin_i) begin
      taken_q      <= (Lane - 1)'(offset_i[Lane-1:3]);
      first_part_q <= 1'b1;
      first_word_q <= 1'b1;
    end else begin
      if (u.part_valid_q) taken_q <= taken_q + 1'b1;
      if (u.full) first_part_q <= 1'b0;
      if (u.part_valid_q && u.last) first_word_q <= 1'b0;
    end
  end

  always_comb begin
    for (int unsigned l = 0; l < Bytes; l++) begin
      kept_lanes[l] = (Lane - 3)'(l / 8) < slot && (!first_word_q || Lane'(l) >= offset_q);
    end
    if (valid_o && followed_q[Lane+1:Lane] == word_q)
      at_home = word_o[9'({followed_q[Lane-1:0], 3'b0})] == bit_q;
    else if (open_q && followed_part == part)
      at_home = u.acc_q[follow_lane][0] == bit_q && follow_lane < place_q[2:0];
    else if (u.part_valid_q && followed_part == taken_q)
      at_home = u.part_q[follow_lane][0] == bit_q;
    else
      at_home = followed_part[Lane-2:Lane-3] == taken_q[Lane-2:Lane-3] && follow_slot < slot &&
                u.kept_q[follow_slot][follow_lane][0] == bit_q;
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_at_most_eight: assume (count_i <= 4'd8);
    m_begins_when_empty: assume (!begin_i || (open_q ? !some_q : flushed_q == 2'd3));
    // Bytes that a reset cut off may come in the first clock after it.
    m_bytes_between: assume (open_q || count_i == '0 || !up_q);
    m_begins_alone: assume (!begin_i || (count_i == '0 && !flush_i));
    m_flushes_alone: assume (!flush_i || (open_q && count_i == '0));
    if (past_q) begin
      a_followed_is_there: assert (!leaves ||
          (word_o[9'(8 * Bytes) + 9'(followed_q[Lane-1:0])] &&
           word_o[9'({followed_q[Lane-1:0], 3'b0})] == bit_q));
      a_strobes_are_the_bytes: assert (!valid_o || strobes == expected);
      a_two_clocks_later: assert (!valid_o || comes_q[1]);
      a_strobes_somewhere: assert (!valid_o || strobes != '0);
      a_words_have_bytes: assert (!valid_o || (some_q && behind != '0 &&
                                               32'(behind) <= Bytes + 24));
      a_none_is_left: assert (!(!open_q && flushed_q == 2'd3) || (!valid_o && !follows_q &&
          word_q == (some_q ? place_q[Lane+1:Lane] + 2'(place_q[Lane-1:0] != '0) : 2'd0)));
      h_fill: assert (!open_q || u.fill_q == place_q[2:0]);
      h_open: assert (!open_q || flushed_q == '0);
      h_flush: assert (u.flush_q == (!open_q && flushed_q == '0));
      h_slot: assert (u.next_q == slot);
      h_reset: assert (up_q || (slot == '0 && !u.part_valid_q && !open_q && flushed_q == 2'd3));
      h_idle: assert (moves || !u.part_valid_q || (flushed_q == 2'd3 && slot == '0));
      h_taken: assert (!moves || taken_q == part - (Lane - 1)'(open_q && u.part_valid_q));
      h_words: assert (!moves || taken_q[Lane-2:Lane-3] == word_q + 2'(valid_o));
      h_word_was_full: assert (!(open_q && valid_o) || slot == '0);
      h_some: assert (!moves || some_q || (place_q == (Lane + 2)'(offset_q) && first_part_q &&
                                           !u.part_valid_q && !valid_o && !follows_q));
      h_first_part: assert (!(moves && first_part_q) || (first_word_q &&
          part == (Lane - 1)'(begin_part) && place_q[2:0] >= begin_lane &&
          some_q == (place_q[2:0] != begin_lane)));
      h_not_first_part: assert (!(moves && !first_part_q) || (some_q &&
          (!first_word_q || part > (Lane - 1)'(begin_part))));
      h_first_word: assert (!(moves && first_word_q) || (!valid_o && word_q == '0 &&
                                                         slot >= begin_part));
      h_first_out: assert (!moves || first_q == (first_word_q || (valid_o && out_first_q)));
      h_part_first: assert (!(moves && u.part_valid_q && part_first_q) ||
                            (first_word_q && slot == begin_part));
      h_later_part: assert (!(moves && u.part_valid_q && first_word_q) ||
                            part_first_q == (slot == begin_part));
      h_acc: assert (!open_q || u.acc_strobe_q ==
                     (lanes_to & (first_part_q ? lanes_from : 8'hff)));
      h_part: assert (!(moves && u.part_valid_q) || u.part_strobe_q ==
          ((open_q ? 8'hff : lanes_to) & (part_first_q ? lanes_from : 8'hff)));
      h_part_comes: assert (!(!open_q && flushed_q == '0) || u.part_valid_q ==
          ((lanes_to & (first_part_q ? lanes_from : 8'hff)) != '0));
      h_kept: assert (!moves || kept == kept_lanes);
      h_behind: assert (!follows_q || (!moves && flushed_q != 2'd1) ||
          (followed_q - {word_q, Lane'(0)} < behind &&
           (!first_q || followed_q - {word_q, Lane'(0)} >= (Lane + 2)'(offset_q))));
      h_at_home: assert (!(follows_q && (moves || flushed_q == 2'd1)) || at_home);
      h_comes: assert (!(u.part_valid_q || u.flush_q) || comes_q[0]);
      h_last: assert (open_q || flushed_q == '0 || flushed_q == 2'd3 || (
          word_q + 2'(valid_o) == (some_q ? place_q[Lane+1:Lane] + 2'(place_q[Lane-1:0] != '0) :
                                            2'd0) &&
          (flushed_q == 2'd1 || !valid_o)));
      h_none_followed: assert (open_q || flushed_q == '0 || !follows_q ||
                               (flushed_q == 2'd1 && leaves));
      c_one_byte: cover (valid_o && strobes == Bytes'(32));
      c_two_words: cover (leaves && word_q == 2'd1 && followed_q[Lane-1:0] == '1);
      c_flushes_two_halves: cover (valid_o && !open_q && strobes == '1 >> 1);
    end
  end

endmodule
