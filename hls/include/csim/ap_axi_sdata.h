// AXI4-Stream beats with the vendor's names, for g++ builds; on a Vitis machine the vendor's own header is used.
// Side channels of width 0 are one bit wide here, and unused.
#pragma once

#include "ap_int.h"

namespace hls {

template <typename T, int WUser, int WId, int WDest>
struct axis_beat {
    static constexpr int bytes = (T::width + 7) / 8;
    T data;
    ap_uint<bytes> keep;
    ap_uint<bytes> strb;
    ap_uint<(WUser > 0 ? WUser : 1)> user;
    ap_uint<1> last;
    ap_uint<(WId > 0 ? WId : 1)> id;
    ap_uint<(WDest > 0 ? WDest : 1)> dest;
};

}  // namespace hls

template <int W, int WUser, int WId, int WDest>
using ap_axiu = hls::axis_beat<ap_uint<W>, WUser, WId, WDest>;

template <int W, int WUser, int WId, int WDest>
using ap_axis = hls::axis_beat<ap_int<W>, WUser, WId, WDest>;
