"""An estimate of the dynamic energy of a photo and of a second of sound, from the toggles of the simulated RTL.

    .venv/bin/python -m benchmarks.energy [--images FOLDER] [--audio FOLDER] [--varied 3] [--clips 5] [--json [FILE]]

The RTL of the three compute units runs on photos and on real speech. Verilator counts how often each bit toggles
(SAIF). Each unit below a compute unit has an average for the bits of its registers and one for all other bits. Its
cells are those that Yosys reports (sim/system/yosys_cells.csv), and benchmarks/energy_model.py has the energy of a
cell. So the result is an estimate, given as a range. Nothing was measured on a card, and nothing was routed.

Photos are those of the demo at 500x375, through decode, resize, crop and normalize. All go at 4:2:0 and quality 90, and
the first `--varied` also in the other encodings. Sounds are the `--clips` shortest ones of a folder, FLAC or WAV, with
its rates in turn; by default those of the tests' speech. The energy of memory, of PCIe and of the card's shell is not
included. Static power has a column of its own.

"core" is the CPU time of the same work by the CPU path, best of three, on this machine's core. Its energy assumes the
power of a core of an EPYC 7502 at full load (sim/hardware/gpu/power.py).
"""

import argparse
import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import soundfile

from benchmarks.audio_cu import wav
from benchmarks.energy_model import (
    GLITCHES,
    JOULES,
    NOTHING,
    REPORTS,
    STATIC_W,
    VECTORLESS,
    Activity,
    Range,
    dynamic_joules,
)
from benchmarks.harness import ROOT, Report, arguments, main, progress, table
from benchmarks.image_cu import PROGRESSIVE, cut, encode, image_files
from headrace.batching import HeadraceError, UsageError
from headrace.bitstreams.build import build_hw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.reference import audio, image
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.xrt import emulation
from headrace.host.xrt.hw_emu import CLOCK_MHZ
from headrace.sim.hardware.gpu.power import CPU
from headrace.sim.system.card import U55C, reported_cells

ENCODINGS = (("4:2:0", 90), ("4:2:0", 75), ("4:4:4", 90), (PROGRESSIVE, 90))
SPEECH = ROOT / "tests" / "host" / "dpu" / "speech"
CORES = 32  # of the EPYC 7502 whose power sim/hardware/gpu/power.py has
CALLS = 3
REST = "rest"
GENERATED = "gen_"  # begins the name of each generate block of the project
# Module of the report by the instance in each compute unit. What lies in none of them is the rest.
UNITS: Mapping[str, Mapping[tuple[str, ...], str]] = {
    "image_cu": {
        ("u_decode",): "decode",
        ("u_decode", "u_bands"): "progressive_decoder",
        ("u_resize",): "resize",
        ("u_crop",): "crop",
        ("u_scaler",): "scaler",
        ("u_normalize",): "normalize",
        ("u_patches",): "patches",
    },
    "audio_mel_cu": {("u_wav",): "wav", ("u_resample",): "resample", ("u_mel",): "mel"},
    "audio_norm_cu": {("u_normalize",): "mel_normalize"},
}
REGISTER = re.compile(r"_q\d*$")
NET = re.compile(r"\((\S+) \(T0 \d+\) \(T1 \d+\).*\(TC (\d+)\)\)$")
CLOCKS_AND_RESETS = re.compile(r"^(ap_)?(clk|rst)")


# ---- toggles ----


@dataclass(slots=True)
class Toggles:
    """The bits of a unit and how often they toggled in a run: those of registers, and all others."""

    bits: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    counts: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})

    def activity(self, clocks: int) -> Activity:
        """Return the toggles a bit and a clock."""
        rates = {kind: self.counts[kind] / max(1, self.bits[kind]) / clocks for kind in (True, False)}
        return Activity(registers=rates[True], nets=rates[False])


def read_saif(lines: Iterable[str], kernel: str) -> tuple[int, dict[str, Toggles]]:
    """Return the clocks of a run and the toggles of each unit of a compute unit.

    A bit belongs to a register if its name ends in _q, as all registers of this project do. Elements of arrays that are
    no registers are memories, and do not count. A net that passes ports of several modules counts in each.
    """
    found: dict[str, Toggles] = defaultdict(Toggles)
    clocks, path = 0, []
    for line in lines:
        text = line.strip()
        if text.startswith("(INSTANCE "):
            path.append(text.split()[1])
        elif text == "(NET":
            path.append("")  # closed by a bracket of its own, as an instance is
        elif text == ")":
            if path:
                path.pop()
        elif match := NET.match(text):
            name, count = re.sub(r"\\\[\d+\\\]$", "", match[1]), int(match[2])
            if kernel not in path:
                continue
            if CLOCKS_AND_RESETS.match(name):
                clocks = max(clocks, count // 2)
                continue
            base, array = re.sub(r"(\[\d+\])+$", "", name), name.endswith("]")
            register = REGISTER.search(base) is not None
            if array and not register:
                continue
            toggles = found[unit_of(path[path.index(kernel) + 1 :], kernel)]
            toggles.bits[register] += 1
            toggles.counts[register] += count
    return clocks, dict(found)


def unit_of(path: Sequence[str], kernel: str) -> str:
    """Return the unit that an instance lies in: the innermost of UNITS on its path.

    The path may have generate blocks, which UNITS does not name."""
    instances = tuple(part for part in path if not part.startswith(GENERATED))
    inside = [place for place in UNITS[kernel] if instances[: len(place)] == place]
    return UNITS[kernel][max(inside, key=len)] if inside else REST


Cells = Mapping[str, Mapping[str, Mapping[str, float]]]  # by compute unit, unit and kind


def cells_of(kernel: str) -> dict[str, dict[str, float]]:
    """Return the cells of each unit of a compute unit, each cell in one unit only."""
    reported, units = reported_cells(), UNITS[kernel]
    own = {name: {kind: reported[name][kind] for kind in U55C} for name in (*units.values(), kernel)}
    for place, name in sorted(units.items(), key=lambda each: -len(each[0])):
        outer = units.get(place[:-1], kernel)
        for kind in U55C:
            own[outer][kind] -= reported[name][kind]
    return {REST if name == kernel else name: cells for name, cells in own.items()}


CELLS: Cells = {kernel: cells_of(kernel) for kernel in UNITS}

# ---- runs ----


@dataclass(frozen=True, slots=True)
class Input:
    """A file, how much it holds (megapixels or seconds of sound) and how it is encoded."""

    name: str
    kind: str
    encoding: str
    amount: float
    data: bytes


def image_inputs(folder: Path | None, others: int) -> list[Input]:
    """Return the photos at 500x375. Raises UsageError if there is none."""
    found = []
    for number, path in enumerate(image_files(folder)):
        own = cv2.imread(str(path), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        if own is None:
            continue
        pixels = cut(own)
        for sampling, quality in ENCODINGS if number < others else ENCODINGS[:1]:
            jpeg = encode(pixels, sampling, quality)
            amount = pixels.shape[0] * pixels.shape[1] / 1e6
            found.append(Input(path.stem, "photo", f"{sampling}, quality {quality}", amount, jpeg))
    if not found:
        raise UsageError("--images: the folder has no photo that OpenCV reads")
    return found


def audio_inputs(folder: Path, count: int) -> list[Input]:
    """Return the shortest sounds of one channel, in turn by rate. Raises UsageError if there is none."""
    by_rate: dict[int, list[Input]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".flac", ".wav"):
            continue
        samples, rate = soundfile.read(path, dtype="int16")
        if samples.ndim == 1 and rate in AudioSpec().rates:
            seconds = len(samples) / rate
            by_rate[rate].append(Input(path.stem, "sound", f"{rate} Hz", seconds, wav(samples, rate)))
    queues = [sorted(each, key=lambda clip: clip.amount) for _, each in sorted(by_rate.items())]
    if not queues:
        raise UsageError(f"--audio {folder}: no FLAC or WAV file with one channel at a rate of the DPU")
    longest = max(map(len, queues))
    turns = [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]
    return turns[:count]


async def simulate(inputs: Sequence[Input], spec: ImageSpec | AudioSpec, xclbin: Path) -> list[dict[str, Any]]:
    """Return a row for each input and compute unit: its clocks, and toggles and joules of its units."""
    rows = []
    async with Dpu(xclbin, spec) as dpu:
        kernels = {name: name.rpartition("_")[0] for name in dpu.cus}
        for number, given in enumerate(inputs, 1):
            progress(f"{number} of {len(inputs)}: {given.name}, {given.encoding}")
            for name, kernel in kernels.items():
                emulation.trace(emulation.device(0), xclbin.with_name(f"{kernel}.saif"), name)
            await dpu.process(given.data)
            cpu_s = cpu_seconds(given.data, spec)
            for kernel in kernels.values():
                with xclbin.with_name(f"{kernel}.saif").open() as lines:
                    rows.append(row_of(given, kernel, *read_saif(lines, kernel)) | {"cpu_s": cpu_s})
        assert dpu.counters.on_cpu == 0
    return rows


def row_of(given: Input, kernel: str, clocks: int, toggles: Mapping[str, Toggles]) -> dict[str, Any]:
    units = {}
    for unit in CELLS[kernel]:
        if unit not in toggles:
            raise HeadraceError(f"the simulation of {kernel} has no instance of unit {unit!r}; correct UNITS")
        counted = toggles[unit]
        activity = counted.activity(clocks)
        units[unit] = {
            "register_bits": counted.bits[True],
            "register_toggles": activity.registers,
            "net_bits": counted.bits[False],
            "net_toggles": activity.nets,
        }
    return {
        "file": given.name,
        "kind": given.kind,
        "encoding": given.encoding,
        "amount": given.amount,
        "kernel": kernel,
        "clocks": clocks,
        "units": units,
    }


def cpu_seconds(data: bytes, spec: ImageSpec | AudioSpec) -> float:
    """Return the least CPU time of this thread over CALLS calls of the CPU path."""
    found = []
    for _ in range(CALLS):
        began = time.thread_time()
        if isinstance(spec, ImageSpec):
            image.preprocess(data, spec)
        else:
            audio.preprocess(data, spec)
        found.append(time.thread_time() - began)
    return min(found)


# ---- results ----


def by(rows: Sequence[Mapping[str, Any]], cells: Cells, part: Callable[[str, str], str]) -> dict[str, Range]:
    """Return the mean energy of a megapixel or a second over files of one encoding, by `part` of unit and kind of
    cell."""
    amount = sum({row["file"]: row["amount"] for row in rows}.values())
    found: dict[str, Range] = defaultdict(lambda: NOTHING)
    for row in rows:
        for unit, each in row["units"].items():
            activity = Activity(each["register_toggles"], each["net_toggles"])
            name = named(unit, row["kernel"])
            for kind, joules in dynamic_joules(cells[row["kernel"]][unit], activity, row["clocks"]).items():
                found[part(name, kind)] += joules * (1 / amount)
    return dict(found)


def mean_toggles(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the toggles a clock of a bit of a register, and of any other bit, as means over files, by unit."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        for unit, each in row["units"].items():
            found[named(unit, row["kernel"])].append((each["register_toggles"], each["net_toggles"]))
    return {name: [statistics.fmean(column) for column in zip(*each, strict=True)] for name, each in found.items()}


def named(unit: str, kernel: str) -> str:
    return unit if unit != REST else f"{kernel}, {REST}"


def summarise(rows: Sequence[Mapping[str, Any]], cells: Cells) -> list[dict[str, Any]]:
    """Return a row for each encoding: joules a megapixel or a second, by kind of cell and by unit.

    Args:
        rows: Rows of `simulate`, each with `cpu_s`.
        cells: The cells of each unit of each compute unit.
    """
    found = []
    for encoding in dict.fromkeys(row["encoding"] for row in rows):
        chosen = [row for row in rows if row["encoding"] == encoding]
        files = {row["file"]: row for row in chosen}
        amount = sum(row["amount"] for row in files.values())
        clocks = sum(row["clocks"] for row in chosen)
        cells_joules = by(chosen, cells, lambda _, kind: kind)
        dynamic = sum(cells_joules.values(), NOTHING)
        core_s = sum(row["cpu_s"] for row in files.values())
        found.append(
            {
                "kind": chosen[0]["kind"],
                "encoding": encoding,
                "files": len(files),
                "amount": amount,
                "clocks": clocks / amount,
                "joules": dynamic,
                "watts": dynamic * (amount / clocks * CLOCK_MHZ * 1e6),
                "cells": cells_joules,
                "units": by(chosen, cells, lambda unit, _: unit),
                "toggles": mean_toggles(chosen),
                "static_joules": STATIC_W * (clocks / amount / (CLOCK_MHZ * 1e6)),
                "cpu_ms": 1e3 * core_s / amount,
                "cpu_joules": core_s / amount * CPU.busy_w / CORES,
            }
        )
    return found


async def run(options: argparse.Namespace) -> Report:
    images = image_inputs(options.images, options.varied)
    clips = audio_inputs(options.audio or SPEECH, options.clips)
    image_spec, audio_spec = ImageSpec(), AudioSpec()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        xclbin = Path(folder) / "energy.xclbin"
        progress("compiling the RTL: some minutes the first time")
        build_hw_emu(xclbin, image_cus=1, mel_cus=1, norm_cus=1, trace="saif")
        rows = await simulate(images, image_spec, xclbin) + await simulate(clips, audio_spec, xclbin)
    summary = summarise(rows, CELLS)
    figures = {
        "clock_mhz": CLOCK_MHZ,
        "glitches": GLITCHES,
        "vectorless": VECTORLESS,
        "core_w": CPU.busy_w / CORES,
        "static_w": STATIC_W,
        "cell_joules": JOULES,
        "reports": REPORTS,
        "cells": CELLS,
        "summary": summary,
        "files": rows,
    }
    return Report(plain(figures), text_of(summary))


def plain(value: Any) -> Any:
    """Return a value with ranges as [low, high], data classes as dictionaries, and numbers of five digits."""
    if isinstance(value, Range):
        return [plain(value.low), plain(value.high)]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return float(f"{value:.5g}") if isinstance(value, float) else value


def text_of(summary: Sequence[Mapping[str, Any]]) -> str:
    def milli(found: Range) -> str:
        return f"{1e3 * found.low:.2g} to {1e3 * found.high:.2g}"

    energy = table(
        "input | encoding | files | clocks | mJ, dynamic | W at 300 MHz | mJ, static of a card | core ms | core mJ",
        (
            f"{row['kind']} | {row['encoding']} | {row['files']} | {row['clocks']:,.0f} | {milli(row['joules'])}"
            f" | {row['watts'].low:.2g} to {row['watts'].high:.2g} | {milli(row['static_joules'])}"
            f" | {row['cpu_ms']:.2f} | {1e3 * row['cpu_joules']:.1f}"
            for row in summary
        ),
    )
    kinds = table(
        "encoding | " + " | ".join(summary[0]["cells"]),
        (f"{row['encoding']} | {' | '.join(milli(each) for each in row['cells'].values())}" for row in summary),
    )
    units = "\n\n".join(
        table(
            f"{row['encoding']}: unit | mJ",
            (f"{unit} | {milli(each)}" for unit, each in row["units"].items()),
        )
        for row in summary
    )
    return f"""{energy}

All columns but W are for a megapixel of a photo or a second of sound. An estimate: see benchmarks/energy_model.py.

mJ by kind of cell

{kinds}

{units}"""


if __name__ == "__main__":
    parser = arguments(__doc__, varied=3, clips=5)
    parser.add_argument("--images", type=Path, help="a folder of your own; default: those of the demo, as bundled")
    parser.add_argument("--audio", type=Path, help="a folder of FLAC or WAV files; default: the speech of the tests")
    main(parser, run)
