// The parser: bytes of a file to headers, tables and the entropy-coded data of its scans, stuffing removed.
//
// Tables are written as they come; GO in `huffman_writes` and a Scan follow when a scan begins, then its tokens. A file
// with all components in one sequential scan ends with the token FILE_END, and GO in `quant_writes` comes with the Scan.
// A file of several scans repeats tables, GO and Scan until a Scan that is `file_end` or has a status; then GO comes in
// `quant_writes`. Without a workspace (0 bytes) such files end in STATUS_PROGRESSIVE or STATUS_MULTIPLE_SCANS.
#pragma once

#include "decode/decode.hpp"
#include "decode/stages.hpp"

namespace headrace {

void parse(WordStream& words, ap_uint<32> jpeg_bytes, uint32_t workspace_bytes, hls::stream<TableWrite>& quant_writes,
           hls::stream<TableWrite>& huffman_writes, hls::stream<Scan>& scans, hls::stream<Token>& tokens);

}  // namespace headrace
