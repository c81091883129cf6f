"""The device behind XRT's own emulation: what Vitis' device process is to the shims of `libxrt`, so that programs that
use the real XRT run on Headrace's containers."""
