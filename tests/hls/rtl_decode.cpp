// Bench of the decode unit's RTL: one file through the Verilated model, with random stalls on every stream and a workspace
// in memory.
//
// One model instance serves all calls, so every file meets the state that the one before it left behind.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>

#include "Vdecode.h"
#include "rtl_bench.hpp"
#include "rtl_workspace.hpp"

namespace {

constexpr int TOO_LONG = -1, BROKEN_CONTRACT = -2, NOT_IDLE = -3, BAD_ACCESS = -4, IDLE_TOO_EARLY = -5, WAS_RESET = -6;

struct Memory {
    uint32_t workspace_bytes, latency;
    uint32_t stall;         // per cent of the clocks, on each channel
    uint32_t forgets;       // reads under way, at a reset
    uint64_t error_after;   // words; from there on it answers with errors
    uint64_t reset_at;      // clock of a reset of the unit, and of what memory is to write; 0: none
    uint64_t takes_writes;  // errors are of reads alone
};

struct Counters {
    uint64_t cycles;       // from the start to the last beat, or to the frame with an error
    uint64_t first_beat;   // clock of the first one
    uint64_t symbols, header, wait_data, wait_transform, wait_rows, wait_output;
    uint64_t bytes;  // of RGB
    uint64_t workspace_needed, read_words, written_words;
    uint64_t pairs;  // of symbols that were taken in a clock
};

}  // namespace

// The status of the file, or a negative number. Up to `capacity` bytes of RGB go to `out`. The input pauses in `stall_in`
// per cent of the clocks, so from some 95 on the decoder waits for it; each output stream in `stall_out`. The window is
// known as soon as the size is, with a seed other than 0 up to 1,000 clocks later. A run with a reset ends in WAS_RESET, when
// the unit does not wait for the workspace any more.
extern "C" int rtl_decode(const uint8_t* jpeg, uint32_t size, uint32_t seed, uint32_t stall_in, uint32_t stall_out,
                          uint32_t first_row, uint32_t last_row, uint64_t bound, const Memory* memory, uint8_t* out,
                          uint64_t capacity, uint32_t* width, uint32_t* height, Counters* counters) {
    static const auto bench = std::make_unique<Bench<Vdecode>>();
    Vdecode& top = bench->model;
    std::minstd_rand random(seed + 1);
    const auto go = [&](uint32_t stall) { return stall == 0 || random() % 100 >= stall; };
    Workspace workspace(memory->workspace_bytes, memory->latency, memory->error_after, seed, memory->takes_writes);
    const auto memory_pauses = [&] { return !go(memory->stall); };

    *counters = {};
    *width = *height = 0;
    const uint64_t words = (uint64_t{size} + 15) / 16;
    uint64_t sent = 0, bytes = 0;
    uint32_t columns = 0;  // of the row so far
    int status = 0;
    bool framed = false, done = false, offered = false;
    uint32_t window_in = seed == 0 ? 0 : random() % 1000;

    top.jpeg_bytes_i = size;
    top.word_end_i = top.word_bytes_i = 0;
    top.workspace_i = Workspace::BASE;
    top.workspace_bytes_i = memory->workspace_bytes;
    top.arready_i = top.rvalid_i = top.awready_i = top.wready_i = top.bvalid_i = 0;
    top.window_i = uint64_t{first_row} << 37 | uint64_t{last_row} << 21 | 0x7FF;
    top.window_valid_i = 0;
    top.start_i = 1;
    top.word_valid_i = top.frame_ready_i = top.beat_ready_i = 0;
    bench->clock();
    top.start_i = 0;
    while (!done) {
        if (++counters->cycles > bound) return TOO_LONG;
        if (!offered) offered = sent < words && go(stall_in);  // once offered, a word stays
        top.word_valid_i = offered;
        uint32_t word[4];
        std::memset(word, 0xDB, sizeof word);
        if (offered) std::memcpy(word, jpeg + 16 * sent, sent + 1 == words ? size - 16 * sent : 16);
        for (int i = 0; i < 4; i++) top.word_i[i] = word[i];
        top.frame_ready_i = go(stall_out);
        top.beat_ready_i = framed && go(stall_out);
        top.window_valid_i = top.sized_o && window_in == 0;
        window_in -= top.sized_o && window_in != 0;
        workspace.offer(top, counters->cycles, memory_pauses);
        if (counters->cycles == memory->reset_at) break;
        bench->settle();
        if (!workspace.take(top, counters->cycles)) return BAD_ACCESS;
        if (top.workspace_idle_o && !workspace.rests()) return IDLE_TOO_EARLY;
        if (top.window_valid_i && (top.width_o == 0 || top.height_o == 0)) return BROKEN_CONTRACT;

        const uint32_t events = top.events_o;  // decode_events_t, first field on top
        counters->header += events >> 6 & 1;
        counters->symbols += (events >> 5 & 1) + (events >> 4 & 1);
        counters->pairs += events >> 4 & 1;
        counters->wait_data += events >> 3 & 1;
        counters->wait_transform += events >> 2 & 1;
        counters->wait_rows += events >> 1 & 1;
        counters->wait_output += events & 1;

        if (top.word_valid_i && top.word_ready_o) {
            sent++;
            offered = false;
        }
        if (top.frame_valid_o && top.frame_ready_i) {
            if (framed) return BROKEN_CONTRACT;
            framed = true;
            *width = top.frame_o >> 24 & 0xFFFF;
            *height = top.frame_o >> 8 & 0xFFFF;
            status = top.frame_o & 0xFF;
            done = status != 0;
            if (done) *width = *height = 0;
            counters->workspace_needed = top.workspace_needed_o;
        }
        if (top.beat_valid_o && top.beat_ready_i) {
            if (done) return BROKEN_CONTRACT;
            if (counters->first_beat == 0) counters->first_beat = counters->cycles;
            const Beat beat = beat_at(top.beat_o);
            constexpr unsigned lanes = lanes_of<decltype(top.beat_o)>;
            for (unsigned lane = 0; lane < lanes; lane++) {
                if (!(beat.keep >> lane & 1)) continue;
                const uint32_t pixel = beat.pixel[lane];
                counters->bytes += 3;
                if (bytes + 3 <= capacity) {
                    out[bytes] = pixel >> 16;
                    out[bytes + 1] = pixel >> 8;
                    out[bytes + 2] = pixel;
                }
                bytes += 3;
                columns++;
            }
            const unsigned keep = beat.keep;
            status = beat.status;
            if ((keep & (keep + 1)) != 0 || (keep == 0 && status == 0)) return BROKEN_CONTRACT;
            if (status != 0 && (!beat.last || keep != 0)) return BROKEN_CONTRACT;
            // A row starts with a new beat; only its last one may have less pixels.
            const bool full = keep + 1 == 1u << lanes || keep == 0;
            if ((!full && columns != *width) || columns > *width) return BROKEN_CONTRACT;
            if (columns == *width) columns = 0;
            done = beat.last;
        }
        bench->edge();
    }
    counters->read_words = workspace.read_words;
    counters->written_words = workspace.written_words;
    if (!done) {  // in the clock of the reset memory still takes what it is given
        // What is under way comes at its pace; where nothing comes, nothing is waited for after some 1,000 clocks.
        for (uint64_t clock = 0; clock < 20000; clock++) {
            top.rst_ni = clock >= 4;
            top.word_valid_i = 0;
            workspace.offer(top, counters->cycles + clock, memory_pauses);
            bench->settle();
            if (clock > 0 && (top.arvalid_o || top.awvalid_o || top.wvalid_o)) return BAD_ACCESS;
            if (!workspace.take(top, counters->cycles + clock)) return BAD_ACCESS;
            if (clock == 0) workspace.reset_writes();
            if (clock == 0 && memory->forgets) workspace.reset_reads();
            if (clock > 4 && top.workspace_idle_o) return workspace.reading() || top.busy_o ? IDLE_TOO_EARLY : WAS_RESET;
            bench->edge();
        }
        return NOT_IDLE;
    }
    if (!framed || (status == 0 && bytes != 3ull * *width * (std::min(last_row + 1, *height) - first_row))) return BROKEN_CONTRACT;
    top.word_valid_i = top.rvalid_i = top.bvalid_i = 0;
    for (int i = 0; i < 16; i++) {  // it may still be on its way to its resting state
        bench->settle();
        if (top.frame_valid_o || top.beat_valid_o || top.workspace_needed_o != counters->workspace_needed) {
            return BROKEN_CONTRACT;
        }
        if (!top.busy_o) return top.workspace_idle_o && workspace.rests() ? status : NOT_IDLE;
        bench->edge();
    }
    return NOT_IDLE;
}
