"""The evaluation of BatchMaker (Gao, Yu, Wu, Li, EuroSys 2018, Section 7) on the latencies of sim/hardware/v100.py.

`cellular` is compared with whole graphs padded in buckets (`bucketed-graph`, the paper's MXNet and TensorFlow), and
with graphs padded without buckets (`graph` with a window of 0). For trees it is compared with merged graphs
(`dynamic-graph`, DyNet and TensorFlow Fold). Every run serves Poisson arrivals for `Scale.seconds`. All policies of a
job see the same arrivals. Numbers are means over seeds.

A peak is the greatest rate that is served, at any load. Graphs in buckets serve more the further they fall behind,
because their batches fill. Their peak is that of the highest load, for as long as a run lasts.

The paper gives neither the merge cost nor the trees' shapes; both are our choice. "compare" is none of the paper's
figures: it has `lazy` and `cellular` on the same networks and the same hardware, the NPU of LazyBatching.
"""

import math
from collections.abc import Sequence
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
from headrace.batching.policies.graph import GraphBatching
from headrace.batching.policies.lazy import LazyBatching
from headrace.batching.policy import Policy
from headrace.batching.request import Request
from headrace.sim.experiments.batchmaker.claims import REPORTS
from headrace.sim.experiments.batchmaker.conditions import (
    AS_INPUTS,
    BACKLOG,
    BACKLOG_RPS,
    BUCKET,
    CHEAPER,
    CHEAPER_FIXED,
    EVERY_GATHERS,
    FOLD,
    FOLD_MERGE_US,
    FOLD_RPS,
    LENGTHS,
    MERGE_S,
    MERGED_CELLS,
    STEPS,
    TREE_BATCH,
    TREE_RPS,
    TREES,
    WIDTHS,
)
from headrace.sim.experiments.batchmaker.rows import Row, Runs
from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.hardware.npu import npu_times
from headrace.sim.hardware.v100 import (
    DECODER_FULL_BATCH,
    FLAT_BATCH,
    FULL_BATCH,
    cell_times,
    padded_graph,
    padded_times,
    tree_times,
)
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Lengths, dec_timesteps
from headrace.sim.workload.traffic import generate, poisson
from headrace.sim.zoo.cells import tree_lstm


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run.

    A run has this many `seconds` of arrivals, and at least `least` requests. Runs of networks other than the LSTM take
    longer to simulate and have a third of it. Loads are in requests/s; those of `seq2seq` are for each GPU."""

    seeds: int
    seconds: float
    least: int
    lstm: tuple[int, ...]
    seq2seq: tuple[int, ...]
    tree: tuple[int, ...]
    compare: tuple[int, ...]

    def requests(self, network: str, rate_rps: float) -> int:
        return max(self.least, round(self.seconds / (1 if network == "lstm" else 3) * rate_rps))


@dataclass(frozen=True, slots=True)
class Job:
    """One set of arrivals and the policies that serve it, each with a setting.

    The setting of a policy is the maximum batch of an encoder (the LSTM has only those), a bucket width, or the cost of
    merging (us a cell). `max_batch` is that of whole graphs."""

    experiment: str
    network: str
    lengths: str
    workers: int
    rate_rps: float
    seed: int
    requests: int
    policies: tuple[tuple[str, int], ...]
    max_batch: int = FULL_BATCH


# Networks


def padded_network(name: str) -> ModelGraph:
    """Return the network of LazyBatching's Figure 7: layers that do not recur around one that does."""
    static = NodeKind.STATIC
    convolutions = (MatMul(56 * 56, 9 * 64, 64), MatMul(28 * 28, 9 * 64, 128))
    nodes = [Node(f"conv{n}", static, (product_,)) for n, product_ in enumerate(convolutions, 1)]
    nodes.append(Node("rnn", NodeKind.ENCODER, (MatMul(1, 2048, 4096),)))
    nodes += [Node("fc1", static, (MatMul(1, 1024, 4096),)), Node("fc2", static, (MatMul(1, 4096, 1000),))]
    return ModelGraph(name, tuple(nodes))


def npu_seq2seq(name: str) -> ModelGraph:
    """Return the paper's Seq2Seq with operators: an LSTM step, and one with the projection to 30,000 words."""
    step, project = MatMul(1, 2048, 4096), MatMul(1, 1024, 30_000)
    return ModelGraph(
        name, (Node("encoder", NodeKind.ENCODER, (step,)), Node("decoder", NodeKind.DECODER, (step, project)))
    )


def around_rnn(name: str, max_batch: int) -> CellModel:
    """Return the cells of `padded_network`: each layer is a type."""

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
                job.experiment,
                job.network,
                job.lengths,
                job.workers,
                job.rate_rps,
                job.seed,
                name,
                setting,
                _steady_rps(done.outcome.finished),
                float(latency.mean()),
                float(p50),
                float(p90),
                float(p99),
                float(np.percentile(started, 99)),
                float(np.percentile(latency - started, 99)),
                done.outcome.request_node_runs / done.outcome.node_runs,
                done.outcome.cell_memory.gathers / done.outcome.tasks,
                done.outcome.cell_memory.copied / len(arrivals.arrival),
            )
        )
    return rows


def _steady_rps(finished: Sequence[float]) -> float:
    """Return the rate at which the middle half of the requests ended, so that filling and draining do not count."""
    first, last = np.quantile(finished, (0.25, 0.75))
    return 0.5 * len(finished) / float(last - first)


def make(job: Job, policy: str, setting: int) -> tuple[Policy, NodeTimes, CellModel | None]:
    """Return a new policy, the latencies of its network, and the cells of its tasks if it has such.

    This is the only place where the experiment makes policies. The merge cost of `dynamic-graph` is set here."""
    name, workers = job.network, job.workers
    if job.experiment == "compare":
        return _on_npu(name, workers, policy, LENGTHS[job.lengths])
    if name.startswith("tree"):
        merged = policy == "dynamic-graph"
        limit = MERGED_CELLS if merged else TREE_BATCH
        model = tree_lstm(name, limit, 16 if job.lengths == "complete 16" else 0)
        if name in TREES:
            times = tree_times(model, scheduled=not merged, reading=TREES[name])
        else:
            times = cell_times(model, locality=False)
        if merged:
            return DynamicGraphBatching([model], workers, TREE_BATCH, setting * 1e-6), times, model
        return CellularBatching([model], workers, strict=True), times, model
    decoder = name == "seq2seq"
    if policy == "cellular":
        model = seq2seq(name, setting, DECODER_FULL_BATCH) if decoder else lstm(name, setting)
        decoders = (1,) if decoder else ()
        times = cell_times(model, decoders, locality=not job.experiment.endswith(EVERY_GATHERS))
        return CellularBatching([model], workers, strict=True), times, model
    graph = padded_graph(name, decoder=decoder)
    times = padded_times(name, decoder=decoder)
    if policy == "graph":
        return GraphBatching([graph], 0.0, job.max_batch), times, None
    return BucketedGraphBatching([graph], job.max_batch, setting), times, None


def _on_npu(name: str, workers: int, policy: str, lengths: Lengths) -> tuple[Policy, NodeTimes, CellModel | None]:
    graph = npu_seq2seq(name) if name == "seq2seq" else padded_network(name)
    times = npu_times(graph)
    if policy == "lazy":
        assumed = {name: dec_timesteps(lengths)} if name == "seq2seq" else {}
        return LazyBatching({name: times}, workers, 64, assumed), times, None
    if policy == "graph":
        return GraphBatching([graph], 0.005, 64), times, None
    model = seq2seq(name, 64, 64) if name == "seq2seq" else around_rnn(name, 64)
    return CellularBatching([model], workers, strict=True), times, model


# Figures


def _jobs(
    experiment: str,
    network: str,
    lengths: str,
    workers: int,
    rates: Sequence[int],
    scale: Scale,
    policies: Sequence[tuple[str, int]],
    max_batch: int = FULL_BATCH,
) -> list[Job]:
    return [
        Job(
            experiment,
            network,
            lengths,
            workers,
            rate,
            seed,
            scale.requests(network, rate),
            tuple(policies),
            max_batch,
        )
        for rate, seed in product(rates, range(scale.seeds))
    ]


def jobs_for(figure: str, scale: Scale) -> list[Job]:
    three = (("cellular", FULL_BATCH), ("bucketed-graph", BUCKET), ("graph", 0))
    match figure:
        case "7a":
            every = _jobs(f"lstm{EVERY_GATHERS}", "lstm", "wmt15", 1, scale.lstm[-1:], scale, three[:1])
            return _jobs("lstm", "lstm", "wmt15", 1, scale.lstm, scale, three) + every
        case "9":
            return _jobs("lstm", "lstm", "wmt15", 1, scale.lstm, scale, three)
        case "7b":
            small = (("cellular", FLAT_BATCH), *three[1:])
            return _jobs("lstm, 64", "lstm", "wmt15", 1, scale.lstm, scale, small, FLAT_BATCH) + jobs_for("9", scale)
        case "8":
            widths = [("bucketed-graph", width) for width in WIDTHS]
            requests = 3 * scale.requests("lstm", scale.lstm[-1])  # so that nearly all batches are full
            backlog = [
                Job(BACKLOG, "lstm", "wmt15", 1, BACKLOG_RPS, seed, requests, tuple(widths))
                for seed in range(scale.seeds)
            ]
            return _jobs("width", "lstm", "wmt15", 1, scale.lstm, scale, widths) + backlog
        case "11":
            # The baselines come close to the ideal of 24 steps. So their graph has 24 steps, and not those of a bucket
            # up to 30.
            return [
                job
                for lengths, width in (("fixed 24", 24), ("clip 50", BUCKET), ("clip 100", BUCKET))
                for job in _jobs(
                    "clipped", "lstm", lengths, 1, scale.lstm, scale, (three[0], ("bucketed-graph", width))
                )
            ]
        case "13":
            batches = [("cellular", FULL_BATCH), ("cellular", DECODER_FULL_BATCH), ("bucketed-graph", BUCKET)]
            return [
                job
                for workers in (2, 4)
                for job in _jobs(
                    "seq2seq",
                    "seq2seq",
                    "wmt15",
                    workers,
                    [workers * rate for rate in scale.seq2seq],
                    scale,
                    batches,
                    DECODER_FULL_BATCH,
                )
                + _jobs(
                    f"seq2seq{EVERY_GATHERS}",
                    "seq2seq",
                    "wmt15",
                    workers,
                    [workers * scale.seq2seq[-1]],
                    scale,
                    batches[:1],
                )
                + _jobs(
                    f"seq2seq, {AS_INPUTS}",
                    "seq2seq",
                    AS_INPUTS,
                    workers,
                    [workers * scale.seq2seq[-1]],
                    scale,
                    batches[::2],
                    DECODER_FULL_BATCH,
                )
            ]
        case "14" | "15":
            lengths = "trees" if figure == "14" else "complete 16"
            merges = [("cellular", TREE_BATCH), ("dynamic-graph", round(MERGE_S * 1e6)), ("dynamic-graph", 0)]
            plain = [
                job
                for network in ("tree", STEPS)
                for job in _jobs(f"tree {figure}", network, lengths, 1, scale.tree, scale, merges)
            ]
            if figure == "15":
                return plain
            fold = [("dynamic-graph", FOLD_MERGE_US)]
            return (
                plain
                + _jobs("tree 14", FOLD, lengths, 1, [*FOLD_RPS, scale.tree[-1]], scale, fold)
                + _jobs("tree 14", "tree", lengths, 1, sorted(set(FOLD_RPS) - set(scale.tree)), scale, merges)
                + _jobs("tree 14", CHEAPER, lengths, 1, [TREE_RPS], scale, merges[:2])
                + _jobs("tree 14", CHEAPER_FIXED, lengths, 1, [TREE_RPS], scale, merges[:1])
            )
        case "abstract":
            return [job for part in ("7a", "13", "14") for job in jobs_for(part, scale)]
        case "compare":
            policies = [("lazy", 64), ("cellular", 64), ("graph", 5)]
            return [
                job
                for network in ("seq2seq", "around-rnn")
                for job in _jobs("compare", network, "wmt15", 1, scale.compare, scale, policies)
            ]
        case _:
            return []


def report(figure: str, rows: Sequence[Row], folder: Path) -> Report:
    claims = REPORTS[figure](Runs(rows), folder)
    return Report({} if figure == "abstract" else {f"figure{figure}": rows}, claims)


def describe(jobs: Sequence[Job]) -> str:
    return f"{sum(len(job.policies) for job in jobs)} simulated runs"


EXPERIMENT = Experiment(
    name="batchmaker",
    source="Gao, Yu, Wu, Li, BatchMaker, EuroSys 2018",
    figures=("3", "7a", "7b", "8", "9", "11", "13", "14", "15", "abstract", "compare"),
    full=Scale(
        2,
        10.0,
        4000,
        (100, 150, 250, 500, 1000, 2000, 5000, 8000, 10000, 12000, 14000, 16000, 18000, 20000, 22000, 24000, 28000),
        (25, 50, 125, 250, 500, 1000, 2000, 3000, 4000, 4500, 5000, 5500, 6000),
        (250, 500, 1000, 1500, 2000, 2500, 3000, 3500, 4500, 6000, 7000),
        (50, 100, 250, 500, 1000, 2000),
    ),
    quick=Scale(1, 0.5, 1000, (150, 250, 5000, 16000, 28000), (125, 250, 6000), (1000, 3000, 7000), (100, 500)),
    jobs=jobs_for,
    run=run_job,
    row_types=(Row,),
    report=report,
    describe=describe,
)
