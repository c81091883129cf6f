"""Gain of the image CU from other entropy decoders: wider or no tables of pairs, two files in turn (C-slow).

    .venv/bin/python -m benchmarks.entropy_ways [--images FOLDER] [--latency 120] [--json [FILE]]

Clocks are those of the cycle model, for the photos cut to 500x375 at 4:2:0, resized to 256, cropped to 224x224: those
of the entropy decoder by itself, for the whole file, and those of the CU. A decoder that takes two symbols by a look-up
of so many bits has twice the table for each bit more, and a longer look-up. Two files in turn each have every second
clock of the entropy decoder, and a request that is alone has no more than that. `two symbols in every clock` is what no
decoder reaches. `none` is a decoder that takes no time, which shows what the rest of the unit allows.

Levels are the shortest clock period that moving registers over logic can reach. Pan's algorithm in ABC computes them,
with six-input look-up tables as the unit of delay. They are given for the decoder as it is, and with each register
doubled, as two files in turn need it. Registers are not moved over memories, so there could be a level less.
"""

import argparse
import multiprocessing
import os
import re
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean

from benchmarks.harness import Report, arguments, main, progress, table
from benchmarks.image_cu import CUT, QUALITIES, cases, image_files
from headrace.bitstreams.resources.synthesis import OPTIONS
from headrace.bitstreams.verilate import needed_files, rtl_sources
from headrace.sim.hardware.dpu.image import LONG_CODE, image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import JpegWork, read_jpeg_work

UNIT = "entropy_decoder"
SAMPLING = "4:2:0"


def _times(work: JpegWork, factor: int) -> JpegWork:
    """Return the work with each clock of the entropy decoder taken so many times."""
    names = ("symbols", "pairs", "long_codes", "long_singles")
    return replace(work, **{name: tuple(factor * n for n in getattr(work, name)) for name in names})


def _halved(work: JpegWork) -> JpegWork:
    none = (0,) * len(work.symbols)
    symbols = tuple(-(-n // 2) for n in work.symbols)
    return replace(work, symbols=symbols, long_codes=none, pairs=none, splits=none, long_singles=none, ac_tables=())


def entropy_clocks(work: JpegWork) -> int:
    return sum(work.symbols) - sum(work.pairs) + LONG_CODE * sum(work.long_codes)


# Of a file: the bits that tell two symbols, and what is done to the work.
WAYS: dict[str, tuple[int, Callable[[JpegWork], JpegWork]]] = {
    "one symbol a clock": (0, lambda work: work),
    "two files in turn, one alone": (0, lambda work: _times(work, 2)),
    **{f"pairs told by {bits} bits": (bits, lambda work: work) for bits in (6, 7, 8, 9, 10, 11)},
    "two symbols in every clock": (0, _halved),
    "none": (0, lambda work: _times(_halved(work), 0)),
}

# Two registers in a row. They have another name until all are done, so that none is doubled twice.
DOUBLED = """
(* techmap_celltype = "$_DFF_P_" *) module doubled(input C, input D, output Q);
  wire between;
  \\$__DFF first(.C(C), .D(D), .Q(between));
  \\$__DFF second(.C(C), .D(between), .Q(Q));
endmodule
"""


def shortest_period(copies: int) -> tuple[int, int]:
    """Return the levels of the shortest period, and registers, with `copies` registers (1 or 2) in place of each."""
    from pyosys import libyosys  # prints to stdout, and ends the process at an error: hence a process of its own

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    design = libyosys.Design()
    with tempfile.TemporaryDirectory(prefix="headrace-entropy-") as folder:
        log, script = Path(folder) / "log", Path(folder) / "abc"
        (Path(folder) / "doubled.v").write_text(DOUBLED)
        script.write_text("strash; dch -f; if -K 6; retime -M 6; print_stats\n")
        sources = " ".join(map(str, needed_files(UNIT, rtl_sources())))
        commands = [
            f"read_slang --top {UNIT} {sources}",
            f"synth_xilinx {OPTIONS} -nocarry -top {UNIT} -run begin:map_cells",
            "techmap -map +/techmap.v",
            "opt -full",
            "dffunmap",
            "opt_clean",
        ]
        if copies == 2:
            commands += [f"techmap -max_iter 1 -map {folder}/doubled.v", "chtype -set $_DFF_P_ t:$__DFF"]
        commands += ["setattr -unset init *", f"abc -dff -script {script} -lut 6"]
        for command in commands:
            libyosys.run_pass(f"tee -q -a {log} {command}", design)
        text = log.read_text(errors="replace")
    return (
        int(re.findall(r"best clock period is\s+(\d+)", text)[-1]),
        int(re.findall(r"lat =\s*(\d+)", text)[-1]),
    )


def _per_pixel(clocks: list[int]) -> str:
    pixels = CUT[0] * CUT[1]
    return f"{mean(clocks) / pixels:.3f} ({max(clocks) / pixels:.3f})"


def run(options: argparse.Namespace) -> Report:
    clocks: dict[str, dict[int, list[int]]] = {way: {quality: [] for quality in QUALITIES} for way in WAYS}
    alone: dict[str, dict[int, list[int]]] = {way: {quality: [] for quality in QUALITIES} for way in WAYS}
    for case in cases(image_files(options.images)):
        if case.size != "own" and case.sampling == SAMPLING:
            progress(f"{case.image} q{case.quality}")
            for way, (bits, changed) in WAYS.items():
                work = changed(read_jpeg_work(case.jpeg, pair_bits=bits))
                alone[way][case.quality].append(entropy_clocks(work))
                clocks[way][case.quality].append(image_cu_cycles(work, latency=options.latency))
    progress("levels")
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        periods = dict(zip(("as it is", "every register doubled"), processes.map(shortest_period, (1, 2)), strict=True))
    by_way = [
        " | ".join(
            [way, *(f"{mean(of):,.0f}" for of in alone[way].values()), *(_per_pixel(of) for of in each.values())]
        )
        for way, each in clocks.items()
    ]
    levels = [f"{name} | {levels} | {registers:,}" for name, (levels, registers) in periods.items()]
    entropy, whole = ([f"{name}, q{quality}" for quality in QUALITIES] for name in ("entropy", "CU"))
    text = table(" | ".join(["clocks; of the CU, a pixel: mean (worst)", *entropy, *whole]), by_way)
    text += f"\n\n{table(f'{UNIT}, registers moved | levels | registers', levels)}"
    return Report({"latency": options.latency, "entropy": alone, "clocks": clocks, "periods": periods}, text)


if __name__ == "__main__":
    parser = arguments(__doc__, latency=120)
    parser.add_argument("--images", type=Path, help="a folder of photos in place of the bundled ones")
    main(parser, run)
