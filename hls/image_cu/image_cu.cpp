#include "image_cu/image_cu.hpp"

#include "crop/crop.hpp"
#include "decode/decode.hpp"
#include "headrace/shared_memory.hpp"
#include "normalize/normalize.hpp"
#include "resize/resize.hpp"

namespace headrace {
namespace {

constexpr unsigned WORD_BYTES = 16;
constexpr unsigned BURST_WORDS = 256;  // of one plane; 4 KiB, the longest AXI4 burst of 128-bit words

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

void pass(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, hls::stream<Frame>& out_frames,
          hls::stream<Pixel>& out_pixels) {
    const Frame frame = frames.read();
    out_frames.write(frame);
    Pixel pixel{0, 0, 0, frame.status != STATUS_OK, STATUS_OK};
    while (!pixel.last) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 268435456
        pixel = pixels.read();
        out_pixels.write(pixel);
    }
}

void resize_stage(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, uint32_t stage, const Wanted& wanted,
                  hls::stream<Frame>& out_frames, hls::stream<Pixel>& out_pixels) {
    if (stage >= STAGE_RESIZE) {
        resize(frames, pixels, wanted, out_frames, out_pixels);
    } else {
        pass(frames, pixels, out_frames, out_pixels);
    }
}

void crop_stage(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, uint32_t stage, const Crop& window,
                hls::stream<Frame>& out_frames, hls::stream<Pixel>& out_pixels) {
    if (stage >= STAGE_CROP) {
        crop(frames, pixels, window, true, out_frames, out_pixels);
    } else {
        pass(frames, pixels, out_frames, out_pixels);
    }
}

void normalize_stage(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, uint32_t stage,
                     const ap_uint<128>* tables, hls::stream<Frame>& out_frames, hls::stream<Sample>& samples) {
    uint32_t table[3][256];
#pragma HLS ARRAY_PARTITION variable = table complete dim = 1
    for (int i = 0; i < 3 * 256 / 4; i++) {  // before the frame comes: hidden behind the decoder's header
#pragma HLS PIPELINE II = 4
        const ap_uint<128> word = stage == STAGE_NORMALIZE ? tables[i] : ap_uint<128>(0);
        for (int k = 0; k < 4; k++) {
            const int entry = 4 * i + k;
            table[entry / 256][entry % 256] =
                stage == STAGE_NORMALIZE ? word.range(32 * k + 31, 32 * k).to_uint() : entry % 256;
        }
    }
    const Frame frame = frames.read();
    out_frames.write(frame);
    if (frame.status == STATUS_OK) normalize(pixels, table, samples);
}

// Packs the samples of one plane into words. Words of 16 bytes do not end where planes do: the bits of a word that
// belong to a neighbouring plane stay zero, and such words are kept until the end, when they are joined.
struct Plane {
    uint64_t low, high;   // the word being filled
    uint32_t fill;        // bytes of it that are done or not this plane's
    uint64_t word;        // its number in the tensor
    bool head_pending;    // the word being filled began in the plane before
    bool head_kept;
    uint64_t head_low, head_high, head_word;
    uint32_t buffered;    // words in the burst buffer
    uint64_t burst_word;  // number of the first of them
};

void begin_plane(Plane& plane, uint64_t first_byte) {
#pragma HLS INLINE
    plane.low = plane.high = 0;
    plane.fill = first_byte % WORD_BYTES;
    plane.word = first_byte / WORD_BYTES;
    plane.head_pending = plane.fill != 0;
    plane.head_kept = false;
    plane.buffered = 0;
    plane.burst_word = plane.word;
}

ap_uint<128> join(uint64_t high, uint64_t low) {
#pragma HLS INLINE
    return (ap_uint<128>(high) << 64) | ap_uint<128>(low);
}

void write_burst(Plane& plane, const ap_uint<128>* buffer, ap_uint<128>* tensor) {
    for (uint32_t i = 0; i < plane.buffered; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 256
        tensor[plane.burst_word + i] = buffer[i];
    }
    plane.burst_word += plane.buffered;
    plane.buffered = 0;
}

// `bytes` (1, 2 or 4) low bytes of `value`. Elements are aligned to their size, so none straddles a word.
void append(Plane& plane, uint32_t value, uint32_t bytes, ap_uint<128>* buffer) {
#pragma HLS INLINE
    if (plane.fill < 8) {
        plane.low |= static_cast<uint64_t>(value) << (8 * plane.fill);
    } else {
        plane.high |= static_cast<uint64_t>(value) << (8 * plane.fill - 64);
    }
    plane.fill += bytes;
    if (plane.fill < WORD_BYTES) return;
    if (plane.head_pending) {
        plane.head_low = plane.low;
        plane.head_high = plane.high;
        plane.head_word = plane.word;
        plane.head_kept = true;
        plane.head_pending = false;
        plane.burst_word = plane.word + 1;
    } else {
        buffer[plane.buffered++] = join(plane.high, plane.low);
    }
    plane.low = plane.high = 0;
    plane.fill = 0;
    plane.word++;
}

// The words that planes share, and the last one. Parts of one word come in order, with zeros where the others are.
void write_edges(const Plane* planes, unsigned count, ap_uint<128>* tensor) {
    uint64_t low = 0, high = 0, word = 0;
    bool any = false;
    for (unsigned p = 0; p < count; p++) {
        for (int tail = 0; tail < 2; tail++) {
            const Plane& plane = planes[p];
            if (tail ? plane.fill == 0 : !plane.head_kept) continue;
            const uint64_t number = tail ? plane.word : plane.head_word;
            if (any && number != word) {
                tensor[word] = join(high, low);
                low = high = 0;
            }
            word = number;
            low |= tail ? plane.low : plane.head_low;
            high |= tail ? plane.high : plane.head_high;
            any = true;
        }
    }
    if (any) tensor[word] = join(high, low);
}

void store(hls::stream<Frame>& frames, hls::stream<Sample>& samples, hls::stream<Frame>& noted, uint32_t stage,
           uint32_t format, uint32_t tensor_capacity, ap_uint<128>* tensor, Outcome& outcome) {
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
        return;
    }
    const bool planar = stage == STAGE_NORMALIZE;
    const uint32_t bytes = !planar || format == FORMAT_INT8 ? 1 : format == FORMAT_FLOAT16 ? 2 : 4;
    const uint32_t mask = bytes == 4 ? 0xFFFFFFFFu : (1u << (8 * bytes)) - 1;
    const uint64_t plane_bytes = static_cast<uint64_t>(outcome.out_width) * outcome.out_height * bytes;
    outcome.bytes = 3 * plane_bytes;
    const bool fits = outcome.bytes <= tensor_capacity;

    ap_uint<128> buffer[3][BURST_WORDS];
#pragma HLS ARRAY_PARTITION variable = buffer complete dim = 1
    Plane planes[3];
#pragma HLS ARRAY_PARTITION variable = planes complete
    for (int p = 0; p < 3; p++) begin_plane(planes[p], planar ? p * plane_bytes : 0);

    Sample in{{0, 0, 0}, 0, STATUS_OK};
    while (!in.last) {
#pragma HLS PIPELINE
#pragma HLS LOOP_TRIPCOUNT max = 268435456
        in = samples.read();
        if (!fits || in.status != STATUS_OK) continue;
        for (int c = 0; c < 3; c++) {
#pragma HLS UNROLL
            const int p = planar ? c : 0;
            append(planes[p], in.channel[c] & mask, bytes, buffer[p]);
            if (planes[p].buffered == BURST_WORDS) write_burst(planes[p], buffer[p], tensor);
        }
    }
    if (!fits) {
        outcome.status = in.status != STATUS_OK ? in.status : Status(STATUS_BUFFER_TOO_SMALL);
        return;
    }
    outcome.status = in.status;
    const unsigned used = planar ? 3 : 1;
    for (unsigned p = 0; p < used; p++) write_burst(planes[p], buffer[p], tensor);
    write_edges(planes, used, tensor);
}

void preprocess(const ap_uint<128>* jpeg, uint32_t jpeg_bytes, ap_uint<128>* tensor, uint32_t tensor_capacity,
                const ap_uint<128>* tables, uint32_t stage, uint32_t format, const Wanted& wanted, Outcome& outcome) {
#pragma HLS DATAFLOW
    WordStream words("words");
    hls::stream<Frame> decoded_frames("decoded_frames"), source_frames("source_frames"), noted("noted");
    hls::stream<Frame> resized_frames("resized_frames"), cropped_frames("cropped_frames"), out_frames("out_frames");
    hls::stream<Pixel> decoded("decoded"), resized("resized"), cropped("cropped");
    hls::stream<Sample> samples("samples");
#pragma HLS STREAM variable = decoded depth = 64
#pragma HLS STREAM variable = resized depth = 64
#pragma HLS STREAM variable = cropped depth = 64
#pragma HLS STREAM variable = samples depth = 64
    load_jpeg(jpeg, jpeg_bytes, words);
    decode(words, jpeg_bytes, wanted, decoded_frames, decoded);
    note_source(decoded_frames, source_frames, noted);
    resize_stage(source_frames, decoded, stage, wanted, resized_frames, resized);
    crop_stage(resized_frames, resized, stage, wanted.crop, cropped_frames, cropped);
    normalize_stage(cropped_frames, cropped, stage, tables, out_frames, samples);
    store(out_frames, samples, noted, stage, format, tensor_capacity, tensor, outcome);
}

struct Request {
    uint32_t jpeg_bytes, tensor_capacity, stage, format, resize_short;
    Crop crop;
};

Outcome request(const ap_uint<128>* jpeg, ap_uint<128>* tensor, const ap_uint<128>* tables, const Request& asked) {
    Outcome outcome{STATUS_BAD_ARGUMENT, 0, 0, 0, 0, 0};
    if (asked.stage > STAGE_NORMALIZE || asked.format > FORMAT_INT8) return outcome;
    // What does not fit 16 bits is beyond the limit of resize; 0 is what it refuses for being so.
    const Wanted wanted{asked.resize_short > 65535 ? 0 : asked.resize_short, asked.stage >= STAGE_CROP, asked.crop};
    preprocess(jpeg, asked.jpeg_bytes, tensor, asked.tensor_capacity, tables, asked.stage, asked.format, wanted, outcome);
    return outcome;
}

// `number` stands in the last word.
void write_record(const Outcome& outcome, uint32_t number, ap_uint<128>* record) {
    const uint64_t first = static_cast<uint64_t>(outcome.out_width) << 32 | static_cast<uint32_t>(outcome.status);
    const uint64_t second = static_cast<uint64_t>(outcome.src_width) << 32 | outcome.out_height;
    const uint64_t third = outcome.bytes << 32 | outcome.src_height;
    const uint64_t fourth = static_cast<uint64_t>(number) << 32 | outcome.bytes >> 32;
    record[0] = join(second, first);
    in_order();
    record[1] = join(fourth, third);
}

// One word of a descriptor.
uint32_t field(const ap_uint<128>* descriptor, unsigned index) {
#pragma HLS INLINE
    return descriptor[index / 4].range(32 * (index % 4) + 31, 32 * (index % 4)).to_uint();
}

// A job's request and where its file and tensor lie, in words from the run's. False if it is bad.
bool read_job(const ap_uint<128>* descriptor, uint32_t jpeg_room, uint32_t tensor_room, Request& asked, uint32_t& jpeg,
              uint32_t& tensor) {
    const uint32_t jpeg_offset = field(descriptor, 0), tensor_offset = field(descriptor, 2);
    asked = Request{field(descriptor, 1), field(descriptor, 3), field(descriptor, 4), field(descriptor, 5),
                    field(descriptor, 6),
                    {field(descriptor, 7), field(descriptor, 8), field(descriptor, 9), field(descriptor, 10)}};
    jpeg = jpeg_offset / WORD_BYTES;
    tensor = tensor_offset / WORD_BYTES;
    return jpeg_offset % WORD_BYTES == 0 && tensor_offset % WORD_BYTES == 0 && field(descriptor, 11) == COMMAND_JOB &&
           (field(descriptor, 12) | field(descriptor, 13) | field(descriptor, 14)) == 0 &&
           static_cast<uint64_t>(jpeg_offset) + asked.jpeg_bytes <= jpeg_room &&
           static_cast<uint64_t>(tensor_offset) + asked.tensor_capacity <= tensor_room;
}

// Jobs from the ring, until one says stop or no more come. The outcome is the run's, as its own record has it.
Outcome serve(const ap_uint<128>* jpeg, uint32_t jpeg_room, ap_uint<128>* tensor, uint32_t tensor_room,
              const ap_uint<128>* tables, const volatile ap_uint<128>* ring, uint32_t entries, uint32_t first,
              uint32_t polls, ap_uint<128>* result) {
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
        stopped = field(descriptor, 11) == COMMAND_STOP &&
                  (field(descriptor, 12) | field(descriptor, 13) | field(descriptor, 14)) == 0;
        if (stopped) break;
        Request asked;
        uint32_t jpeg_word, tensor_word;
        Outcome outcome{STATUS_BAD_ARGUMENT, 0, 0, 0, 0, 0};
        if (read_job(descriptor, jpeg_room, tensor_room, asked, jpeg_word, tensor_word)) {
            outcome = request(jpeg + jpeg_word, tensor + tensor_word, tables, asked);
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
                         uint32_t crop_y, const volatile ap_uint<128>* ring, uint32_t ring_entries,
                         uint32_t ring_first, uint32_t polls, uint32_t* status, uint32_t* out_width,
                         uint32_t* out_height, uint32_t* src_width, uint32_t* src_height) {
#pragma HLS INTERFACE m_axi port = jpeg bundle = gmem0 channel = 0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE m_axi port = tensor bundle = gmem1 channel = 0 offset = slave max_write_burst_length = 64
#pragma HLS INTERFACE m_axi port = tables bundle = gmem0 channel = 1 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE m_axi port = result bundle = gmem1 channel = 1 offset = slave max_write_burst_length = 2
#pragma HLS INTERFACE m_axi port = ring bundle = gmem0 channel = 2 offset = slave max_read_burst_length = 4
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
#pragma HLS INTERFACE s_axilite port = ring bundle = control offset = 0x88
#pragma HLS INTERFACE s_axilite port = ring_entries bundle = control offset = 0x94
#pragma HLS INTERFACE s_axilite port = ring_first bundle = control offset = 0x9C
#pragma HLS INTERFACE s_axilite port = polls bundle = control offset = 0xA4
#pragma HLS INTERFACE s_axilite port = status bundle = control offset = 0xB0
#pragma HLS INTERFACE s_axilite port = out_width bundle = control offset = 0xC0
#pragma HLS INTERFACE s_axilite port = out_height bundle = control offset = 0xD0
#pragma HLS INTERFACE s_axilite port = src_width bundle = control offset = 0xE0
#pragma HLS INTERFACE s_axilite port = src_height bundle = control offset = 0xF0
#pragma HLS INTERFACE ap_ctrl_chain port = return
#pragma HLS INTERFACE s_axilite port = return bundle = control
    using namespace headrace;
    Outcome outcome{STATUS_BAD_ARGUMENT, 0, 0, 0, 0, 0};
    ap_uint<128>* record = result;
    if (ring_entries == 0) {
        const Request asked{jpeg_bytes, tensor_capacity, stage, format, resize_short,
                            {crop_width, crop_height, crop_x, crop_y}};
        outcome = request(jpeg, tensor, tables, asked);
    } else if (ring_entries <= MOST_RING_ENTRIES && (ring_entries & (ring_entries - 1)) == 0) {
        outcome = serve(jpeg, jpeg_bytes, tensor, tensor_capacity, tables, ring, ring_entries, ring_first, polls, result);
        record = result + 2 * ring_entries;
    }
    *status = outcome.status;
    *out_width = outcome.out_width;
    *out_height = outcome.out_height;
    *src_width = outcome.src_width;
    *src_height = outcome.src_height;
    write_record(outcome, 0, record);
}
