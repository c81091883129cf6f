#!/usr/bin/env python3
"""Write hls/headrace.core, with which FuseSoC finds image_stream and all files that it needs.

    scripts/fusesoc_core.py

A test compares the file with the sources.
"""

from headrace.bitstreams.hw.cores import stream_core
from headrace.bitstreams.sources import hls_folder

if __name__ == "__main__":
    (hls_folder() / "headrace.core").write_text(stream_core())
