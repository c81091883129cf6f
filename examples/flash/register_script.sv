// Register script: what a processor would do with the registers of image_stream, for boards without
// one.
//
// Interface   AXI4-Lite, the master's side. `start_i` for a clock while `busy_o` is low: it writes
//             the arguments and starts a run. When the run has ended, as `interrupt_i` says, it
//             reads the status, `status_o`, and gives the unit free; `done_o` is high for a clock
//             then.
// Throughput  one access at a time.
// Bad input   an answer other than OKAY is taken as one.
module register_script #(
  parameter logic [31:0] Stage       = 32'd2,  // crop
  parameter logic [31:0] ResizeShort = 32'd64,
  parameter logic [31:0] CropWidth   = 32'd64,
  parameter logic [31:0] CropHeight  = 32'd64
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  output logic        busy_o,
  output logic        done_o,
  output logic [7:0]  status_o,
  input  logic        interrupt_i,

  output logic [11:0] m_axi_awaddr,
  output logic        m_axi_awvalid,
  input  logic        m_axi_awready,
  output logic [31:0] m_axi_wdata,
  output logic        m_axi_wvalid,
  input  logic        m_axi_wready,
  input  logic        m_axi_bvalid,
  output logic [11:0] m_axi_araddr,
  output logic        m_axi_arvalid,
  input  logic        m_axi_arready,
  input  logic [31:0] m_axi_rdata,
  input  logic        m_axi_rvalid
);

  typedef struct packed {
    logic [11:0] address;
    logic [31:0] data;
  } write_t;

  // Interrupt at ap_done, the arguments of the unit, ap_start; behind the run ISR and ap_continue.
  localparam int unsigned Before = 10;
  localparam int unsigned Writes = 12;
  localparam write_t [Writes-1:0] Script = {
    {12'h000, 32'h10},
    {12'h00C, 32'h1},
    {12'h000, 32'h1},
    {12'h040, 32'h0},
    {12'h038, 32'hFFFF_FFFF},
    {12'h030, 32'hFFFF_FFFF},
    {12'h028, CropHeight},
    {12'h020, CropWidth},
    {12'h018, ResizeShort},
    {12'h010, Stage},
    {12'h008, 32'h1},
    {12'h004, 32'h1}};
  localparam logic [11:0] StatusRegister = 12'h050;

  typedef enum logic [2:0] {
    StIdle,
    StWrite,   // an address and its word leave
    StAnswer,
    StRun,
    StRead
  } state_e;

  state_e     state_q;
  logic [3:0] next_q;  // write

  assign busy_o       = state_q != StIdle;
  assign m_axi_awaddr = Script[next_q].address;
  assign m_axi_wdata  = Script[next_q].data;
  assign m_axi_araddr = StatusRegister;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q       <= StIdle;
      next_q        <= '0;
      done_o        <= 1'b0;
      m_axi_awvalid <= 1'b0;
      m_axi_wvalid  <= 1'b0;
      m_axi_arvalid <= 1'b0;
    end else begin
      done_o <= 1'b0;
      if (m_axi_awready) m_axi_awvalid <= 1'b0;
      if (m_axi_wready) m_axi_wvalid <= 1'b0;
      if (m_axi_arready) m_axi_arvalid <= 1'b0;
      unique case (state_q)
        StIdle: if (start_i) begin
          next_q  <= '0;
          state_q <= StWrite;
        end
        StWrite: begin
          m_axi_awvalid <= 1'b1;
          m_axi_wvalid  <= 1'b1;
          state_q       <= StAnswer;
        end
        StAnswer: if (m_axi_bvalid) begin
          next_q  <= next_q + 4'd1;
          state_q <= next_q == 4'(Before - 1) ? StRun : next_q == 4'(Writes - 1) ? StIdle : StWrite;
          done_o  <= next_q == 4'(Writes - 1);
        end
        StRun: if (interrupt_i) begin
          m_axi_arvalid <= 1'b1;
          state_q       <= StRead;
        end
        StRead: if (m_axi_rvalid) begin
          status_o <= m_axi_rdata[7:0];
          state_q  <= StWrite;
        end
        default: state_q <= StIdle;
      endcase
    end
  end

endmodule
