#!/usr/bin/env python3
"""Write the tables of compute units and their parts into the pages of PAGES, between their marks.

    .venv/bin/python scripts/units_reference.py [--check]

A table stands between the lines `<!-- table: NAME -->` and `<!-- end of table -->`. Its figures come from one of these:

    areas                sim/system/yosys_cells.csv (scripts/yosys_cells.py)
    clocks and errors    docs/results/measured/clocks.json (scripts/clock_figures.py)
    routed clocks        docs/results/measured/routed.json (`headrace build --route ecp5 --json`)
    entropy loops        docs/results/measured/entropy_loop.json (`python -m benchmarks.entropy_loop --json`)
    proofs               docs/results/measured/formal.json (make -C hls/formal)
    sampling factors     docs/results/measured/samplings.json (scripts/count_samplings.py)
    limits of a card     headrace.sim.system.limits
    bounds               the tests that assert them

All other texts come from this file. With --check nothing is written, and the exit status is 1 if a page is not what
would be written."""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headrace.bitstreams.configurations import FULL
from headrace.bitstreams.resources.report import CYCLES_PER_IMAGE, JPEG_BYTES, PREBA_TABLE_1, TARGET_IMAGES_PER_S
from headrace.host.dpu.specs import RATES
from headrace.sim.hardware.dpu.audio import taps_cycles
from headrace.sim.system.card import CUS, DELAY, MASTERS, PATH, U55C, USABLE, estimated_mhz, reported_cells
from headrace.sim.system.limits import LAUNCHES_S, TENSOR_BYTES, Cu, cus_for, limits

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("hls/README.md", "docs/reference/units.md", "docs/explanation/exactness.md")
CLOCKS = ROOT / "docs" / "results" / "measured" / "clocks.json"
FORMAL = CLOCKS.with_name("formal.json")
SAMPLINGS = CLOCKS.with_name("samplings.json")
ROUTED = CLOCKS.with_name("routed.json")
LOOPS = CLOCKS.with_name("entropy_loop.json")
TESTS = ROOT / "tests"
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit. `folder` has its sources, and `module` is its top module in the RTL.

    A unit without C++ (`in_cpp`) is a top around other units, and is for boards other than the card of the table of
    areas."""

    folder: str
    module: str
    does: str
    interface: str
    throughput: str
    latency: str
    in_cpp: bool = True

    @property
    def name(self) -> str:
        return self.module


PIXELS, AUDIO = "a frame and its pixels in and out", "a sound and its samples in and out"
MASTER = "2 AXI4 masters of 128 bits, AXI4-Lite, `ap_ctrl_chain`"
UNITS = (
    Unit(
        "image_cu",
        "image_cu",
        "a JPEG file to a tensor",
        "AXI4 masters of 128 and 256 bits, AXI4-Lite, `ap_ctrl_chain`",
        "that of decode",
        "that of decode, and a burst",
    ),
    Unit(
        "image_stream",
        "image_stream",
        "JPEG files from a stream to pixels on a stream, on small boards",
        "2 AXI4-Streams, AXI4-Lite",
        "that of decode",
        "that of decode",
        in_cpp=False,
    ),
    Unit(
        "decode",
        "decode",
        "JPEG to RGB",
        "128-bit words in; a frame and its pixels out",
        "a Huffman symbol or two, three clocks for a long code; four pixels",
        "the headers at a byte a clock, the first MCU row, then about 60",
    ),
    Unit(
        "decode/progressive",
        "progressive_decoder",
        "files of several scans; a part of decode",
        "tokens in, coefficients out, a workspace in memory",
        "a symbol, or a word of eight coefficients",
        "twice memory's latency between scans",
    ),
    Unit(
        "resize",
        "resize",
        "bilinear, shorter side to a length",
        PIXELS,
        "four source pixels or two output pixels",
        "20 of a row after the source row that it needs",
    ),
    Unit("crop", "crop", "a window", PIXELS, "two source pixels", "1 of a frame, 3 or 4 of a beat"),
    Unit(
        "scaler",
        "scaler",
        "Pillow's and torchvision's resize, on a canvas",
        f"{PIXELS}; lists of weights",
        "two source pixels or two output pixels; one with Lanczos",
        "two for each entry of the list along rows, and the source rows that the first output row needs",
    ),
    Unit(
        "normalize",
        "normalize",
        "a table of 256 values for each channel",
        "pixels in, samples out, three tables",
        "two pixels",
        "2",
    ),
    Unit(
        "patches",
        "patches",
        "pixels in the order of vision transformers",
        "a frame and its pixels in, three tables; 128-bit words out",
        "two pixels in; four values of 4 bytes out, else eight",
        "a row of squares of patches",
    ),
    Unit(
        "audio_mel_cu",
        "audio_mel_cu",
        "a WAV file to log-mel bands and their sums (CU A)",
        MASTER,
        "a sample of the file; half of one at 8 and 11.025 kHz",
        "that of mel, and a burst",
    ),
    Unit(
        "wav",
        "wav",
        "a WAV file to samples in mono",
        "128-bit words in; a sound and its samples out",
        "a sample; 16 bytes of a chunk that is skipped",
        "35 to the sound, 9 for each chunk that is skipped, 12 for an extension",
    ),
    Unit(
        "resample",
        "resample",
        "to 16 kHz",
        f"{AUDIO}; a table of taps",
        "a sample in or out; one in in two clocks at 8 and 11.025 kHz",
        "39 to the sound; 44 output samples of the filter, 88 at 8 and 11.025 kHz",
    ),
    Unit(
        "mel",
        "mel",
        "samples at 16 kHz to log-mel bands, from frames of 512 or 400 samples",
        f"{AUDIO}; a program of the filterbank",
        "a sample; a frame within its 160 samples",
        "615 from the last sample of a window to the first value, 677 with frames of 400; 72 more without their mean",
    ),
    Unit(
        "audio_norm_cu",
        "audio_norm_cu",
        "log-mel bands to a tensor (CU B)",
        MASTER,
        "that of mel_normalize",
        "that of mel_normalize, and a burst",
    ),
    Unit(
        "mel_normalize",
        "mel_normalize",
        "mean and deviation of each band",
        "128-bit words in and out",
        "four values; six clocks for the statistics of a band",
        "a tile of 128 frames",
    ),
)


@cache
def clocks() -> dict[str, Any]:
    """Return the measured clocks and errors."""
    found: dict[str, Any] = json.loads(CLOCKS.read_text())
    return found


def markdown(heads: str, rows: Iterable[Iterable[str]], right: int = 0) -> str:
    """Return a table. The columns from `right` on are aligned to the right; with 0, none is."""
    names = heads.split(" | ")
    marks = ["---:" if right and number >= right else "---" for number in range(len(names))]
    lines = [" | ".join(names), " | ".join(marks), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


# ---- units ----


def units() -> str:
    """Return interface, throughput and latency of each unit."""
    return markdown(
        "unit | does | interface | throughput, per clock | latency, clocks | status",
        ([f"`{u.name}`", u.does, u.interface, u.throughput, u.latency, "simulated"] for u in UNITS),
    )


def area() -> str:
    """Return the area and the longest path of each unit, as Yosys and the published delays of cells estimate them."""
    cells = reported_cells()
    return markdown(
        "unit | LUT | FF | DSP | BRAM36 | URAM | path estimate, ns | clock, MHz | LUTs and wires alone (abc9), ns"
        " | LUT of a U55C, %",
        (
            [
                f"`{u.name}`",
                *(f"{cells[u.module][kind]:,g}" for kind in U55C),
                *_path_range(cells[u.module]),
                f"{cells[u.module][DELAY] / 1e3:.2f}",
                f"{100 * cells[u.module]['lut'] / U55C['lut']:.1f}",
            ]
            for u in UNITS
            if u.in_cpp
        ),
        right=1,
    )


def _path_range(cells: Mapping[str, float]) -> tuple[str, str]:
    """Return the estimate of a path (ns) and of its clock (MHz), each from the lower end to the upper one."""
    fast, slow = (cells[end] for end in PATH)
    return f"{fast / 1e3:.1f} to {slow / 1e3:.1f}", f"{1e6 / slow:.0f} to {1e6 / fast:.0f}"


def routed() -> str:
    """Return clock, cells and worst path of each unit that was routed on an ECP5.

    The row is that of the median clock, or of the lower of two. A unit that is larger than the device has the reason in
    place of a path. A configuration other than `full` stands behind the name."""
    report = json.loads(ROUTED.read_text())

    def name_of(row: dict[str, Any]) -> str:
        return f"`{row['unit']}`" + (f" of `{row['configuration']}`" if row["configuration"] != FULL else "")

    def row_of(row: dict[str, Any]) -> list[str]:
        cells = [f"{row['cells'][kind]:,}" for kind in ("lut4", "ff", "bram18", "mult18")]
        if row["mhz"] is None:
            return [name_of(row), "", "", *cells, *[""] * 4, f"larger than the device: {row['reason']}"]
        path = row["worst_path"]
        return [
            name_of(row),
            f"{row['mhz']:.0f}",
            ", ".join(f"{mhz:.0f}" for mhz in row["mhz_of_seeds"]),
            *cells,
            *(f"{path[part]:.1f}" for part in ("ns", "clock_to_output_ns", "logic_ns", "wires_ns")),
            f"`{path['from']}` to `{path['to']}`",
        ]

    rows = map(row_of, report["units"])
    seeds = ", ".join(map(str, report["seeds"]))
    return f"{report['device']}. {report['tool']}. Seeds {seeds}.\n\n" + markdown(
        "module | MHz | of seeds | LUT4 | FF | RAM of 18 kbit | multipliers | worst path, ns | of it clock to output"
        " | logic | wires | from register to register",
        rows,
        right=1,
    )


def entropy_loops() -> str:
    """Return the clocks of the entropy decoder's loop alone, by what its table lies in."""
    report = json.loads(LOOPS.read_text())
    rows = (
        [
            loop["table"],
            loop["symbols"],
            f"{loop['mhz']:.0f}",
            ", ".join(f"{mhz:.0f}" for mhz in loop["mhz_of_seeds"]),
            str(loop["clocks"]),
            f"{loop['look_ups_mhz']:.0f}",
            *(f"{loop['cells'][kind]:,}" for kind in ("lut4", "bram18")),
            f"{loop['worst_path']['clock_to_output_ns']:.1f}",
        ]
        for loop in report["loops"]
    )
    return markdown(
        "table | symbols a look-up | MHz | of seeds | clocks a look-up | million look-ups a second | LUT4"
        " | RAM of 18 kbit | clock to output, ns",
        rows,
        right=2,
    )


def sources() -> str:
    """Return the folders and the reference of each unit, with links from hls/."""
    return markdown(
        "folder | does | RTL | C++",
        ([f"[{u.folder}/]({u.folder})", u.does, f"[{u.module}.sv]({u.folder}/{u.module}.sv)", _cpp(u)] for u in UNITS),
    )


def _cpp(unit: Unit) -> str:
    if not unit.in_cpp:
        return ""
    name = Path(unit.folder).name
    return f"[{name}.hpp]({unit.folder}/{name}.hpp)"


# ---- clocks ----


def image_clocks() -> str:
    """Return the clocks of whole images at 500x375."""
    figures = clocks()["image_cu"]
    slow, fast = figures["estimated_clock_mhz"], figures["clock_mhz"]

    def row(each: dict[str, Any]) -> list[str]:
        per_pixel, rates = each["cycles_per_pixel"], each["images_per_s"]
        several_scans = "scans" in each["sampling"]
        return [
            each["sampling"],
            str(each["quality"]),
            f"{per_pixel['mean']:.3f}",
            f"{per_pixel['max']:.3f}",
            "" if several_scans else f"{each['symbols']:,.0f}",
            f"{each['first_output']:,.0f}",
            f"{each['last_output']:,.0f}",
            f"{rates[str(slow)]['1']:,.0f}",
            f"{rates[str(slow)]['4']:,.0f}",
            f"{rates[str(fast)]['1']:,.0f}",
        ]

    heads = (
        "sampling | quality | clocks a pixel, mean | worst image | symbols | clocks to the first word"
        f" | to the last word | images/s, 1 CU at {slow} MHz | 4 CUs at {slow} MHz | 1 CU at {fast} MHz"
    )
    return markdown(heads, map(row, figures["summary"]), right=1)


def image_summary() -> str:
    """Return a few figures of the image unit as a list."""
    figures = clocks()["image_cu"]
    deviation = figures["model_deviation"]
    lines = [
        f"- Between two runs lie {figures['gap_between_runs']} clocks of register accesses. Images/s include them.",
        f"- A CU moves at most {figures['memory_bytes_per_s_max'] / 1e9:.1f} GB/s at {figures['clock_mhz']} MHz.",
        f"- The cycle model (`sim/hardware/dpu/image.py`) is off by at most {100 * deviation['max']:.2f} %, on average "
        f"by {100 * deviation['mean']:.3f} %.",
    ]
    return "\n".join(lines) + "\n"


def launch_queue() -> str:
    """Return clocks and rates of single starts and of the ring, by the cost of a launch."""
    mhz = clocks()["image_cu"]["estimated_clock_mhz"]
    assumed = clocks()["image_cu"]["clock_mhz"]
    count = clocks()["launch_queue"]["count"]

    def rate(at: float, launch_us: float) -> float:
        return 1e6 / ((at - launch_us * assumed) / mhz + launch_us)

    rows = (
        [
            str(row["quality"]),
            f"{row['launch_us']:g}",
            f"{row['single'] - row['launch_us'] * assumed:,.0f}",
            f"{rate(row['single'], row['launch_us']):,.0f}",
            f"{row['queue'] - row['launch_us'] * assumed / count:,.0f}",
            f"{rate(row['queue'], row['launch_us'] / count):,.0f}",
        ]
        for row in clocks()["launch_queue"]["rows"]
    )
    return markdown(
        f"quality | launch, us | clocks, single start | images/s at {mhz} MHz | clocks, from the ring"
        f" | images/s at {mhz} MHz",
        rows,
        right=1,
    )


@cache
def samplings() -> Any:
    return json.loads(SAMPLINGS.read_text())


SAMPLING_REASONS = {
    "taken": "",
    "a factor of 3": "no encoder writes it by default, and OpenCV decodes a third of it",
    "chroma finer than luma": "no encoder writes it by default, and luma would need an upsampler of its own",
}


def sampling_classes() -> str:
    """Return the classes of sampling factors of three components, with how many combinations and files there are."""
    figures = samplings()
    found = {
        kind: sum((Counter(each["classes"]) for each in figures["sources"] if each["kind"] == kind), Counter())
        for kind in ("encoders", "tests")
    }
    rows = (
        [
            name,
            str(figures["combinations"][name]),
            str(figures["opencv_decodes"][name]),
            "yes" if name == "taken" else "no",
            f"{found['encoders'][name]:,}",
            f"{found['tests'][name]:,}",
            reason,
        ]
        for name, reason in SAMPLING_REASONS.items()
    )
    return markdown(
        "class | combinations | OpenCV decodes | the CU takes | files that encoders wrote | files that test decoders"
        " | why not",
        rows,
    )


def sampling_files() -> str:
    """Return the factors of the counted files that encoders wrote, by source."""
    sources = [each for each in samplings()["sources"] if each["kind"] == "encoders"]
    factors = sum((Counter(each["factors"]) for each in sources), Counter())
    rows = [
        [
            each["name"],
            f"{each['files']:,}",
            *(f"{each['factors'].get(name, 0):,}" for name, _ in factors.most_common()),
        ]
        for each in sources
    ]
    total = ["all", f"{factors.total():,}", *(f"{count:,}" for _, count in factors.most_common())]
    return markdown(
        " | ".join(["source", "files", *(name for name, _ in factors.most_common())]), [*rows, total], right=1
    )


def audio_clocks() -> str:
    """Return the clocks of both audio CUs."""
    rows = clocks()["audio_cu"]["rows"]
    slow = min(rows[0]["seconds_per_s"], key=int)
    return markdown(
        "sound | CU A, clocks | per sample of the file | CU B, clocks | per value"
        f" | seconds of audio a second at {slow} MHz",
        (
            [
                _clip(row["sound"]),
                f"{row['mel_cycles']:,}",
                f"{row['cycles_per_sample']:.3f}",
                f"{row['norm_cycles']:,}",
                f"{row['norm_cycles_per_value']:.3f}",
                f"{row['seconds_per_s'][slow]:,.0f}",
            ]
            for row in rows
        ),
        right=1,
    )


def _clip(name: str) -> str:
    return name.removeprefix("made, ").replace(", ", " at ")


def audio_summary() -> str:
    """Return the gain of two units over one that does both, as a list."""
    figures = clocks()["audio_cu"]
    a, b = (sum(row[kind] for row in figures["rows"]) for kind in ("mel_cycles", "norm_cycles"))
    gain = figures["merged_cycles"] / figures["overlapped_cycles"]
    return (
        f"- CU B takes {100 * b / a:.0f} % of the clocks of CU A. Both work on successive requests. So throughput is "
        f"{gain:.2f} times that of one unit which does A and then B.\n"
        "- When a file has another sample rate than the file before, CU A first loads the taps of its filter. That "
        f"takes up to {max(map(taps_cycles, RATES)):,} clocks.\n"
    )


def card() -> str:
    """Return what limits the rate of a card, by launch and by type of tensor."""
    mhz = estimated_mhz("image cu")
    cu = Cu(CUS["image cu"], MASTERS["image cu"], CYCLES_PER_IMAGE, mhz * 1e6)
    rows = []
    for launch_s in LAUNCHES_S:
        first = [limits(cu, launch_s, JPEG_BYTES, size)[0] for size in TENSOR_BYTES.values()]
        rows.append(
            [
                f"{1e6 * launch_s:.0f} us a launch" if launch_s else "none: the ring",
                f"{cu.images_s(launch_s):,.0f}",
                str(cus_for(TARGET_IMAGES_PER_S, cu, launch_s)),
                *(f"{limit.name}, {limit.images_s:,.0f}" for limit in first),
            ]
        )
    heads = " | ".join(f"first limit, {name}" for name in TENSOR_BYTES)
    image = (
        f"An image of 500x375 at 4:2:0, quality 90, takes {CYCLES_PER_IMAGE:,} clocks from start to start. Its file "
        f"has {JPEG_BYTES / 1000:.0f} KB. The clock is {mhz} MHz.\n\n"
    )
    return image + markdown(f"launch | images/s of a CU | CUs for {TARGET_IMAGES_PER_S:,} images/s | {heads}", rows)


def card_cus() -> str:
    """Return how many image CUs each resource of a card takes."""
    cu = Cu(CUS["image cu"], MASTERS["image cu"], CYCLES_PER_IMAGE, estimated_mhz("image cu") * 1e6)
    fits = {limit.name: limit.cus for limit in limits(cu, 0.0, JPEG_BYTES, 1) if limit.cus is not None}
    rows = [[name, str(count)] for name, count in sorted(fits.items(), key=lambda item: item[1])]
    usable = f"{100 * USABLE:.0f} % of the cells are taken to be usable. That is an assumption.\n\n"
    return usable + markdown("resource | image CUs", rows, right=1)


def preba() -> str:
    """Return the share of a U55C that PREBA's units take, and ours."""
    cells = reported_cells()
    names = [name for name in PREBA_TABLE_1 if name in cells]
    return markdown(
        "unit | LUT | FF | BRAM | URAM | DSP | PREBA: LUT | PREBA: FF | PREBA: BRAM | PREBA: URAM | PREBA: DSP",
        (
            [
                f"`{name}`",
                *(f"{100 * cells[name][kind] / U55C[kind]:.1f}" for kind in ("lut", "ff", "bram36", "uram", "dsp")),
                *(f"{PREBA_TABLE_1[name][kind]:.1f}" for kind in ("lut", "ff", "bram36", "uram", "dsp")),
            ]
            for name in names
        ),
        right=1,
    )


# ---- errors ----


def audio_errors() -> str:
    """Return the errors of the audio units against float64, as measured on the RTL."""
    return markdown(
        "sound | resample, largest | mel, 99.9 % | mel, largest | normalize, RMS",
        (
            [
                _clip(row["sound"]),
                *(
                    f"{row[name]:.1e}"
                    for name in ("resample_error", "mel_error_999", "mel_error_all", "normalised_rms")
                ),
            ]
            for row in clocks()["audio_cu"]["rows"]
        ),
        right=1,
    )


BOUNDS = (  # test file, constant, what it bounds
    ("hls/test_resample.py", "ERROR", "`resample`: largest error of a sample of full scale 1"),
    ("hls/test_mel.py", "ERROR_999", "`mel`: error of 99.9 % of the points that lie 3 or more above the floor"),
    ("hls/test_mel.py", "ERROR_HIGH", "`mel`: largest error of these points"),
    ("hls/test_mel.py", "ERROR_ALL", "`mel`: largest error of all points, those near the floor included"),
    ("hls/test_mel.py", "WHISPER_999", "`mel`: error of 99.9 % of the features of Whisper"),
    ("hls/test_mel.py", "WHISPER_ALL", "`mel`: largest error of the features of Whisper"),
    ("hls/test_mel.py", "KALDI_999", "`mel`: error of 99.9 % of the points of Kaldi's plans and Phi-4's, to 60 dB"),
    ("hls/test_mel.py", "KALDI_ALL", "`mel`: largest error of these points"),
    ("hls/test_audio_norm_cu.py", "ERROR_FLOAT32", "`mel_normalize`: RMS error, float32"),
    ("hls/test_audio_norm_cu.py", "ERROR_FLOAT16", "`mel_normalize`: RMS error, float16"),
)


def constant(file: Path, name: str) -> float:
    """Return a number that a test file defines at its top. Raises KeyError if there is none."""
    for statement in ast.parse(file.read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return float(ast.literal_eval(value))
    raise KeyError(f"{file.name} has no constant {name}")


def audio_bounds() -> str:
    """Return the bounds that the tests of the audio units assert."""
    rows = [[text, f"{constant(TESTS / file, name):g}", f"`tests/{file}`"] for file, name, text in BOUNDS]
    return markdown("what | bound | asserted in", rows)


# ---- proofs ----


@cache
def formal() -> dict[str, Any]:
    """Return what came of the proofs of hls/formal."""
    found: dict[str, Any] = json.loads(FORMAL.read_text())
    return found


def proofs() -> str:
    """Return the proved properties of each module, without the helpers."""
    rows = (
        [
            f"`{proof['name']}`" if number == 0 else "",
            f"`{name}`",
            proof["method"],
            state,
            f"{proof['cpu_s']:.1f}" if number == 0 else "",
        ]
        for proof in formal()["proofs"]
        for number, (name, state) in enumerate(
            (name, state) for name, state in proof["properties"].items() if name.startswith("a_")
        )
    )
    return markdown("proof | property | method | result | seconds, of the whole proof", rows)


def proof_summary() -> str:
    """Return the number of properties, helpers, covers, mutants and seconds as a sentence, and the assumptions."""
    each = formal()["proofs"]
    names = [name for proof in each for name in proof["properties"]]
    helpers = sum(name.startswith("h_") for name in names)
    mutants = formal()["mutants"]
    seconds = sum(row["cpu_s"] for row in (*each, *mutants))
    caught = sum(row["clock"] is not None for row in mutants)
    text = (
        f"{len(names) - helpers} properties and {helpers} helpers are proved, "
        f"{sum(len(proof['covers']) for proof in each)} covers are reached, and {caught} of {len(mutants)} mutants are "
        f"caught, in {seconds:.0f} seconds of a processor.\n\n"
    )
    rows = ([f"`{p['name']}`", ", ".join(f"`{name}`" for name in p["assumptions"])] for p in each)
    return text + markdown("proof | assumes", rows)


def proof_mutants() -> str:
    """Return each change of the RTL, and the property that it makes fail."""
    rows = ([f"`{m['proof']}`", m["name"], f"`{m['fails']}`", str(m["clock"])] for m in formal()["mutants"])
    return markdown("proof | change of the RTL | property that fails | in clock", rows)


TABLES: dict[str, Callable[[], str]] = {
    table.__name__: table
    for table in (
        units,
        area,
        routed,
        entropy_loops,
        sources,
        image_clocks,
        image_summary,
        launch_queue,
        sampling_classes,
        sampling_files,
        audio_clocks,
        audio_summary,
        card,
        card_cus,
        preba,
        audio_errors,
        audio_bounds,
        proofs,
        proof_summary,
        proof_mutants,
    )
}


def filled(text: str) -> str:
    """Return a page with its tables as they are now. Raises KeyError for an unknown table."""
    return MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for name in PAGES:
        page = ROOT / name
        text = page.read_text()
        if not check:
            page.write_text(filled(text))
        elif filled(text) != text:
            sys.exit(f"{name} has old tables: run scripts/units_reference.py")


if __name__ == "__main__":
    main()
