// The size of the image units: what a build chooses. A build for another board has another file of this name earlier on
// its include path. rtl/config_pkg.sv has the same constants for the RTL, which a test compares.
#pragma once

namespace headrace {

constexpr unsigned MAX_WIDTH = 8192;  // source pixels in a row: sizes the line buffers
constexpr bool PROGRESSIVE = true;    // files of several scans, progressive ones among them
constexpr bool SAMPLINGS = true;      // factors of 4, and of chroma; else only 1 and 2 of luma
constexpr bool PROGRAMS = true;       // image_cu: scaler and patches, STAGE_PROGRAM
constexpr bool QUEUE = true;          // image_cu: a run may take its jobs from a ring

}  // namespace headrace
