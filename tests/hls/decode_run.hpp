// A file through the decode unit, whose contract with its streams is checked, for test benches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "decode/decode.hpp"

namespace decode_run {

// With a workspace, files of several scans are taken too.
using Workspace = std::vector<ap_uint<128>>;

struct Result {
    unsigned status = 0, width = 0, height = 0, workspace_needed = 0;
    std::vector<uint8_t> rgb;  // as many pixels as were sent before the end or an error
    Workspace workspace;       // as it was left
};

inline void require(bool holds, const char* contract) {
    if (holds) return;
    std::fprintf(stderr, "stream contract broken: %s\n", contract);
    std::abort();
}

inline Result run(const uint8_t* jpeg, uint32_t size, const headrace::Wanted& wanted = {}, Workspace workspace = {}) {
    headrace::WordStream words("words");
    for (uint32_t at = 0; at < size; at += 16) {
        ap_uint<128> word = 0;
        for (uint32_t i = 0; i < 16 && at + i < size; i++) word.range(8 * i + 7, 8 * i) = jpeg[at + i];
        words.write(word);
    }
    hls::stream<headrace::Frame> frames("frames");
    hls::stream<headrace::Beat> pixels("pixels");
    uint32_t needed;
    headrace::decode(words, size, wanted, workspace.data(), workspace.data(), 16 * workspace.size(), frames, pixels,
                     needed);

    require(words.empty(), "all words are drained");
    require(frames.size() == 1, "exactly one frame");
    const headrace::Frame frame = frames.read();
    Result result;
    result.workspace_needed = needed;
    result.status = frame.status.to_uint();
    result.width = frame.width.to_uint();
    result.height = frame.height.to_uint();
    if (result.status == headrace::STATUS_OK) {
        const uint32_t rows = wanted.crops ? wanted.crop.height : result.height;
        const uint64_t count = static_cast<uint64_t>(result.width) * rows;
        result.rgb.reserve(3 * std::min<uint64_t>(count, 8 * pixels.size()));
        bool last = false;
        while (!last) {
            const headrace::Beat beat = pixels.read();
            last = beat.last;
            result.status = beat.status;
            require(last || result.status == 0, "a status other than OK only with last");
            if (result.status != headrace::STATUS_OK) break;
            require(beat.begin == 0, "rows begin with a beat");
            const uint64_t left = result.width - result.rgb.size() / 3 % result.width;  // in the row
            require(beat.end == std::min<uint64_t>(left, headrace::BEAT), "beats are as full as rows allow");
            for (unsigned i = 0; i < beat.end; i++) {
                for (const auto& channel : beat.value) result.rgb.push_back(channel[i]);
            }
            require(result.rgb.size() <= 3 * count, "no more pixels than the frame has");
        }
        require(result.status != 0 || result.rgb.size() == 3 * count, "as many pixels as the frame has");
    }
    require(pixels.empty(), "nothing after last");
    result.workspace = std::move(workspace);
    return result;
}

inline uint32_t crc32(const std::vector<uint8_t>& bytes) {
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xEDB88320u : 0);
    }
    uint32_t crc = ~0u;
    for (const uint8_t byte : bytes) crc = crc >> 8 ^ table[(crc ^ byte) & 255];
    return ~crc;
}

}  // namespace decode_run
