// Status codes of all CUs. The value stands in a CU's `status` register when it is done.
// docs/reference/registers.md says what each means and what to do. host/dpu/units/status.py has the same codes, which a test
// compares.
#pragma once

#include "ap_int.h"

namespace headrace {

using Status = ap_uint<8>;

enum StatusCode : unsigned {
    STATUS_OK = 0,
    STATUS_NOT_JPEG = 1,            // no SOI marker at the start
    STATUS_TRUNCATED = 2,           // the bytes end before the image or the sound does
    STATUS_PROGRESSIVE = 3,         // hierarchical variants; SOF2 without a workspace
    STATUS_ARITHMETIC = 4,          // arithmetic coding (SOF9..SOF11, DAC)
    STATUS_LOSSLESS = 5,            // SOF3
    STATUS_PRECISION = 6,           // sample precision other than 8 bits
    STATUS_COMPONENTS = 7,          // a number of components other than 1 or 3
    STATUS_SAMPLING = 8,            // sampling factors outside the supported table
    STATUS_TOO_LARGE = 9,           // wider than MAX_WIDTH pixels, or no height in the frame header
    STATUS_CORRUPT_HEADER = 10,     // a marker segment, or a chunk of a WAV file, that contradicts itself or the standard
    STATUS_MISSING_TABLE = 11,      // a scan refers to a table that was never defined and is no standard one
    STATUS_CORRUPT_HUFFMAN = 12,    // entropy-coded data that no encoder writes
    STATUS_RESTART_MISMATCH = 13,   // a restart marker is missing, out of order or unexpected
    STATUS_MULTIPLE_SCANS = 14,     // more scans than MAX_SCANS or than the frame has; without a workspace, more than one
    STATUS_RESIZE_LIMIT = 15,       // the resized image would exceed 65535 pixels on a side, or a size of zero is asked for
    STATUS_CROP_OUTSIDE = 16,       // the crop window does not lie inside the resized image
    STATUS_BUFFER_TOO_SMALL = 17,   // tensor_capacity or workspace_bytes is less than needed; the record says how much
    STATUS_BAD_ARGUMENT = 18,       // an unknown stage or format, or (RTL) an address that is not aligned
    STATUS_BUS_ERROR = 19,          // RTL: memory answered a read or a write with an error
    STATUS_NOT_WAV = 20,            // does not begin with RIFF and WAVE
    STATUS_SOUND_FORMAT = 21,       // other than PCM (format 1) of 16 bits
    STATUS_CHANNELS = 22,           // neither mono nor stereo
    STATUS_RATE = 23,               // not a rate of SOUND_RATE
    STATUS_TOO_LONG = 24,           // more than MAX_FRAMES frames of mel bands
};

}  // namespace headrace
