// Test bench of progressive_decoder.sv: what the parser of the C++ sends for a file goes through the model, behind a memory of
// any latency; coefficients, status and workspace against the C++ of the same process.
#include "Vprogressive_decoder.h"
#include "decode_reference.hpp"
#include "rtl_bench.hpp"
#include "rtl_workspace.hpp"

namespace {

constexpr int DIFFERENT = -1, TOO_LONG = -2, TOO_MUCH = -3, BAD_ACCESS = -4, OTHER_WORKSPACE = -5, ONE_SCAN = -6,
              OTHER_STATUS = -7, NOT_IDLE = -8;
constexpr unsigned WORD = 16;

struct Item {  // what the parser sends, in its order
    enum { TABLE, SCAN, TOKEN } kind;
    uint64_t bits[2];
};

// Fields of a packed struct, the first on top.
struct Packed {
    unsigned __int128 bits = 0;
    Packed& add(unsigned width, uint64_t value) {
        bits = bits << width | (value & ((uint64_t{1} << width) - 1));
        return *this;
    }
    Item item(decltype(Item::kind) kind) const { return {kind, {uint64_t(bits), uint64_t(bits >> 64)}}; }
};

struct File {
    std::vector<Item> items;
    std::vector<headrace::Coefficient> coefficients;
    std::vector<ap_uint<128>> workspace;
    unsigned status;
    headrace::Scan scan;   // the last
    uint32_t last_row = 0;
};

void add_tables(const std::vector<headrace::TableWrite>& writes, size_t& at, std::vector<Item>& items) {
    using namespace headrace;
    unsigned limit = 0, end[17] = {};  // end: the symbols with codes of at most so many bits
    for (; writes[at].field != GO; at++) {
        const TableWrite& write = writes[at];
        const bool symbol = write.field == SYMBOL;
        if (write.field == LIMIT) {
            limit = write.value;
            continue;
        }
        unsigned length = 1;
        if (symbol) {
            while (length < 16 && write.index >= end[length]) length++;
        } else {
            length = write.index + 1;
            end[length] = ((limit >> (16 - length)) + write.value) & 0xFF;
            if (end[length] < end[length - 1]) end[length] = 256;
        }
        Packed packed;
        packed.add(1, write.table >= TABLES).add(2, write.table).add(1, symbol).add(5, length);
        packed.add(16, limit).add(8, write.value).add(1, write.index == 0).add(8, write.index).add(8, write.value);
        items.push_back(packed.item(Item::TABLE));
    }
    at++;
}

Item item_of(const headrace::Scan& scan) {
    unsigned members = 0;
    for (unsigned i = 0; i < scan.members; i++) members |= 1u << scan.member[i];
    Packed packed;
    packed.add(8, scan.status).add(1, scan.file_end).add(16, scan.width).add(16, scan.height);
    packed.add(1, scan.components == 3).add(2, scan.h_shift).add(2, scan.v_shift);
    packed.add(2, scan.h[2]).add(2, scan.h[1]).add(2, scan.v[2]).add(2, scan.v[1]).add(1, scan.rgb);
    packed.add(16, scan.restart_interval).add(1, scan.progressive).add(3, members).add(6, scan.first);
    packed.add(6, scan.last).add(4, scan.high).add(4, scan.low);
    for (int c = 2; c >= 0; c--) packed.add(2, scan.dc[c]);
    for (int c = 2; c >= 0; c--) packed.add(2, scan.ac[c]);
    return packed.item(Item::SCAN);
}

// Of tokens with up to four bytes of data, those with one each.
std::vector<headrace::Token> single_bytes(const std::vector<headrace::Token>& tokens) {
    using namespace headrace;
    std::vector<Token> singles;
    for (const Token& token : tokens) {
        if (token.kind != DATA) singles.push_back(token);
        else for (unsigned i = 0; i < token.bytes; i++) singles.push_back({DATA, 1, token.value >> (24 - 8 * i) & 0xFF});
    }
    return singles;
}

// Data bytes, one a token, go alone or in twos.
void add_tokens(const std::vector<headrace::Token>& singles, size_t& at, std::minstd_rand& random, bool twos,
                std::vector<Item>& items) {
    using namespace headrace;
    while (true) {
        const Token& token = singles.at(at++);
        const bool two = token.kind == DATA && singles.at(at).kind == DATA && (twos || random() % 2);
        Packed packed;
        packed.add(2, token.kind).add(1, two);
        if (token.kind == DATA) packed.add(8, token.value).add(8, two ? singles[at++].value : 0xA5);
        else packed.add(16, token.value);
        items.push_back(packed.item(Item::TOKEN));
        if (token.kind == SCAN_END) return;
    }
}

// Whether the file is one of several scans.
bool read_file(const uint8_t* jpeg, uint32_t size, uint32_t seed, uint32_t last_row, File& file) {
    using namespace headrace;
    WordStream words;
    for (uint32_t at = 0; at < size; at += 16) {
        ap_uint<128> word = 0;
        for (uint32_t i = 0; i < 16 && at + i < size; i++) word.range(8 * i + 7, 8 * i) = jpeg[at + i];
        words.write(word);
    }
    hls::stream<TableWrite> quant, huffman;
    hls::stream<Scan> scans;
    hls::stream<Token> tokens;
    parse(words, size, UINT32_MAX, quant, huffman, scans, tokens);
    const auto all_writes = reference::drain(huffman);
    const auto all_scans = reference::drain(scans);
    const auto all_tokens = reference::drain(tokens);
    const auto singles = single_bytes(all_tokens);
    if (!all_scans[0].several) return false;

    std::minstd_rand random(seed + 1);
    size_t write = 0, token = 0;
    for (const Scan& scan : all_scans) {
        add_tables(all_writes, write, file.items);
        file.items.push_back(item_of(scan));
        if (scan.status == STATUS_OK && !scan.file_end) add_tokens(singles, token, random, seed == 0, file.items);
    }

    file.scan = all_scans.back();
    Wanted wanted{};
    if (last_row != UINT32_MAX) {
        const uint32_t width = file.scan.width, height = file.scan.height;
        wanted = {std::min(width, height), true, {width, std::min(last_row, height - 1) + 1, 0, 0}};
    }
    file.last_row = plan_resize(wanted, file.scan.width, file.scan.height).source.last_row;
    for (const auto& one : all_writes) huffman.write(one);
    for (const auto& one : all_scans) scans.write(one);
    for (const auto& one : all_tokens) tokens.write(one);
    // What it holds before does not matter; where the first scan has a fault, its size is not known.
    if (all_scans[0].status == STATUS_OK) file.workspace.resize(workspace_bytes_of(all_scans[0]) / WORD);
    HuffmanTables tables;
    load_tables(huffman, tables);
    const Scan first = scans.read();
    hls::stream<Coefficient> coefficients;
    file.status = first.status == STATUS_OK ? decode_scans(huffman, scans, tokens, first, wanted, tables, file.workspace.data(),
                                                 file.workspace.data(), coefficients)
                                  : first.status;
    file.coefficients = reference::drain(coefficients);
    return true;
}

struct Progressive : Bench<Vprogressive_decoder> {
    uint64_t first_clock = 0, pass_clock = 0, cycles_taken = 0, read_words = 0, written_words = 0;

    int file(const File& file, uint32_t seed, uint32_t pause_in, uint32_t pause_out, uint32_t pause_memory,
             uint32_t latency, uint64_t error_after, uint64_t bound) {
        reference::Pauses in(seed + 1, pause_in), out(seed + 2, pause_out), slow(seed + 3, pause_memory);
        std::minstd_rand random(seed + 4);
        auto& m = model;
        Workspace workspace(WORD * file.workspace.size(), latency, error_after, seed);
        const auto pauses = [&] { return slow.next(); };
        m.workspace_i = Workspace::BASE;
        const auto layout = headrace::layout_of(file.scan);
        m.mcus_i = layout.mcus_across * layout.mcus_down;
        m.window_i = uint64_t{file.last_row} << 21 | 0x7FF;
        m.window_valid_i = 0;
        uint64_t window_in = random() % 1000 * (seed != 0);
        size_t sent = 0, got = 0;
        bool offered = false, done = false;
        unsigned status = 0;
        first_clock = cycles;
        pass_clock = 0;
        while (!done) {
            if (cycles - first_clock > bound) return TOO_LONG;
            if (window_in-- == 0) m.window_valid_i = 1;
            if (!offered) offered = sent < file.items.size() && !in.next();
            const auto kind = offered ? file.items[sent].kind : Item::TABLE;
            m.huffman_valid_i = offered && kind == Item::TABLE;
            m.scan_valid_i = offered && kind == Item::SCAN;
            m.token_valid_i = offered && kind == Item::TOKEN;
            if (m.huffman_valid_i) m.huffman_i = file.items[sent].bits[0];
            if (m.scan_valid_i) {
                for (int i = 0; i < 4; i++) m.scan_i[i] = file.items[sent].bits[i / 2] >> 32 * (i % 2);
            }
            if (m.token_valid_i) m.token_i = file.items[sent].bits[0];
            m.coefficient_ready_i = !out.next();
            workspace.offer(m, cycles, pauses);
            settle();
            if (!workspace.take(m, cycles)) return BAD_ACCESS;
            if ((m.huffman_valid_i && m.huffman_ready_o) || (m.scan_valid_i && m.scan_ready_o) ||
                (m.token_valid_i && m.token_ready_o)) {
                sent++;
                offered = false;
                if (sent == file.items.size()) pass_clock = cycles;
            }
            if (m.coefficient_valid_o && m.coefficient_ready_i) {
                const uint64_t beat = m.coefficient_o;
                done = beat >> 56 & 1;
                status = beat >> 48 & 0xFF;
                if (!done) {
                    const unsigned count = beat >> 44 & 1 ? 2 : 1;  // one, or two neighbours of a word
                    for (unsigned i = 0; i < count; i++) {
                        if (got == file.coefficients.size()) return TOO_MUCH;
                        const auto& expected = file.coefficients[got++];
                        const bool last = (beat >> 45 & 1) && i + 1 == count;
                        if ((beat >> 46 & 3) != expected.quant - headrace::TABLES || last != expected.last) return DIFFERENT;
                        if ((beat >> (12 + 16 * i) & 0xFFFF) != static_cast<uint16_t>(expected.value)) return DIFFERENT;
                        if ((beat >> (6 * i) & 63) != expected.index) return DIFFERENT;
                    }
                }
            }
            edge();
        }
        cycles_taken = cycles - first_clock;
        read_words = workspace.read_words;
        written_words = workspace.written_words;
        m.huffman_valid_i = m.scan_valid_i = m.token_valid_i = 0;
        m.coefficient_ready_i = 1;
        for (int i = 0; i < 20; i++) {
            workspace.offer(m, cycles, pauses);
            settle();
            if (!workspace.take(m, cycles)) return BAD_ACCESS;
            if (m.coefficient_valid_o || m.arvalid_o || m.awvalid_o) return TOO_MUCH;
            edge();
        }
        if (m.busy_o || !workspace.rests()) return NOT_IDLE;
        if (error_after != UINT64_MAX) return static_cast<int>(status);
        if (sent != file.items.size()) return TOO_MUCH;
        if (status != file.status) return OTHER_STATUS;
        if (status != 0) return static_cast<int>(status);
        if (got != file.coefficients.size()) return DIFFERENT;
        return same_workspace(file, workspace) ? 0 : OTHER_WORKSPACE;
    }

    // In all words that the file writes: those of blocks that only whole MCUs have are left as they were in some files.
    static bool same_workspace(const File& file, const Workspace& workspace) {
        using namespace headrace;
        for (unsigned c = 0; c < file.scan.components; c++) {
            const Plane plane = plane_of(file.scan, c);
            for (uint32_t y = 0; y < plane.seen_down; y++) {
                for (uint32_t i = 0; i < 8 * plane.seen_across; i++) {
                    const uint64_t at = 8 * (plane.first + uint64_t{y} * plane.across) + i;
                    for (unsigned part = 0; part < 4; part++) {
                        const uint32_t expected = file.workspace[at].range(32 * part + 31, 32 * part).to_uint64();
                        if (workspace.part(at, part) != expected) return false;
                    }
                }
            }
        }
        return true;
    }
};

Progressive& ready() {
    static auto* const bench = new Progressive;  // never ends: it outlives everything at exit
    return *bench;
}

}  // namespace

struct Measured {
    uint64_t cycles, last_pass, read_words, written_words;
};

// The status of a file of several scans, which the C++ has, too; or a negative number. `last_row` of the window. With
// `error_after` other than 0, the memory answers with errors from that word on.
extern "C" int rtl_progressive(const uint8_t* jpeg, uint32_t size, uint32_t seed, uint32_t pause_in, uint32_t pause_out,
                               uint32_t pause_memory, uint32_t latency, uint32_t last_row, uint64_t error_after,
                               Measured* measured) {
    Progressive& bench = ready();
    File file;
    if (!read_file(jpeg, size, seed, last_row, file)) return ONE_SCAN;
    uint64_t scans = 0;
    for (const auto& item : file.items) scans += item.kind == Item::SCAN;
    const uint64_t busy = 100 - std::max({pause_in, pause_out, pause_memory});
    const uint64_t words = file.workspace.size();
    // Items, words and scans each cost a few clocks at most.
    const uint64_t bound = (5000 + 20 * file.items.size() + scans * (4 * latency + 100 + 12 * words) + 8 * words) * 200 / busy;
    const int status = bench.file(file, seed, pause_in, pause_out, pause_memory, latency,
                                  error_after == 0 ? UINT64_MAX : error_after, bound);
    if (status < 0) bench.reset();
    *measured = {bench.cycles_taken, bench.cycles_taken - (bench.pass_clock - bench.first_clock), bench.read_words,
                 bench.written_words};
    return status;
}
