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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from headrace.batching.graphs.cell_graph import CellGraph, CellModel, CellType, lstm, seq2seq
from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.graphs.model_graph import MatMul, ModelGraph, Node, NodeKind
from headrace.batching.policies.bucketed_graph import BucketedGraphBatching, bucket_end
from headrace.batching.policies.cellular import CellularBatching
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching
from headrace.batching.policies.graph import GraphBatching
from headrace.batching.policies.lazy import LazyBatching
from headrace.batching.policy import Policy
from headrace.batching.request import Request
from headrace.sim.experiments.batchmaker import plots
from headrace.sim.experiments.batchmaker.rows import Row, Runs
from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.experiments.report import Claim
from headrace.sim.hardware.npu import npu_times
from headrace.sim.hardware.v100 import (
    DECODER_FULL_BATCH,
    FLAT_BATCH,
    FULL_BATCH,
    cell_times,
    decoder_step_s,
    lstm_step_s,
    padded_graph,
    padded_times,
    tree_cell_s,
    tree_times,
)
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import WMT15, Clipped, Fixed, Lengths, Sentences, dec_timesteps
from headrace.sim.workload.traffic import generate, poisson
from headrace.sim.zoo.cells import tree_lstm

BUCKET = 10
WIDTHS = (1, 5, 10, 20, 40)
LOW_RPS = 250  # the least load of the claims
MODERATE_RPS = 8000  # for the LSTM: half of what MXNet serves (Section 7)
EVERY_GATHERS = ", every task gathers"  # ends the names of experiments without locality, for comparison
TREE_BATCH = 64
MERGED_CELLS = 4096  # the limit of a merged batch; 64 bounds the trees and not their cells (Section 7.5)
# The cost of merging on the host, for each cell of each request. It is our assumption, of the order of the time that a
# dynamic framework takes to make an operation.
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
    if name in ("tree", "tree of LSTM steps"):
        merged = policy == "dynamic-graph"
        limit = MERGED_CELLS if merged else TREE_BATCH
        model = tree_lstm(name, limit, 16 if job.lengths == "complete 16" else 0)
        times = tree_times(model, scheduled=not merged) if name == "tree" else cell_times(model, locality=False)
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
            return _jobs("width", "lstm", "wmt15", 1, scale.lstm, scale, widths)
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
            ]
        case "14" | "15":
            lengths = "trees" if figure == "14" else "complete 16"
            merges = [("cellular", TREE_BATCH), ("dynamic-graph", round(MERGE_S * 1e6)), ("dynamic-graph", 0)]
            return [
                job
                for network in ("tree", "tree of LSTM steps")
                for job in _jobs(f"tree {figure}", network, lengths, 1, scale.tree, scale, merges)
            ]
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
    """Return the rate of full batches of LSTM steps alone, without a gap."""
    return FULL_BATCH / length / lstm_step_s(FULL_BATCH)


BY_CONSTRUCTION = "by construction: a constant was derived from it"


def figure_7a(runs: Runs, folder: Path) -> list[Claim]:
    lstm_runs, every = runs.select(experiment="lstm"), runs.select(experiment=f"lstm{EVERY_GATHERS}")
    plots.latency_by_throughput(folder / "figure7a.png", lstm_runs, "LSTM, lengths of WMT-15, one GPU")
    cellular, bucketed = lstm_runs.select(policy="cellular"), lstm_runs.select(policy="bucketed-graph")
    low = cellular.between(LOW_RPS, MODERATE_RPS)
    least = bucketed.between(LOW_RPS, math.inf)
    offered = max(runs.rates())
    of_16k = runs.near(16_000)
    return [
        Claim(
            "7a",
            f"LSTM, cellular: peak, {offered:g}/s offered",
            20_000,
            cellular.peak(),
            "1/s",
            f"{runs.averaged}; where lengths vary, {cellular.gathered(offered):.0%} of the tasks gather, and where they "
            f"are equal fewer do (Fig. 11). If every task paid the mean: {every.peak():.0f}/s",
        ),
        Claim(
            "7a",
            f"LSTM, bucketed graphs: served of {of_16k:g}/s",
            16_000,
            bucketed.mean("throughput_rps", rate_rps=of_16k),
            "1/s",
            f"{runs.averaged}; of {offered:g}/s {bucketed.peak():.0f}, as batches fill",
        ),
        Claim(
            "7a",
            f"LSTM, bucketed graphs: p90 at {of_16k:g}/s",
            500,
            bucketed.mean("p90_ms", rate_rps=of_16k),
            "ms",
            runs.averaged,
            ">",
        ),
        Claim(
            "7a",
            f"LSTM, cellular: highest p90 at {LOW_RPS} to {MODERATE_RPS}/s",
            12,
            max(low.curve("p90_ms")),
            "ms",
            f"{runs.averaged}; at {_list(low.rates())}/s: {_list(low.curve('p90_ms'), '{:.1f}')}",
        ),
        Claim(
            "7a",
            f"LSTM, bucketed graphs: least p90, at {LOW_RPS}/s or more",
            25,
            min(least.curve("p90_ms")),
            "ms",
            f"{runs.averaged}; the paper does not print its least load: at {_list(bucketed.rates()[:5])}/s "
            f"{_list(bucketed.curve('p90_ms')[:5], '{:.0f}')} ms",
        ),
    ]


def figure_7b(runs: Runs, folder: Path) -> list[Claim]:
    large, small = (runs.select(experiment=name) for name in ("lstm", "lstm, 64"))
    plots.latency_by_throughput(folder / "figure7b.png", small, "LSTM, at most 64")
    low = [cellular.select(policy="cellular").between(LOW_RPS, MODERATE_RPS) for cellular in (large, small)]
    ratios = [a / b for a, b in zip(*(one.curve("p90_ms") for one in low), strict=True)]
    return [
        Claim(
            "7b",
            f"LSTM, cellular: p90 with 512 by that with 64, mean of loads {LOW_RPS} to {MODERATE_RPS}/s",
            1,
            float(np.mean(ratios)),
            "x",
            f"{runs.averaged}; the paper: similar",
        ),
        *(
            Claim(
                "7b",
                f"LSTM, {plots.NAMES.get(policy, policy)}: peak with 512 by that with 64",
                1,
                large.peak(policy=policy) / small.peak(policy=policy),
                "x",
                f"{runs.averaged}; {large.peak(policy=policy):.0f} and {small.peak(policy=policy):.0f}/s",
                ">",
            )
            for policy in ("cellular", "bucketed-graph")
        ),
    ]


def figure_8(runs: Runs, folder: Path) -> list[Claim]:
    plots.widths(folder / "figure8.png", runs)
    rate = runs.near(LOW_RPS)
    fine, usual, coarse = (runs.select(setting=width) for width in (1, 10, 40))

    def late(one: Runs) -> float:
        return one.mean("p90_ms", rate_rps=rate) / usual.mean("p90_ms", rate_rps=rate)

    offered = max(runs.rates())
    lengths, _ = WMT15.sample(100_000, np.random.default_rng(0))
    served = ", ".join(f"{runs.peak(setting=width):.0f}/s with {width}" for width in WIDTHS)
    full = _list([ideal_rps(float(np.mean([bucket_end(n, width) for n in lengths]))) for width in WIDTHS], "{:.0f}")
    return [
        Claim("8", f"LSTM, buckets of 40: p90 by that of 10 at {rate:g}/s", 1, late(coarse), "x", runs.averaged, "<"),
        Claim("8", f"LSTM, buckets of 1: p90 by that of 10 at {rate:g}/s", 1, late(fine), "x", runs.averaged, ">"),
        Claim(
            "8",
            f"LSTM, buckets of 40: peak by that of 10, {offered:g}/s offered",
            1,
            coarse.peak() / usual.peak(),
            "x",
            runs.averaged,
            "<",
        ),
        Claim(
            "8",
            f"LSTM, buckets of 1: peak by that of 10, {offered:g}/s offered",
            1,
            fine.peak() / usual.peak(),
            "x",
            f"{runs.averaged}; the narrower, the longer batches take to fill: {served}; if all were full: {full}",
            ">",
        ),
    ]


def figure_9(runs: Runs, folder: Path) -> list[Claim]:
    rate = runs.near(5000)
    plots.waits(folder / "figure9.png", runs.select(rate_rps=rate))
    cellular, bucketed = (runs.select(policy=name, rate_rps=rate) for name in ("cellular", "bucketed-graph"))
    little = rate * 24 * 250e-6
    return [
        Claim(
            "9",
            f"LSTM, cellular: p99 of the wait at {rate:g}/s",
            1.38,
            cellular.mean("wait_p99_ms"),
            "ms",
            runs.averaged,
        ),
        Claim(
            "9",
            f"LSTM, bucketed graphs: p99 of the wait at {rate:g}/s",
            100,
            bucketed.mean("wait_p99_ms"),
            "ms",
            runs.averaged,
            ">",
        ),
        Claim(
            "9",
            f"LSTM, cellular: mean batch at {rate:g}/s",
            64,
            cellular.mean("batch_size_mean"),
            "",
            f"{runs.averaged}; Little's law gives {little:.0f} = {rate:g}/s x 24 steps x 250 us: the paper's 64 may "
            "be the size that smaller batches are run at",
        ),
    ]


def figure_11(runs: Runs, folder: Path) -> list[Claim]:
    plots.by_lengths(folder / "figure11.png", runs)
    ideal = ideal_rps(24)
    equal = runs.select(lengths="fixed 24")
    shares = {policy: 100 * equal.peak(policy=policy) / ideal for policy in ("cellular", "bucketed-graph")}
    rate = runs.near(LOW_RPS)
    slower = equal.mean("p90_ms", policy="cellular", rate_rps=rate) / equal.mean(
        "p90_ms", policy="bucketed-graph", rate_rps=rate
    )
    varied = "; ".join(
        f"{name}: {runs.select(lengths=name).peak(policy='cellular'):.0f} and "
        f"{runs.select(lengths=name).peak(policy='bucketed-graph'):.0f}/s"
        for name in ("fixed 24", "clip 50", "clip 100")
    )
    offered = max(runs.rates())
    return [
        Claim("11", "LSTM, 24 steps: ideal rate", 27_136, ideal, "1/s", "512 / (24 x 784 us)"),
        Claim(
            "11",
            f"LSTM, 24 steps, graphs of that length: share of the ideal, {offered:g}/s offered",
            100,
            shares["bucketed-graph"],
            "%",
            f"{runs.averaged}; the paper: close to it",
        ),
        Claim(
            "11",
            f"LSTM, 24 steps, cellular: share of the ideal, {offered:g}/s offered",
            87,
            shares["cellular"],
            "%",
            f"{runs.averaged}; {BY_CONSTRUCTION}. Peaks of cellular and of graphs: {varied}",
        ),
        Claim(
            "11", f"LSTM, 24 steps, cellular: p90 by that of graphs at {rate:g}/s", 1, slower, "x", runs.averaged, "<"
        ),
    ]


def figure_13(runs: Runs, folder: Path) -> list[Claim]:
    plain = runs.select(experiment="seq2seq")
    plots.seq2seq(folder / "figure13.png", plain)
    claims = []
    for workers, paper in ((2, 8500), (4, 17_000)):
        mine = plain.select(workers=workers)
        every = runs.select(experiment=f"seq2seq{EVERY_GATHERS}", workers=workers)
        best, same = (mine.peak(policy="cellular", setting=batch) for batch in (FULL_BATCH, DECODER_FULL_BATCH))
        where = f"{max(mine.rates()):g}/s offered"
        what = f"Seq2Seq, {workers} GPUs, cellular (512, 256)"
        claims.append(
            Claim(
                "13",
                f"{what}: peak, {where}",
                paper,
                best,
                "1/s",
                f"{runs.averaged}; {mine.select(policy='cellular').gathered(max(mine.rates())):.0%} of the tasks gather. "
                f"If every task paid the mean, and no copy between GPUs cost time: {every.peak():.0f}/s. Bucketed graphs: "
                f"{mine.peak(policy='bucketed-graph'):.0f}/s",
            )
        )
        gained = 100 * (best / same - 1)
        note = f"{runs.averaged}; {best:.0f} and {same:.0f}/s"
        claims += [
            Claim("13", f"{what}: peak over that of (256, 256), {where}", limit, gained, "%", note, bound)
            for limit, bound in ((3.5, ">"), (6, "<"))
        ]
    return claims


def figure_14(runs: Runs, folder: Path) -> list[Claim]:
    derived, plain = (runs.select(network=name) for name in ("tree", "tree of LSTM steps"))
    plots.trees(folder / "figure14.png", derived)
    rate = runs.near(1000)
    merge = round(MERGE_S * 1e6)

    def found(one: Runs, policy: str, setting: int) -> tuple[float, float]:
        """Return the peak (1/s), and the p90 (ms) at that load."""
        mine = one.select(policy=policy, setting=setting)
        return mine.peak(), mine.mean("p90_ms", rate_rps=rate)

    forms = ("{:.0f}", "{:.1f}")
    claims = []
    for policy, setting, name, *paper in (
        ("cellular", TREE_BATCH, "cellular", 3100, 6.8),
        ("dynamic-graph", merge, "merged graphs", 2100, 9.5),
    ):
        measured, of_steps = found(derived, policy, setting), found(plain, policy, setting)
        notes = [f"with LSTM steps for cells {form.format(value)}" for form, value in zip(forms, of_steps, strict=True)]
        if policy == "cellular":
            notes[0] = f"{BY_CONSTRUCTION}; {notes[0]}"
            notes[1] = f"a cell of few rows is taken to cost as much as one of 64; {notes[1]}"
        else:
            free = found(derived, policy, 0)
            notes = [
                f"{note}; without the {merge} us a cell of merging, our assumption, {form.format(value)}"
                for note, form, value in zip(notes, forms, free, strict=True)
            ]
        claims += [
            Claim("14", f"TreeLSTM, {name}: {what}", number, value, unit, f"{runs.averaged}; {note}")
            for what, number, value, unit, note in zip(
                (f"peak, {max(runs.rates()):g}/s offered", f"p90 at {rate:g}/s"),
                paper,
                measured,
                ("1/s", "ms"),
                notes,
                strict=True,
            )
        ]
    return claims


def figure_15(runs: Runs, folder: Path) -> list[Claim]:
    derived, plain = (runs.select(network=name) for name in ("tree", "tree of LSTM steps"))
    plots.trees(folder / "figure15.png", derived)
    # TREE_BATCH trees run at a time, and each of the 31 cells as one batch of them.
    ideal, of_steps = (TREE_BATCH / (31 * step(TREE_BATCH)) for step in (tree_cell_s, lstm_step_s))
    share = 100 * derived.peak(policy="cellular") / ideal
    note = (
        f"{runs.averaged}; {BY_CONSTRUCTION}. The ideal, {ideal:.0f}/s: 64 trees at a time, every cell a batch of 64. "
        f"With LSTM steps for cells {100 * plain.peak(policy='cellular') / of_steps:.0f} % of {of_steps:.0f}/s"
    )
    what = f"complete trees of 16 leaves, cellular: share of the ideal, {max(runs.rates()):g}/s offered"
    return [Claim("15", what, 70, share, "%", note)]


def abstract(runs: Runs, folder: Path) -> list[Claim]:
    """Compare the numbers of the abstract and of the start of Section 7, from the runs of Figures 7a, 13 and 14.

    A moderate load is less than half of the baseline's peak."""
    merged = ("dynamic-graph", round(MERGE_S * 1e6))
    parts = {
        "LSTM": (runs.select(experiment="lstm"), FULL_BATCH, "bucketed-graph", BUCKET),
        "Seq2Seq, 2 GPUs": (runs.select(experiment="seq2seq", workers=2), FULL_BATCH, "bucketed-graph", BUCKET),
        "Seq2Seq, 4 GPUs": (runs.select(experiment="seq2seq", workers=4), FULL_BATCH, "bucketed-graph", BUCKET),
        "TreeLSTM": (runs.select(network="tree"), TREE_BATCH, *merged),
    }
    less: dict[str, dict[float, float]] = {}
    peaks: dict[str, tuple[float, float]] = {}
    for name, (mine, batch, baseline, setting) in parts.items():
        ours, theirs = mine.select(policy="cellular", setting=batch), mine.select(policy=baseline, setting=setting)
        peaks[name] = ours.peak(), theirs.peak()
        less[name] = {
            rate: 100 * (1 - ours.mean("p90_ms", rate_rps=rate) / theirs.mean("p90_ms", rate_rps=rate))
            for rate in mine.rates()
            if rate < theirs.peak() / 2
        }
    plots.less_latency(folder / "figureabstract.png", less)
    lines = [f"{name},{rate:g},{value:.1f}" for name, found in less.items() for rate, value in found.items()]
    (folder / "figureabstract.csv").write_text("\n".join(["network,rate_rps,p90_less_percent", *lines]) + "\n")
    claims = []
    for name, (least, greatest, ratio, peak_rps) in {
        "LSTM": (37.5, 90.5, 1.25, 20_000),
        "Seq2Seq, 2 GPUs": (17.5, 82.6, 1.6, 8500),
        "Seq2Seq, 4 GPUs": (17.5, 82.6, 1.6, 17_000),
    }.items():
        found = [value for rate, value in less[name].items() if rate >= LOW_RPS]
        all_loads = f"at {_list(list(less[name]))}/s: {_list(list(less[name].values()), '{:.0f}')} %"
        what = f"{name}: {{}} that p90 is below bucketed graphs', from {LOW_RPS}/s to half of their peak"
        ours_rps, theirs_rps = peaks[name]
        claims += [
            Claim(
                "abstract",
                what.format("least"),
                least,
                min(found),
                "%",
                f"{runs.averaged}; it is that of the least load, which the paper does not print: {all_loads}",
            ),
            Claim("abstract", what.format("most"), greatest, max(found), "%", runs.averaged),
            Claim(
                "abstract",
                f"{name}: peak by that of bucketed graphs",
                ratio,
                ours_rps / theirs_rps,
                "x",
                f"{runs.averaged}; {ours_rps:.0f} by {theirs_rps:.0f}/s; the paper's {peak_rps} by "
                f"{peak_rps / ratio:.0f}/s, of which see Fig. 7a and 13",
            ),
        ]
    tree = parts["TreeLSTM"][0].select(rate_rps=runs.near(1000))
    late = [tree.mean("p90_ms", policy=name, setting=setting) for name, setting in (("cellular", TREE_BATCH), merged)]
    ours_rps, theirs_rps = peaks["TreeLSTM"]
    return [
        *claims,
        Claim(
            "abstract",
            f"TreeLSTM: p90 below merged graphs' at {tree.rates()[0]:g}/s",
            28,
            100 * (1 - late[0] / late[1]),
            "%",
            f"{runs.averaged}; {late[0]:.1f} and {late[1]:.1f} ms, of which merging is our assumption (Fig. 14)",
        ),
        Claim(
            "abstract",
            "TreeLSTM: peak by that of merged graphs",
            1.8,
            ours_rps / theirs_rps,
            "x",
            f"{runs.averaged}; {ours_rps:.0f} by {theirs_rps:.0f}/s; Section 7.5 has 3,100 by 2,100, which is 1.5",
        ),
    ]


def compare(runs: Runs, folder: Path) -> list[Claim]:
    plots.compare(folder / "figurecompare.png", runs)
    return []


def _list(values: Sequence[float], form: str = "{:g}") -> str:
    return ", ".join(form.format(value) for value in values)


REPORTS: dict[str, Callable[[Runs, Path], list[Claim]]] = {
    "3": figure_3,
    "7a": figure_7a,
    "7b": figure_7b,
    "8": figure_8,
    "9": figure_9,
    "11": figure_11,
    "13": figure_13,
    "14": figure_14,
    "15": figure_15,
    "abstract": abstract,
    "compare": compare,
}


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
