// Where the window of a crop lies in an image of `width_i` x `height_i`.
//
// Reference   offset() in crop.hpp: an offset of 0xFFFFFFFF centres the window on that axis, (size - crop) / 2, halves to
//             the even number.
// Interface   the outputs follow the inputs, that stay, three clocks later.
// Bad input   a window that is empty or not inside the image: `inside_o` is low.
module crop_window (
  input  logic        clk_i,

  input  logic [15:0] width_i,
  input  logic [15:0] height_i,
  input  logic [31:0] crop_width_i,
  input  logic [31:0] crop_height_i,
  input  logic [31:0] crop_x_i,
  input  logic [31:0] crop_y_i,

  output logic        inside_o,
  output logic [15:0] left_o,   // first and last column and row
  output logic [15:0] right_o,
  output logic [15:0] top_o,
  output logic [15:0] bottom_o
);

  localparam logic [31:0] Centred = '1;

  function automatic logic [31:0] offset(input logic [31:0] wanted, input logic [15:0] spare);
    return wanted != Centred ? wanted : {17'd0, spare[15:1]} + 32'(spare[1] & spare[0]);
  endfunction

  logic        fits_q;
  logic [15:0] spare_x_q, spare_y_q;  // between window and image
  logic [31:0] x_q, y_q;

  always_ff @(posedge clk_i) begin
    fits_q    <= crop_width_i != '0 && crop_width_i <= 32'(width_i) &&
                 crop_height_i != '0 && crop_height_i <= 32'(height_i);
    spare_x_q <= width_i - crop_width_i[15:0];
    spare_y_q <= height_i - crop_height_i[15:0];
    x_q       <= offset(crop_x_i, spare_x_q);
    y_q       <= offset(crop_y_i, spare_y_q);
    inside_o  <= fits_q && x_q <= 32'(spare_x_q) && y_q <= 32'(spare_y_q);
    left_o    <= x_q[15:0];
    right_o   <= x_q[15:0] + crop_width_i[15:0] - 16'd1;
    top_o     <= y_q[15:0];
    bottom_o  <= y_q[15:0] + crop_height_i[15:0] - 16'd1;
  end

endmodule
