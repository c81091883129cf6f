// Memory for rows of samples: one write port, one read port.
//
// Interface   the word at `read_address_i` is at `read_data_o` two clocks later; what is written is
//             read from the next clock on.
// Memory      UltraRAM, 4096 words of up to 72 bits each; the second register hides the selection
//             between them.
module row_memory #(
  parameter int unsigned Depth = 32768,
  parameter int unsigned Width = 64
) (
  input  logic                     clk_i,

  input  logic                     write_i,
  input  logic [$clog2(Depth)-1:0] write_address_i,
  input  logic [Width-1:0]         write_data_i,

  input  logic [$clog2(Depth)-1:0] read_address_i,
  output logic [Width-1:0]         read_data_o
);

  (* ram_style = "ultra" *) logic [Width-1:0] memory[Depth];
  logic [Width-1:0] data_q;

  always_ff @(posedge clk_i) begin
    if (write_i) memory[write_address_i] <= write_data_i;
  end

  always_ff @(posedge clk_i) begin
    data_q      <= memory[read_address_i];
    read_data_o <= data_q;
  end

endmodule
