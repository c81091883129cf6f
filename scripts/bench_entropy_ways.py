#!/usr/bin/env python3
"""What other entropy decoders would give the image CU: two files in turn (C-slow), two symbols a clock (speculation).

    .venv/bin/python scripts/bench_entropy_ways.py [--photos FOLDER] [--latency 120] [--json FILE]

Clocks are those of the cycle model, for the photos cut to 500x375 at 4:2:0, resized to 256, cropped to 224x224. Of two
files in turn each has every second clock of the entropy decoder, and a request that is alone has no more than that;
speculation is taken at its best: two symbols in every clock, long codes without another. `none` is a decoder that takes
no time: what the rest of the unit allows.

Levels are those of the shortest clock period that registers moved over logic can reach (Pan's algorithm in ABC, with
six-input look-up tables as the unit of delay): of the decoder as it is, and with each of its registers doubled, which
is what two files in turn means. Registers are not moved over memories, so there could be a level less.
"""

import argparse
import json
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench_image_cu import CUT, QUALITIES, cases

from headrace.bitstreams.resources.synthesis import OPTIONS
from headrace.bitstreams.verilate import needed_files, rtl_sources
from headrace.host.demo.inputs.images import bundled_images
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

# Two registers in a row; named otherwise until all are done, so that none is doubled twice.
DOUBLED = """
(* techmap_celltype = "$_DFF_P_" *) module doubled(input C, input D, output Q);
  wire between;
  \\$__DFF first(.C(C), .D(D), .Q(between));
  \\$__DFF second(.C(C), .D(between), .Q(Q));
endmodule
"""


def shortest_period(copies: int) -> tuple[int, int]:
    """Levels of the shortest period, and registers, with `copies` registers (1 or 2) in place of each."""
    from pyosys import libyosys  # prints to stdout, and ends the process at an error: hence one of its own

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, help="a folder of photos in place of the bundled ones")
    parser.add_argument("--latency", type=int, default=120, help="clocks to the first word of memory")
    parser.add_argument("--json", type=Path, help="all figures, to this file")
    args = parser.parse_args()
    files = sorted(args.photos.iterdir()) if args.photos else bundled_images()
    found = [case for case in cases(files) if case.size != "own" and case.sampling == SAMPLING]
    if not found:
        parser.error(f"--photos {args.photos}: no photo that OpenCV reads")
    pixels = CUT[0] * CUT[1]
    clocks: dict[str, dict[int, list[int]]] = {way: {quality: [] for quality in QUALITIES} for way in WAYS}
    for number, case in enumerate(found, 1):
        print(f"\r{number} of {len(found)} files", end="", file=sys.stderr)
        work = read_jpeg_work(case.jpeg)
        for way, of in WAYS.items():
            clocks[way][case.quality].append(image_cu_cycles(of(work), latency=args.latency))
    print("\nlevels", file=sys.stderr)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        periods = dict(zip(("as it is", "every register doubled"), processes.map(shortest_period, (1, 2)), strict=True))

    print("| clocks a pixel, mean (worst) | " + " | ".join(f"q{quality}" for quality in QUALITIES) + " |")
    print("| --- |" + " ---: |" * len(QUALITIES))
    for way, by_quality in clocks.items():
        row = (f"{statistics.mean(of) / pixels:.3f} ({max(of) / pixels:.3f})" for of in by_quality.values())
        print(f"| {way} | " + " | ".join(row) + " |")
    print(f"\n| {UNIT}, registers moved | levels | registers |\n| --- | ---: | ---: |")
    for name, (levels, registers) in periods.items():
        print(f"| {name} | {levels} | {registers:,} |")
    if args.json:
        args.json.write_text(json.dumps({"latency": args.latency, "clocks": clocks, "periods": periods}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
