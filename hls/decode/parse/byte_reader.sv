// Byte reader: words of the file to single bytes.
//
// Interface   `start_i` with `jpeg_bytes_i`; then ceil(jpeg_bytes / 16) words, byte 0 in bits 7..0.
//             A word with `word_end_i` is the last one all the same, and has `word_bytes_i` bytes,
//             0 to 16: so a file may begin before its length is known, with `jpeg_bytes_i` all
//             ones.
//             It takes words while `busy_i`, up to three more than the bytes that were taken need.
//             `byte0_o` is the file's next byte if `have_byte_o`, and `byte1_o` is the one after it
//             if not `single_o`. `take_i` takes a byte in this clock, if there is one, or two with
//             `take_two_i`; `take_rest_i` takes `left_o` bytes.
// Throughput  two bytes a clock, with `take_rest_i` a word. Five bytes stand before the word, and
//             only they move by what is taken: whether they have room for two more is known before.
// Bad input   `ended_o` tells that the file has no more bytes.
module byte_reader
  import parse_pkg::Rst0;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [31:0]  jpeg_bytes_i,
  input  logic         busy_i,

  input  logic [127:0] word_i,
  input  logic         word_end_i,
  input  logic [4:0]   word_bytes_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output logic [7:0]   byte0_o,
  output logic [7:0]   byte1_o,
  output logic         byte0_ones_o, // it is 0xFF
  output logic         byte1_ones_o,
  output logic         byte0_rst_o,  // it is the second byte of RST0 to RST7
  output logic         byte0_zero_o, // it is 0
  output logic         have_byte_o,
  output logic         single_o,     // only one byte is there yet
  output logic [4:0]   left_o,       // bytes that `take_rest_i` takes
  output logic         ended_o,      // there is no byte, and none will come

  input  logic         take_i,
  input  logic         take_two_i,
  input  logic         take_rest_i   // the bytes before the word, or all that the word has left
);

  logic [127:0] word;
  logic [4:0]   word_bytes;
  logic         word_end, word_valid, load, room;
  logic         word_none, word_one, word_few;  // word_bytes is 0; 1; at most 2

  assign word_ready_o = room && busy_i;

  // ---- Words as they come ----
  logic [28:0]  words_q;                   // that are still to come
  logic         last_word_q;               // they are one
  logic [4:0]   final_bytes_q;             // in the last word
  logic         final_one_q, final_few_q;  // they are 1; at most 2
  logic [4:0]   bytes_d;
  logic         end_d, none_d, one_d, few_d;

  assign end_d   = word_end_i || last_word_q;
  assign bytes_d = word_end_i ? word_bytes_i : last_word_q ? final_bytes_q : 5'd16;
  assign none_d  = word_end_i && word_bytes_i == '0;
  assign one_d   = word_end_i ? word_bytes_i == 5'd1 : last_word_q && final_one_q;
  assign few_d   = word_end_i ? word_bytes_i <= 5'd2 : last_word_q && final_few_q;

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      words_q       <= {1'b0, jpeg_bytes_i[31:4]} + 29'(|jpeg_bytes_i[3:0]);
      last_word_q   <= jpeg_bytes_i <= 32'd16;
      final_bytes_q <= jpeg_bytes_i[3:0] == '0 ? 5'd16 : {1'b0, jpeg_bytes_i[3:0]};
      final_one_q   <= jpeg_bytes_i[3:0] == 4'd1;
      final_few_q   <= jpeg_bytes_i[3:0] inside {4'd1, 4'd2};
    end else if (word_valid_i && word_ready_o) begin
      words_q     <= words_q - 1'b1;
      last_word_q <= words_q == 29'd2;
    end
  end

  // A queue of two in distributed RAM: what is taken moves its pointers, and not its words.
  stream_fifo #(
    .Width(128 + 5 + 1 + 3),
    .Depth(2)
  ) u_word (
    .clk_i,
    .rst_ni (rst_ni && !start_i),
    .data_i ({word_i, bytes_d, end_d, none_d, one_d, few_d}),
    .valid_i(word_valid_i && busy_i),
    .ready_o(room),
    .data_o ({word, word_bytes, word_end, word_none, word_one, word_few}),
    .valid_o(word_valid),
    .ready_i(load),
    .count_o()
  );

  // ---- The rest of the current word ----
  logic [127:0] word_q;         // next byte in bits 7..0
  // What its bytes are, and those of `word`: 0, RSTn, 0xFF. Worked out here, as paths behind are
  // long.
  logic [15:0][2:0] kinds_q, kinds;
  logic [4:0]   left_q;         // bytes of it
  logic         some_q;         // left_q != 0
  logic         odd_q;          // left_q == 1
  logic         final_q;        // left_q <= 2; also where it is 0
  logic         no_words_q;     // it is the last one
  logic         moves;          // two bytes of it, or the only one, go to the front, if it has some
  logic         used_up;

  // ---- The bytes before it ----
  localparam int unsigned Front = 5;
  logic [Front-1:0][10:0] front_q;            // next byte first, each with its kind
  logic [Front+1:0][10:0] joined;             // and those of the word
  logic [Front:0]        count_q, count;      // how many, one bit for each number; with new ones
  logic [Front:0]        count_d;
  logic                  have_q;              // not none: a register of its own, as it goes far
  logic                  room_q;              // for two more
  logic                  one, two, rest;      // bytes are taken

  assign byte0_o      = front_q[0][7:0];
  assign byte1_o      = front_q[1][7:0];
  assign byte0_ones_o = front_q[0][8];
  assign byte1_ones_o = front_q[1][8];
  assign byte0_rst_o  = front_q[0][9];
  assign byte0_zero_o = front_q[0][10];
  assign have_byte_o  = have_q;
  assign single_o     = count_q[1];
  assign ended_o      = count_q[0] && !some_q && no_words_q;
  assign one          = take_i && !count_q[0];
  assign two          = take_two_i && !count_q[0];
  assign rest         = take_rest_i;
  assign moves        = room_q && !rest;
  assign used_up      = !some_q || (moves && final_q) || (rest && count_q[0]);
  assign load         = word_valid && used_up;

  always_comb begin
    for (int unsigned i = 0; i < 16; i++) begin
      kinds[i] = {word[8*i+:8] == '0, word[8*i+3+:5] == Rst0[7:3], &word[8*i+:8]};
    end

    left_o = count_q[0] ? left_q : '0;
    for (int unsigned i = 1; i <= Front; i++) begin
      if (count_q[i]) left_o |= 5'(i);
    end

    // Behind the last byte they hold anything.
    for (int unsigned i = 0; i < Front + 2; i++) begin
      joined[i] = {kinds_q[1], word_q[15:8]};
      for (int unsigned n = 0; n <= Front; n++) begin
        if (count_q[n] && n == i) joined[i] = {kinds_q[0], word_q[7:0]};
        if (count_q[n] && n > i) joined[i] = front_q[i%Front];
      end
    end
    count   = !(some_q && room_q) ? count_q : odd_q ? count_q << 1 : count_q << 2;
    count_d = two ? count >> 2 : one ? count >> 1 : count;
  end

  always_ff @(posedge clk_i) begin
    front_q <= two ? joined[Front+1:2] : one ? joined[Front:1] : joined[Front-1:0];
    if (!rst_ni || start_i || rest) begin
      count_q <= (Front + 1)'(1);
      have_q  <= 1'b0;
      room_q  <= 1'b1;
    end else begin
      count_q <= count_d;
      have_q  <= !count_d[0];
      room_q  <= !count_d[Front-1] && !count_d[Front];
    end
  end

  always_ff @(posedge clk_i) begin
    // Bits above the last byte hold anything, and so does a word that is used up.
    if (!some_q || moves || (rest && count_q[0])) begin
      {kinds_q, word_q} <= final_q || rest ? {kinds, word}
                                           : {kinds_q[15:14], kinds_q[15:2],
                                              word_q[127:112], word_q[127:16]};
    end

    if (start_i) begin
      left_q     <= '0;
      some_q     <= 1'b0;
      final_q    <= 1'b1;
      no_words_q <= jpeg_bytes_i == '0;
    end else if (load) begin
      left_q     <= word_bytes;
      some_q     <= !word_none;
      odd_q      <= word_one;
      final_q    <= word_few;
      no_words_q <= word_end;
    end else if (used_up) begin
      left_q  <= '0;
      some_q  <= 1'b0;
      final_q <= 1'b1;
    end else if (moves) begin
      left_q  <= left_q - 5'd2;
      odd_q   <= left_q == 5'd3;
      final_q <= left_q <= 5'd4;
    end
  end

`ifndef SYNTHESIS
  a_front_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
      $onehot(count_q) && have_q == !count_q[0] &&
      room_q == !(count_q[Front-1] || count_q[Front]));
  a_two_are_there: assert property (@(posedge clk_i) disable iff (!rst_ni)
      take_two_i |-> take_i && !single_o);
  a_one_way_to_take: assert property (@(posedge clk_i) disable iff (!rst_ni)
      take_rest_i |-> !take_i);
`endif

endmodule
