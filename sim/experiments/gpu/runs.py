"""Compare the slice model of whole GPUs with measured kernels, half of which were held out of its fit.

The figures are "products" and "attention" (the slice model's errors by size), "between" (what the tables' interpolation
misses if a size is left out), and "shares" (which part of each network's time is measured)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.experiments.gpu import plots, tables
from headrace.sim.experiments.gpu.kernels import PRODUCT, Sample, attention_sample, product_sample
from headrace.sim.experiments.gpu.rows import LeftOut, Modelled, Share
from headrace.sim.hardware.gpu.kernels import FITTED, Floats
from headrace.sim.hardware.gpu.tables import (
    BY_LOGARITHMS,
    FOLDERS,
    KINDS_OF_ATTENTION,
    attention_table,
    between,
    product_table,
)
from headrace.sim.hardware.settings import MEASURED_GPUS, MeasuredGpu
from headrace.sim.machine import measured_nodes, measured_share, usual_length
from headrace.sim.zoo.traced import TRACED

PRODUCTS, ATTENTION, BETWEEN, SHARES = "products", "attention", "between", "shares"
HALVES: Final = ("fitted", "held out")
# The upper ends of the classes of sizes: rows of a product, and keys of attention.
ROWS: Final = (16, 64, 256, 1024, 1 << 20)
KEYS: Final = (128, 1024, 4096, 1 << 20)
LINES, LOGARITHMS = "lines", "logarithms"
BATCHES: Final = (1, 32)


@dataclass(frozen=True, slots=True)
class Scale:
    """How many kernels of each table are compared; None for all."""

    kernels: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    figure: str
    gpu: str
    kernel: str
    scale: Scale


def jobs_for(figure: str, scale: Scale) -> Sequence[Job]:
    kernels = {
        PRODUCTS: (PRODUCT,),
        ATTENTION: KINDS_OF_ATTENTION,
        BETWEEN: (PRODUCT, *KINDS_OF_ATTENTION),
        SHARES: TRACED,
    }
    return [Job(figure, gpu, kernel, scale) for gpu in FOLDERS for kernel in kernels[figure]]


def run_job(job: Job) -> list[Modelled | LeftOut | Share]:
    """Return the rows of a job. There are none if the GPU lacks such a table. Raises UsageError without the tables."""
    if job.figure == SHARES:
        return list(shares(job.gpu, job.kernel))
    if job.figure == BETWEEN:
        return list(products_left_out(job.gpu) if job.kernel == PRODUCT else attention_left_out(job.gpu, job.kernel))
    sample = product_sample(job.gpu) if job.kernel == PRODUCT else attention_sample(job.gpu, job.kernel)
    if sample is None:
        return []
    if job.scale.kernels is not None:
        sample = sample.some(job.scale.kernels)
    return list(modelled(sample, ROWS if job.kernel == PRODUCT else KEYS))


def modelled(sample: Sample, ends: Sequence[int]) -> list[Modelled]:
    """Return the errors of the slice model, for each half and each class of sizes up to one of `ends`."""
    found = []
    for half, part in zip(HALVES, (sample.fitted(), sample.held_out()), strict=True):
        work = part.work()
        ratios, before = part.ratios(work=work), part.ratios(FITTED, work)
        classes = [("all", np.ones(len(ratios), dtype=np.bool_))]
        for low, high in zip((0, *ends), ends, strict=False):
            name = f"{low + 1} to {high}" if high != ends[-1] else f"above {low}"
            classes.append((name, (part.sizes > low) & (part.sizes <= high)))
        for name, chosen in classes:
            if chosen.any():
                own = ratios[chosen]
                p10, ratio, p90 = (float(each) for each in np.quantile(own, (0.1, 0.5, 0.9)))
                error, old = (float(np.median(np.abs(1 / each - 1))) for each in (own, before[chosen]))
                count = int(chosen.sum())
                found.append(Modelled(sample.gpu, sample.kind, name, half, count, error, old, ratio, p10, p90))
    return found


def products_left_out(gpu: str) -> list[LeftOut]:
    """Return what interpolation misses of products, along each axis."""
    table = product_table(gpu)
    found = []
    for place, (name, axis) in enumerate((("m", table.m), ("n", table.n), ("k", table.k))):
        grid = np.moveaxis(table.grid, place, -1)
        errors = [_errors(grid, axis, logarithms).ravel() for logarithms in (False, True)]
        found.append(_left_out(gpu, PRODUCT, name, *errors, used=LINES))
    return found


def attention_left_out(gpu: str, kind: str) -> list[LeftOut]:
    """Return what interpolation misses of attention with 64 or 128 elements a head, along heads and keys."""
    of_heads: tuple[list[Floats], list[Floats]] = ([], [])
    of_keys: tuple[list[Floats], list[Floats]] = ([], [])
    for head in (64, 128):
        table = attention_table(gpu, kind, head)
        if table is None:
            continue
        for sizes, seconds in table.curves.values():
            for errors, logarithms in zip(of_heads, (False, True), strict=True):
                errors.append(_errors(seconds, sizes, logarithms))
        for low, at, high in zip(table.keys, table.keys[1:], table.keys[2:], strict=False):
            sizes, seconds = table.curves[at]
            inside = sizes <= min(table.curves[low][0][-1], table.curves[high][0][-1])
            before, after = table.at(low, sizes[inside]), table.at(high, sizes[inside])
            for errors, logarithms in zip(of_keys, (False, True), strict=True):
                guess = between(low, before, high, after, at, logarithms=logarithms)
                errors.append(np.abs(guess / seconds[inside] - 1))
    if not of_keys[0]:
        return []
    used = LOGARITHMS if kind in BY_LOGARITHMS else LINES
    return [
        _left_out(gpu, kind, "heads", *(np.concatenate(errors) for errors in of_heads), used=LINES),
        _left_out(gpu, kind, "keys", *(np.concatenate(errors) for errors in of_keys), used=used),
    ]


def _errors(values: Floats, axis: Floats, logarithms: bool) -> Floats:
    """Return |interpolated / measured - 1| of all but the ends of the last axis, each from its two neighbours."""
    if len(axis) < 3:
        return np.zeros(0)
    x, y = (np.log(axis), np.log(values)) if logarithms else (axis, values)
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    guess = (1 - share) * y[..., :-2] + share * y[..., 2:]
    return np.abs((np.exp(guess) if logarithms else guess) / values[..., 1:-1] - 1)


def _left_out(gpu: str, kernel: str, axis: str, lines: Floats, logarithms: Floats, *, used: str) -> LeftOut:
    chosen = lines if used == LINES else logarithms
    medians = float(np.median(lines)), float(np.median(logarithms))
    return LeftOut(gpu, kernel, axis, len(lines), *medians, used, float(np.quantile(chosen, 0.9)))


def shares(gpu: str, network: str) -> list[Share]:
    """Return where the time of a network's kernels comes from, by batch."""
    hardware = MeasuredGpu(next(name for name, known in MEASURED_GPUS.items() if known == gpu))
    length = usual_length(network, hardware)
    found = []
    for batch in BATCHES:
        nodes = measured_nodes(network, hardware, batch, length)
        seconds = sum(node.tables_s + node.bytes_s + node.modelled_s for node in nodes)
        found.append(Share(gpu, network, length, batch, seconds, **measured_share(nodes)))
    return found


def report(figure: str, rows: Sequence[Modelled | LeftOut | Share], folder: Path) -> Report:
    lines: Iterable[str]
    match figure:
        case "between":
            lines = tables.left_out([row for row in rows if isinstance(row, LeftOut)])
        case "shares":
            lines = tables.shares([row for row in rows if isinstance(row, Share)])
        case _:
            found = [row for row in rows if isinstance(row, Modelled)]
            lines = tables.modelled(figure, found)
            plots.predicted(folder / f"{figure}.png", found)
    return Report({figure: rows}, tables=list(lines))


EXPERIMENT = Experiment(
    name="gpu",
    source="a study of this project",
    figures=(PRODUCTS, ATTENTION, BETWEEN, SHARES),
    full=Scale(),
    quick=Scale(2000),
    jobs=jobs_for,
    run=run_job,
    row_types=(Modelled, LeftOut, Share),
    report=report,
    describe=lambda jobs: f"{len(jobs)} tables of kernels and networks",
)
