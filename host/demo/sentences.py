"""`headrace demo --model transformer`: sentences of all lengths through a step model, the policies side by side.

There is nothing to preprocess. Weights that were never trained say no <eos>, so a sentence's translation is cut at the
length that one of it would have; the policies do not know it before it has come.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from headrace.batching import ModelGraph, PolicyContext, Profile, UsageError, policy_with
from headrace.batching.graphs.execution import NodeTimes
from headrace.host.demo.load import HEAVY, run_requests
from headrace.host.demo.options import BEFOREHAND, DemoOptions
from headrace.host.demo.report.picture import draw
from headrace.host.demo.report.report import each_mean, gains, print_runs, run_json
from headrace.host.demo.report.trace import write_trace
from headrace.host.demo.serving import Arrivals, Progress, Run, run_arrivals
from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.live.results import Execution
from headrace.host.live.runtime import Runtime
from headrace.host.live.tasks.nodes import SplitTasks
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.inspection.parent import is_step_model, signature, step_nodes
from headrace.host.workers.networks.program import StepNodes
from headrace.host.workers.networks.sequence_networks import KINDS, Network
from headrace.host.workers.networks.steps import Signature
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes
from headrace.host.workers.profiling.batches import machine
from headrace.host.workers.profiling.nodes import measure_steps
from headrace.sim.workload.lengths import TRANSLATION, dec_timesteps
from headrace.sim.workload.traffic import poisson

# Of Headrace's own: small enough for a CPU, and large enough for a step to take longer than its message.
HIDDEN, HEADS, VOCABULARY = 256, 4, 8000
SAMPLES = 10_000  # of the lengths' distribution, for their means
NOTE = "Random weights; every output is cut at the length that a translation of its sentence would have."


@dataclass(frozen=True, slots=True)
class Sentences:
    """A `Source`: request i sends sentence i, and asks for as many tokens as its translation has."""

    tokens: Sequence[Sequence[int]]
    outputs: Sequence[int]

    def name(self, number: int) -> str:
        return f"{len(self.tokens[number])} tokens in, {self.outputs[number]} out"

    async def value(self, number: int) -> tuple[Any, Preprocessed | None]:
        return self.tokens[number], None

    def options(self, number: int) -> Mapping[str, Any]:
        return {"output_len": self.outputs[number]}

    def compare(self, number: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        raise AssertionError("no sentence is preprocessed")


@dataclass(frozen=True, slots=True)
class SentenceReport:
    options: DemoOptions
    machine: Mapping[str, Any]
    workers: int
    profiles: Mapping[str, Profile]
    rates_rps: Mapping[str, float]
    one_by_one_rps: float
    in_batches_rps: float
    runs: Sequence[Run]

    footnote = NOTE

    @property
    def hardware(self) -> str:
        return f"{self.workers} worker{'s' if self.workers > 1 else ''}"

    @property
    def unserved(self) -> int:
        return sum(run.result["requests"] - run.result["finished"] for run in self.runs)


def network_of(options: DemoOptions) -> Network | None:
    """The step model that the options name; None if they name networks that take photos. Raises UsageError."""
    found = [name for name in options.models if is_step_model(name)]
    if not found:
        return None
    if options.api is not None:
        raise UsageError(f"--xrt: {found[0]} takes sentences, which no DPU preprocesses; leave it out")
    if len(options.models) > 1 or options.npus or options.input_shapes or options.profiles:
        raise UsageError(
            f"{found[0]} takes sentences: give it alone, on worker processes, without --input-shape and --profile"
        )
    (name,) = found
    weights = options.weights[0] if options.weights else None
    if name in KINDS:
        return Network(name, name, HIDDEN, VOCABULARY, weights, heads=HEADS, rules=options.rules)
    return Network(name, name, weights=weights, rules=options.rules)


def demo(options: DemoOptions, network: Network, progress: Progress) -> SentenceReport:
    """Raises UsageError, for a network over trees too, and WorkerLost if no worker can be started."""
    return asyncio.run(_demo(options, network, progress))


async def _demo(options: DemoOptions, network: Network, progress: Progress) -> SentenceReport:
    devices = worker_devices(options.workers)
    model, graph = step_nodes(network, options.max_batch)
    progress.stage(f"profile of {network.name} on {len(devices)} workers, by step, batch and length")
    profile = await measure_steps(model, graph, workers=len(devices))
    times = profile.times()
    told, rng = signature(network), np.random.default_rng(options.seed)
    mean = [float(np.mean(lengths)) for lengths in zip(*_lengths(told, SAMPLES, rng), strict=True)]
    largest = profile.nodes.batches[-1] if profile.nodes is not None else 1
    alone, batched = (len(devices) * batch / times.whole(batch, mean[0], round(mean[1])) for batch in (1, largest))
    rate = options.rate_rps or min(math.sqrt(alone * batched), HEAVY * batched)
    count = run_requests(options, rate)
    lengths = _lengths(told, count, rng)
    words = min(2, told.vocabulary - 1)  # the first two may be marks
    tokens = [rng.integers(words, told.vocabulary, length).tolist() for length, _ in lengths]
    source = Sentences(tokens, [length for _, length in lengths])
    arrivals = Arrivals(poisson(rate, count, options.seed), [network.name] * count)
    runs = await _runs(options, model, graph, times, profile, source, arrivals, progress)
    return SentenceReport(
        options, machine(), len(devices), {network.name: profile}, {BEFOREHAND: rate}, alone, batched, runs
    )


def _lengths(told: Signature, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Of inputs and outputs: those of translations, halved where the network has no room for them."""
    found = []
    for inputs, outputs in zip(*(lengths.tolist() for lengths in TRANSLATION.sample(count, rng)), strict=True):
        while not told.fits(inputs, outputs) and max(inputs, outputs) > 1:
            inputs, outputs = max(1, inputs // 2), max(1, outputs // 2)
        found.append((inputs, outputs if told.decodes else 1))
    return found


async def _runs(
    options: DemoOptions,
    model: StepNodes,
    graph: ModelGraph,
    times: NodeTimes,
    profile: Profile,
    source: Sentences,
    arrivals: Arrivals,
    progress: Progress,
) -> list[Run]:
    name = model.name
    assumed = {name: dec_timesteps(TRANSLATION)}
    devices = worker_devices(options.workers)
    context = PolicyContext({name: times}, len(devices), {name: profile}, steps_of=lambda coverage: assumed)
    runs = []
    tasks = SplitTasks([], {name: graph}, len(arrivals.at), [model])
    with contextlib.closing(tasks):
        async with WorkerPool(processes(tasks.program(), devices)) as pool:
            for policy in options.policies:
                chosen = policy_with(policy, window_ms=options.window_s * 1e3, max_batch=options.max_batch)
                serving = chosen.build(context)
                executions: list[Execution] = []
                progress.stage(policy, len(arrivals.at))
                async with Runtime(serving, pool, tasks, on_execution=executions.append) as runtime:
                    run = await run_arrivals(
                        BEFOREHAND,
                        policy,
                        runtime,
                        executions,
                        {name: source},
                        arrivals,
                        seed=options.seed,
                        sla_s=options.sla_s,
                        drain_timeout_s=options.drain_timeout_s,
                        on_answer=lambda *_: None,
                        on_done=progress.step,
                    )
                runs.append(run)
    return runs


def shows(report: SentenceReport) -> list[str]:
    rate, alone, batched = report.rates_rps[BEFOREHAND], report.one_by_one_rps, report.in_batches_rps
    means = each_mean(report.runs, [run.policy for run in report.runs])
    return [
        f"At {rate:.0f} sentences/s, {rate / alone:.2f} times what the workers sustain one by one ({alone:.0f}/s) and "
        f"{rate / batched:.2f} times what they sustain in batches without padding ({batched:.0f}/s), one took on "
        f"average {means}.",
        *gains(report.runs),
    ]


def as_json(report: SentenceReport) -> dict[str, Any]:
    return {
        "models": list(report.profiles),
        "machine": dict(report.machine),
        "workers": report.workers,
        "rates_rps": dict(report.rates_rps),
        "one_by_one_rps": report.one_by_one_rps,
        "in_batches_rps": report.in_batches_rps,
        "sla_ms": report.options.sla_s * 1e3,
        "window_ms": report.options.window_s * 1e3,
        "max_batch": report.options.max_batch,
        "shows": shows(report),
        "note": NOTE,
        "runs": [run_json(run, report.rates_rps[BEFOREHAND]) | {"name": run.policy} for run in report.runs],
    }


def print_report(report: SentenceReport, console: Console) -> None:
    data = as_json(report)
    console.print(
        f"{' and '.join(report.profiles)} on {report.hardware}, Poisson sentences; {report.machine['cpu']}, "
        f"{report.machine['cores']} cores.",
        highlight=False,
        markup=False,
    )
    print_runs(data["runs"], console)
    for sentence in (*data["shows"], NOTE):
        console.print(sentence, highlight=False, markup=False)


def write_report(report: SentenceReport, folder: Path) -> list[Path]:
    """Writes report.json, demo.png, trace.pftrace and profile.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("report.json", "demo.png", "trace.pftrace", "profile.json")]
    paths[0].write_text(json.dumps(as_json(report), indent=2) + "\n")
    draw(report, shows(report), paths[1])
    write_trace(paths[2], report.runs)
    (profile,) = report.profiles.values()
    paths[3].write_text(profile.to_json())
    return paths
