"""The evaluation of BatchMaker (Gao, Yu, Wu, Li, EuroSys 2018, Section 7) on the latencies of sim/hardware/v100.py.

`cellular` beside whole graphs padded in buckets (`bucketed-graph`, the paper's MXNet and TensorFlow), padded without
buckets (`graph` with a window of 0) and, for trees, merged graphs (`dynamic-graph`, DyNet and TensorFlow Fold). Every
run serves Poisson arrivals; all policies of a job see the same ones. The peak is the highest rate, of those run, that
is served as it arrives. (Under an overload a backlog grows, and with it the batches of every bucket: what is served
then depends on how long it lasts.)

Of the paper's text we had its numbers and not all of their conditions: rates, the numbering of some figures, the merge
cost and the trees' shapes are our choice. "compare" is none of the paper's figures: `lazy` and `cellular` on the same
networks and the same hardware, the NPU of LazyBatching.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from headrace.batching.graphs.cell_graph import CellGraph, CellModel, CellType, lstm, seq2seq
from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.graphs.model_graph import MatMul, ModelGraph, Node, NodeKind
from headrace.batching.policies.bucketed_graph import BucketedGraphBatching
from headrace.batching.policies.cellular import CellularBatching
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching
from headrace.batching.policies.graph_batching import GraphBatching
from headrace.batching.policies.lazy import LazyBatching
from headrace.batching.policy import Policy
from headrace.batching.request import Request
from headrace.sim.experiments.batchmaker import plots
from headrace.sim.experiments.batchmaker.rows import Row, Runs
from headrace.sim.experiments.report import Claim, write_claims, write_rows
from headrace.sim.experiments.sweep import Progress, run_figures
from headrace.sim.hardware.npu import npu_times
from headrace.sim.hardware.v100 import (
    DECODER_FULL_BATCH,
    FULL_BATCH,
    cell_times,
    decoder_step_s,
    lstm_step_s,
    padded_graph,
    padded_times,
)
from headrace.sim.load.lengths import WMT15, Clipped, Fixed, Lengths, Sentences, dec_timesteps
from headrace.sim.load.traffic import generate, poisson
from headrace.sim.simulation import simulate
from headrace.sim.zoo.cells import tree_lstm

FIGURES = ("3", "7", "8", "9", "11", "13", "14", "15", "compare")
BUCKET = 10
WIDTHS = (1, 5, 10, 20, 40)
TREE_BATCH = 64
# What merging costs for each cell of each request, on the host: our assumption, of the order of what a dynamic
# framework takes to make an operation.
MERGE_S = 10e-6
LENGTHS: dict[str, Lengths] = {
    "wmt15": WMT15,
    "clip 100": Clipped(100),
    "clip 50": Clipped(50),
    "fixed 24": Fixed(24, 24),
    "trees": Sentences(),
    "complete 16": Fixed(16, 1),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """Rates in requests/s."""

    seeds: int
    requests: int
    lstm: tuple[int, ...]
    seq2seq: tuple[int, ...]
    tree: tuple[int, ...]
    compare: tuple[int, ...]


FULL = Scale(
    2, 20_000,
    (1000, 2000, 5000, 8000, 10000, 12000, 14000, 16000, 18000, 20000, 22000, 24000, 25000, 26000, 27000),
    (1000, 2000, 4000, 6000, 8000, 10000, 11000, 12000, 14000, 16000, 18000, 20000, 22000, 24000),
    (250, 500, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 5500, 6000, 6500, 7000, 8000),
    (50, 100, 250, 500, 1000, 2000),
)  # fmt: skip
QUICK = Scale(1, 4000, (2000, 5000, 8000, 16000, 24000), (2000, 8000, 16000), (1000, 3000, 6000), (100, 500))


@dataclass(frozen=True, slots=True)
class Job:
    """`setting` is what a policy is run with: a bucket width, or the maximum batch of a decoder."""

    experiment: str
    network: str
    lengths: str
    workers: int
    rate_rps: float
    seed: int
    requests: int
    policies: tuple[tuple[str, int], ...]


# Networks


def padded_network(name: str) -> ModelGraph:
    """Figure 7 of LazyBatching: layers that do not recur around one that does."""
    static = NodeKind.STATIC
    convolutions = (MatMul(56 * 56, 9 * 64, 64), MatMul(28 * 28, 9 * 64, 128))
    nodes = [Node(f"conv{n}", static, (product_,)) for n, product_ in enumerate(convolutions, 1)]
    nodes.append(Node("rnn", NodeKind.ENCODER, (MatMul(1, 2048, 4096),)))
    nodes += [Node("fc1", static, (MatMul(1, 1024, 4096),)), Node("fc2", static, (MatMul(1, 4096, 1000),))]
    return ModelGraph(name, tuple(nodes))


def npu_seq2seq(name: str) -> ModelGraph:
    """The Seq2Seq of the paper with operators: an LSTM step, and one with the projection to 30,000 words."""
    step, project = MatMul(1, 2048, 4096), MatMul(1, 1024, 30_000)
    return ModelGraph(
        name, (Node("encoder", NodeKind.ENCODER, (step,)), Node("decoder", NodeKind.DECODER, (step, project)))
    )


def around_rnn(name: str, max_batch: int) -> CellModel:
    """The cells of `padded_network`: each layer is a type."""

    def unfold(request: Request) -> CellGraph:
        length = steps(request.input_len)
        kinds = (0, 1, *(2,) * length, 3, 4)
        return CellGraph.of([(kind, (cell - 1,) if cell else ()) for cell, kind in enumerate(kinds)])

    types = tuple(
        CellType(node.name, max_batch, priority=place) for place, node in enumerate(padded_network(name).nodes)
    )
    return CellModel(name, types, unfold)


def run_job(job: Job) -> list[Row]:
    arrivals = generate(
        poisson(job.rate_rps, job.requests, job.seed), {job.network: LENGTHS[job.lengths]}, math.inf, job.seed
    )
    rows = []
    for name, setting in job.policies:
        policy, times, cells = make(job, name, setting)
        models = None if cells is None else {job.network: cells}
        done = simulate(policy, arrivals, {job.network: times}, job.workers, cell_models=models)
        latency = 1e3 * done.latencies()
        started = 1e3 * (np.array(done.outcome.started) - np.array(arrivals.arrival))
        p50, p90, p99 = np.percentile(latency, (50, 90, 99))
        rows.append(
            Row(
                job.experiment, job.network, job.lengths, job.workers, job.rate_rps, job.seed, name, setting,
                _steady_rps(done.outcome.finished),
                float(latency.mean()), float(p50), float(p90), float(p99),
                float(np.percentile(started, 99)), float(np.percentile(latency - started, 99)),
                done.outcome.request_node_runs / done.outcome.node_runs,
            )
        )  # fmt: skip
    return rows


def _steady_rps(finished: Sequence[float]) -> float:
    """The rate at which the middle half of the requests ended: filling and draining do not count."""
    first, last = np.quantile(finished, (0.25, 0.75))
    return 0.5 * len(finished) / float(last - first)


def make(job: Job, policy: str, setting: int) -> tuple[Policy, NodeTimes, CellModel | None]:
    """A policy with the latencies of what it runs, and the cells of its tasks if it has such."""
    name, workers = job.network, job.workers
    if job.experiment == "compare":
        return _on_npu(name, workers, policy, LENGTHS[job.lengths])
    if name == "tree":
        model = tree_lstm(name, TREE_BATCH, 16 if job.lengths == "complete 16" else 0)
        times = cell_times(model)
        if policy == "dynamic-graph":
            return DynamicGraphBatching([model], workers, TREE_BATCH, setting * 1e-6), times, model
        return CellularBatching([model], workers), times, model
    decoder = name == "seq2seq"
    if policy == "cellular":
        model = seq2seq(name, FULL_BATCH, setting) if decoder else lstm(name, setting)
        return CellularBatching([model], workers), cell_times(model, (1,) if decoder else ()), model
    graph = padded_graph(name, decoder=decoder)
    most = DECODER_FULL_BATCH if decoder else FULL_BATCH
    if policy == "graph":
        return GraphBatching([graph], 0.0, most), padded_times(name, decoder=decoder), None
    return BucketedGraphBatching([graph], most, setting), padded_times(name, decoder=decoder), None


def _on_npu(name: str, workers: int, policy: str, lengths: Lengths) -> tuple[Policy, NodeTimes, CellModel | None]:
    graph = npu_seq2seq(name) if name == "seq2seq" else padded_network(name)
    times = npu_times(graph)
    if policy == "lazy":
        assumed = {name: dec_timesteps(lengths)} if name == "seq2seq" else {}
        return LazyBatching({name: times}, workers, 64, assumed), times, None
    if policy == "graph":
        return GraphBatching([graph], 0.005, 64), times, None
    model = seq2seq(name, 64, 64) if name == "seq2seq" else around_rnn(name, 64)
    return CellularBatching([model], workers), times, model


# Figures


def _jobs(
    experiment: str, network: str, lengths: str, workers: int, rates: Sequence[int], scale: Scale,
    policies: Sequence[tuple[str, int]],
) -> list[Job]:  # fmt: skip
    return [
        Job(experiment, network, lengths, workers, rate, seed, scale.requests, tuple(policies))
        for rate, seed in product(rates, range(scale.seeds))
    ]


def jobs_for(figure: str, scale: Scale) -> list[Job]:
    three = (("cellular", FULL_BATCH), ("bucketed-graph", BUCKET), ("graph", 0))
    match figure:
        case "7" | "8":
            return _jobs("lstm", "lstm", "wmt15", 1, scale.lstm, scale, three)
        case "9":
            return [
                job
                for lengths in ("fixed 24", "clip 50", "clip 100")
                for job in _jobs("clipped", "lstm", lengths, 1, scale.lstm, scale, three[:2])
            ]
        case "11":
            widths = [("bucketed-graph", width) for width in WIDTHS]
            return _jobs("width", "lstm", "wmt15", 1, scale.lstm, scale, widths)
        case "13":
            batches = [("cellular", DECODER_FULL_BATCH), ("cellular", FULL_BATCH), ("bucketed-graph", BUCKET)]
            return [
                job
                for workers in (2, 4)
                for job in _jobs("seq2seq", "seq2seq", "wmt15", workers, scale.seq2seq, scale, batches)
            ]
        case "14" | "15":
            lengths = "trees" if figure == "14" else "complete 16"
            merges = [("cellular", TREE_BATCH), ("dynamic-graph", round(MERGE_S * 1e6)), ("dynamic-graph", 0)]
            return _jobs(f"tree {figure}", "tree", lengths, 1, scale.tree, scale, merges)
        case "compare":
            policies = [("lazy", 64), ("cellular", 64), ("graph", 5)]
            return [
                job
                for network in ("seq2seq", "around-rnn")
                for job in _jobs("compare", network, "wmt15", 1, scale.compare, scale, policies)
            ]
        case _:
            return []


def reproduce(figures: Sequence[str], folder: Path, scale: Scale, progress: Progress) -> list[Claim]:
    """Runs what the figures need, writes a CSV file and a plot for each into `folder`, and table.md and table.json.

    Raises UsageError for a figure that is not in FIGURES."""
    folder.mkdir(parents=True, exist_ok=True)
    claims: list[Claim] = []
    for figure, rows in run_figures(
        figures, FIGURES, lambda figure: jobs_for(figure, scale), run_job, progress,
        lambda jobs: f"{sum(len(job.policies) for job in jobs)} simulated runs",
    ):  # fmt: skip
        if rows:
            write_rows(folder / f"figure{figure}.csv", rows)
        claims += REPORTS[figure](Runs(rows), folder)
    write_claims(folder, claims)
    return claims


def figure_3(runs: Runs, folder: Path) -> list[Claim]:
    batches = [2**n for n in range(12)]
    lines = ["batch,lstm_us,lstm_per_s,decoder_us,decoder_per_s"]
    for batch in batches:
        step, decode = lstm_step_s(batch), decoder_step_s(batch)
        lines.append(f"{batch},{1e6 * step:.1f},{batch / step:.0f},{1e6 * decode:.1f},{batch / decode:.0f}")
    (folder / "figure3.csv").write_text("\n".join(lines) + "\n")
    plots.figure_3(folder / "figure3.png", batches, [lstm_step_s(b) for b in batches])
    return []


def ideal_rps(length: float) -> float:
    """Full batches of nothing but LSTM steps, one behind the other."""
    return FULL_BATCH / length / lstm_step_s(FULL_BATCH)


def figure_7(runs: Runs, folder: Path) -> list[Claim]:
    plots.latency_by_throughput(folder / "figure7.png", runs, "p90_ms")
    low = [rate for rate in runs.rates() if rate <= 8000]
    cellular = [runs.mean("p90_ms", rate_rps=rate, policy="cellular") for rate in low]
    bucketed = [runs.mean("p90_ms", rate_rps=rate, policy="bucketed-graph") for rate in low]
    note = f"at {_list(low)} requests/s: "
    return [
        Claim("7", "LSTM, cellular: peak", 20_000, runs.peak(policy="cellular"), "1/s", "one overhead for all batches"),
        Claim("7", "LSTM, bucketed graphs: peak", 16_000, runs.peak(policy="bucketed-graph"), "1/s",
              "without any overhead of scheduling"),
        Claim("7", "LSTM, cellular: p90 below 8,000/s", 12, max(cellular), "ms", note + _list(cellular, "{:.1f}")),
        Claim("7", "LSTM, bucketed graphs: least p90 there", 25, min(bucketed), "ms",
              note + _list(bucketed, "{:.1f}")),
    ]  # fmt: skip


def figure_8(runs: Runs, folder: Path) -> list[Claim]:
    rate = runs.near(5000)
    plots.waits(folder / "figure8.png", runs.select(rate_rps=rate))
    where = f"at {rate:g} requests/s"
    return [
        Claim("8", f"LSTM, cellular: p99 of the wait {where}", 1.38,
              runs.mean("wait_p99_ms", policy="cellular", rate_rps=rate), "ms"),
        Claim("8", f"LSTM, bucketed graphs: p99 of the wait {where}", 100,
              runs.mean("wait_p99_ms", policy="bucketed-graph", rate_rps=rate), "ms", "the paper: more than that"),
    ]  # fmt: skip


def figure_9(runs: Runs, folder: Path) -> list[Claim]:
    plots.by_lengths(folder / "figure9.png", runs)
    peaks = {
        (name, policy): runs.select(lengths=name).peak(policy=policy)
        for name, policy in product(("fixed 24", "clip 50", "clip 100"), ("cellular", "bucketed-graph"))
    }
    share = 100 * peaks["fixed 24", "cellular"] / ideal_rps(24)
    others = "; ".join(f"{name}, {policy}: {peak:.0f}/s" for (name, policy), peak in peaks.items())
    return [
        Claim("9", "ideal rate of 24 steps", 27_136, ideal_rps(24), "1/s"),
        Claim("9", "LSTM of 24 steps, cellular: share of the ideal", 87, share, "%", f"peaks: {others}"),
    ]


def figure_11(runs: Runs, folder: Path) -> list[Claim]:
    plots.widths(folder / "figure11.png", runs)
    return []


def figure_13(runs: Runs, folder: Path) -> list[Claim]:
    plots.seq2seq(folder / "figure13.png", runs)
    claims = []
    for workers, paper in ((2, 8500), (4, 17_000)):
        mine = runs.select(workers=workers)
        best, same = (mine.peak(policy="cellular", setting=batch) for batch in (DECODER_FULL_BATCH, FULL_BATCH))
        note = f"bucketed graphs: {mine.peak(policy='bucketed-graph'):.0f}/s"
        claims.append(Claim("13", f"Seq2Seq, {workers} GPUs, cellular: peak", paper, best, "1/s", note))
        gained = 100 * (best / same - 1)
        what = f"Seq2Seq, {workers} GPUs: gained by a decoder batch of 256"
        claims.append(Claim("13", what, 4.75, gained, "%", "the paper: 3.5 to 6 %"))
    return claims


def figure_14(runs: Runs, folder: Path) -> list[Claim]:
    plots.trees(folder / "figure14.png", runs)
    rate = runs.near(1000)
    merge = round(MERGE_S * 1e6)
    merged = runs.peak(policy="dynamic-graph", setting=merge)
    note = f"merging takes {merge} us a cell; without it {runs.peak(policy='dynamic-graph', setting=0):.0f}/s"
    late = runs.mean("p90_ms", policy="dynamic-graph", setting=0, rate_rps=rate)
    return [
        Claim("14", "TreeLSTM, cellular: peak", 3100, runs.peak(policy="cellular"), "1/s"),
        Claim("14", "TreeLSTM, merged graphs: peak", 2100, merged, "1/s", note),
        Claim("14", f"TreeLSTM, cellular: p90 at {rate:g}/s", 6.8,
              runs.mean("p90_ms", policy="cellular", rate_rps=rate), "ms"),
        Claim("14", f"TreeLSTM, merged graphs: p90 at {rate:g}/s", 9.5,
              runs.mean("p90_ms", policy="dynamic-graph", setting=merge, rate_rps=rate), "ms",
              f"without merge cost {late:.2f}"),
    ]  # fmt: skip


def figure_15(runs: Runs, folder: Path) -> list[Claim]:
    plots.trees(folder / "figure15.png", runs)
    # TREE_BATCH trees at a time, each of the 31 cells as one batch of them.
    ideal = TREE_BATCH / (31 * lstm_step_s(TREE_BATCH))
    share = 100 * runs.peak(policy="cellular") / ideal
    note = f"the ideal, {ideal:.0f}/s: 64 trees at a time, every cell a batch of 64"
    return [Claim("15", "complete trees of 16 leaves, cellular: share of the ideal", 70, share, "%", note)]


def compare(runs: Runs, folder: Path) -> list[Claim]:
    plots.compare(folder / "figurecompare.png", runs)
    return []


def _list(values: Sequence[float], form: str = "{:g}") -> str:
    return ", ".join(form.format(value) for value in values)


REPORTS: dict[str, Callable[[Runs, Path], list[Claim]]] = {
    "3": figure_3,
    "7": figure_7,
    "8": figure_8,
    "9": figure_9,
    "11": figure_11,
    "13": figure_13,
    "14": figure_14,
    "15": figure_15,
    "compare": compare,
}
