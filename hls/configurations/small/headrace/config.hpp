// The configuration `small`: baseline files, for boards with a few hundred KiB of memory.
// include/headrace/config.hpp explains the constants.
#pragma once

namespace headrace {

constexpr unsigned MAX_WIDTH = 2048;
constexpr bool PROGRESSIVE = false;
constexpr bool SAMPLINGS = false;
constexpr bool PROGRAMS = false;
constexpr bool QUEUE = false;

}  // namespace headrace
