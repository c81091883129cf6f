// Where the window of a crop lies in an image of `width_i` x `height_i`.
//
// Reference   offset() in crop.hpp: an offset of 0xFFFFFFFF centres the window on that axis, (size
//             - crop) / 2, halves to the even number.
// Interface   the output follows the inputs, that stay, three clocks later.
// Bad input   a window that is empty or not inside the image: `crop_o.fits` is low.
module crop_window
  import headrace_pkg::*;
(
  input  logic        clk_i,

  input  logic [15:0] width_i,
  input  logic [15:0] height_i,
  input  logic [31:0] crop_width_i,
  input  logic [31:0] crop_height_i,
  input  logic [31:0] crop_x_i,
  input  logic [31:0] crop_y_i,

  output crop_t       crop_o
);

  localparam logic [31:0] Centred = '1;

  function automatic logic [31:0] offset(input logic [31:0] wanted, input logic [15:0] spare);
    return wanted != Centred ? wanted : {17'd0, spare[15:1]} + 32'(spare[1] & spare[0]);
  endfunction

  logic        fits_q, inside_q;
  logic [15:0] left_q, right_q, top_q, bottom_q;
  logic [15:0] spare_x_q, spare_y_q;  // between window and image
  logic [31:0] x_q, y_q;

  always_ff @(posedge clk_i) begin
    fits_q    <= crop_width_i != '0 && crop_width_i <= 32'(width_i) &&
                 crop_height_i != '0 && crop_height_i <= 32'(height_i);
    spare_x_q <= width_i - crop_width_i[15:0];
    spare_y_q <= height_i - crop_height_i[15:0];
    x_q       <= offset(crop_x_i, spare_x_q);
    y_q       <= offset(crop_y_i, spare_y_q);
    inside_q  <= fits_q && x_q <= 32'(spare_x_q) && y_q <= 32'(spare_y_q);
    left_q    <= x_q[15:0];
    right_q   <= x_q[15:0] + crop_width_i[15:0] - 16'd1;
    top_q     <= y_q[15:0];
    bottom_q  <= y_q[15:0] + crop_height_i[15:0] - 16'd1;
  end

  assign crop_o = '{
    fits:   inside_q,
    width:  crop_width_i[15:0],
    height: crop_height_i[15:0],
    left:   left_q,
    right:  right_q,
    top:    top_q,
    bottom: bottom_q
  };

endmodule
