// Words of a tensor to memory, one behind the other, as many as come.
//
// Interface   `start_i` for a clock while `idle_o`, with the address, 16-byte aligned, which stays.
//             `end_i`: no more words come. `idle_o`: all words are written and answered.
// Bursts      of BurstWords words that are there, as in axi_write, and one for the rest.
// Throughput  one word a clock.
// Bad input   an error response sets `bus_error_o` until the next start.
module tensor_write #(
  parameter int unsigned BurstWords = 32
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [63:0]  address_i,
  input  logic         end_i,
  output logic         idle_o,
  output logic         bus_error_o,

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output logic [63:0]  awaddr_o,
  output logic [7:0]   awlen_o,
  output logic         awvalid_o,
  input  logic         awready_i,
  output logic [127:0] wdata_o,
  output logic [15:0]  wstrb_o,
  output logic         wlast_o,
  output logic         wvalid_o,
  input  logic         wready_i,
  input  logic [1:0]   bresp_i,
  input  logic         bvalid_i
);

  // Of words in the FIFO of axi_write that no command has claimed.
  localparam int unsigned CountBits = 8;

  logic [CountBits-1:0] waiting_q;
  logic [27:0]          next_q;     // word address
  logic [31:0]          upper_q;
  logic                 carry_q, pause_q;
  logic                 due, take, command, command_ready, writer_idle;
  logic [CountBits-1:0] size;

  assign size    = waiting_q > CountBits'(BurstWords) ? CountBits'(BurstWords) : waiting_q;
  assign due     = waiting_q >= CountBits'(BurstWords) || (end_i && waiting_q != '0);
  assign take    = word_valid_i && word_ready_o;
  assign command = due && !pause_q;
  assign idle_o  = writer_idle && waiting_q == '0 && !take;

  always_ff @(posedge clk_i) begin
    carry_q <= 1'b0;
    upper_q <= start_i ? address_i[63:32] : upper_q + 32'(carry_q);
    if (start_i) next_q <= address_i[31:4];
    else if (command && command_ready) {carry_q, next_q} <= {1'b0, next_q} + 29'(size);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      waiting_q <= '0;
      pause_q   <= 1'b0;
    end else begin
      waiting_q <= waiting_q + CountBits'(take) -
                   (command && command_ready ? size : CountBits'(0));
      pause_q   <= command && command_ready;  // the address has a carry to take
    end
  end

  axi_write #(.BurstWords(BurstWords), .Depth(2 * BurstWords)) u_write (
    .clk_i,
    .rst_ni,
    .clear_i        (start_i),
    .idle_o         (writer_idle),
    .bus_error_o,
    .address_i      ({upper_q, next_q, 4'b0}),
    .words_i        (29'(size)),
    .command_valid_i(command),
    .command_ready_o(command_ready),
    .word_i,
    .word_valid_i,
    .word_ready_o,
    .awaddr_o,
    .awlen_o,
    .awsize_o       (),
    .awburst_o      (),
    .awvalid_o,
    .awready_i,
    .wdata_o,
    .wstrb_o,
    .wlast_o,
    .wvalid_o,
    .wready_i,
    .bresp_i,
    .bvalid_i,
    .bready_o       ()
  );

endmodule
