#!/usr/bin/env python3
"""Run clang-tidy on the C++ of the units, with the rules of hls/.clang-tidy. Any finding makes the exit status 1.

.venv/bin/python scripts/tidy_hls.py [FILE ...]
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.bitstreams.sources import hls_folder, include_folders

TIMEOUT_S = 300


def main() -> int:
    # Findings in the vendor's headers do not count.
    *ours, ap_types = include_folders()
    includes = [f"-I{folder}" for folder in ours] + [
        "-isystem",
        str(ap_types),
    ]
    files = [Path(name) for name in sys.argv[1:]] or sorted(hls_folder().glob("*/*.cpp"))
    tidy = Path(sys.executable).with_name("clang-tidy")

    def check(file: Path) -> bool:
        command = [tidy, "--quiet", file, "--", "-std=c++17", *includes]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="")
        return done.returncode == 0

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return 0 if all(list(threads.map(check, files))) else 1


if __name__ == "__main__":
    sys.exit(main())
