// Takes the scaler's lists from memory's words: that along rows into the table of scaler_rows, that
// along columns entry by entry to scaler_columns.
//
// Interface   `start_i` for a clock, with the frame's width; `setup_i` stays. Then two words an
//             entry. `loaded_o`: the list along rows is in the table, and `good_o` says whether it
//             takes and gives as many pixels as it should. With `discard_i` entries along columns
//             are lost. `empty_o`: all words have come.
// Throughput  a word a clock.
module scaler_load
  import scaler_pkg::*;
(
  input  logic                 clk_i,
  input  logic                 rst_ni,

  input  logic                 start_i,
  input  logic [15:0]          width_i,
  input  setup_t               setup_i,
  input  logic                 discard_i,
  output logic                 loaded_o,
  output logic                 good_o,
  output logic                 empty_o,

  input  logic [127:0]         word_i,
  input  logic                 word_valid_i,
  output logic                 word_ready_o,

  output logic                 table_we_o,
  output logic [EntryBits-1:0] table_index_o,
  output entry_t               table_entry_o,

  output entry_t               entry_o,
  output logic                 entry_valid_o,
  input  logic                 entry_ready_i
);

  localparam int unsigned CountBits = EntryBits + 2;  // of the pixels of a list

  logic [31:0]          rows_q, columns_q;  // entries that have not come
  logic                 more_rows_q, more_columns_q;  // some
  logic                 second_q;           // the first word of an entry is here
  logic [127:0]         first_q;
  logic [EntryBits-1:0] index_q;
  logic [CountBits-1:0] taken_q, given_q;
  logic                 whole, accept, room;
  entry_t               entry;

  assign entry        = entry_t'({word_i[67:0], first_q});
  assign word_ready_o = (more_rows_q || more_columns_q) &&
                        (!second_q || more_rows_q || discard_i || room);
  assign accept       = word_valid_i && word_ready_o;
  assign whole        = accept && second_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      rows_q         <= '0;
      columns_q      <= '0;
      more_rows_q    <= 1'b0;
      more_columns_q <= 1'b0;
      second_q       <= 1'b0;
    end else if (start_i) begin
      rows_q         <= setup_i.rows.entries;
      columns_q      <= setup_i.columns.entries;
      more_rows_q    <= setup_i.rows.entries != '0;
      more_columns_q <= setup_i.columns.entries != '0;
      second_q       <= 1'b0;
    end else if (accept) begin
      second_q <= !second_q;
      if (second_q && more_rows_q) begin
        rows_q      <= rows_q - 32'd1;
        more_rows_q <= rows_q != 32'd1;
      end
      if (second_q && !more_rows_q) begin
        columns_q      <= columns_q - 32'd1;
        more_columns_q <= columns_q != 32'd1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (accept) first_q <= word_i;
    if (start_i) begin
      index_q <= '0;
      taken_q <= '0;
      given_q <= '0;
    end else if (whole && more_rows_q) begin
      index_q <= index_q + 1'b1;
      taken_q <= taken_q + CountBits'(entry.take) + CountBits'(entry.take_b && setup_i.wide);
      given_q <= given_q + CountBits'(entry.give) + CountBits'(entry.give_b && setup_i.wide);
    end
  end

  assign table_we_o    = whole && more_rows_q;
  assign table_index_o = index_q;
  assign table_entry_o = entry;

  assign loaded_o = !more_rows_q;
  assign empty_o  = !more_rows_q && !more_columns_q;
  // Counts of a list beyond the table mean nothing.
  always_ff @(posedge clk_i) begin
    good_o <= setup_i.rows.entries <= 32'(Entries) && 16'(taken_q) == width_i &&
              16'(given_q) == setup_i.out_width;
  end

  stream_fifo #(
    .Width($bits(entry_t)),
    .Depth(4)
  ) u_entries (
    .clk_i,
    .rst_ni (rst_ni && !discard_i),
    .data_i (entry),
    .valid_i(whole && !more_rows_q && !discard_i),
    .ready_o(room),
    .data_o (entry_o),
    .valid_o(entry_valid_o),
    .ready_i(entry_ready_i),
    .count_o()
  );

endmodule
