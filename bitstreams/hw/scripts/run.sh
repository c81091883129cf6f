#!/bin/sh
# run.sh XCLBIN OUT IMAGE...: preprocesses images on the card, through the XRT of this machine.
set -eu
xclbin=$1 out=$2
shift 2
if [ -z "${XILINX_XRT:-}" ]; then
    echo "run: XILINX_XRT is not set; source XRT's setup.sh (usually /opt/xilinx/xrt/setup.sh)" >&2
    exit 1
fi
if [ ! -f "$xclbin" ]; then
    echo "run: $xclbin is not built; make xclbin" >&2
    exit 1
fi
exec "${HEADRACE:-headrace}" preprocess image "$@" --xclbin "$xclbin" --xrt real --out "$out"
