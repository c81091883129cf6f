"""The project's own studies, simulated: goodput by policy, GPUs in slices (sim/experiments/goodput and slices).

    .venv/bin/python -m benchmarks.studies goodput [--requests 20000] [--seeds 3] [--out out/goodput] [--json [FILE]]
    .venv/bin/python -m benchmarks.studies slices [--quick] [--out out/slices] [--json [FILE]]

- goodput: how many requests are in time under each policy, by load. It writes goodput.csv and a plot.
- slices: where a DPU pays on A100, H100 and H200; every policy on seven slices; equal slices and unequal ones. It
  writes tables, CSV files and plots. `--quick` takes some seconds: two networks, two GPUs, and runs too short for their
  last digits.
"""

import argparse
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness import Report, arguments, main
from headrace.host.cli.console import Stages, progress
from headrace.sim.experiments.goodput import runs as goodput
from headrace.sim.experiments.slices import runs as slices


def run(options: argparse.Namespace) -> Report:
    out = options.out or Path("out") / options.study
    with progress() as shown:
        if options.study == "goodput":
            rows = goodput.run(options.requests, options.seeds, out, Stages(shown))
            return Report({"rows": [asdict(row) for row in rows]}, "\n".join(goodput.table(rows)))
        study = slices.run(slices.QUICK if options.quick else slices.FULL, out, Stages(shown))
    return Report(asdict(study), "\n".join(study.tables()))


if __name__ == "__main__":
    parser = arguments(__doc__, requests=20_000, seeds=3)
    parser.add_argument("study", choices=("goodput", "slices"))
    parser.add_argument("--quick", action="store_true", help="of slices")
    parser.add_argument("--out", type=Path, help="default: out/goodput or out/slices")
    main(parser, run)
