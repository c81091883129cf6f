#include "image_cu/image_cu.hpp"

#include "crop/crop.hpp"
#include "decode/decode.hpp"
#include "headrace/shared_memory.hpp"
#include "headrace/word.hpp"
#include "normalize/normalize.hpp"
#include "patches/patches.hpp"
#include "resize/resize.hpp"
#include "scaler/scaler.hpp"

namespace headrace {
namespace {

constexpr unsigned WORD_BYTES = 16;
constexpr unsigned BURST_WORDS = 256;  // of one plane; 4 KiB, the longest AXI4 burst of 128-bit words
constexpr unsigned BEAT_WORDS = 2;     // that a beat of samples fills in a plane, at most

struct Outcome {
    Status status;
    uint32_t out_width, out_height, src_width, src_height;
    uint64_t bytes;  // of the output, also when it does not fit
};

void load_jpeg(const ap_uint<128>* jpeg, uint32_t jpeg_bytes, WordStream& words) {
    const uint32_t count = jpeg_bytes / WORD_BYTES + (jpeg_bytes % WORD_BYTES != 0);
    for (uint32_t i = 0; i < count; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 65536
        words.write(jpeg[i]);
    }
}

// Frames pass; their size is also wanted at the end.
void note_source(hls::stream<Frame>& frames, hls::stream<Frame>& out_frames, hls::stream<Frame>& noted) {
    const Frame frame = frames.read();
    out_frames.write(frame);
    noted.write(frame);
}

void pass(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, hls::stream<Frame>& out_frames,
          hls::stream<Beat>& out_pixels) {
    const Frame frame = frames.read();
    out_frames.write(frame);
    bool last = frame.status != STATUS_OK;
    while (!last) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 67107840
        const Beat beat = pixels.read();
        out_pixels.write(beat);
        last = beat.last;
    }
}

void resize_stage(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, uint32_t stage, const Wanted& wanted,
                  hls::stream<Frame>& out_frames, hls::stream<Beat>& out_pixels) {
    if (stage >= STAGE_RESIZE && stage <= STAGE_NORMALIZE) {
        resize(frames, pixels, wanted, out_frames, out_pixels);
    } else {
        pass(frames, pixels, out_frames, out_pixels);
    }
}

void crop_stage(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, uint32_t stage, const Crop& window,
                hls::stream<Frame>& out_frames, hls::stream<Beat>& out_pixels) {
    if (stage >= STAGE_CROP && stage <= STAGE_NORMALIZE) {
        crop(frames, pixels, window, true, out_frames, out_pixels);
    } else {
        pass(frames, pixels, out_frames, out_pixels);
    }
}

constexpr unsigned PASS_WORDS = 4;  // of 16 bytes, before the lists of a pass
constexpr unsigned ENTRY_WORDS = 2;
constexpr unsigned KEPT_PIXELS = 4;  // of an image in the workspace, in a word

// A part of an image in the workspace, in words.
struct KeptPart {
    uint32_t first, pitch, width, height;
};

// A pass of a program.
struct Pass {
    bool sound;
    ScalerSetup scaler;
    bool patches;
    PatchLayout layout;
    bool keeps, more;
    KeptPart source;
    uint32_t place;  // of the result in the workspace or in the tensor, in bytes
    uint32_t words;  // of the pass in the program
};

uint64_t kept_words(uint32_t width, uint32_t height, uint32_t pitch) {
    return uint64_t{pitch} * (height - 1) + (width + KEPT_PIXELS - 1) / KEPT_PIXELS;
}

// The pass that begins with a word of the program. One that does not fit its bytes or buffers has no entries, which the
// scaler refuses.
Pass load_pass(const ap_uint<128>* program, uint32_t bytes_left, bool first, uint32_t tensor_capacity,
               uint32_t workspace_bytes) {
    uint32_t words[4 * PASS_WORDS] = {};
    for (unsigned i = 0; i < PASS_WORDS && 16 * (i + 1) <= bytes_left; i++) {
#pragma HLS PIPELINE II = 1
        const ap_uint<128> word = program[i];
        for (unsigned k = 0; k < 4; k++) words[4 * i + k] = word.range(32 * k + 31, 32 * k).to_uint();
    }
    const auto low = [&](unsigned i) { return words[i] & 0xFFFF; };
    const auto high = [&](unsigned i) { return words[i] >> 16; };
    const uint32_t flags = words[3];
    const auto bits = [&](unsigned at) { return static_cast<uint8_t>(flags >> at & 0x1F); };
    const auto flag = [&](unsigned at) { return (flags >> at & 1) != 0; };
    Pass pass{
        true,
        {low(0), high(0), {words[1], bits(0), flag(5)}, {words[2], bits(8), flag(13)}, flag(16), flag(17),
         {low(4), high(4), low(5), high(5), {0, 0, 0}}},
        flag(24),
        {low(7), high(7), words[8] & 0xFF, words[8] >> 8 & 0xF, flag(25), words[9]},
        flag(26),
        flag(27),
        {words[10] / WORD_BYTES, low(12), low(11), high(11)},
        words[13],
        0};
    for (unsigned c = 0; c < CHANNELS; c++) pass.scaler.canvas.colour[c] = words[6] >> (8 * (CHANNELS - 1 - c)) & 0xFF;
    const uint32_t zeros = flags & 0xF0FCC0C0 | words[6] >> 24 | words[8] >> 12 | words[10] % WORD_BYTES |
                           high(12) | words[13] % WORD_BYTES | words[14] | words[15];
    const uint64_t entries = uint64_t{words[1]} + words[2];
    const uint64_t bytes = 16 * (PASS_WORDS + ENTRY_WORDS * entries);
    const uint64_t workspace_words = workspace_bytes / WORD_BYTES;
    const Canvas& canvas = pass.scaler.canvas;
    const KeptPart& source = pass.source;
    pass.sound = zeros == 0 && (pass.more ? bytes < bytes_left : bytes == bytes_left) && (pass.more || !pass.keeps);
    if (pass.keeps) {
        const uint32_t pitch = (canvas.width + KEPT_PIXELS - 1) / KEPT_PIXELS;
        pass.sound &= !pass.patches && canvas.height != 0 &&
                      pass.place / WORD_BYTES + kept_words(canvas.width, canvas.height, pitch) <= workspace_words;
    } else {
        pass.sound &= pass.place <= tensor_capacity;
    }
    if (!first) {
        pass.sound &= source.width != 0 && source.height != 0 &&
                      source.first + kept_words(source.width, source.height, source.pitch) <= workspace_words;
    }
    pass.words = static_cast<uint32_t>(bytes / WORD_BYTES);
    if (!pass.sound) {
        pass.scaler.rows.entries = pass.scaler.columns.entries = 0;
        pass.patches = pass.keeps = pass.more = false;
        pass.place = 0;
    }
    return pass;
}

void load_lists(const ap_uint<128>* program, const Pass& pass, hls::stream<ap_uint<128>>& lists) {
    const uint64_t words = ENTRY_WORDS * (uint64_t{pass.scaler.rows.entries} + pass.scaler.columns.entries);
    for (uint64_t i = 0; i < words; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 16384
        lists.write(program[PASS_WORDS + i]);
    }
}

void load_tables(const ap_uint<128>* tables, bool used, uint32_t table[CHANNELS][256]) {
    for (int i = 0; i < 3 * 256 / 4; i++) {
#pragma HLS PIPELINE II = 4
        const ap_uint<128> word = used ? tables[i] : ap_uint<128>(0);
        for (int k = 0; k < 4; k++) {
            const int entry = 4 * i + k;
            table[entry / 256][entry % 256] = used ? word.range(32 * k + 31, 32 * k).to_uint() : entry % 256;
        }
    }
}

void normalize_stage(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, uint32_t stage,
                     const ap_uint<128>* tables, hls::stream<Frame>& out_frames, hls::stream<SampleBeat>& samples) {
    uint32_t table[3][256];
#pragma HLS ARRAY_PARTITION variable = table complete dim = 1
    load_tables(tables, stage >= STAGE_NORMALIZE, table);  // before the frame comes: hidden behind the decoder's header
    const Frame frame = frames.read();
    out_frames.write(frame);
    if (frame.status == STATUS_OK) normalize(pixels, table, samples);
}

// Packs the samples of one plane into words. Words of 16 bytes do not end where planes do: the bits of a word that
// belong to a neighbouring plane stay zero, and such words are kept until the end, when they are joined.
struct Plane {
    Halves filling;       // the word being filled
    Halves full;          // the one before,
    bool is_full;         // which is still to be sent
    uint32_t fill;        // bytes of it that are done or not this plane's
    uint64_t word;        // its number in the tensor
    bool head_pending;    // the word being filled began in the plane before
    bool head_kept;
    Halves head;
    uint64_t head_word;
    uint32_t buffered;    // words in the plane's FIFO of which no burst is told yet
    uint64_t burst_word;  // number of the first of them
};

// Words of a plane's FIFO that are there, and where in the tensor they go; none at the end.
struct Burst {
    uint8_t plane;
    uint16_t words;
    uint64_t first;
};

using PlaneStream = hls::stream<Halves, 2 * BURST_WORDS>;

void begin_plane(Plane& plane, uint64_t first_byte) {
#pragma HLS INLINE
    plane.filling = {0, 0};
    plane.is_full = false;
    plane.fill = first_byte % WORD_BYTES;
    plane.word = first_byte / WORD_BYTES;
    plane.head_pending = plane.fill != 0;
    plane.head_kept = false;
    plane.buffered = 0;
    plane.burst_word = plane.word;
}

// The low `bytes` bytes, up to 8, of a value that has zeros above them.
void append(Plane& plane, uint64_t value, uint32_t bytes) {
#pragma HLS INLINE
    const uint32_t shift = 8 * (plane.fill % 8);
    const uint64_t here = value << shift, beyond = shift == 0 ? 0 : value >> (64 - shift);
    uint64_t next = 0;  // the low half of the word behind
    if (plane.fill < 8) {
        plane.filling.low |= here;
        plane.filling.high |= beyond;
    } else {
        plane.filling.high |= here;
        next = beyond;
    }
    plane.fill += bytes;
    if (plane.fill >= WORD_BYTES) {
        plane.full = plane.filling;
        plane.is_full = true;
        plane.filling = {next, 0};
        plane.fill -= WORD_BYTES;
    }
}

// Behind each value, so that no more than one word is full.
void send_word(Plane& plane, PlaneStream& words) {
#pragma HLS INLINE
    if (!plane.is_full) return;
    plane.is_full = false;
    if (plane.head_pending) {
        plane.head = plane.full;
        plane.head_word = plane.word;
        plane.head_kept = true;
        plane.head_pending = false;
        plane.burst_word = plane.word + 1;
    } else {
        words.write(plane.full);
        plane.buffered++;
    }
    plane.word++;
}

void tell_burst(Plane& plane, uint8_t number, hls::stream<Burst>& bursts) {
#pragma HLS INLINE
    bursts.write({number, static_cast<uint16_t>(plane.buffered), plane.burst_word});
    plane.burst_word += plane.buffered;
    plane.buffered = 0;
}

// The words that planes share, and the last one, each as a burst of its own in the FIFO of the first plane. Parts of one
// word come in order, with zeros where the others are.
void send_edges(const Plane* planes, unsigned count, PlaneStream& words, hls::stream<Burst>& bursts) {
    Halves joined = {0, 0};
    uint64_t word = 0;
    bool any = false;
    for (unsigned p = 0; p < count; p++) {
        for (int tail = 0; tail < 2; tail++) {
            const Plane& plane = planes[p];
            if (tail ? plane.fill == 0 : !plane.head_kept) continue;
            const uint64_t number = tail ? plane.word : plane.head_word;
            if (any && number != word) {
                words.write(joined);
                bursts.write({0, 1, word});
                joined = {0, 0};
            }
            word = number;
            joined.low |= tail ? plane.filling.low : plane.head.low;
            joined.high |= tail ? plane.filling.high : plane.head.high;
            any = true;
        }
    }
    if (any) {
        words.write(joined);
        bursts.write({0, 1, word});
    }
}

// Samples to words, in FIFOs, and bursts of words that are in them: no word is waited for once its burst is told, and a
// FIFO has room for a burst and for what is packed while others are written.
void pack(hls::stream<Frame>& frames, hls::stream<SampleBeat>& samples, hls::stream<Frame>& noted, uint32_t stage,
          uint32_t format, uint32_t tensor_capacity, PlaneStream words[CHANNELS], hls::stream<Burst>& bursts,
          Outcome& outcome) {
    const Frame source = noted.read();
    const Frame frame = frames.read();
    outcome.src_width = source.width;
    outcome.src_height = source.height;
    outcome.out_width = frame.width;
    outcome.out_height = frame.height;
    outcome.status = frame.status;
    outcome.bytes = 0;
    if (frame.status != STATUS_OK) {
        outcome.out_width = outcome.out_height = 0;
        bursts.write({0, 0, 0});
        return;
    }
    const bool planar = stage >= STAGE_NORMALIZE;
    const uint32_t bytes = !planar || format == FORMAT_INT8 ? 1 : format == FORMAT_FLOAT16 ? 2 : 4;
    const uint32_t mask = bytes == 4 ? 0xFFFFFFFFu : (1u << (8 * bytes)) - 1;
    const uint32_t pixel_bytes = planar ? bytes : CHANNELS;  // of a plane
    const uint64_t plane_bytes = static_cast<uint64_t>(outcome.out_width) * outcome.out_height * bytes;
    outcome.bytes = CHANNELS * plane_bytes;
    const bool fits = outcome.bytes <= tensor_capacity;
    const unsigned used = planar ? CHANNELS : 1;

    Plane planes[CHANNELS];
#pragma HLS ARRAY_PARTITION variable = planes complete
    for (unsigned p = 0; p < CHANNELS; p++) begin_plane(planes[p], planar ? p * plane_bytes : 0);

    bool last = false;
    uint8_t status = STATUS_OK;
    while (!last) {
#pragma HLS PIPELINE II = 4
#pragma HLS LOOP_TRIPCOUNT max = 67107840
        const SampleBeat in = samples.read();
        last = in.last;
        status = in.status;
        if (!fits || status != STATUS_OK) continue;
        // Two pixels a clock: half a word for each of three planes at most, or 6 bytes for the only one.
        for (unsigned i = 0; i < BEAT; i += 2) {
#pragma HLS UNROLL
            const bool first = i >= in.begin && i < in.end, second = i + 1 >= in.begin && i + 1 < in.end;
            const uint32_t behind = first ? 8 * pixel_bytes : 0;  // bits of the first in front of the second
            uint64_t pixels[2] = {0, 0};                          // in an interleaved image
            for (unsigned c = 0; c < CHANNELS; c++) {
#pragma HLS UNROLL
                const uint64_t pair[2] = {first ? in.value[c][i] & mask : 0, second ? in.value[c][i + 1] & mask : 0};
                pixels[0] |= pair[0] << (8 * c);
                pixels[1] |= pair[1] << (8 * c);
                if (planar) append(planes[c], pair[0] | pair[1] << behind, (first + second) * pixel_bytes);
            }
            if (!planar) append(planes[0], pixels[0] | pixels[1] << behind, (first + second) * pixel_bytes);
            for (unsigned p = 0; p < CHANNELS; p++) {
#pragma HLS UNROLL
                send_word(planes[p], words[p]);
            }
        }
        for (unsigned p = 0; p < CHANNELS; p++) {
#pragma HLS UNROLL
            if (planes[p].buffered + BEAT_WORDS > BURST_WORDS) tell_burst(planes[p], static_cast<uint8_t>(p), bursts);
        }
    }
    outcome.status = status;
    if (!fits && status == STATUS_OK) outcome.status = STATUS_BUFFER_TOO_SMALL;
    for (unsigned p = 0; p < used; p++) {
        if (planes[p].buffered != 0) tell_burst(planes[p], static_cast<uint8_t>(p), bursts);
    }
    if (fits) send_edges(planes, used, words[0], bursts);
    bursts.write({0, 0, 0});
}

// A loop for each burst, whose length is known when it begins.
void write_bursts(PlaneStream words[CHANNELS], hls::stream<Burst>& bursts, ap_uint<128>* tensor) {
    for (Burst burst = bursts.read(); burst.words != 0; burst = bursts.read()) {
        for (uint32_t i = 0; i < burst.words; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT min = 1 max = 256
            tensor[burst.first + i] = word_of(words[burst.plane].read());
        }
    }
}

void store(hls::stream<Frame>& frames, hls::stream<SampleBeat>& samples, hls::stream<Frame>& noted, uint32_t stage,
           uint32_t format, uint32_t tensor_capacity, ap_uint<128>* tensor, Outcome& outcome) {
#pragma HLS DATAFLOW
    PlaneStream words[CHANNELS];
    hls::stream<Burst> bursts("bursts");
#pragma HLS STREAM variable = bursts depth = 8
    pack(frames, samples, noted, stage, format, tensor_capacity, words, bursts, outcome);
    write_bursts(words, bursts, tensor);
}

// The end of a program that gives patches.
void patches_stage(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, hls::stream<Frame>& noted,
                   const ap_uint<128>* tables, const PatchLayout& layout, uint32_t format, uint32_t tensor_capacity,
                   ap_uint<128>* tensor, Outcome& outcome) {
    uint32_t table[CHANNELS][256];
    load_tables(tables, true, table);
    const unsigned sample_bytes = format == FORMAT_INT8 ? 1 : format == FORMAT_FLOAT16 ? 2 : 4;
    hls::stream<ap_uint<128>> words("patch_words");
    PatchesEnd end;
    patches(frames, pixels, table, layout, sample_bytes, tensor_capacity, words, end);
    for (uint32_t i = 0; !words.empty(); i++) tensor[i] = words.read();
    const Frame source = noted.read();
    const uint32_t source_width = source.width, source_height = source.height;
    outcome = Outcome{end.status, end.width, end.height, source_width, source_height, end.bytes};
}

// An image into the workspace: four pixels a word, each with a zero, and rows that begin with a word.
void keep_image(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, ap_uint<128>* image, Outcome& outcome) {
    const Frame frame = frames.read();
    const uint32_t width = frame.width, height = frame.height;
    outcome = Outcome{frame.status, width, height, 0, 0, 0};
    if (frame.status != STATUS_OK) {
        outcome.out_width = outcome.out_height = 0;
        return;
    }
    ap_uint<128> word = 0;
    uint32_t column = 0, number = 0;
    bool last = false;
    while (!last) {
#pragma HLS LOOP_TRIPCOUNT max = 67107840
        const Beat beat = pixels.read();
        for (unsigned i = beat.begin; i < beat.end; i++) {
            const unsigned at = 32 * (column % KEPT_PIXELS);
            for (unsigned c = 0; c < CHANNELS; c++) word.range(at + 8 * c + 7, at + 8 * c) = beat.value[c][i];
            column++;
            if (column % KEPT_PIXELS == 0 || column == outcome.out_width) {
                image[number++] = word;
                word = 0;
            }
            if (column == outcome.out_width) column = 0;
        }
        last = beat.last;
        outcome.status = static_cast<Status>(beat.status);
    }
}

// A part of such an image, as a frame and its pixels. The part of a pass that is not sound is not read.
void read_image(const ap_uint<128>* workspace, const Pass& pass, hls::stream<Frame>& frames, hls::stream<Beat>& pixels) {
    const KeptPart& part = pass.source;
    if (!pass.sound) {
        frames.write(Frame{0, 0, STATUS_BAD_ARGUMENT});
        return;
    }
    frames.write(Frame{part.width, part.height, STATUS_OK});
    for (uint32_t row = 0; row < part.height; row++) {
        const ap_uint<128>* words = workspace + part.first + uint64_t{part.pitch} * row;
        for (uint32_t column = 0; column < part.width; column += BEAT) {
#pragma HLS PIPELINE II = 4
            Beat beat = {};
            beat.end = part.width - column < BEAT ? part.width - column : BEAT;
            for (unsigned i = 0; i < beat.end; i++) {
                const ap_uint<128> word = words[(column + i) / KEPT_PIXELS];
                const unsigned at = 32 * (i % KEPT_PIXELS);
                for (unsigned c = 0; c < CHANNELS; c++) beat.value[c][i] = word.range(at + 8 * c + 7, at + 8 * c).to_uint();
            }
            beat.last = row + 1 == part.height && column + BEAT >= part.width;
            pixels.write(beat);
        }
    }
}

// What comes behind the source of a pass.
void pass_stage(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, hls::stream<Frame>& noted,
                const ap_uint<128>* tables, const ap_uint<128>* program, const Pass& pass, uint32_t format,
                uint32_t tensor_capacity, ap_uint<128>* tensor, ap_uint<128>* workspace, Outcome& outcome) {
    hls::stream<Frame> scaled_frames("scaled_frames"), out_frames("out_frames");
    hls::stream<Beat> scaled("scaled");
    hls::stream<SampleBeat> samples("samples");
    hls::stream<ap_uint<128>> lists("lists");
#pragma HLS STREAM variable = scaled depth = 64
#pragma HLS STREAM variable = samples depth = 64
    load_lists(program, pass, lists);
    scaler(frames, pixels, lists, pass.scaler, scaled_frames, scaled);
    if (pass.keeps) {
        keep_image(scaled_frames, scaled, workspace + pass.place / WORD_BYTES, outcome);
        const Frame source = noted.read();
        outcome.src_width = source.width;
        outcome.src_height = source.height;
        return;
    }
    const uint32_t capacity = tensor_capacity - pass.place;
    tensor += pass.place / WORD_BYTES;
    if (pass.patches) {
        patches_stage(scaled_frames, scaled, noted, tables, pass.layout, format, capacity, tensor, outcome);
    } else {
        normalize_stage(scaled_frames, scaled, STAGE_PROGRAM, tables, out_frames, samples);
        store(out_frames, samples, noted, STAGE_PROGRAM, format, capacity, tensor, outcome);
    }
    if (outcome.bytes != 0) outcome.bytes += pass.place;
}

// A pass behind the first one.
void later_pass(const ap_uint<128>* workspace_in, const ap_uint<128>* tables, const ap_uint<128>* program,
                const Pass& pass, uint32_t format, uint32_t tensor_capacity, ap_uint<128>* tensor,
                ap_uint<128>* workspace_out, Outcome& outcome) {
#pragma HLS DATAFLOW
    hls::stream<Frame> frames("frames"), source_frames("source_frames"), noted("noted");
    hls::stream<Beat> pixels("pixels");
#pragma HLS STREAM variable = pixels depth = 64
    read_image(workspace_in, pass, frames, pixels);
    note_source(frames, source_frames, noted);
    pass_stage(source_frames, pixels, noted, tables, program, pass, format, tensor_capacity, tensor, workspace_out,
               outcome);
}

void preprocess(const ap_uint<128>* jpeg, uint32_t jpeg_bytes, ap_uint<128>* tensor, uint32_t tensor_capacity,
                const ap_uint<128>* tables, uint32_t stage, uint32_t format, const Wanted& wanted,
                const ap_uint<128>* program, const Pass& pass, const ap_uint<128>* workspace_in,
                ap_uint<128>* workspace_out, uint32_t workspace_bytes, Outcome& outcome, uint32_t& workspace_needed) {
#pragma HLS DATAFLOW
    WordStream words("words");
    hls::stream<Frame> decoded_frames("decoded_frames"), source_frames("source_frames"), noted("noted");
    hls::stream<Frame> resized_frames("resized_frames"), cropped_frames("cropped_frames"), out_frames("out_frames");
    hls::stream<Beat> decoded("decoded"), resized("resized"), cropped("cropped");
    hls::stream<SampleBeat> samples("samples");
#pragma HLS STREAM variable = decoded depth = 64
#pragma HLS STREAM variable = resized depth = 64
#pragma HLS STREAM variable = cropped depth = 64
#pragma HLS STREAM variable = samples depth = 64
    load_jpeg(jpeg, jpeg_bytes, words);
    decode(words, jpeg_bytes, wanted, workspace_in, workspace_out, workspace_bytes, decoded_frames, decoded,
           workspace_needed);
    note_source(decoded_frames, source_frames, noted);
    resize_stage(source_frames, decoded, stage, wanted, resized_frames, resized);
    crop_stage(resized_frames, resized, stage, wanted.crop, cropped_frames, cropped);
    if (stage == STAGE_PROGRAM) {
        pass_stage(cropped_frames, cropped, noted, tables, program, pass, format, tensor_capacity, tensor,
                   workspace_out, outcome);
        return;
    }
    normalize_stage(cropped_frames, cropped, stage, tables, out_frames, samples);
    store(out_frames, samples, noted, stage, format, tensor_capacity, tensor, outcome);
}

// Of all requests of a run.
struct Workspace {
    ap_uint<128>* words;
    uint32_t bytes;
};

struct Request {
    uint32_t jpeg_bytes, tensor_capacity, stage, format, resize_short;
    Crop crop;
    uint32_t program_bytes;
};

Outcome request(const ap_uint<128>* jpeg, ap_uint<128>* tensor, const ap_uint<128>* tables, const ap_uint<128>* program,
                const Workspace& workspace, const Request& asked) {
    Outcome outcome{STATUS_BAD_ARGUMENT, 0, 0, 0, 0, 0};
    if (asked.stage > (PROGRAMS ? STAGE_PROGRAM : STAGE_NORMALIZE) || asked.format > FORMAT_INT8) return outcome;
    // What does not fit 16 bits is beyond the limit of resize; 0 is what it refuses for being so.
    const Wanted wanted{asked.resize_short > 65535 ? 0 : asked.resize_short, asked.stage == STAGE_CROP || asked.stage == STAGE_NORMALIZE,
                        asked.crop};
    uint32_t workspace_needed = 0, words_done = 0;
    const auto next_pass = [&](bool first) {
        const uint32_t bytes_left = asked.program_bytes - WORD_BYTES * words_done;
        return load_pass(program + words_done, bytes_left, first, asked.tensor_capacity, workspace.bytes);
    };
    Pass pass = asked.stage == STAGE_PROGRAM ? next_pass(true) : Pass{};
    preprocess(jpeg, asked.jpeg_bytes, tensor, asked.tensor_capacity, tables, asked.stage, asked.format, wanted,
               program, pass, workspace.words, workspace.words, workspace.bytes, outcome, workspace_needed);
    const uint32_t src_width = outcome.src_width, src_height = outcome.src_height;
    while (pass.more && outcome.status == STATUS_OK) {
        words_done += pass.words;
        pass = next_pass(false);
        later_pass(workspace.words, tables, program + words_done, pass, asked.format, asked.tensor_capacity, tensor,
                   workspace.words, outcome);
    }
    outcome.src_width = src_width;
    outcome.src_height = src_height;
    // There is no frame then, so that nobody takes it for the tensor that is too small.
    if (outcome.status == STATUS_BUFFER_TOO_SMALL && workspace_needed > workspace.bytes) {
        outcome.bytes = workspace_needed;
    }
    return outcome;
}

// `number` stands in the last word.
void write_record(const Outcome& outcome, uint32_t number, ap_uint<128>* record) {
    const uint64_t first = static_cast<uint64_t>(outcome.out_width) << 32 | static_cast<uint32_t>(outcome.status);
    const uint64_t second = static_cast<uint64_t>(outcome.src_width) << 32 | outcome.out_height;
    const uint64_t third = outcome.bytes << 32 | outcome.src_height;
    const uint64_t fourth = static_cast<uint64_t>(number) << 32 | outcome.bytes >> 32;
    record[0] = word_of({first, second});
    in_order();
    record[1] = word_of({third, fourth});
}

// One word of a descriptor.
uint32_t field(const ap_uint<128>* descriptor, unsigned index) {
#pragma HLS INLINE
    return descriptor[index / 4].range(32 * (index % 4) + 31, 32 * (index % 4)).to_uint();
}

// A job's request and where its file and tensor lie, in words from the run's. False if it is bad.
bool read_job(const ap_uint<128>* descriptor, uint32_t jpeg_room, uint32_t tensor_room, uint32_t program_room,
              Request& asked, uint32_t& jpeg, uint32_t& tensor, uint32_t& program) {
    const uint32_t jpeg_offset = field(descriptor, 0), tensor_offset = field(descriptor, 2);
    const uint32_t program_offset = field(descriptor, 12);
    asked = Request{field(descriptor, 1), field(descriptor, 3), field(descriptor, 4), field(descriptor, 5),
                    field(descriptor, 6),
                    {field(descriptor, 7), field(descriptor, 8), field(descriptor, 9), field(descriptor, 10)},
                    field(descriptor, 13)};
    program = program_offset / WORD_BYTES;
    jpeg = jpeg_offset / WORD_BYTES;
    tensor = tensor_offset / WORD_BYTES;
    return jpeg_offset % WORD_BYTES == 0 && tensor_offset % WORD_BYTES == 0 && field(descriptor, 11) == COMMAND_JOB &&
           program_offset % WORD_BYTES == 0 && field(descriptor, 14) == 0 &&
           static_cast<uint64_t>(program_offset) + asked.program_bytes <= program_room &&
           static_cast<uint64_t>(jpeg_offset) + asked.jpeg_bytes <= jpeg_room &&
           static_cast<uint64_t>(tensor_offset) + asked.tensor_capacity <= tensor_room;
}

// Jobs from the ring, until one says stop or no more come. The outcome is the run's, as its own record has it.
Outcome serve(const ap_uint<128>* jpeg, uint32_t jpeg_room, ap_uint<128>* tensor, uint32_t tensor_room,
              const ap_uint<128>* tables, const ap_uint<128>* program, uint32_t program_room,
              const Workspace& workspace, const volatile ap_uint<128>* ring, uint32_t entries, uint32_t first, uint32_t polls, ap_uint<128>* result) {
    uint32_t number = first, jobs = 0, looks = 0;
    bool stopped = false;
    while (!stopped) {
        const uint32_t slot = number & (entries - 1);
        // The number by itself, then all: what the host wrote before it is there by then.
        const ap_uint<128> last = ring[4 * slot + 3];
        if (last.range(127, 96).to_uint() != number) {
            if (++looks >= polls) break;
            pause_between_looks();
            continue;
        }
        looks = 0;
        in_order();
        ap_uint<128> descriptor[4];
#pragma HLS ARRAY_PARTITION variable = descriptor complete
        for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II = 1
            descriptor[i] = ring[4 * slot + i];
        }
        number++;
        stopped = field(descriptor, 11) == COMMAND_STOP && field(descriptor, 14) == 0;
        if (stopped) break;
        Request asked;
        uint32_t jpeg_word, tensor_word, program_word;
        Outcome outcome{STATUS_BAD_ARGUMENT, 0, 0, 0, 0, 0};
        if (read_job(descriptor, jpeg_room, tensor_room, program_room, asked, jpeg_word, tensor_word, program_word)) {
            outcome = request(jpeg + jpeg_word, tensor + tensor_word, tables, program + program_word, workspace, asked);
        }
        in_order();
        write_record(outcome, number - 1, result + 2 * slot);
        jobs++;
    }
    return Outcome{STATUS_OK, jobs, number, stopped, 0, 0};
}

}  // namespace
}  // namespace headrace

extern "C" void image_cu(const ap_uint<128>* jpeg, uint32_t jpeg_bytes, ap_uint<128>* tensor, uint32_t tensor_capacity,
                         const ap_uint<128>* tables, ap_uint<128>* result, uint32_t stage, uint32_t format,
                         uint32_t resize_short, uint32_t crop_width, uint32_t crop_height, uint32_t crop_x,
                         uint32_t crop_y, ap_uint<128>* workspace, uint32_t workspace_bytes,
                         const volatile ap_uint<128>* ring, uint32_t ring_entries, uint32_t ring_first, uint32_t polls,
                         const ap_uint<128>* program, uint32_t program_bytes) {
#pragma HLS INTERFACE m_axi port = jpeg bundle = gmem0 channel = 0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE m_axi port = tensor bundle = gmem1 channel = 0 offset = slave max_write_burst_length = 64
#pragma HLS INTERFACE m_axi port = tables bundle = gmem0 channel = 1 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE m_axi port = result bundle = gmem1 channel = 1 offset = slave max_write_burst_length = 2
#pragma HLS INTERFACE m_axi port = workspace bundle = gmem1 channel = 2 offset = slave max_read_burst_length = 64 max_write_burst_length = 64
#pragma HLS INTERFACE m_axi port = ring bundle = gmem0 channel = 2 offset = slave max_read_burst_length = 4
#pragma HLS INTERFACE m_axi port = program bundle = gmem0 channel = 3 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE s_axilite port = jpeg bundle = control offset = 0x10
#pragma HLS INTERFACE s_axilite port = jpeg_bytes bundle = control offset = 0x1C
#pragma HLS INTERFACE s_axilite port = tensor bundle = control offset = 0x24
#pragma HLS INTERFACE s_axilite port = tensor_capacity bundle = control offset = 0x30
#pragma HLS INTERFACE s_axilite port = tables bundle = control offset = 0x38
#pragma HLS INTERFACE s_axilite port = result bundle = control offset = 0x44
#pragma HLS INTERFACE s_axilite port = stage bundle = control offset = 0x50
#pragma HLS INTERFACE s_axilite port = format bundle = control offset = 0x58
#pragma HLS INTERFACE s_axilite port = resize_short bundle = control offset = 0x60
#pragma HLS INTERFACE s_axilite port = crop_width bundle = control offset = 0x68
#pragma HLS INTERFACE s_axilite port = crop_height bundle = control offset = 0x70
#pragma HLS INTERFACE s_axilite port = crop_x bundle = control offset = 0x78
#pragma HLS INTERFACE s_axilite port = crop_y bundle = control offset = 0x80
#pragma HLS INTERFACE s_axilite port = workspace bundle = control offset = 0x88
#pragma HLS INTERFACE s_axilite port = workspace_bytes bundle = control offset = 0x94
#pragma HLS INTERFACE s_axilite port = ring bundle = control offset = 0x9C
#pragma HLS INTERFACE s_axilite port = ring_entries bundle = control offset = 0xA8
#pragma HLS INTERFACE s_axilite port = ring_first bundle = control offset = 0xB0
#pragma HLS INTERFACE s_axilite port = polls bundle = control offset = 0xB8
#pragma HLS INTERFACE s_axilite port = program bundle = control offset = 0x108
#pragma HLS INTERFACE s_axilite port = program_bytes bundle = control offset = 0x114
#pragma HLS INTERFACE ap_ctrl_chain port = return
#pragma HLS INTERFACE s_axilite port = return bundle = control
    using namespace headrace;
    Outcome outcome{STATUS_BAD_ARGUMENT, 0, 0, 0, 0, 0};
    ap_uint<128>* record = result;
    const Workspace space{workspace, workspace_bytes};
    if (ring_entries == 0) {
        const Request asked{jpeg_bytes, tensor_capacity, stage, format, resize_short,
                            {crop_width, crop_height, crop_x, crop_y}, program_bytes};
        outcome = request(jpeg, tensor, tables, program, space, asked);
    } else if (QUEUE && ring_entries <= MOST_RING_ENTRIES && (ring_entries & (ring_entries - 1)) == 0) {
        outcome = serve(jpeg, jpeg_bytes, tensor, tensor_capacity, tables, program, program_bytes, space, ring, ring_entries,
                        ring_first, polls, result);
        record = result + 2 * ring_entries;
    }
    write_record(outcome, 0, record);
}
