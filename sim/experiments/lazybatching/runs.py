"""The evaluation of LazyBatching (Choi, Kim, Rhu, HPCA 2021, Section VI) on the NPU model.

Every run serves `requests` Poisson arrivals; all policies of a job see the same ones. "Best GraphB" is, at each load,
the window with the lowest mean latency (or highest throughput) there. Averages of ratios are arithmetic means over the
loads and, where it says so, over windows and networks.

The text of the paper that we had names its numbers, but not all of their conditions; where a load, a target or a set of
networks is not given, what was chosen stands in the claim's note.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from headrace.batching.catalog import make_policy
from headrace.batching.graphs.execution import NodeTimes
from headrace.sim.engine import Arrivals
from headrace.sim.experiments.lazybatching import plots
from headrace.sim.experiments.lazybatching.rows import TARGETS_MS, Row, Runs
from headrace.sim.experiments.report import Claim, write_claims, write_rows
from headrace.sim.experiments.sweep import Progress, run_figures
from headrace.sim.hardware.npu import npu_times
from headrace.sim.load.lengths import Lengths, dec_timesteps
from headrace.sim.load.traffic import generate, poisson
from headrace.sim.scenario import usual_lengths
from headrace.sim.simulation import Simulation, simulate
from headrace.sim.zoo import model_graph

FIGURES = ("3", "5", "12", "13", "14", "15", "16", "17")
NETWORKS = ("resnet50", "gnmt", "transformer")
FURTHER_NETWORKS = ("vgg16", "mobilenet_v1", "las", "bert_base")
COLOCATED = "resnet50+gnmt+transformer+mobilenet_v1"
COVERAGE = 0.9


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run. Rates in requests/s, windows in ms."""

    seeds: int
    requests: int
    rates: tuple[int, ...]
    windows: tuple[int, ...]


FULL = Scale(20, 2000, (16, 64, 125, 250, 500, 1000, 2000), tuple(range(5, 96, 10)))
QUICK = Scale(2, 400, (16, 250, 1000), (5, 35, 95))


@dataclass(frozen=True, slots=True)
class Job:
    """One set of arrivals and the policies that serve it: `graph` with each of `windows`, and those in `policies`.

    `model` may be several, joined by +, which then share the NPU."""

    experiment: str
    model: str
    rate_rps: float
    seed: int
    requests: int
    windows: tuple[int, ...]
    policies: tuple[str, ...] = ("lazy",)
    sla_ms: float = 100.0
    max_batch: int = 64
    dec_timesteps: int | None = None  # None: what COVERAGE of the outputs takes


@cache
def _times(model: str) -> NodeTimes:
    return npu_times(model_graph(model))


@cache
def _assumed_steps(model: str) -> int:
    return dec_timesteps(usual_lengths(model), COVERAGE)


def run_job(job: Job) -> list[Row]:
    times = {model: _times(model) for model in job.model.split("+")}
    lengths: dict[str, Lengths] = {model: usual_lengths(model) for model in times}
    steps = {
        model: job.dec_timesteps or _assumed_steps(model) for model in times if len(_times(model).sections.decoder)
    }
    arrivals = generate(poisson(job.rate_rps, job.requests, job.seed), lengths, job.sla_ms / 1e3, job.seed)
    rows = []
    for name, window in [*(("graph", window) for window in job.windows), *((name, 0) for name in job.policies)]:
        policy = make_policy(
            name, times, workers=1, window_s=window / 1e3, max_batch=job.max_batch, dec_timesteps=steps
        )
        rows.append(_row(job, name, window, arrivals, simulate(policy, arrivals, times, 1, seed=job.seed)))
    return rows


def _row(job: Job, policy: str, window: int, arrivals: Arrivals, done: Simulation) -> Row:
    latencies = done.latencies() * 1e3
    quantiles = np.quantile(latencies, np.linspace(0, 1, 101))
    return Row(
        job.experiment, job.model, job.rate_rps, job.seed, policy, window, job.sla_ms, job.max_batch, job.dec_timesteps,
        float(latencies.mean()),
        float(quantiles[99]),
        len(latencies) / (max(done.outcome.finished) - arrivals.arrival[0]),
        float((latencies > job.sla_ms).mean()),
        done.outcome.request_node_runs / done.outcome.node_runs,
        tuple(float((latencies > target).mean()) for target in TARGETS_MS),
        tuple(float(quantile) for quantile in quantiles),
    )  # fmt: skip


def _jobs(
    experiment: str, scale: Scale, models: Iterable[str], rates: Iterable[float], **settings: object
) -> list[Job]:
    settings = {"windows": scale.windows, **settings}
    return [
        Job(experiment, model, rate, seed, scale.requests, **settings)  # type: ignore[arg-type]
        for model, rate, seed in product(models, rates, range(scale.seeds))
    ]


def high_rate(scale: Scale) -> int:
    """The load of the figures that have one: 1000 requests/s, as in the paper's Fig. 14."""
    return 1000 if 1000 in scale.rates else scale.rates[-1]


def jobs_for(figure: str, scale: Scale) -> list[Job]:
    high = high_rate(scale)
    match figure:
        case "5":
            return _jobs("window", scale, ["resnet50"], [r for r in (16, 250, 2000) if r in scale.rates], policies=())
        case "12" | "13":
            return _jobs("load", scale, NETWORKS, scale.rates, policies=("serial", "lazy", "oracle"))
        case "14":
            return _jobs("tail", scale, NETWORKS, [high], policies=("serial", "lazy", "oracle"))
        case "15":
            rates = [rate for rate in (250, 500, 1000) if rate in scale.rates]
            jobs = _jobs("target", scale, NETWORKS, rates, policies=("serial",))
            for target in TARGETS_MS:
                jobs += _jobs("target", scale, NETWORKS, rates, windows=(), policies=("lazy", "oracle"), sla_ms=target)
            return jobs
        case "16":
            jobs = []
            for steps in (10, 20, 32, 50):
                some = ("gnmt", "transformer")
                jobs += _jobs("steps", scale, some, [250, 500, high], windows=(), sla_ms=60, dec_timesteps=steps)
            for max_batch in (16, 32):
                jobs += _jobs("max-batch", scale, NETWORKS, scale.rates, max_batch=max_batch)
            return jobs + _jobs("colocation", scale, [COLOCATED], scale.rates, policies=("serial", "lazy", "oracle"))
        case "17":
            return _jobs("further", scale, FURTHER_NETWORKS, scale.rates, policies=("serial", "lazy", "oracle"))
        case _:
            return []


def reproduce(figures: Sequence[str], folder: Path, scale: Scale, progress: Progress) -> list[Claim]:
    """Runs what the figures need, writes a CSV file and a plot for each into `folder`, and table.md and table.json.

    Raises UsageError for a figure that is not in FIGURES."""
    folder.mkdir(parents=True, exist_ok=True)
    claims: list[Claim] = []
    for figure, rows in run_figures(
        figures, FIGURES, lambda figure: jobs_for(figure, scale), run_job, progress,
        lambda jobs: f"{sum(len(job.windows) + len(job.policies) for job in jobs)} simulated runs",
    ):  # fmt: skip
        if rows:
            write_rows(folder / f"figure{figure}.csv", rows)
        claims += REPORTS[figure](rows, folder, scale)
    write_claims(folder, claims)
    return claims


def gains_over_graph(runs: Runs, field: str, *, best: bool, **settings: object) -> list[float]:
    """How many times as much throughput lazy has as GraphB, or GraphB latency as lazy: at each load and network one
    value with the best window, or one a window."""
    gains = []
    for model, rate in product(runs.models(), runs.rates()):
        lazy = runs.mean(field, model=model, rate_rps=rate, policy="lazy", **settings)
        graph = runs.values(field, model=model, rate_rps=rate, policy="graph", **settings)
        every = [lazy / value if field == "throughput_rps" else value / lazy for value in graph]
        gains += [min(every)] if best else every
    return gains


def satisfaction_gain(runs: Runs) -> float:
    """Share of requests in time under lazy by that under GraphB, each first averaged over networks, loads, targets and
    windows: the mean of the ratios is ruled by the few settings in which GraphB has hardly any request in time."""
    lazy, graph = [], []
    for model, rate, (number, target) in product(runs.models(), runs.rates(), enumerate(TARGETS_MS)):
        served = {"model": model, "rate_rps": rate}
        # Where there is one lazy run for each target, that which aims at it.
        aimed = runs.select(policy="lazy", sla_ms=float(target), **served) or runs.select(policy="lazy", **served)
        lazy.append(1 - np.mean([row.violations[number] for row in aimed[0]]))
        graph += [1 - np.mean([r.violations[number] for r in group]) for group in runs.select(policy="graph", **served)]
    return float(np.mean(lazy) / np.mean(graph))


def _of(runs: Runs, model: str) -> Runs:
    return Runs([row for group in runs.select(model=model) for row in group])


def figure_3(rows: Sequence[Row], folder: Path, scale: Scale) -> list[Claim]:
    times = _times("resnet50")
    batches = [1, 2, 4, 8, 16, 32, 64]
    latency = [times.whole(batch, 1, 1) for batch in batches]
    plots.figure_3(folder / "figure3.png", batches, latency)
    lines = ["batch,latency_ms,throughput_rps"]
    lines += [f"{b},{s * 1e3:.4f},{b / s:.2f}" for b, s in zip(batches, latency, strict=True)]
    (folder / "figure3.csv").write_text("\n".join(lines) + "\n")
    claims = []
    for model, paper in (("resnet50", 1.1), ("gnmt", 7.2), ("transformer", 2.4)):
        measured = _times(model).whole(1, 19, 19) * 1e3
        note = (
            ""
            if model == "resnet50"
            else "19 steps in and out, the mean output length here; the paper does not say for which"
        )
        claims.append(Claim("Table II", f"{model}: latency of one input", paper, measured, "ms", note))
    return claims


def figure_5(rows: Sequence[Row], folder: Path, scale: Scale) -> list[Claim]:
    plots.figure_5(folder / "figure5.png", Runs(rows))
    return []


def _best_by_network(figure: str, runs: Runs, field: str, what: str, papers: Sequence[float]) -> list[Claim]:
    """The gains over the best GraphB, for each of NETWORKS."""
    claims = []
    for model, paper in zip(NETWORKS, papers, strict=True):
        gains = gains_over_graph(_of(runs, model), field, best=True)
        claims.append(Claim(figure, f"{model}: {what}", paper, float(np.mean(gains)), "x", _by_load(runs, gains)))
    return claims


def figure_12(rows: Sequence[Row], folder: Path, scale: Scale) -> list[Claim]:
    runs = Runs(rows)
    plots.by_load(folder / "figure12.png", runs, "mean_ms", "mean latency, ms")
    every = gains_over_graph(runs, "mean_ms", best=False)
    note = f"arithmetic mean over networks, loads and windows; geometric mean {_geometric(every):.2f}"
    return [
        *_best_by_network("12", runs, "mean_ms", "latency, best GraphB / lazy", (5.3, 2.7, 2.5)),
        Claim("12", "latency, every GraphB / lazy", 15, float(np.mean(every)), "x", note),
    ]


def figure_13(rows: Sequence[Row], folder: Path, scale: Scale) -> list[Claim]:
    runs = Runs(rows)
    plots.by_load(folder / "figure13.png", runs, "throughput_rps", "requests/s")
    every = gains_over_graph(runs, "throughput_rps", best=False)
    return [
        *_best_by_network("13", runs, "throughput_rps", "throughput, lazy / best GraphB", (1.1, 1.3, 1.2)),
        Claim("13", "throughput, lazy / every GraphB", 1.5, float(np.mean(every)), "x", "arithmetic mean"),
    ]


def figure_14(rows: Sequence[Row], folder: Path, scale: Scale) -> list[Claim]:
    runs = Runs(rows)
    plots.figure_14(folder / "figure14.png", runs)
    lazy = runs.mean("p99_ms", model="transformer", policy="lazy")
    graph = runs.select(model="transformer", policy="graph")
    tails = {group[0].window_ms: float(np.mean([row.p99_ms for row in group])) for group in graph}
    window = min(tails, key=lambda w: tails[w])
    rate = f"{high_rate(scale)} requests/s"
    return [
        Claim("14", f"transformer: p99 of lazy at {rate}", 54, lazy, "ms"),
        Claim("14", f"transformer: p99 of the best GraphB at {rate}", 123, tails[window], "ms", f"window {window} ms"),
    ]


def figure_15(rows: Sequence[Row], folder: Path, scale: Scale) -> list[Claim]:
    runs = Runs(rows)
    plots.figure_15(folder / "figure15.png", runs)
    note = f"of the in-time shares over networks, loads of {_list(runs.rates())}/s, targets and windows"
    claims = [Claim("15", "SLA satisfaction, lazy / every GraphB", 5.5, satisfaction_gain(runs), "x", note)]
    for model, paper in (("resnet50", 20), ("gnmt", 40), ("transformer", 60)):
        met = {}
        for rate in runs.rates():
            targets = [
                target
                for target in TARGETS_MS
                if runs.mean("violation_rate", model=model, rate_rps=rate, policy="lazy", sla_ms=target) == 0
            ]
            met[rate] = min(targets, default=None)
        lowest = runs.rates()[0]
        found = ", ".join(f"{rate:g}/s: {'none' if target is None else f'{target} ms'}" for rate, target in met.items())
        claims.append(
            Claim("15", f"{model}: lowest target without violations", paper, met[lowest], "ms",
                  f"measured at {lowest:g} requests/s, all seeds; {found}")
        )  # fmt: skip
    return claims


def figure_16(rows: Sequence[Row], folder: Path, scale: Scale) -> list[Claim]:
    parts = ("steps", "max-batch", "colocation")
    steps, by_batch, together = (Runs([row for row in rows if row.experiment == part]) for part in parts)
    plots.figure_16(folder / "figure16.png", steps, by_batch, together)
    claims = []
    for model in ("gnmt", "transformer"):
        by_steps = {
            s: [steps.mean("violation_rate", model=model, rate_rps=rate, dec_timesteps=s) for rate in steps.rates()]
            for s in (10, 32)
        }
        shares = "; ".join(
            f"{rate:g}/s: {ten:.1%} against {usual:.1%} with 32"
            for rate, ten, usual in zip(steps.rates(), by_steps[10], by_steps[32], strict=True)
        )
        claims.append(
            Claim("16", f"{model}: violations at 60 ms with dec_timesteps 10", 36, 100 * by_steps[10][-1], "%", shares)
        )
    for max_batch, paper in ((16, 12.0), (32, 14.0)):
        every = gains_over_graph(by_batch, "mean_ms", best=False, max_batch=max_batch)
        note = f"arithmetic mean; geometric mean {_geometric(every):.2f}"
        claims.append(
            Claim(
                "16",
                f"latency, every GraphB / lazy, maximum batch {max_batch}",
                paper,
                float(np.mean(every)),
                "x",
                note,
            )
        )
    gains = gains_over_graph(together, "mean_ms", best=True)
    note = f"{COLOCATED.replace('+', ', ')} equally likely; {_by_load(together, gains)}"
    claims.append(
        Claim("16", "four co-located networks: latency, best GraphB / lazy", 2.4, float(np.mean(gains)), "x", note)
    )
    gains = gains_over_graph(together, "throughput_rps", best=True)
    note = _by_load(together, gains)
    claims.append(
        Claim("16", "four co-located networks: throughput, lazy / best GraphB", 1.8, float(np.mean(gains)), "x", note)
    )
    return claims


def figure_17(rows: Sequence[Row], folder: Path, scale: Scale) -> list[Claim]:
    runs = Runs(rows)
    plots.by_load(folder / "figure17.png", runs, "mean_ms", "mean latency, ms")
    gains = (
        ("latency, best GraphB / lazy", 1.5, gains_over_graph(runs, "mean_ms", best=True)),
        ("throughput, lazy / best GraphB", 1.3, gains_over_graph(runs, "throughput_rps", best=True)),
        ("SLA satisfaction, lazy / every GraphB", 2.9, [satisfaction_gain(runs)]),
    )
    which = ", ".join(FURTHER_NETWORKS)
    return [
        Claim("17", f"four further networks: {what}", paper, float(np.mean(values)), "x", which)
        for what, paper, values in gains
    ]


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _by_load(runs: Runs, gains: Sequence[float]) -> str:
    return "at " + ", ".join(f"{rate:g}/s {gain:.2f}" for rate, gain in zip(runs.rates(), gains, strict=True))


REPORTS: dict[str, Callable[[Sequence[Row], Path, Scale], list[Claim]]] = {
    "3": figure_3,
    "5": figure_5,
    "12": figure_12,
    "13": figure_13,
    "14": figure_14,
    "15": figure_15,
    "16": figure_16,
    "17": figure_17,
}
