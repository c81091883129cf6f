// The Huffman tables 0 (luma) and 1 (chroma) of the standard, for files that have none.
//
// Reference   T.81 tables K.3 to K.6.
// Interface   `byte_o` is the byte at `at_i` of table `chroma_i`, a clock later. From 0 on lie the
//             symbols of the AC table, from 0xB0 on the counts of its codes of 1 to 16 bits, and
//             from 0xC0 on those of the DC table, whose symbols are 0, 1, 2 and so on.
module standard_huffman (
  input  logic       clk_i,
  input  logic       chroma_i,
  input  logic [7:0] at_i,
  output logic [7:0] byte_o
);

  localparam logic [7:0] Tables[2][208] = '{
    '{
      8'h01, 8'h02, 8'h03, 8'h00, 8'h04, 8'h11, 8'h05, 8'h12,
      8'h21, 8'h31, 8'h41, 8'h06, 8'h13, 8'h51, 8'h61, 8'h07,
      8'h22, 8'h71, 8'h14, 8'h32, 8'h81, 8'h91, 8'hA1, 8'h08,
      8'h23, 8'h42, 8'hB1, 8'hC1, 8'h15, 8'h52, 8'hD1, 8'hF0,
      8'h24, 8'h33, 8'h62, 8'h72, 8'h82, 8'h09, 8'h0A, 8'h16,
      8'h17, 8'h18, 8'h19, 8'h1A, 8'h25, 8'h26, 8'h27, 8'h28,
      8'h29, 8'h2A, 8'h34, 8'h35, 8'h36, 8'h37, 8'h38, 8'h39,
      8'h3A, 8'h43, 8'h44, 8'h45, 8'h46, 8'h47, 8'h48, 8'h49,
      8'h4A, 8'h53, 8'h54, 8'h55, 8'h56, 8'h57, 8'h58, 8'h59,
      8'h5A, 8'h63, 8'h64, 8'h65, 8'h66, 8'h67, 8'h68, 8'h69,
      8'h6A, 8'h73, 8'h74, 8'h75, 8'h76, 8'h77, 8'h78, 8'h79,
      8'h7A, 8'h83, 8'h84, 8'h85, 8'h86, 8'h87, 8'h88, 8'h89,
      8'h8A, 8'h92, 8'h93, 8'h94, 8'h95, 8'h96, 8'h97, 8'h98,
      8'h99, 8'h9A, 8'hA2, 8'hA3, 8'hA4, 8'hA5, 8'hA6, 8'hA7,
      8'hA8, 8'hA9, 8'hAA, 8'hB2, 8'hB3, 8'hB4, 8'hB5, 8'hB6,
      8'hB7, 8'hB8, 8'hB9, 8'hBA, 8'hC2, 8'hC3, 8'hC4, 8'hC5,
      8'hC6, 8'hC7, 8'hC8, 8'hC9, 8'hCA, 8'hD2, 8'hD3, 8'hD4,
      8'hD5, 8'hD6, 8'hD7, 8'hD8, 8'hD9, 8'hDA, 8'hE1, 8'hE2,
      8'hE3, 8'hE4, 8'hE5, 8'hE6, 8'hE7, 8'hE8, 8'hE9, 8'hEA,
      8'hF1, 8'hF2, 8'hF3, 8'hF4, 8'hF5, 8'hF6, 8'hF7, 8'hF8,
      8'hF9, 8'hFA, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00,
      8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00,
      8'h00, 8'h02, 8'h01, 8'h03, 8'h03, 8'h02, 8'h04, 8'h03,
      8'h05, 8'h05, 8'h04, 8'h04, 8'h00, 8'h00, 8'h01, 8'h7D,
      8'h00, 8'h01, 8'h05, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01,
      8'h01, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00
    },
    '{
      8'h00, 8'h01, 8'h02, 8'h03, 8'h11, 8'h04, 8'h05, 8'h21,
      8'h31, 8'h06, 8'h12, 8'h41, 8'h51, 8'h07, 8'h61, 8'h71,
      8'h13, 8'h22, 8'h32, 8'h81, 8'h08, 8'h14, 8'h42, 8'h91,
      8'hA1, 8'hB1, 8'hC1, 8'h09, 8'h23, 8'h33, 8'h52, 8'hF0,
      8'h15, 8'h62, 8'h72, 8'hD1, 8'h0A, 8'h16, 8'h24, 8'h34,
      8'hE1, 8'h25, 8'hF1, 8'h17, 8'h18, 8'h19, 8'h1A, 8'h26,
      8'h27, 8'h28, 8'h29, 8'h2A, 8'h35, 8'h36, 8'h37, 8'h38,
      8'h39, 8'h3A, 8'h43, 8'h44, 8'h45, 8'h46, 8'h47, 8'h48,
      8'h49, 8'h4A, 8'h53, 8'h54, 8'h55, 8'h56, 8'h57, 8'h58,
      8'h59, 8'h5A, 8'h63, 8'h64, 8'h65, 8'h66, 8'h67, 8'h68,
      8'h69, 8'h6A, 8'h73, 8'h74, 8'h75, 8'h76, 8'h77, 8'h78,
      8'h79, 8'h7A, 8'h82, 8'h83, 8'h84, 8'h85, 8'h86, 8'h87,
      8'h88, 8'h89, 8'h8A, 8'h92, 8'h93, 8'h94, 8'h95, 8'h96,
      8'h97, 8'h98, 8'h99, 8'h9A, 8'hA2, 8'hA3, 8'hA4, 8'hA5,
      8'hA6, 8'hA7, 8'hA8, 8'hA9, 8'hAA, 8'hB2, 8'hB3, 8'hB4,
      8'hB5, 8'hB6, 8'hB7, 8'hB8, 8'hB9, 8'hBA, 8'hC2, 8'hC3,
      8'hC4, 8'hC5, 8'hC6, 8'hC7, 8'hC8, 8'hC9, 8'hCA, 8'hD2,
      8'hD3, 8'hD4, 8'hD5, 8'hD6, 8'hD7, 8'hD8, 8'hD9, 8'hDA,
      8'hE2, 8'hE3, 8'hE4, 8'hE5, 8'hE6, 8'hE7, 8'hE8, 8'hE9,
      8'hEA, 8'hF2, 8'hF3, 8'hF4, 8'hF5, 8'hF6, 8'hF7, 8'hF8,
      8'hF9, 8'hFA, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00,
      8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00,
      8'h00, 8'h02, 8'h01, 8'h02, 8'h04, 8'h04, 8'h03, 8'h04,
      8'h07, 8'h05, 8'h04, 8'h04, 8'h00, 8'h01, 8'h02, 8'h77,
      8'h00, 8'h03, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01,
      8'h01, 8'h01, 8'h01, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00
    }
  };

  always_ff @(posedge clk_i) byte_o <= Tables[chroma_i][at_i];

endmodule
