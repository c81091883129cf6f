// One of each: LUT RAM, block RAM, URAM, a multiplier in a DSP and one that is too small for it.
module report_mixed (
  input  logic               clk_i,
  input  logic               write_i,
  input  logic        [11:0] write_address_i,
  input  logic        [11:0] read_address_i,
  input  logic        [71:0] data_i,
  output logic        [71:0] ultra_o,
  output logic        [31:0] block_o,
  output report_pkg::pair_t  queue_o,
  output logic signed [31:0] product_o,
  output logic         [5:0] small_product_o
);

  (* ram_style = "ultra" *) logic [71:0] ultra_memory[4096];
  (* ram_style = "block" *) logic [31:0] block_memory[1024];
  logic signed [15:0] first_q, second_q;
  logic signed [31:0] product_q;
  logic         [2:0] small_first_q, small_second_q;

  always_ff @(posedge clk_i) begin
    if (write_i) ultra_memory[write_address_i] <= data_i;
    ultra_o <= ultra_memory[read_address_i];
    if (write_i) block_memory[write_address_i[9:0]] <= data_i[31:0];
    block_o <= block_memory[read_address_i[9:0]];
  end

  always_ff @(posedge clk_i) begin
    {first_q, second_q} <= data_i[31:0];
    product_q <= first_q * second_q;
    product_o <= product_q;
    {small_first_q, small_second_q} <= data_i[37:32];
    small_product_o <= small_first_q * small_second_q;
  end

  report_queue u_queue (
    .clk_i,
    .write_i,
    .write_address_i(write_address_i[5:0]),
    .read_address_i (read_address_i[5:0]),
    .data_i         (data_i[31:0]),
    .data_o         (queue_o)
  );

endmodule
