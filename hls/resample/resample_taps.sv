// The taps of one rate: words of a tap for each lane.
//
// Interface   `load_i` for a clock while `idle_o`: `words_i` words are then taken from memory's, 22
//             of them for one, each four taps in the lower 24 of 32 bits. `taps_o` are those of
//             `address_i` two clocks before.
// Throughput  a word of memory a clock; a read a clock, not while loading.
// Memory      30 UltraRAMs: three taps each.
module resample_taps
  import resample_pkg::*;
(
  input  logic                            clk_i,
  input  logic                            rst_ni,

  input  logic                            load_i,
  input  logic [9:0]                      words_i,  // at least 1
  output logic                            idle_o,
  input  logic [127:0]                    word_i,
  input  logic                            word_valid_i,
  output logic                            word_ready_o,

  input  logic [9:0]                      address_i,
  output logic [Lanes-1:0][TapBits-1:0]   taps_o
);

  localparam int unsigned Groups    = Lanes / 4;
  localparam int unsigned PerMemory = 3;
  localparam int unsigned Memories  = (Lanes + PerMemory - 1) / PerMemory;

  // ---- Loading ----
  logic                          loading_q, write_q;
  logic [9:0]                    left_q, next_q, write_address_q;
  logic [4:0]                    group_q, write_group_q;
  logic [3:0][TapBits-1:0]       write_q4;
  logic                          take, last;

  assign word_ready_o = loading_q;
  assign idle_o       = !loading_q && !write_q;
  assign take         = loading_q && word_valid_i;
  assign last         = group_q == 5'(Groups - 1);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      loading_q <= 1'b0;
      write_q   <= 1'b0;
    end else begin
      if (load_i) loading_q <= 1'b1;
      else if (take && last && left_q == 10'd1) loading_q <= 1'b0;
      write_q <= take;
    end
  end

  always_ff @(posedge clk_i) begin
    if (load_i) begin
      left_q  <= words_i;
      next_q  <= '0;
      group_q <= '0;
    end else if (take) begin
      group_q <= last ? '0 : group_q + 5'd1;
      if (last) next_q <= next_q + 10'd1;
      if (last) left_q <= left_q - 10'd1;
    end
    write_address_q <= next_q;
    write_group_q   <= group_q;
    for (int i = 0; i < 4; i++) write_q4[i] <= word_i[32*i+:TapBits];
  end

  // ---- Memories ----
  for (genvar m = 0; m < Memories; m++) begin : gen_memory
    localparam int unsigned Here = m == Memories - 1 ? Lanes - PerMemory * m : PerMemory;
    (* ram_style = "ultra" *) logic [Here*TapBits-1:0] memory[Words];
    logic [Here*TapBits-1:0] read_q, taps_q;
    logic [Here-1:0]         write;

    for (genvar i = 0; i < Here; i++) begin : gen_tap
      assign write[i] = write_q && write_group_q == 5'((PerMemory * m + i) / 4);
    end

    always_ff @(posedge clk_i) begin
      for (int i = 0; i < Here; i++) begin
        if (write[i]) begin
          memory[write_address_q][TapBits*i+:TapBits] <= write_q4[(PerMemory*m+i)%4];
        end
      end
      read_q <= memory[address_i];
    end
    always_ff @(posedge clk_i) begin
      taps_q <= read_q;
    end
    for (genvar i = 0; i < Here; i++) begin : gen_out
      assign taps_o[PerMemory*m+i] = taps_q[TapBits*i+:TapBits];
    end
  end

`ifndef SYNTHESIS
  a_load_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni) load_i |-> idle_o);
`endif

endmodule
