#include "audio_mel_cu/audio_mel_cu.hpp"

#include "mel/mel.hpp"
#include "resample/resample.hpp"
#include "wav/wav.hpp"

namespace headrace {
namespace {

constexpr unsigned WORD_BYTES = 16;
constexpr unsigned MAX_MELS = 128;
constexpr unsigned MAX_PREEMPHASIS = 1 << 24;  // of 1; what is subtracted is less
constexpr unsigned SAMPLE_SHIFT = 21, LOG_MEL_SHIFT = 18;  // -log2 of an LSB
// Words of taps of each rate, see taps_table of host/dpu/units/audio_tables.py.
constexpr uint32_t TABLE_WORDS[SOUND_RATES] = {2, 882, 0, 441, 3, 2, 441, 3};

using Words = hls::stream<ap_uint<128>>;
using Value = ap_int<24>;  // Sample16k or LogMel

struct MelSettings {
    uint32_t mels, preemphasis, log_floor, left_out, plan, min_samples, max_samples;
};

struct Outcome {
    Status status;
    uint32_t count, source_count, source_rate;
    uint32_t bytes;    // of the output, also when it does not fit
    int32_t greatest;  // log-mel
};

void load(const ap_uint<128>* memory, uint32_t first, uint32_t count, Words& words) {
    for (uint32_t i = 0; i < count; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 65536
        words.write(memory[first + i]);
    }
}

void load_tables(const ap_uint<128>* tables, uint32_t stage, ap_uint<3> taps_rate, Words& program, Words& taps) {
    if (stage == SOUND_MEL) load(tables, 0, PROGRAM_WORDS, program);
    load(tables, TABLES_TAPS / WORD_BYTES, TAP_LANES / 4 * TABLE_WORDS[taps_rate.to_uint()], taps);
}

// The RTL keeps the taps of the last run, and loads others only.
void resample_stage(Words& table, ap_uint<3> taps_rate, hls::stream<Sound>& sounds, hls::stream<Pcm>& pcm,
                    hls::stream<Sound>& out_sounds, hls::stream<Sample16k>& samples) {
    Tap taps[TAP_WORDS][TAP_LANES];
#pragma HLS ARRAY_PARTITION variable = taps complete dim = 2
    load_taps(table, taps_rate, taps);
    resample(sounds, pcm, taps, out_sounds, samples);
}

// What the file is, is also wanted at the end. A sound whose taps are not here becomes an error.
void check_rate(hls::stream<Sound>& sounds, hls::stream<Pcm>& pcm, ap_uint<3> taps_rate, hls::stream<Sound>& out_sounds,
                hls::stream<Pcm>& out_pcm, hls::stream<Sound>& noted) {
    Sound sound = sounds.read();
    noted.write(sound);
    const bool ok = sound.status == STATUS_OK;
    const bool fits = sound.rate == RATE_16000 || sound.rate == taps_rate;
    if (ok && !fits) sound.status = STATUS_BAD_ARGUMENT;
    out_sounds.write(sound);
    for (uint32_t i = 0; ok && i < sound.count; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 31456800
        const Pcm value = pcm.read();
        if (fits) out_pcm.write(value);
    }
}

void mel_stage(Words& program, hls::stream<Sound>& sounds, hls::stream<Sample16k>& samples, uint32_t stage,
               const MelSettings& settings, hls::stream<Sound>& out_sounds, hls::stream<Value>& values) {
    if (stage == SOUND_MEL) {
        mel(program, sounds, samples, settings.mels, settings.preemphasis, settings.log_floor, settings.plan,
            settings.min_samples, settings.max_samples, out_sounds, values);
        return;
    }
    const Sound sound = sounds.read();
    out_sounds.write(sound);
    for (uint32_t i = 0; sound.status == STATUS_OK && i < sound.count; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 10485600
        values.write(samples.read());
    }
}

// q * 2^-shift as float32, exactly.
uint32_t to_float(Value q, unsigned shift) {
#pragma HLS INLINE
    if (q == 0) return 0;
    const bool negative = q < 0;
    uint32_t magnitude = negative ? -q.to_int() : q.to_int();
    uint32_t exponent = 127 + 23 - shift;
    for (int i = 16; i >= 1; i /= 2) {
#pragma HLS UNROLL
        if (magnitude < 1u << (24 - i)) {
            magnitude <<= i;
            exponent -= i;
        }
    }
    return static_cast<uint32_t>(negative) << 31 | exponent << 23 | (magnitude & 0x7FFFFF);
}

void store(hls::stream<Sound>& sounds, hls::stream<Value>& values, hls::stream<Sound>& noted, uint32_t stage,
           const MelSettings& settings, uint32_t capacity, ap_uint<128>* mel, Outcome& outcome) {
    const Sound source = noted.read();
    const Sound sound = sounds.read();
    const bool read = source.status == STATUS_OK;
    outcome.source_count = read ? source.count.to_uint() : 0;
    outcome.source_rate = read ? SOUND_RATE[source.rate.to_uint()] : 0;
    outcome.status = sound.status;
    outcome.count = outcome.bytes = 0;
    outcome.greatest = 0;
    const uint32_t mels = settings.mels;
    if (sound.status != STATUS_OK) return;
    const bool bands = stage == SOUND_MEL;
    outcome.count = sound.count;
    const uint32_t count = bands ? outcome.count * mels : outcome.count;
    outcome.bytes = bands ? (outcome.count + 4) * mels * 4 : 4 * outcome.count;
    const uint32_t counted = bands ? count - settings.left_out * mels : count;  // values that the sums are of
    const bool fits = outcome.bytes <= capacity;
    if (!fits) outcome.status = STATUS_BUFFER_TOO_SMALL;

    int64_t sums[MAX_MELS];
    uint64_t squares[MAX_MELS];
    ap_uint<128> word = 0;
    uint32_t band = 0, at = 0;
    bool first = true;
    for (uint32_t i = 0; i < count; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = sums inter false
#pragma HLS DEPENDENCE variable = squares inter false
#pragma HLS LOOP_TRIPCOUNT max = 10485600
        const Value q = values.read();
        if (bands && (i == 0 || q > outcome.greatest)) outcome.greatest = q;
        const int64_t wide = i < counted ? q.to_int() : 0;
        sums[band] = (first ? 0 : sums[band]) + wide;
        squares[band] = (first ? 0 : squares[band]) + static_cast<uint64_t>(wide * wide);
        if (++band == (bands ? mels : MAX_MELS)) {
            band = 0;
            first = false;
        }
        const unsigned lane = i % 4;
        word.range(32 * lane + 31, 32 * lane) = to_float(q, bands ? LOG_MEL_SHIFT : SAMPLE_SHIFT);
        if (lane == 3 || i + 1 == count) {
            if (fits) mel[at++] = word;
            word = 0;
        }
    }
    for (uint32_t i = 0; fits && bands && i < mels; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 128
        word.range(63, 0) = static_cast<uint64_t>(sums[i]);
        word.range(127, 64) = squares[i];
        mel[at++] = word;
    }
}

void preprocess(const ap_uint<128>* file, uint32_t wav_bytes, ap_uint<128>* output, uint32_t capacity,
                const ap_uint<128>* tables, uint32_t stage, const MelSettings& settings, ap_uint<3> taps_rate,
                Outcome& outcome) {
#pragma HLS DATAFLOW
    Words words("words"), program("program"), taps("taps");
    hls::stream<Sound> read_sounds("read_sounds"), sounds("sounds"), resampled_sounds("resampled_sounds");
    hls::stream<Sound> out_sounds("out_sounds"), noted("noted");
    hls::stream<Pcm> read_pcm("read_pcm"), pcm("pcm");
    hls::stream<Sample16k> samples("samples");
    hls::stream<Value> values("values");
    load(file, 0, wav_bytes / WORD_BYTES + (wav_bytes % WORD_BYTES != 0), words);
    load_tables(tables, stage, taps_rate, program, taps);
    wav(words, wav_bytes, read_sounds, read_pcm);
    check_rate(read_sounds, read_pcm, taps_rate, sounds, pcm, noted);
    resample_stage(taps, taps_rate, sounds, pcm, resampled_sounds, samples);
    mel_stage(program, resampled_sounds, samples, stage, settings, out_sounds, values);
    store(out_sounds, values, noted, stage, settings, capacity, output, outcome);
}

}  // namespace
}  // namespace headrace

extern "C" void audio_mel_cu(const ap_uint<128>* wav, ap_uint<128>* mel, const ap_uint<128>* tables,
                             ap_uint<128>* result, uint32_t wav_bytes, uint32_t mel_capacity, uint32_t stage,
                             uint32_t mels, uint32_t preemphasis, uint32_t log_floor, uint32_t left_out,
                             uint32_t plan, uint32_t min_samples, uint32_t max_samples, uint32_t taps_rate) {
#pragma HLS INTERFACE m_axi port = wav bundle = gmem0 channel = 0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE m_axi port = mel bundle = gmem1 channel = 0 offset = slave max_write_burst_length = 64
#pragma HLS INTERFACE m_axi port = tables bundle = gmem0 channel = 1 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE m_axi port = result bundle = gmem1 channel = 1 offset = slave max_write_burst_length = 2
#pragma HLS INTERFACE s_axilite port = wav bundle = control offset = 0x10
#pragma HLS INTERFACE s_axilite port = mel bundle = control offset = 0x1C
#pragma HLS INTERFACE s_axilite port = tables bundle = control offset = 0x28
#pragma HLS INTERFACE s_axilite port = result bundle = control offset = 0x34
#pragma HLS INTERFACE s_axilite port = wav_bytes bundle = control offset = 0x40
#pragma HLS INTERFACE s_axilite port = mel_capacity bundle = control offset = 0x48
#pragma HLS INTERFACE s_axilite port = stage bundle = control offset = 0x50
#pragma HLS INTERFACE s_axilite port = mels bundle = control offset = 0x58
#pragma HLS INTERFACE s_axilite port = preemphasis bundle = control offset = 0x60
#pragma HLS INTERFACE s_axilite port = log_floor bundle = control offset = 0x68
#pragma HLS INTERFACE s_axilite port = left_out bundle = control offset = 0x70
#pragma HLS INTERFACE s_axilite port = plan bundle = control offset = 0x78
#pragma HLS INTERFACE s_axilite port = min_samples bundle = control offset = 0x80
#pragma HLS INTERFACE s_axilite port = max_samples bundle = control offset = 0x88
#pragma HLS INTERFACE s_axilite port = taps_rate bundle = control offset = 0x90
#pragma HLS INTERFACE ap_ctrl_chain port = return
#pragma HLS INTERFACE s_axilite port = return bundle = control
    using namespace headrace;
    Outcome outcome{STATUS_BAD_ARGUMENT, 0, 0, 0, 0, 0};
    ap_uint<3> rate = 0;
    bool known = false;
    for (unsigned i = 0; i < SOUND_RATES; i++) {
#pragma HLS UNROLL
        if (taps_rate == SOUND_RATE[i]) {
            rate = i;
            known = true;
        }
    }
    const bool bands = stage == SOUND_MEL;
    const bool sound = bands ? mels >= 4 && mels <= MAX_MELS && mels % 4 == 0 && preemphasis < MAX_PREEMPHASIS &&
                                   left_out <= 1 && (plan & 0xFFFF00C0) == 0 && (plan & 6) != 6 &&
                                   ((plan & 0x30) == 0 || (plan & 6) == 4) &&
                                   min_samples <= max_samples && max_samples <= MAX_SAMPLES
                             : stage == SOUND_RESAMPLE;
    if (known && sound) {
        const MelSettings settings{mels, preemphasis, log_floor, left_out, plan, min_samples, max_samples};
        preprocess(wav, wav_bytes, mel, mel_capacity, tables, stage, settings, rate, outcome);
    }
    ap_uint<128> first = 0, second = 0;
    first.range(31, 0) = outcome.status;
    first.range(63, 32) = outcome.count;
    first.range(95, 64) = known && sound && bands ? mels : 0;
    first.range(127, 96) = outcome.source_rate;
    second.range(31, 0) = outcome.source_count;
    second.range(63, 32) = outcome.bytes;  // below 2^32
    second.range(127, 96) = outcome.greatest;
    result[0] = first;
    result[1] = second;
}
