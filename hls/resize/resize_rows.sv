// Row memory and vertical interpolation: a ring of four source rows, of which two are read
// together. If rows are wide, see resize_pkg, it is a ring of two.
//
// Interface   words of SourcePixels are written at `write_row_i` (modulo 4) and `write_word_i`.
//             Rows are wide if `wide_i`, which stays. `read_i` asks for word `read_word_i` of rows
//             `read_row_i` and the next, blended with weight 256 - weight, weight; the result comes
//             out with `valid_o` after Latency clocks, with `tag_i` as it was.
// Arithmetic  Q8.8, exact; plus 128, the half that the horizontal step's rounding to integers
//             wants.
// Throughput  a word in and a word out a clock.
// Memory      even and odd rows, each with two rows or a wide one: an UltraRAM each, two with words
//             of four pixels. A row of one parity and the next of the other lie in both.
module resize_rows
  import headrace_pkg::*;
  import resize_pkg::*;
#(
  parameter int unsigned TagBits = 1
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic                  wide_i,

  input  logic                  write_i,
  input  logic [1:0]            write_row_i,
  input  number_t               write_word_i,
  input  source_pixels_t        write_pixel_i,

  input  logic                  read_i,
  input  logic [1:0]            read_row_i,
  input  number_t               read_word_i,
  input  logic [7:0]            weight_i,
  input  logic [TagBits-1:0]    tag_i,

  output word_t                 word_o,
  output logic [TagBits-1:0]    tag_o,
  output logic                  valid_o
);

  localparam int unsigned Latency = 6;

  // ---- Memory ----
  (* ram_style = "ultra" *) source_pixels_t even[MaxWidth/SourcePixels];
  (* ram_style = "ultra" *) source_pixels_t odd[MaxWidth/SourcePixels];
  source_pixels_t even_1, even_2, odd_1, odd_2;
  number_t        write_at, even_at, odd_at;

  // Row r lies in slot r[1] of its bank: the upper half, which only a wide row reaches otherwise.
  function automatic number_t place(logic slot, number_t word);
    return {slot && !wide_i || word[NumberBits-1], word[NumberBits-2:0]};
  endfunction
  assign write_at = place(write_row_i[1], write_word_i);
  assign odd_at   = place(read_row_i[1], read_word_i);
  assign even_at  = place(read_row_i[1] ^ read_row_i[0], read_word_i);

  always_ff @(posedge clk_i) begin
    if (write_i && !write_row_i[0]) even[write_at] <= write_pixel_i;
    even_1 <= even[even_at];
  end
  always_ff @(posedge clk_i) begin
    if (write_i && write_row_i[0]) odd[write_at] <= write_pixel_i;
    odd_1 <= odd[odd_at];
  end

  // ---- Pipeline ----
  logic [Latency:1]              valid_q;
  logic [Latency:1][TagBits-1:0] tag_q;
  logic [4:1][7:0]               weight_q;
  logic [2:1]                    swap_q;
  logic [3*SourcePixels-1:0][7:0] upper_3, upper_4, upper_5, lower_3;  // bytes as in pixel_t

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q <= '0;
    else valid_q <= {valid_q[Latency-1:1], read_i};
  end

  always_ff @(posedge clk_i) begin
    tag_q    <= {tag_q[Latency-1:1], tag_i};
    weight_q <= {weight_q[3:1], weight_i};
    swap_q   <= {swap_q[1], read_row_i[0]};
    even_2   <= even_1;
    odd_2    <= odd_1;
    upper_3  <= swap_q[2] ? odd_2 : even_2;
    lower_3  <= swap_q[2] ? even_2 : odd_2;
    upper_4  <= upper_3;
    upper_5  <= upper_4;
  end

  for (genvar i = 0; i < 3 * SourcePixels; i++) begin : gen_byte
    logic signed [8:0]  difference_4;
    logic signed [17:0] product_5;
    logic        [15:0] sum_6;
    always_ff @(posedge clk_i) begin
      difference_4 <= $signed({1'b0, lower_3[i]}) - $signed({1'b0, upper_3[i]});
      product_5    <= difference_4 * $signed({1'b0, weight_q[4]});
      sum_6        <= {upper_5[i], 8'd128} + product_5[15:0];
    end
    // Red is the first field of pixel_t.
    assign word_o[i/3][2-i%3] = sum_6;
  end

  assign tag_o   = tag_q[Latency];
  assign valid_o = valid_q[Latency];

endmodule
