#!/usr/bin/env python3
"""GPUs in slices, simulated: where a DPU pays on A100, H100 and H200, every policy on seven slices, equal slices
against unlike ones (see sim/experiments/slices).

    .venv/bin/python scripts/bench_slices.py [--quick] [--out out/slices] [--json]

Prints tables; writes them, CSV files and plots into --out. --quick is a look in some seconds: two networks, two GPUs,
runs too short for their last digits.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from headrace.host.cli.console import Stages, progress
from headrace.sim.experiments.slices.runs import FULL, QUICK, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/slices"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with progress() as shown:
        study = run(QUICK if options.quick else FULL, options.out, Stages(shown))
    print(json.dumps(asdict(study), indent=2) if options.json else "\n".join(study.tables()))


if __name__ == "__main__":
    main()
