"""The clocks of small modules that nextpnr places and routes alone on an ECP5."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness import progress
from headrace.bitstreams.cache_folder import cache_folder
from headrace.bitstreams.resources.report import measure
from headrace.bitstreams.resources.routes import SEEDS, of_seeds, routing

KEPT = ("mhz", "mhz_of_seeds", "cells", "worst_path")


def routed_alone(folder: Path, modules: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return clock, cells and worst path of modules, by name, with the seeds of `headrace build --route ecp5`.

    The row is that of the lower clock. `folder` has the sources."""
    files, names = sorted(folder.glob("*.sv")), list(modules)
    found = []
    for seed in SEEDS:
        progress(f"seed {seed}")
        found.append({name: measure(name, files, cache_folder(), tool=routing(seed)) for name in names})
    rows = {name: of_seeds([each[name] for each in found]) for name in names}
    return {name: {key: row[key] for key in KEPT} for name, row in rows.items()}
