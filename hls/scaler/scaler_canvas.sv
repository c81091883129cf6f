// Places an image on a canvas of one colour.
//
// Interface   pairs of pixels in and out by ready/valid; a row begins with a new pair. `setup_i`
//             stays; while `run_i` is low, all is forgotten. The image lies on the canvas.
// Throughput  two pixels of the canvas a clock.
// Latency     four clocks.
module scaler_canvas
  import headrace_pkg::*;
  import scaler_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         run_i,
  input  setup_t       setup_i,

  input  pixel_t [1:0] pixel_i,
  input  logic         both_i,
  input  logic         valid_i,
  output logic         ready_o,

  output pixel_t [1:0] pixel_o,
  output logic         both_o,
  output logic         last_o,   // of the canvas
  output logic         valid_o,
  input  logic         ready_i
);

  // ---- The next pair's place ----
  logic [15:0] x_q, y_q;
  logic [1:0]  inside_q;  // of the image
  logic        more_q, valid_q, pair_q, last_q, step, go, row_ends;

  // What follows from the setup is known clocks before the first pixel.
  logic [15:0] last_x_q, last_y_q;
  logic [16:0] right_q, bottom_q;  // of the image

  always_ff @(posedge clk_i) begin
    last_x_q <= (setup_i.canvas_width - 16'd1) & ~16'd1;
    last_y_q <= setup_i.canvas_height - 16'd1;
    right_q  <= 17'(setup_i.left) + 17'(setup_i.out_width);
    bottom_q <= 17'(setup_i.top) + 17'(setup_i.out_height);
  end

  assign row_ends = x_q == last_x_q;
  assign step     = !valid_q || go;

  function automatic logic lies_in(logic [15:0] place, logic [15:0] first, logic [16:0] behind);
    return place >= first && 17'(place) < behind;
  endfunction

  always_ff @(posedge clk_i) begin
    if (!rst_ni || !run_i) begin
      x_q     <= '0;
      y_q     <= '0;
      more_q  <= 1'b1;
      valid_q <= 1'b0;
    end else if (step) begin
      valid_q <= more_q;
      x_q     <= row_ends ? '0 : x_q + 16'd2;
      if (row_ends) y_q <= y_q + 16'd1;
      if (row_ends && y_q == last_y_q) more_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (step) begin
      for (int l = 0; l < 2; l++) begin
        inside_q[l] <= lies_in(x_q | 16'(l), setup_i.left, right_q) &&
                       lies_in(y_q, setup_i.top, bottom_q);
      end
      pair_q <= !row_ends || !setup_i.canvas_width[0];
      last_q <= row_ends && y_q == last_y_q;
    end
  end

  // ---- Its pixels ----
  pixel_t [1:0] pixel;
  logic [2:0]   held;
  logic [1:0]   wanted;
  logic         room;
  pixel_t [1:0] placed;

  assign wanted    = 2'(inside_q[0]) + 2'(inside_q[1] && pair_q);
  assign go        = valid_q && 3'(wanted) <= held && room;
  assign placed[0] = inside_q[0] ? pixel[0] : setup_i.colour;
  assign placed[1] = !inside_q[1] ? setup_i.colour : inside_q[0] ? pixel[1] : pixel[0];

  pixel_gear u_gear (
    .clk_i,
    .rst_ni (rst_ni && run_i),
    .pixel_i, .both_i, .valid_i, .ready_o,
    .pixel_o(pixel),
    .held_o (held),
    .used_i (go ? wanted : 2'd0)
  );

  stream_register #(.Width(50)) u_pair (
    .clk_i,
    .rst_ni (rst_ni && run_i),
    .data_i ({placed, pair_q, last_q}),
    .valid_i(valid_q && 3'(wanted) <= held),
    .ready_o(room),
    .data_o ({pixel_o, both_o, last_o}),
    .valid_o,
    .ready_i
  );

endmodule
