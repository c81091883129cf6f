#!/usr/bin/env python3
"""How many requests are in time under each policy, by load: those that know deadlines beside the others, simulated
(see sim/experiments/goodput).

    .venv/bin/python scripts/bench_goodput.py [--requests 20000] [--seeds 3] [--out out/goodput] [--json]

Prints a table; writes goodput.csv and a plot into --out.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from headrace.host.cli.console import Stages, progress
from headrace.sim.experiments.goodput.runs import run, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/goodput"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with progress() as shown:
        rows = run(options.requests, options.seeds, options.out, Stages(shown))
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else "\n".join(table(rows)))


if __name__ == "__main__":
    main()
