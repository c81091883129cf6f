#!/usr/bin/env python3
"""Check the sources of the units. Any finding makes the exit status 1.

clang-tidy checks the C++ with the rules of hls/.clang-tidy. A clean file is not checked again until the C++ of hls/ or
the rules change; build/tidy keeps their hash. SystemVerilog may have at most 100 columns.

.venv/bin/python scripts/tidy_hls.py [FILE ...]
"""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.bitstreams.sources import hls_folder, include_folders

TIMEOUT_S = 300
COLUMNS = 100
RTL = (".sv", ".svh")
CPP = (".cpp", ".h", ".hpp")
ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
CLEAN = ROOT / "build" / "tidy"  # a file for each source that was clean, with the hash of what it was checked with


def main() -> int:
    # Findings in the vendor's headers do not count.
    *ours, ap_types = include_folders()
    includes = [f"-I{folder}" for folder in ours] + [
        "-isystem",
        str(ap_types),
    ]
    files = [Path(name) for name in sys.argv[1:]] or [
        *sorted(hls_folder().rglob("*.cpp")),
        *sorted(path for folder in (hls_folder(), TESTS) for path in folder.rglob("*") if path.suffix in RTL),
    ]
    tidy = Path(sys.executable).with_name("clang-tidy")

    inputs = inputs_hash(tidy)

    def check(file: Path) -> bool:
        if file.suffix in RTL:
            return check_columns(file)
        checked = hashlib.sha256(inputs + file.read_bytes()).hexdigest()
        stamp = CLEAN / hashlib.sha256(os.fsencode(file.resolve())).hexdigest()
        if stamp.exists() and stamp.read_text() == checked:
            return True
        command = [tidy, "--quiet", file, "--", "-std=c++17", *includes]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="")
            return False
        CLEAN.mkdir(parents=True, exist_ok=True)
        stamp.write_text(checked)
        return True

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return 0 if all(list(threads.map(check, files))) else 1


def inputs_hash(tidy: Path) -> bytes:
    """Return a hash of the C++ of hls/, the headers that it includes, the rules and the program that checks them."""
    found = hashlib.sha256(subprocess.run([tidy, "--version"], capture_output=True, timeout=TIMEOUT_S).stdout)
    folders = {hls_folder(), *include_folders()}
    for file in sorted({path for folder in folders for path in folder.rglob("*") if path.suffix in CPP}):
        found.update(hashlib.sha256(file.read_bytes()).digest())
    found.update((hls_folder() / ".clang-tidy").read_bytes())
    return found.digest()


def check_columns(file: Path) -> bool:
    """Print each line that is too long; return whether there is none."""
    long = [
        f"{file}:{number}: {len(line)} columns; SystemVerilog has at most {COLUMNS}"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if len(line) > COLUMNS
    ]
    print(*long, sep="\n", end="\n" * bool(long))
    return not long


if __name__ == "__main__":
    sys.exit(main())
