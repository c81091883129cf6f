// The readers of segments answer the marker machine from any state, when the file has ended: they
// want a byte, or are over, or fail. So marker_machine, which waits for that, goes on. The reader
// of DHT also writes the tables of the standard to their end.
//
// Method      all readers have their turn at once. Those but of DHT answer within two clocks. For
//             DHT the rank counts the clocks that are left: of a table at most 32 counts, and 16
//             lengths with 256 symbols each.
module f_reader_states
  import parse_pkg::*;
(
  input logic        clk_i,
  input logic        start_i,
  input logic        begin_i,
  input logic        standard_i,  // the tables of the standard are written
  input logic        app14_i,
  input logic [15:0] length_i,
  input logic        empty_i,
  input logic [7:0]  byte_i,
  input logic        huffman_ready_i
);

  // Of DHT.
  typedef enum logic [3:0] {
    StSelect = 4'b1000,
    StCount  = 4'b0100,
    StCheck  = 4'b0000,
    StLength = 4'b0001,
    StSymbol = 4'b0101
  } state_e;
  // At most, in clocks: of a count or symbol, of a length, and of a table.
  localparam int unsigned Byte = 4, Length = 256 * Byte + 6, Table = 32 * Byte + 16 * Length + 4;

  request_t   quant, scan, frame, application, huffman;
  logic       bad;
  logic       past_q = 1'b0, standard_q;
  logic [3:0] answers, answered_q;

  // verilator lint_off PINMISSING
  quant_definition u_quant (
    .clk_i, .rst_ni(1'b1), .start_i, .begin_i, .turn_i(1'b1), .length_i, .empty_i, .byte_i,
    .have_byte_i(1'b0), .request_o(quant)
  );
  scan_header u_scan (
    .clk_i, .rst_ni(1'b1), .start_i, .begin_i, .turn_i(1'b1), .length_i, .byte_i,
    .have_byte_i(1'b0), .request_o(scan)
  );
  frame_header u_frame (
    .clk_i, .rst_ni(1'b1), .start_i, .begin_i, .turn_i(1'b1), .length_i, .byte_i,
    .have_byte_i(1'b0), .request_o(frame)
  );
  application_segment u_application (
    .clk_i, .rst_ni(1'b1), .start_i, .begin_i, .turn_i(1'b1), .app14_i, .empty_i, .byte_i,
    .have_byte_i(1'b0), .request_o(application)
  );
  huffman_definition u (
    .clk_i, .rst_ni(1'b1), .start_i, .turn_i(!standard_i), .standard_i, .length_i, .empty_i,
    .byte_i, .have_byte_i(1'b0), .request_o(huffman), .bad_o(bad), .huffman_ready_i
  );
  // verilator lint_on PINMISSING

  function automatic logic answer(request_t request);
    return request.wants || request.over || request.fail;
  endfunction

  assign answers = {answer(quant), answer(scan), answer(frame), answer(application)};

  logic        ready_moved;
  logic [19:0] rank, tables, bytes, lengths;
  logic [4:0]  counts_left;
  logic [7:0]  symbols_left;
  assign counts_left  = 5'd15 - u.step_q;      // behind this one
  assign symbols_left = u.count_left_q - 8'd1;

  always_comb begin
    tables = '0;
    if (standard_i) tables = 20'(Table) * 20'($countones(u.standard_q));
    bytes   = u.rom_valid_q ? 20'd1 + 20'(ready_moved) : 20'd3;  // clocks until one is taken
    lengths = 20'd3 + (u.code_length_q[4] ? 20'd0
                                          : 20'(Length) * (20'd16 - 20'(u.code_length_q)));
    unique case (state_e'(u.state_q))
      StSelect: rank = tables + 20'd1;
      StCount:  rank = tables + 20'(16 * Length + 5) + 20'(Byte) * 20'(counts_left) + bytes;
      StCheck:  rank = tables + 20'(16 * Length + 4);
      StLength: rank = tables + lengths;
      StSymbol: rank = tables + lengths + 20'(Byte) * 20'(symbols_left) + bytes;
      default:  rank = tables + 20'd2;
    endcase
    if (answer(huffman) || bad) rank = '0;
  end

  state_checker #(.RankBits(20)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i(huffman_ready_i),
    .moved_o(ready_moved)
  );

  always_ff @(posedge clk_i) begin
    past_q     <= 1'b1;
    standard_q <= standard_i;
    answered_q <= answers;
  end
  always_comb begin
    m_turn_stays: assume (!past_q || standard_i == standard_q);
    if (past_q) begin
      a_answers: assert ((answers | answered_q) == '1);
      c_answers_late: cover (answers == '1 && answered_q != '1);
    end
  end

endmodule
