// A word as it was Depth clocks ago. It moves every clock and is not reset.
//
// Memory      registers up to Depth 4, else distributed RAM of which one word is read and written
//             over in a clock, and a register behind it.
module delay_line #(
  parameter int unsigned Width = 8,
  parameter int unsigned Depth = 16
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);

  if (Depth < 1) begin : gen_bad_depth
    $fatal(1, "%m: Depth must be at least 1");
  end

  if (Depth <= 4) begin : gen_registers
    logic [Depth-1:0][Width-1:0] data_q;
    always_ff @(posedge clk_i) begin
      data_q[0] <= data_i;
      for (int i = 1; i < Depth; i++) data_q[i] <= data_q[i-1];
    end
    assign data_o = data_q[Depth-1];
    logic unused;
    assign unused = rst_ni;
  end else begin : gen_memory
    localparam int unsigned Words = Depth - 1;
    localparam int unsigned AddressWidth = $clog2(Words);
    (* ram_style = "distributed" *) logic [Width-1:0] memory[1<<AddressWidth];
    logic [AddressWidth-1:0] address_q;

    always_ff @(posedge clk_i) begin
      memory[address_q] <= data_i;
      data_o            <= memory[address_q];
    end
    always_ff @(posedge clk_i) begin
      if (!rst_ni || address_q == AddressWidth'(Words - 1)) address_q <= '0;
      else address_q <= address_q + 1'b1;
    end
  end

endmodule
