// Flash model, for simulation: an SPI flash memory of 1 MiB that knows the read command 03h.
//
// Its content is the file that the plus argument `flash` names, in the form of $readmemh. What the
// file does not set is FFh, as in an erased memory. Other commands have no answer.
module flash_model (
  input  logic cs_ni,
  input  logic sck_i,
  input  logic mosi_i,
  output logic miso_o
);

  localparam int unsigned Size = 1 << 20;

  logic [7:0]  memory[Size];
  logic [31:0] command;  // and its address
  logic [31:0] bits;     // since cs_ni fell
  logic [22:0] place;    // bit of the memory
  string       name;

  initial begin
    for (int unsigned i = 0; i < Size; i++) memory[i] = 8'hFF;
    if ($value$plusargs("flash=%s", name)) $readmemh(name, memory);
  end

  always_ff @(posedge sck_i or posedge cs_ni) begin
    if (cs_ni) bits <= '0;
    else begin
      if (bits < 32) command <= {command[30:0], mosi_i};
      bits <= bits + 1;
    end
  end

  assign place = {command[19:0], 3'd0} + 23'(bits - 32);

  always_ff @(negedge sck_i) begin
    miso_o <= command[31:24] == 8'h03 && memory[place[22:3]][3'd7 - place[2:0]];
  end

endmodule
