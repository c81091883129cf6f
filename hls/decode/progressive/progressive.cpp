// Scans to coefficients in the workspace, and from there to the transform.
//
//   for each scan:  workspace -> read_blocks -> decode_blocks -> write_blocks -> workspace
//   at the end:     workspace -> read_blocks -> send_blocks -> coefficients
//
// A scan visits a block once, so words may be fetched ahead and written behind.
#include "decode/progressive/progressive.hpp"

#include "headrace/word.hpp"

namespace headrace {
namespace {

constexpr unsigned WORDS = 8;      // of a block
constexpr unsigned PER_WORD = 8;   // coefficients

// Coefficients beside each other in a word. Unsigned, because what an encoder would not write wraps.
struct Eight {
    uint16_t value[PER_WORD];
};

Eight unpack(const ap_uint<128>& word) {
#pragma HLS INLINE
    const Halves halves = halves_of(word);
    const uint64_t half[2] = {halves.low, halves.high};
    Eight eight;
    for (unsigned i = 0; i < PER_WORD; i++) {
#pragma HLS UNROLL
        eight.value[i] = static_cast<uint16_t>(half[i / 4] >> 16 * (i % 4));
    }
    return eight;
}

ap_uint<128> pack(const Eight& eight) {
#pragma HLS INLINE
    uint64_t half[2] = {0, 0};
    for (unsigned i = 0; i < PER_WORD; i++) {
#pragma HLS UNROLL
        half[i / 4] |= static_cast<uint64_t>(eight.value[i]) << 16 * (i % 4);
    }
    return word_of({half[0], half[1]});
}

// Words on their way to the workspace; `end` is none.
struct Written {
    ap_uint<128> word;
    bool end;
};

// ---- Where blocks lie and in which order they come ----

// The blocks of a component in the workspace.
struct Plane {
    uint32_t first;         // number of its first block
    uint32_t across, down;  // blocks of whole MCUs
    uint32_t seen_across, seen_down;  // blocks with a sample of the image
    uint8_t h_shift, v_shift;         // log2 of its blocks in an MCU
};

Plane plane_of(const Scan& scan, unsigned component) {
#pragma HLS INLINE
    const Layout layout = layout_of(scan);
    const uint32_t mcus = layout.mcus_across * layout.mcus_down;
    Plane plane;
    plane.first = mcus * layout.first[component];
    plane.h_shift = scan.h[component];
    plane.v_shift = scan.v[component];
    plane.across = layout.mcus_across << plane.h_shift;
    plane.down = layout.mcus_down << plane.v_shift;
    plane.seen_across = ((scan.width - 1) >> (3 + scan.h_shift - scan.h[component])) + 1;
    plane.seen_down = ((scan.height - 1) >> (3 + scan.v_shift - scan.v[component])) + 1;
    return plane;
}

// One pass over blocks: those of some components in MCUs, or all of one component that are seen.
struct Pass {
    Plane plane[COMPONENTS];       // of the members
    uint8_t members;
    uint32_t mcus_across, mcus_down;
    uint8_t first_word, last_word;  // of each block
};

Pass pass_over(const Scan& scan, unsigned members, const uint8_t* member) {
    const Layout layout = layout_of(scan);
    Pass pass;
    pass.members = members;
    for (unsigned i = 0; i < COMPONENTS; i++) pass.plane[i] = plane_of(scan, i < members ? member[i] : 0);
    pass.mcus_across = layout.mcus_across;
    pass.mcus_down = layout.mcus_down;
    if (members == 1) {  // an MCU is a block
        pass.mcus_across = pass.plane[0].seen_across;
        pass.mcus_down = pass.plane[0].seen_down;
        pass.plane[0].h_shift = pass.plane[0].v_shift = 0;
    }
    pass.first_word = 0;
    pass.last_word = WORDS - 1;
    return pass;
}

// A block of a pass.
struct Place {
    uint32_t mcu_x, mcu_y;
    uint8_t member, x, y;  // in the MCU
};

// Whether the place was the last of its MCU.
bool advance(const Pass& pass, Place& place) {
#pragma HLS INLINE
    const Plane& plane = pass.plane[place.member];
    if (++place.x < 1 << plane.h_shift) return false;
    place.x = 0;
    if (++place.y < 1 << plane.v_shift) return false;
    place.y = 0;
    if (++place.member < pass.members) return false;
    place.member = 0;
    if (++place.mcu_x == pass.mcus_across) {
        place.mcu_x = 0;
        place.mcu_y++;
    }
    return true;
}

uint32_t block_at(const Pass& pass, const Place& place) {
#pragma HLS INLINE
    const Plane& plane = pass.plane[place.member];
    const uint32_t column = (place.mcu_x << plane.h_shift) + place.x, row = (place.mcu_y << plane.v_shift) + place.y;
    return plane.first + row * plane.across + column;
}

bool seen_at(const Pass& pass, const Place& place) {
#pragma HLS INLINE
    const Plane& plane = pass.plane[place.member];
    const uint32_t column = (place.mcu_x << plane.h_shift) + place.x, row = (place.mcu_y << plane.v_shift) + place.y;
    return column < plane.seen_across && row < plane.seen_down;
}

// ---- Processes beside the decoder ----

// The words of the pass; with `all` not those of blocks that only whole MCUs have.
void read_blocks(const Pass& pass, bool all, const ap_uint<128>* workspace, hls::stream<ap_uint<128>>& words) {
    Place place = {};
    unsigned word = pass.first_word;
    while (place.mcu_y < pass.mcus_down) {
#pragma HLS PIPELINE II = 1
        if (all || seen_at(pass, place)) {
            words.write(workspace[static_cast<uint64_t>(block_at(pass, place)) * WORDS + word]);
        }
        if (word++ < pass.last_word) continue;
        word = pass.first_word;
        advance(pass, place);
    }
}

void write_blocks(const Pass& pass, hls::stream<Written>& words, ap_uint<128>* workspace) {
    Place place = {};
    unsigned word = pass.first_word;
    for (Written written = words.read(); !written.end; written = words.read()) {
#pragma HLS PIPELINE II = 1
        workspace[static_cast<uint64_t>(block_at(pass, place)) * WORDS + word] = written.word;
        if (word++ < pass.last_word) continue;
        word = pass.first_word;
        advance(pass, place);
    }
}

// Every word gives a coefficient for each that is not zero, the last also one for the last place: as symbols do.
void send_blocks(const Pass& pass, hls::stream<ap_uint<128>>& words,
                 hls::stream<Coefficient>& coefficients) {
    Place place = {};
    unsigned word = 0;
    unsigned left = 0;  // of `eight`, a bit for each coefficient that is to be sent
    Eight eight = {};
    while (place.mcu_y < pass.mcus_down) {
#pragma HLS PIPELINE II = 1
        const uint8_t quant = TABLES + place.member;
        if (!seen_at(pass, place)) {
            coefficients.write({0, 63, quant, true, false});
            advance(pass, place);
            continue;
        }
        if (left == 0) {
            eight = unpack(words.read());
            for (unsigned i = 0; i < PER_WORD; i++) {
#pragma HLS UNROLL
                const bool last = word == WORDS - 1 && i == PER_WORD - 1;
                left |= static_cast<unsigned>(eight.value[i] != 0 || last) << i;
            }
        }
        unsigned lowest = PER_WORD;
        for (unsigned i = PER_WORD; i-- > 0;) {
#pragma HLS UNROLL
            if (left >> i & 1) lowest = i;
        }
        if (lowest < PER_WORD) {
            const uint8_t index = word * PER_WORD + lowest;
            coefficients.write({static_cast<int16_t>(eight.value[lowest]), index, quant, index == 63, false});
            left &= left - 1;
        }
        if (left != 0) continue;
        word = (word + 1) % WORDS;
        if (word == 0) advance(pass, place);
    }
}

// ---- The decoder ----

struct Decoder {
    BitReader in;
    int16_t predictor[COMPONENTS];  // 16 bits wrap, as libjpeg's coefficients do
    uint32_t eob_run;               // blocks, this one too, whose band has no new coefficient any more
    Place place;                    // the next block
    uint32_t words_taken;
};

// Decodes `mcus`, between two restart markers. In each step at most one of: a symbol, its coefficient placed, a coefficient
// of the scans before corrected; and besides a word taken and given.
//
// All kinds of blocks are one. A new coefficient comes after `run` zeros; on the way there are those that earlier scans
// have sent, each of which takes a correction bit. In the first scan of a band there are none.
unsigned decode_interval(const Scan& scan, const Pass& pass, bool reads, const HuffmanTables& tables, uint32_t mcus,
                         hls::stream<Token>& tokens, hls::stream<ap_uint<128>>& before, hls::stream<Written>& after,
                         Decoder& decoder) {
    constexpr int LONGEST = 16 + 14;  // a code and the bits of an EOB run
    BitReader& in = decoder.in;
    Eight eight = {};
    bool taken = false;           // `eight` is word number `word`
    unsigned word = pass.first_word;
    unsigned k = 0, end = 0;      // the next coefficient, and the word's last one in the band
    bool placing = false;         // a coefficient, `value`, after `run` more zeros,
    unsigned run = 0;
    uint16_t value = 0;
    bool rest = false;            // or no more new ones in this block
    LongCode pending = {};        // at the top of the window
    while (mcus > 0) {
#pragma HLS PIPELINE II = 1
        refill(tokens, in);
        if (!taken) {
            eight = {};
            if (reads) {
                eight = unpack(before.read());
                decoder.words_taken++;
            }
            taken = true;
            if (word == pass.first_word) {
                k = scan.first;
                placing = false;
                rest = decoder.eob_run > 0;
            }
            const unsigned word_end = word * PER_WORD + PER_WORD - 1;
            end = word_end < scan.last ? word_end : scan.last;
        }
        const uint8_t component = scan.member[decoder.place.member];
        const bool corrects_dc = scan.first == 0 && scan.high != 0;
        if (k > end) {
            // nothing of the band in this word
        } else if (corrects_dc) {
            if (in.bits < 1 && !in.stopped) continue;
            if (in.bits < 1) return stop_status(in);
            eight.value[0] |= static_cast<uint16_t>(in.window >> 63) << scan.low;
            in.window <<= 1;
            in.bits -= 1;
            k = 1;
        } else if (!placing && !rest) {
            if (in.bits < LONGEST && !in.stopped) continue;
            const bool dc = k == 0;
            const unsigned table = dc ? scan.dc[component] : TABLES + scan.ac[component];
            Code code = {};
            if (!look_up(in.window >> 48, table, tables, pending, code)) continue;
            // New coefficients of a refinement have one bit.
            const unsigned status = code_status(code, dc ? DC_BITS : scan.high != 0 ? 1u : AC_BITS, in);
            if (status != STATUS_OK) return status;
            const unsigned size = code.symbol & 15, upper = code.symbol >> 4 & 15, length = (code.total - size) & 31;
            const bool eob = !dc && size == 0 && upper != 15;
            const unsigned extra = !eob ? size : scan.progressive ? upper : 0;
            if (static_cast<int>(length + extra) > in.bits) return stop_status(in);
            const uint32_t bits = static_cast<uint32_t>(in.window << length >> 32);
            in.window <<= length + extra;
            in.bits -= length + extra;
            if (eob) {
                rest = true;
                if (scan.progressive) {
                    decoder.eob_run = (1u << extra) + static_cast<uint32_t>(static_cast<uint64_t>(bits) << extra >> 32);
                }
            } else if (dc) {
                int16_t& predictor = decoder.predictor[component];
                predictor = static_cast<int16_t>(predictor + extend(bits, size));
                eight.value[0] = static_cast<uint16_t>(static_cast<uint16_t>(predictor) << scan.low);
                k = 1;
            } else {
                placing = true;
                run = upper;
                value = static_cast<uint16_t>(static_cast<uint16_t>(extend(bits, size)) << scan.low);
            }
        } else {
            unsigned sent = end + 1;  // the first in this word that an earlier scan has sent
            for (unsigned i = PER_WORD; i-- > 0;) {
#pragma HLS UNROLL
                const unsigned at = word * PER_WORD + i;
                if (at >= k && at <= end && eight.value[i] != 0) sent = at;
            }
            const unsigned zeros = sent - k;
            if (placing && run < zeros) {
                k += run;
                eight.value[k % PER_WORD] = value;
                placing = false;
                k++;
            } else {
                if (sent <= end) {
                    if (in.bits < 1 && !in.stopped) continue;
                    if (in.bits < 1) return stop_status(in);
                    uint16_t& coefficient = eight.value[sent % PER_WORD];
                    const bool negative = coefficient >> 15;
                    const uint16_t step = static_cast<uint16_t>((in.window >> 63) << scan.low);
                    coefficient = static_cast<uint16_t>(negative ? coefficient - step : coefficient + step);
                    in.window <<= 1;
                    in.bits -= 1;
                }
                run -= zeros;  // counts only while placing
                k = sent <= end ? sent + 1 : sent;
            }
        }
        if (k <= end) continue;

        after.write({pack(eight), false});
        taken = false;
        if (word++ < pass.last_word) continue;
        if (placing) return STATUS_CORRUPT_HUFFMAN;  // beyond the band
        if (decoder.eob_run > 0) decoder.eob_run--;
        word = pass.first_word;
        if (advance(pass, decoder.place)) mcus--;
    }
    return STATUS_OK;
}

// Behind the last MCU: padding of less than a byte, perhaps bytes 0 and restart markers, the end of the scan. libjpeg skips
// anything here, but data that was not used tells of damage before it.
unsigned end_scan(hls::stream<Token>& tokens, const BitReader& in, unsigned status) {
    if (status == STATUS_OK && in.window << in.bits % 8 != 0) status = STATUS_CORRUPT_HUFFMAN;
    Token token = in.stopped ? in.stop : tokens.read();
    while (token.kind != SCAN_END) {
#pragma HLS PIPELINE II = 1
        if (token.kind == DATA && token.value != 0 && status == STATUS_OK) status = STATUS_CORRUPT_HUFFMAN;
        token = tokens.read();
    }
    return status;
}

void decode_blocks(const Scan& scan, const Pass& pass, bool reads, const HuffmanTables& tables,
                   hls::stream<Token>& tokens, hls::stream<ap_uint<128>>& before, hls::stream<Written>& after,
                   unsigned& status) {
    Decoder decoder = {};
    unsigned restart_number = 0;
    uint32_t left = pass.mcus_across * pass.mcus_down;
    status = STATUS_OK;
    while (left > 0 && status == STATUS_OK) {
        const uint32_t interval = scan.restart_interval;
        const uint32_t mcus = interval != 0 && interval < left ? interval : left;
        status = decode_interval(scan, pass, reads, tables, mcus, tokens, before, after, decoder);
        left -= mcus;
        if (status != STATUS_OK || left == 0) break;
        status = restart(tokens, decoder.in, restart_number);
        restart_number = (restart_number + 1) & 7;
        decoder.eob_run = 0;
        for (int c = 0; c < COMPONENTS; c++) decoder.predictor[c] = 0;
    }
    status = end_scan(tokens, decoder.in, status);
    after.write({0, true});

    // After a fault the words of the other blocks are still on their way.
    uint32_t blocks = 0;
    for (unsigned i = 0; i < pass.members; i++) blocks += 1u << (pass.plane[i].h_shift + pass.plane[i].v_shift);
    const uint32_t words =
        pass.mcus_across * pass.mcus_down * blocks * (pass.last_word - pass.first_word + 1u);
    for (uint32_t i = decoder.words_taken; reads && i < words; i++) {
#pragma HLS PIPELINE II = 1
        before.read();
    }
}

// `reads` is `pass`, or without MCUs if the scan is the first of its blocks.
void through_decoder(const Scan& scan, const Pass& reads, const Pass& pass, const HuffmanTables& tables,
                     hls::stream<Token>& tokens, const ap_uint<128>* workspace_in, ap_uint<128>* workspace_out,
                     unsigned& status) {
#pragma HLS DATAFLOW
    hls::stream<ap_uint<128>> before("progressive words before");
    hls::stream<Written> after("progressive words after");
#pragma HLS STREAM variable = before depth = 64
#pragma HLS STREAM variable = after depth = 64
    read_blocks(reads, true, workspace_in, before);
    decode_blocks(scan, pass, reads.mcus_down > 0, tables, tokens, before, after, status);
    write_blocks(pass, after, workspace_out);
}

unsigned decode_scan(const Scan& scan, const HuffmanTables& tables, hls::stream<Token>& tokens,
                     const ap_uint<128>* workspace_in, ap_uint<128>* workspace_out) {
    Pass pass = pass_over(scan, scan.members, scan.member), reads = pass;
    if (scan.first == 0 && scan.high == 0) {  // a component's first: it writes whole blocks
        reads.mcus_down = 0;
    } else {
        reads.first_word = pass.first_word = scan.first / PER_WORD;
        reads.last_word = pass.last_word = scan.last / PER_WORD;
    }
    unsigned status;
    through_decoder(scan, reads, pass, tables, tokens, workspace_in, workspace_out, status);
    return status;
}

void send_coefficients(const Pass& pass, const ap_uint<128>* workspace, hls::stream<Coefficient>& coefficients) {
#pragma HLS DATAFLOW
    hls::stream<ap_uint<128>> words("progressive words");
#pragma HLS STREAM variable = words depth = 64
    read_blocks(pass, false, workspace, words);
    send_blocks(pass, words, coefficients);
}

}  // namespace

unsigned decode_scans(hls::stream<TableWrite>& writes, hls::stream<Scan>& scans, hls::stream<Token>& tokens,
                      const Scan& first, const Wanted& wanted, HuffmanTables& tables,
                      const ap_uint<128>* workspace_in, ap_uint<128>* workspace_out,
                      hls::stream<Coefficient>& coefficients) {
    Scan scan = first;
    unsigned status = STATUS_OK;
    while (scan.status == STATUS_OK && !scan.file_end) {
        // After a fault scans are only passed over.
        status = status == STATUS_OK ? decode_scan(scan, tables, tokens, workspace_in, workspace_out)
                                     : end_scan(tokens, {}, status);
        load_tables(writes, tables);
        scan = scans.read();
    }
    if (status == STATUS_OK) status = scan.status;
    if (status == STATUS_OK) {
        const uint8_t all[COMPONENTS] = {0, 1, 2};
        Pass pass = pass_over(scan, scan.components, all);
        pass.mcus_down = mcu_rows_for(scan, plan_resize(wanted, scan.width, scan.height).source);
        send_coefficients(pass, workspace_in, coefficients);
    }
    return status;
}

}  // namespace headrace
