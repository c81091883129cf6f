// Byte reader: words of the file to single bytes.
//
// Interface   `start_i` with `jpeg_bytes_i`; then ceil(jpeg_bytes / 16) words, byte 0 in bits 7..0.
//             A word with `word_end_i` is the last one all the same, and has `word_bytes_i` bytes,
//             0 to 16: so a file may begin before its length is known, with `jpeg_bytes_i` all
//             ones.
//             It takes words while `busy_i`, up to two more than the bytes that were taken need.
//             `byte0_o` is the file's next byte if `have_byte_o`, and `byte1_o` is the one after it
//             if not `single_o`. The take inputs take bytes in this clock, if there are any.
// Throughput  a word a clock. No path goes through from the consumer to where the words come from.
// Bad input   `ended_o` tells that the file has no more bytes.
module byte_reader (
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
  output logic         have_byte_o,
  output logic         single_o,     // the word has one byte left
  output logic [4:0]   left_o,       // bytes that the word has left
  output logic         ended_o,      // there is no byte, and none will come

  input  logic         take_i,
  input  logic         take_two_i,
  input  logic         take_rest_i   // all that the word has left
);

  logic [127:0] word;
  logic [4:0]   word_bytes;
  logic         word_end, word_valid, load, room;

  assign word_ready_o = room && busy_i;

  // A queue of two in distributed RAM: what is taken moves its pointers, and not its words.
  stream_fifo #(
    .Width(128 + 5 + 1),
    .Depth(2)
  ) u_word (
    .clk_i,
    .rst_ni (rst_ni && !start_i),
    .data_i ({word_i, word_bytes_i, word_end_i}),
    .valid_i(word_valid_i && busy_i),
    .ready_o(room),
    .data_o ({word, word_bytes, word_end}),
    .valid_o(word_valid),
    .ready_i(load),
    .count_o()
  );

  logic [127:0] word_q;         // the rest of the current word, next byte in bits 7..0
  logic [15:0]  ones_q, ones;   // which of its bytes are 0xFF; those of `word`
  logic [4:0]   left_q;         // bytes of it
  logic         pair_q;         // left_q == 2
  logic         have_byte_q;    // left_q != 0
  logic         single_q;       // left_q == 1
  logic [28:0]  words_q;        // words after it
  logic [4:0]   final_bytes_q;  // bytes in the last word
  logic         last_word_q;    // words_q == 1
  logic         no_words_q;     // words_q == 0
  logic         one, two, rest; // bytes are taken
  logic         used_up;

  assign byte0_o     = word_q[7:0];
  assign byte1_o     = word_q[15:8];
  assign byte0_ones_o = ones_q[0];
  assign byte1_ones_o = ones_q[1];
  assign have_byte_o = have_byte_q;
  assign single_o    = single_q;
  assign left_o      = left_q;
  assign ended_o     = !have_byte_q && no_words_q;
  assign one         = take_i && have_byte_q;
  assign two         = take_two_i && have_byte_q;
  assign rest        = take_rest_i && have_byte_q;
  assign used_up     = !have_byte_q || rest || (two && pair_q) || (one && single_q);
  assign load        = word_valid && used_up;

  always_comb begin
    for (int unsigned i = 0; i < 16; i++) ones[i] = &word[8*i+:8];
  end

  always_ff @(posedge clk_i) begin
    // Bits above the last byte hold anything.
    if (load) {ones_q, word_q} <= {ones, word};
    else if (two) begin
      {ones_q, word_q} <= {ones_q[15:14], ones_q[15:2], word_q[127:112], word_q[127:16]};
    end else if (one) begin
      {ones_q, word_q} <= {ones_q[15], ones_q[15:1], word_q[127:120], word_q[127:8]};
    end

    if (start_i) begin
      left_q        <= '0;
      have_byte_q   <= 1'b0;
      single_q      <= 1'b0;
      pair_q        <= 1'b0;
      words_q       <= {1'b0, jpeg_bytes_i[31:4]} + 29'(|jpeg_bytes_i[3:0]);
      final_bytes_q <= jpeg_bytes_i[3:0] == '0 ? 5'd16 : {1'b0, jpeg_bytes_i[3:0]};
      last_word_q   <= jpeg_bytes_i <= 32'd16;
      no_words_q    <= jpeg_bytes_i == '0;
    end else if (load) begin
      left_q        <= word_end ? word_bytes : last_word_q ? final_bytes_q : 5'd16;
      have_byte_q   <= !word_end || word_bytes != '0;
      single_q      <= word_end ? word_bytes == 5'd1 : last_word_q && final_bytes_q == 5'd1;
      pair_q        <= word_end ? word_bytes == 5'd2 : last_word_q && final_bytes_q == 5'd2;
      words_q       <= words_q - 1'b1;
      last_word_q   <= words_q == 29'd2;
      no_words_q    <= word_end || last_word_q;
    end else if (rest) begin
      left_q        <= '0;
      have_byte_q   <= 1'b0;
      single_q      <= 1'b0;
      pair_q        <= 1'b0;
    end else if (two) begin
      left_q        <= left_q - 5'd2;
      have_byte_q   <= !pair_q;
      single_q      <= left_q == 5'd3;
      pair_q        <= left_q == 5'd4;
    end else if (one) begin
      left_q        <= left_q - 5'd1;
      have_byte_q   <= !single_q;
      single_q      <= pair_q;
      pair_q        <= left_q == 5'd3;
    end
  end

endmodule
