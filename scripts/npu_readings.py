#!/usr/bin/env python3
"""Compare readings of LazyBatching's NPU with all numbers of the paper.

    .venv/bin/python scripts/npu_readings.py [--quick] [--only "os + vector"]... [--json FILE]

Every reading of `sim/experiments/lazybatching/conditions.py` takes the place of the default NPU in all simulated runs
of `headrace reproduce lazybatching`. The table has the numbers of each reading, and how many lie within 15 % of the
paper. Exit status 0, or 2 if there is no such reading.
"""

import argparse
import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

from headrace.sim.experiments.lazybatching.conditions import NPUS, OF_LAZY, OF_NPU, READINGS
from headrace.sim.experiments.lazybatching.rows import Row
from headrace.sim.experiments.lazybatching.runs import EXPERIMENT, Job, run_job
from headrace.sim.experiments.report import Claim


def jobs_of(quick: bool) -> dict[str, list[Job]]:
    """Return the jobs of each simulated figure."""
    scale = EXPERIMENT.quick if quick else EXPERIMENT.full
    figures = [figure for figure in EXPERIMENT.figures if figure not in EXPERIMENT.measured]
    return {figure: list(EXPERIMENT.jobs(figure, scale)) for figure in figures}


def claims_of(name: str, quick: bool, fixed: dict[Job, list[Row]]) -> list[Claim]:
    """Return all numbers with one reading as the NPU. This changes READINGS, so it needs a process of its own.

    `fixed` has the rows of jobs whose own reading names an NPU."""
    for reading in ("", *OF_LAZY):
        READINGS[reading] = replace(READINGS[reading], npu=NPUS[name])
    jobs = jobs_of(quick)
    own = {job for each in jobs.values() for job in each} - set(fixed)
    rows = fixed | {job: run_job(job) for job in own}
    found: list[Claim] = []
    with tempfile.TemporaryDirectory() as folder:
        for figure, of_figure in jobs.items():
            report = EXPERIMENT.report(figure, [row for job in of_figure for row in rows[job]], Path(folder))
            found.extend(report.claims)
    return found


def table(found: dict[str, list[Claim]]) -> str:
    """Return the comparison as Markdown."""
    names = list(found)
    lines = [f"| figure | what | paper | {' | '.join(names)} |", f"| --- | --- | --- |{' --- |' * len(names)}"]
    counts = [sum(claim.near for claim in claims) for claims in found.values()]
    rows = len(next(iter(found.values())))
    lines.append(f"| | numbers within 15 %, of {rows} | | {' | '.join(map(str, counts))} |")
    for each in zip(*found.values(), strict=True):
        shown = [f"**{claim.shown}**" if claim.near else claim.shown for claim in each]
        lines.append(f"| {each[0].figure} | {each[0].claim} | {each[0].given} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer runs: a minute or two, and not half an hour")
    options.add_argument("--only", action="append", choices=list(NPUS), help="a reading; may be repeated [all]")
    options.add_argument("--json", type=Path, help="a file for all numbers")
    given = options.parse_args()
    names = given.only or list(NPUS)
    found: dict[str, list[Claim]] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        of_npus = {job for each in jobs_of(given.quick).values() for job in each if job.reading in OF_NPU}
        fixed = dict(zip(of_npus, pool.map(run_job, of_npus, chunksize=8), strict=True))
        print(f"npu_readings: {len(fixed)} jobs that all readings share are done", file=sys.stderr, flush=True)
        futures = {pool.submit(claims_of, name, given.quick, fixed): name for name in names}
        for done, future in enumerate(as_completed(futures), 1):
            found[futures[future]] = future.result()
            print(f"npu_readings: {done} of {len(names)}: {futures[future]}", file=sys.stderr, flush=True)
    ordered = {name: found[name] for name in names}
    if given.json is not None:
        body = {name: [{**asdict(claim), "near": claim.near} for claim in ordered[name]] for name in names}
        given.json.write_text(json.dumps(body, indent=2) + "\n")
    print(table(ordered))
    return 0


if __name__ == "__main__":
    sys.exit(main())
