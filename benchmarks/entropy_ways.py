"""Gain of the image CU from other entropy decoders: two files in turn (C-slow), two symbols a clock (speculation).

    .venv/bin/python -m benchmarks.entropy_ways [--images FOLDER] [--latency 120] [--json [FILE]]

Clocks are those of the cycle model, for the photos cut to 500x375 at 4:2:0, resized to 256, cropped to 224x224. Two
files in turn each have every second clock of the entropy decoder, and a request that is alone has no more than that.
Speculation is taken at its best: two symbols in every clock, long codes without another. `none` is a decoder that takes
no time, which shows what the rest of the unit allows.

Levels are the shortest clock period that moving registers over logic can reach. Pan's algorithm in ABC computes them,
with six-input look-up tables as the unit of delay. They are given for the decoder as it is, and with each register
doubled, as two files in turn need it. Registers are not moved over memories, so there could be a level less.
"""

import argparse
import multiprocessing
import os
import re
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import Report, arguments, main, progress, table
from benchmarks.image_cu import CUT, QUALITIES, cases, image_files
from headrace.bitstreams.resources.synthesis import OPTIONS
from headrace.bitstreams.verilate import needed_files, rtl_sources
from headrace.sim.hardware.dpu.image import image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import JpegWork, read_jpeg_work

UNIT = "entropy_decoder"
SAMPLING = "4:2:0"


def _symbols(work: JpegWork, of: Callable[[int], int], of_long: Callable[[int], int]) -> JpegWork:
    return replace(work, symbols=tuple(map(of, work.symbols)), long_codes=tuple(map(of_long, work.long_codes)))


WAYS: dict[str, Callable[[JpegWork], JpegWork]] = {
    "as it is": lambda work: work,
    "two files in turn, one alone": lambda work: _symbols(work, lambda n: 2 * n, lambda n: 2 * n),
    "two symbols a clock": lambda work: _symbols(work, lambda n: -(-n // 2), lambda _: 0),
    "none": lambda work: _symbols(work, lambda _: 0, lambda _: 0),
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


def run(options: argparse.Namespace) -> Report:
    pixels = CUT[0] * CUT[1]
    clocks: dict[str, dict[int, list[int]]] = {way: {quality: [] for quality in QUALITIES} for way in WAYS}
    for case in cases(image_files(options.images)):
        if case.size != "own" and case.sampling == SAMPLING:
            work = read_jpeg_work(case.jpeg)
            for way, of in WAYS.items():
                clocks[way][case.quality].append(image_cu_cycles(of(work), latency=options.latency))
    progress("levels")
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        periods = dict(zip(("as it is", "every register doubled"), processes.map(shortest_period, (1, 2)), strict=True))
    by_way = [
        " | ".join([way, *(f"{statistics.mean(of) / pixels:.3f} ({max(of) / pixels:.3f})" for of in each.values())])
        for way, each in clocks.items()
    ]
    levels = [f"{name} | {levels} | {registers:,}" for name, (levels, registers) in periods.items()]
    text = table(" | ".join(["clocks a pixel, mean (worst)", *(f"q{quality}" for quality in QUALITIES)]), by_way)
    text += f"\n\n{table(f'{UNIT}, registers moved | levels | registers', levels)}"
    return Report({"latency": options.latency, "clocks": clocks, "periods": periods}, text)


if __name__ == "__main__":
    parser = arguments(__doc__, latency=120)
    parser.add_argument("--images", type=Path, help="a folder of photos in place of the bundled ones")
    main(parser, run)
