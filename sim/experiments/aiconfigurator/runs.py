"""Predict measured servers from measured operators: times per output token and to the first token.

The figures are:

- "classes": all rows that can be predicted, by server, model, GPU and precision, with nothing fitted
- "causes": why some classes are missed, as the same rows with one change of the model
- "host": the host's time for a request of a step, chosen on some rows and tried on the others (host_time.py)
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.architecture import named
from headrace.sim.decoding.latency import StepLatency
from headrace.sim.decoding.simulation import simulate_decoding
from headrace.sim.experiments.aiconfigurator import plots, tables
from headrace.sim.experiments.aiconfigurator.causes import CAUSES, Cause
from headrace.sim.experiments.aiconfigurator.host_time import GRID_US, ROTATIONS, folds, stable
from headrace.sim.experiments.aiconfigurator.rows import ALL, NO_DYNAMO, Count, Errors, GridPoint, HeldOut, Predicted
from headrace.sim.experiments.aiconfigurator.samples import (
    DYNAMO,
    Sample,
    Samples,
    Setting,
    policy_of,
    read_samples,
    setting_of,
)
from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.hardware.gpu.tables import BACKENDS, SGLANG, TENSORRT_LLM

CLASSES, BY_CAUSE, HOST = "classes", "causes", "host"
ROUNDS: Final = 10  # requests of each user, as in InferenceMAX
SEED: Final = 0
BLOCK: Final = 16  # tokens of a block of the KV cache
NEAR: Final = 0.1
RATES: Final = (5_000.0, 12_000.0)  # tokens a second, which part the rows
_NO_CAUSE: Final = Cause("", lambda sample: True)


@dataclass(frozen=True, slots=True)
class Scale:
    """How many rows of each class are predicted; None for all."""

    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A class of rows, with the host's time for each request of a step.

    `cause` is a name of CAUSES, or empty; a job without a class counts what is left out."""

    source: str
    backend: str
    model: str
    gpu: str
    precision: str
    cause: str
    scale: Scale
    host_request_us: float = 0.0


@cache
def samples() -> Samples:
    """Return the measured rows, read once. Raises UsageError if the package is missing."""
    return read_samples()


def jobs_for(figure: str, scale: Scale) -> Sequence[Job]:
    rows = samples().rows
    if figure == CLASSES:
        return [Job("", "", "", "", "", "", scale), *_classes(rows, "", scale)]
    if figure == HOST:
        fitted = [row for row in rows if row.backend in (SGLANG, TENSORRT_LLM) and row.source != DYNAMO]
        return [replace(job, host_request_us=us) for us in GRID_US for job in _classes(fitted, "", scale)]
    jobs = _classes([row for row in rows if any(cause.tried_on(row) for cause in CAUSES.values())], "", scale)
    for name, cause in CAUSES.items():
        jobs += _classes([row for row in rows if cause.tried_on(row)], name, scale)
    return jobs


def _classes(rows: Sequence[Sample], cause: str, scale: Scale) -> list[Job]:
    """Return a job for each class of the rows."""
    jobs = (Job(row.source, row.backend, row.model, row.gpu, row.precision, cause, scale) for row in rows)
    return list(dict.fromkeys(jobs))


def run_job(job: Job) -> list[Predicted | Count]:
    """Return the rows of a job. Raises UsageError without the tables."""
    if not job.source:
        return [Count(reason, count) for reason, count in samples().left_out.items()]
    wanted = (job.source, job.backend, job.model, job.gpu, job.precision)
    cause = CAUSES[job.cause] if job.cause else _NO_CAUSE
    rows = [
        row
        for row in samples().rows
        if (row.source, row.backend, row.model, row.gpu, row.precision) == wanted and cause.tried_on(row)
    ]
    every = 1 if job.scale.rows is None else max(1, len(rows) // job.scale.rows)
    return [predicted(row, job.cause, job.host_request_us) for row in rows[::every][: job.scale.rows]]


def predicted(sample: Sample, name: str = "", host_request_us: float = 0.0) -> Predicted:
    """Return a measured row with its prediction, or with why there is none. `name` is one of CAUSES, or empty."""
    cause = CAUSES[name] if name else _NO_CAUSE
    setting = setting_of(sample)
    failure, ttft_ms, tpot_ms = "", 0.0, 0.0
    try:
        tables = cause.tables or sample.backend
        steps = _steps(sample.model, sample.gpu, tables, sample.tp, sample.ep, setting, host_request_us)
        ttft_ms, tpot_ms = _times(sample, setting, steps, cause)
    except UsageError as error:
        failure = str(error)
    return Predicted(
        sample.source,
        sample.backend,
        sample.model,
        sample.gpu,
        sample.precision,
        sample.prompt,
        sample.output,
        sample.requests,
        sample.tp,
        sample.ep,
        1e3 * sample.ttft_s,
        1e3 * sample.tpot_s,
        ttft_ms,
        tpot_ms,
        failure,
        name,
        host_request_us,
    )


def _times(sample: Sample, setting: Setting, steps: StepLatency, cause: Cause) -> tuple[float, float]:
    """Return the mean times (ms) to the first token and for each further one. Raises UsageError if a request does not
    fit the KV cache."""
    kv_tokens, tokens = steps.kv_tokens(), sample.prompt + sample.output
    if tokens > kv_tokens:
        raise UsageError(
            f"a request has {tokens} tokens, and the KV cache holds {kv_tokens}; choose more GPUs, or a smaller "
            "precision"
        )
    result = simulate_decoding(
        requests_of(sample, setting),
        CachedPrompts(steps) if cause.cached else steps,
        kv_blocks=kv_tokens // BLOCK,
        block_size=BLOCK,
        policy=policy_of(sample) if cause.policy is None else cause.policy(sample),
        users=sample.requests,
    )
    ttft_ms, tpot_ms = result.ttft_ms["mean"], result.tpot_ms["mean"]
    assert ttft_ms is not None and tpot_ms is not None
    return ttft_ms, tpot_ms


def requests_of(sample: Sample, setting: Setting) -> Iterator[StepRequest]:
    """Yield the requests of all users. Lengths are uniform up to the nominal ones. An output has 2 tokens or more."""
    draw = random.Random(SEED)
    for number in range(sample.requests * ROUNDS):
        prompt, output = (
            draw.randint(int(setting.shortest * nominal), nominal) for nominal in (sample.prompt, sample.output)
        )
        yield StepRequest(number, 0.0, prompt, max(2, output))


class CachedPrompts:
    """The latency of steps whose prompts take the time of their last token alone."""

    def __init__(self, steps: StepLatency) -> None:
        self._steps = steps

    def seconds(self, prefill: Sequence[tuple[int, int]], decode_requests: int, decode_context_tokens: int) -> float:
        """Return the duration (s) of one step."""
        last = [(1, before + new - 1) for new, before in prefill]
        return self._steps.seconds(last, decode_requests, decode_context_tokens)


@cache
def _steps(
    model: str, gpu: str, backend: str, tp: int, ep: int, setting: Setting, host_request_us: float
) -> StepLatency:
    return StepLatency(
        named(model),
        gpu,
        backend,
        tp=tp,
        products=setting.products,
        keys=setting.keys,
        experts=setting.experts,
        ep=ep,
        host_request_s=host_request_us / 1e6,
    )


def errors(rows: Sequence[Predicted], cause: str = "", **names: str) -> Errors:
    """Return the errors of rows as those of one class. `names` says what the class is called; other parts are ALL."""
    ratios = np.array([row.tpot_ratio for row in rows if not row.failure])
    firsts = np.array([row.ttft_ratio for row in rows if not row.failure])
    off, off_first = np.abs(ratios - 1), np.abs(firsts - 1)
    some = len(ratios) > 0
    p10, ratio, p90 = np.quantile(ratios, (0.1, 0.5, 0.9)).tolist() if some else (0.0, 0.0, 0.0)
    return Errors(
        source=names.get("source", ALL),
        backend=names.get("backend", ALL),
        model=names.get("model", ALL),
        gpu=names.get("gpu", ALL),
        precision=names.get("precision", ALL),
        rows=len(ratios),
        failed=len(rows) - len(ratios),
        tpot=float(off.mean()) if some else 0.0,
        tpot_median=float(np.median(off)) if some else 0.0,
        within=float((off <= NEAR).mean()) if some else 0.0,
        ratio=ratio,
        p10=p10,
        p90=p90,
        ttft=float(off_first.mean()) if some else 0.0,
        ttft_ratio=float(np.median(firsts)) if some else 0.0,
        cause=cause,
    )


def by_class(rows: Sequence[Predicted]) -> list[Errors]:
    """Return the errors of each class: source, server, model, GPU and precision."""
    classes: dict[tuple[str, ...], list[Predicted]] = {}
    for row in rows:
        classes.setdefault((row.backend, row.model, row.gpu, row.precision, row.source, row.cause), []).append(row)
    return [
        errors(found, cause, backend=backend, model=model, gpu=gpu, precision=precision, source=source)
        for (backend, model, gpu, precision, source, cause), found in sorted(classes.items())
    ]


def by_server(rows: Sequence[Predicted]) -> list[Errors]:
    """Return the errors by server, and of the two servers of the goal together: of all rows, and without Dynamo's."""
    servers = {"TensorRT-LLM and SGLang": (TENSORRT_LLM, SGLANG), **{name: (name,) for name in BACKENDS}}
    found = []
    for name, chosen in servers.items():
        of_server = [row for row in rows if row.backend in chosen]
        alone = [row for row in of_server if row.source != DYNAMO]
        found.append(errors(of_server, backend=name))
        if len(alone) < len(of_server):
            found.append(errors(alone, backend=name, source=NO_DYNAMO))
    return found


def by_rate(rows: Sequence[Predicted]) -> list[Errors]:
    """Return the errors of each server by the measured tokens a second, without Dynamo's rows."""
    found = []
    for backend in BACKENDS:
        for low, high in pairwise((0.0, *RATES, math.inf)):
            words = f"{low:,.0f} to {high:,.0f}" if high < math.inf else f"{low:,.0f} and more"
            chosen = [row for row in rows if row.backend == backend and low <= row.tokens_per_s < high]
            found.append(errors([row for row in chosen if row.source != DYNAMO], words, backend=backend))
    return found


def with_causes(rows: Sequence[Predicted]) -> list[Errors]:
    """Return the errors of each class that a cause is tried on, without the change and with it."""
    found = []
    for name, cause in CAUSES.items():
        changed = [row for row in rows if row.cause == name]
        for key in dict.fromkeys((row.backend, row.model, row.gpu, row.precision) for row in changed):
            of_class = [row for row in rows if (row.backend, row.model, row.gpu, row.precision) == key]
            parts = dict(zip(("backend", "model", "gpu", "precision"), key, strict=True))
            for kept, words in (("", ""), (name, cause.words)):
                found.append(errors([row for row in of_class if row.cause == kept], words, **parts))
    return found


def held_out(rows: Sequence[Predicted]) -> list[HeldOut]:
    """Return the errors of each fold of each server, and those of all folds of a rotation together.

    `rows` has each measured row with each number of GRID_US."""
    found = []
    for backend in dict.fromkeys(row.backend for row in rows):
        own = [row for row in rows if row.backend == backend]
        of_backend = folds(own)
        for rotation, part_of in ROTATIONS.items():
            mine = [fold for fold in of_backend if fold.rotation == rotation]
            if not mine:
                continue
            agree = stable([fold.chosen_us for fold in mine])
            parts: list[tuple[str, float | str, tuple[Predicted, ...]]] = [
                *((fold.held_out, fold.chosen_us, fold.held) for fold in mine),
                (ALL, "", tuple(row for fold in mine for row in fold.held)),
            ]
            for part, us, held in parts:
                before = [row for row in own if row.host_request_us == 0 and part in (ALL, part_of(row))]
                of = errors(held)
                found.append(
                    HeldOut(
                        backend,
                        rotation,
                        part,
                        us,
                        agree,
                        of.rows,
                        of.failed,
                        errors(before).tpot,
                        of.tpot,
                        of.tpot_median,
                        of.within,
                        of.ratio,
                        of.p10,
                        of.p90,
                    )
                )
    return found


def report(figure: str, rows: Sequence[Predicted | Count], folder: Path) -> Report:
    found = [row for row in rows if isinstance(row, Predicted)]
    if figure == BY_CAUSE:
        changed = with_causes(found)
        return Report({BY_CAUSE: changed}, tables=tables.causes(changed))
    if figure == HOST:
        held = held_out(found)
        grid = [
            GridPoint(backend, us, errors([r for r in found if (r.backend, r.host_request_us) == (backend, us)]).tpot)
            for backend in (SGLANG, TENSORRT_LLM)
            for us in GRID_US
        ]
        return Report({"held_out": held, "grid": grid}, tables=[*tables.held_out(held), *tables.grid(grid)])
    classes = by_class(found)
    servers = by_server(found)
    counts = [row for row in rows if isinstance(row, Count)]
    failures = [row for row in found if row.failure]
    rates = by_rate(found)
    plots.ratios(folder / f"{figure}.png", classes)
    lines = [
        *tables.servers(servers),
        *tables.classes(classes),
        *tables.rates(rates),
        *tables.failures(failures),
        *tables.left_out(counts),
    ]
    return Report(
        {"predicted": found, "servers": servers, figure: classes, "rates": rates, "left_out": counts}, tables=lines
    )


EXPERIMENT = Experiment(
    name="aiconfigurator",
    source="the measured servers of the package aiconfigurator-core",
    figures=(CLASSES, BY_CAUSE, HOST),
    full=Scale(),
    quick=Scale(3),
    jobs=jobs_for,
    run=run_job,
    row_types=(Predicted, Count),
    report=report,
    describe=lambda jobs: f"{len(jobs)} classes of measured servers",
)
