"""Stand-ins for the vendor's tools: they record how they were called, and leave the files that the next step needs."""

import os
from pathlib import Path

import pytest

from headrace.bitstreams.hw.folder import own_design
from headrace.bitstreams.platforms import platform

RECORDER = """#!/bin/sh
# Writes the command line to $RECORD, an empty file after -o, and of a link what $LINKED holds.
echo "${0##*/} $*" >> "$RECORD"
case "$1" in --version|-version) echo "****** ${0##*/} v${VITIS:-2023.2} (64-bit)"; exit 0 ;; esac
case "$*" in *"${FAIL:-never}"*) echo "ERROR: [v++ 60-1] as the test wants"; exit 1 ;; esac
case "$*" in "-l -t hw "*) [ -z "$LINKED" ] || { echo linking; mkdir -p build/hw; cp -r "$LINKED"/. build/hw; } ;; esac
[ "${0##*/}" = vivado ] && { for folder; do :; done; for kernel in audio_mel_cu audio_norm_cu; do
    case " $* " in *" -tclargs $kernel "*) : > "$folder/$kernel.xo" ;; esac
done; }
while [ $# -gt 1 ]; do
    case $1 in -o) [ -e "$2" ] || : > "$2" ;; --od) : > "$2/emconfig.json" ;; esac
    shift
done
"""


@pytest.fixture
def recorders(tmp_path, monkeypatch):
    """Return the file of recorded command lines, one line for each call."""
    tools, record = tmp_path / "tools", tmp_path / "record"
    tools.mkdir()
    for tool in ("v++", "vivado", "emconfigutil", "platforminfo"):
        (tools / tool).write_text(RECORDER)
        (tools / tool).chmod(0o755)
    record.touch()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(record))
    for name in ("LINKED", "FAIL", "VITIS", "MAKEFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)
    return record


@pytest.fixture
def design():
    """Return design(kernel, card, slr): one audio CU A and two B, which have fewer sources than the image CU."""

    def make(kernel="rtl", card="u250", **slr):
        return own_design(platform(card), kernel, (0, 1, 2), 225.0, slr)

    return make


@pytest.fixture
def golden(request):
    """Return golden(name, text): it checks that `text` is that file's. With HEADRACE_GOLDEN set, it writes the file
    instead."""

    def compare(name, text):
        file = Path(__file__).parent / "golden" / name
        if os.environ.get("HEADRACE_GOLDEN"):
            file.write_text(text)
        assert text == file.read_text()

    return compare
