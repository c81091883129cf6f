#!/usr/bin/env python3
"""Write docs/reference/registers.md: the registers, records and status codes of the compute units.

    .venv/bin/python scripts/registers_reference.py [--check]

The sources are the kernel.xml of each unit, hls/rtl/axi/axi_control.sv, hls/image_cu/image_cu_pkg.sv (the ring's
descriptor) and hls/include/headrace/status.hpp. With --check nothing is written, and the exit status is 1 if the page
is not what would be written."""

import argparse
import re
import sys
from pathlib import Path

from headrace.bitstreams.kernel import KernelSpec, parse_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.host.dpu.units.status import Status

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "reference" / "registers.md"
HLS = hls_folder()
CUS = {  # unit: what it does
    "image_cu": "A JPEG file to an image or to the input tensor of a network.",
    "audio_mel_cu": "A WAV file to log-mel bands with their sums. This is CU A of the audio path.",
    "audio_norm_cu": "Log-mel bands with their sums to the input tensor of a network. This is CU B of the audio path.",
}
CONTROL = {"Control": "`CONTROL`", "Gie": "`GIE`", "Ier": "`IER`", "Isr": "`ISR`"}

# What a user can do about each status. The meaning of a status stands with its code, in host/dpu/units/status.py.
ADVICE = {
    "OK": "",
    "NOT_JPEG": "Send a JPEG file.",
    "TRUNCATED": "Send the whole file.",
    "PROGRESSIVE": "Give the unit a workspace, or use the CPU path.",
    "ARITHMETIC": "Use the CPU path, or encode the file again.",
    "LOSSLESS": "Encode the file again.",
    "PRECISION": "Encode the file again.",
    "COMPONENTS": "Use the CPU path, or convert the file to RGB.",
    "SAMPLING": "Use the CPU path, or encode the file again.",
    "TOO_LARGE": "Scale the image down before.",
    "CORRUPT_HEADER": "The file is damaged.",
    "MISSING_TABLE": "The file is damaged.",
    "CORRUPT_HUFFMAN": "The file is damaged.",
    "RESTART_MISMATCH": "The file is damaged.",
    "MULTIPLE_SCANS": "Give the unit a workspace, or use the CPU path.",
    "RESIZE_LIMIT": "Choose another `resize_short`.",
    "CROP_OUTSIDE": "Choose a smaller crop or a larger `resize_short`.",
    "BUFFER_TOO_SMALL": "Allocate the bytes that the record asks for, and run again.",
    "BAD_ARGUMENT": "Compare the arguments with the tables above.",
    "BUS_ERROR": "Check the device address and the size of each buffer.",
    "NOT_WAV": "Convert the file to WAV. The CPU path also takes FLAC.",
    "SOUND_FORMAT": "Use the CPU path, or convert the file to 16-bit PCM.",
    "CHANNELS": "Mix the file down to mono or stereo.",
    "RATE": "Use the CPU path, or resample the file.",
    "TOO_LONG": "Cut the file into pieces.",
}

HEAD = """# Registers and status codes

This page lists the registers, arguments, records and status codes of each compute unit (CU). You need it to drive a
CU without Headrace's driver, or to read its performance counters.

`scripts/registers_reference.py` writes this page from the definitions in `hls/`. A test fails when they differ.

A CU has an AXI4-Lite slave with 32-bit registers and two AXI4 masters of 128 bits. It reads through `gmem0` and
writes through `gmem1`. Only the workspace of `image_cu` is read and written through the same master, `gmem1`. That
one has 256 bits. Where a buffer begins or ends within a word of 32 bytes, the CU leaves the other bytes as they are.
`headrace build --info FILE` lists the arguments of a built container. [XRT programs](../how_to/xrt_programs.md) shows
how XRT, PYNQ and C++ set them.

"""

CONTROL_TEXT = """## Control registers

Every CU has these registers. They follow `ap_ctrl_chain` of Vitis HLS.

{table}

A CU takes its arguments when a run begins. So the host may write `ap_start` and the arguments of the next run while a
run is under way. The next run begins after `ap_continue`.

A read of an address without a register gives 0, and a write to it has no effect. An argument of 64 bits takes two
registers, low half first.

"""

RING_TEXT = """### Jobs from a ring

With `ring_entries` not 0, one start of `image_cu` serves many files. The CU takes jobs from a ring of descriptors in
device memory, to which the host adds while the CU runs. `host/dpu/units/job_queue.py` is such a host.

A descriptor has 16 words of 32 bits. Job n lies in slot n mod `ring_entries`.

{table}

`jpeg`, `tensor` and `tables` of the registers hold for the whole run. A job lies within them, so a bad descriptor
cannot reach other memory. Numbers count up and wrap around after 2^32 - 1.

The record of job n goes to place n mod `ring_entries` of `result`, with n in its last word. The last place,
`ring_entries`, receives the record of the run. Its words are status, jobs done, number of the first job that the run
did not take, 1 if a job said stop (otherwise 0), and zeros.

{rules}

The CU fetches the next job while it runs one. It looks at an empty slot every 64 clocks plus the latency of memory. A
run ends after a job that says stop, or after `polls` looks that find no job. It also ends when memory answers a read
of the ring or a write of a record with an error. A bad job ends in `BAD_ARGUMENT` in its own record, and the run
continues.

"""

RING_RULES = [  # rule, reason
    [
        "The host writes the number of a descriptor last.",
        "The CU reads the number alone, and reads the whole descriptor only when the number is right.",
    ],
    [
        "The host writes a slot again only when its job has its record.",
        "The CU has then read the descriptor.",
    ],
    [
        "The CU writes a record when memory has confirmed the whole tensor.",
        "A host that sees the record also sees the tensor.",
    ],
    [
        "The CU writes the half with the number last.",
        "The host reads the number first and then the record.",
    ],
    [
        "A job that comes as the run ends stays in its slot.",
        "The record of the run has its number, and the next run begins with it.",
    ],
]

STATUS_TEXT = """## Status codes

A CU writes the code to its register `status` and to word 0 of the result record. Error messages show the name, and so
does `headrace preprocess --json`. With the default `--fallback cpu`, the host preprocesses a file that a CU refuses
on the CPU and counts it.

{table}

Where libjpeg warns and invents pixels that are wanted, the CU ends in a status code. After an error in the middle of
an image, the output buffer may hold the rows before the error.
"""


def spec_of(cu: str) -> KernelSpec:
    """Return the definition of a compute unit."""
    (spec,) = parse_kernels((HLS / cu / "kernel.xml").read_bytes())
    return spec


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [" | ".join(heads), " | ".join("---" for _ in heads), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def control_table(source: str) -> str:
    """Return the table of the control registers, from the comments before their offsets in axi_control.sv."""
    rows, texts = [], []
    for line in source.splitlines():
        if comment := re.fullmatch(r"\s*// (Bit \d.*)", line):
            texts.append(comment[1])
        elif register := re.fullmatch(r"\s*localparam logic \[11:0\] (\w+)\s*= 12'h(\w+);", line):
            rows.append([f"0x{int(register[2], 16):02X}", CONTROL[register[1]], "<br>".join(texts)])
            texts = []
    return table(["offset", "name", "bits"], rows)


def kind(size: int, type_: str) -> str:
    return "address" if type_.endswith("*") else f"{8 * size} bits"


def register_tables(spec: KernelSpec) -> str:
    """Return the tables of arguments, outputs, record and counters."""
    arguments = [
        [
            f"0x{arg.offset:02X}",
            str(arg.index),
            f"`{arg.name}`",
            kind(arg.size, arg.type),
            f"`{arg.port.removeprefix('M_AXI_').lower()}`" if arg.is_global else "",
            spec.about[arg.offset],
        ]
        for arg in spec.args
    ]
    outputs = [[f"0x{at:02X}", f"`{name}`", spec.about[at]] for name, at in spec.outputs.items()]
    counters = [[f"0x{at:03X}", f"`{name}`", spec.about[at]] for name, at in spec.counters.items()]
    record = [
        [str(number), "" if text == "0." else f"`{name}`", text] for number, (name, text) in enumerate(spec.record)
    ]
    return "\n\n".join(
        [
            "Arguments. Numbers are those of XRT's `set_arg`.",
            table(["offset", "number", "name", "type", "port", "meaning"], arguments),
            "Outputs. They are read-only and no arguments of the kernel.",
            table(["offset", "name", "meaning"], outputs),
            "The result record. The CU writes these 32-bit words to `result` at the end of each request.",
            table(["word", "name", "meaning"], record),
            "Performance counters of the RTL. They are read-only and describe the last run. The C++ has none.",
            table(["offset", "name", "meaning"], counters),
        ]
    )


def descriptor_table(package: str) -> str:
    """Return the words of a ring's descriptor, from the packed struct `descriptor_t`, whose last member comes first."""
    body = re.search(r"struct packed \{([^}]*)\} descriptor_t;", package)
    assert body is not None
    members = re.findall(r"logic \[(\d+):0\] (\w+);\s*// (.*)", body[1])
    rows, at = [], 0
    for high, name, text in reversed(members):
        words = (int(high) + 1) // 32
        rows.append(
            [str(at) if words == 1 else f"{at} to {at + words - 1}", f"`{name}`", f"{text[0].upper()}{text[1:]}."]
        )
        at += words
    assert at == 16, at
    return table(["word", "name", "meaning"], rows)


def status_table(header: str) -> str:
    """Return the status codes of status.hpp, with the host's text and the advice above."""
    codes = re.findall(r"STATUS_(\w+) = (\d+)", header)
    if unknown := {name for name, _ in codes} ^ ADVICE.keys():
        sys.exit(f"ADVICE in {Path(__file__).name} and the status codes differ: {', '.join(sorted(unknown))}")
    rows = [
        [value, f"`{name}`", f"{Status(int(value)).reason[0].upper()}{Status(int(value)).reason[1:]}.", ADVICE[name]]
        for name, value in codes
    ]
    return table(["code", "name", "meaning", "what to do"], rows)


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    control = (HLS / "rtl/axi/axi_control.sv").read_text()
    parts.append(CONTROL_TEXT.format(table=control_table(control)))
    for cu, text in CUS.items():
        parts.append(
            f"## {cu}\n\n{text} The definition is `hls/{cu}/kernel.xml`.\n\n{register_tables(spec_of(cu))}\n\n"
        )
        if cu == "image_cu":
            package = (HLS / "image_cu/image_cu_pkg.sv").read_text()
            parts.append(RING_TEXT.format(table=descriptor_table(package), rules=table(["rule", "reason"], RING_RULES)))
    parts.append(STATUS_TEXT.format(table=status_table((HLS / "include/headrace/status.hpp").read_text())))
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = page()
    if not parser.parse_args().check:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(text)
    elif not OUT.exists() or OUT.read_text() != text:
        sys.exit(f"{OUT.name} is not what hls/ says: run scripts/registers_reference.py")


if __name__ == "__main__":
    main()
