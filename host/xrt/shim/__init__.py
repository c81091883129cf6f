"""A device process that XRT's own emulation starts, in the place of the one that comes with Vitis.

With it, programs that use the real XRT run on Headrace's containers. The emulation libraries of `libxrt`, called shims
here, talk to the process over a socket."""
