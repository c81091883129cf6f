"""Serve a network live on one worker, and simulate the same arrivals on its measured latencies.

This is the setting of LazyBatching's Fig. 17: `lazy` against `graph` with several windows, on one real accelerator.
Arrivals are Poisson, inputs are made beforehand, and latency counts from the planned arrival. This module needs no
torch; the worker process does.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from headrace.batching import (
    HeadraceError,
    NodeTimes,
    Policy,
    PolicyContext,
    Profile,
    Served,
    ServedTimes,
    percentiles_ms,
    policy_with,
)
from headrace.batching.results import summarize
from headrace.host.live.machine.precise_timer import PreciseTimer
from headrace.host.live.results import Execution
from headrace.host.live.runtime import Runtime
from headrace.host.live.tasks.interface import Tasks
from headrace.host.live.tasks.nodes import SplitTasks
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.inspection.parent import node_model, step_nodes
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes
from headrace.host.workers.profiling.batches import OnPoint
from headrace.host.workers.profiling.nodes import measure_nodes, measure_steps
from headrace.sim.engine import Arrivals
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import TRANSLATION, Fixed, Lengths, dec_timesteps
from headrace.sim.workload.traffic import generate, poisson

MAX_BATCH: Final = 8
LOADS: Final = (0.3, 0.6, 0.9)  # shares of what padded batches of the largest size sustain
WINDOWS: Final = (0.0, 0.5, 1.0, 2.5, 5.0)  # of `graph`, times the latency of a request alone
SLO: Final = 1.5  # times the latency of a batch of the largest size
LEAST_REQUESTS: Final = 50  # of a run
LEAST_TURNS: Final = 20  # fewer have no percentile
SLOTS: Final = 4096  # requests in flight; further ones would be shed
END_S: Final = 30.0  # longest wait for the answers after the last arrival


@dataclass(frozen=True, slots=True)
class ServedNetwork:
    """A network with its measured latencies, the lengths of its requests, and the value of one of `input_len`.

    `alone_s` is the latency of a usual request alone, `capacity_rps` what batches of `max_batch` sustain, and `slo_s`
    the time within which a request is in time."""

    name: str
    tasks: SplitTasks
    profile: Profile
    lengths: Lengths
    value: Callable[[int], Any]
    dec_timesteps: Mapping[str, int]
    alone_s: float
    capacity_rps: float
    slo_s: float
    max_batch: int

    def policy(self, name: str, window: float) -> Policy:
        """Return a new policy by name. A window is a multiple of `alone_s`, and only `graph` has one.

        `lazy` keeps to the paper's Eq. 2, because the runs are those of its Fig. 17."""
        times = {self.name: self.profile.times()}
        steps = self.dec_timesteps
        context = PolicyContext(times, 1, {self.name: self.profile}, steps_of=lambda coverage: steps)
        settings = {"window_ms": 1e3 * window * self.alone_s, "max_batch": self.max_batch, "slack": "eq2"}
        return policy_with(name, **settings).build(context)


async def served_split(
    source: str, input_shape: str | None = None, max_batch: int = MAX_BATCH, on_point: OnPoint = lambda _: None
) -> ServedNetwork:
    """Measure a network that is cut into nodes. Inputs are noise of one shape. Raises UsageError and WorkerLost."""
    model, graph = node_model(source, max_batch, input_shape=input_shape)
    profile = await measure_nodes(model, graph, workers=1, on_point=on_point)
    value = np.random.default_rng(0).standard_normal(model.inputs[0].shape, np.float32)
    return ServedNetwork(
        model.name,
        SplitTasks([model], {model.name: graph}, SLOTS // 4),
        profile,
        Fixed(),
        lambda _: value,
        {},
        alone_s=profile.points[0].latency_s,
        capacity_rps=profile.knee().throughput_rps,
        slo_s=SLO * profile.times().whole(max_batch, 1.0, 1),
        max_batch=max_batch,
    )


async def served_transformer(
    hidden: int = 256, max_batch: int = MAX_BATCH, on_point: OnPoint = lambda _: None
) -> ServedNetwork:
    """Measure a Transformer of 2 + 2 layers, whose requests have the lengths of translations.

    A padded batch takes as long as its longest request, here one of the 90 % quantile. Raises UsageError and
    WorkerLost."""
    network = Network("transformer", "transformer", hidden=hidden, vocabulary=8000, heads=4)
    model, graph = step_nodes(network, max_batch)
    profile = await measure_steps(model, graph, workers=1, on_point=on_point)
    times = profile.times()
    inputs, outputs = TRANSLATION.sample(10_000, np.random.default_rng(0))
    padded_s = times.whole(max_batch, float(np.quantile(inputs, 0.9)), round(np.quantile(outputs, 0.9)))
    return ServedNetwork(
        network.name,
        SplitTasks([], {model.name: graph}, SLOTS, [model]),
        profile,
        TRANSLATION,
        lambda length: [2] * length,
        {network.name: dec_timesteps(TRANSLATION)},
        alone_s=times.whole(1, float(inputs.mean()), round(outputs.mean())),
        capacity_rps=max_batch / padded_s,
        slo_s=SLO * padded_s,
        max_batch=max_batch,
    )


@contextlib.asynccontextmanager
async def worker_of(served: ServedNetwork) -> AsyncIterator[WorkerPool]:
    """Start one worker for the network: on the first GPU slice or GPU, else on the CPU. Ends it, and frees the
    requests' memory."""
    try:
        async with WorkerPool(processes(served.tasks.program(), worker_devices(1))) as pool:
            yield pool
    finally:
        served.tasks.close()


async def live_round(
    served: ServedNetwork, pool: WorkerPool, name: str, window: float, load: float, seconds: float, seed: int
) -> dict[str, Any]:
    """Run one policy at one load, live and simulated.

    Args:
        pool: The worker of `served`.
        name: The policy; `window` is that of `graph`, times the latency of a request alone.
        load: The share of `capacity_rps` that arrives.
        seconds: The length of the run; it has LEAST_REQUESTS at least.
        seed: The seed of arrivals and lengths.

    Returns what `live_and_simulated` returns, and "rate_rps"."""
    rate = load * served.capacity_rps
    at = poisson(rate, max(LEAST_REQUESTS, round(rate * seconds)), seed)
    arrivals = generate(at, {served.name: served.lengths}, served.slo_s, seed)

    def value(number: int) -> tuple[Any, dict[str, Any]]:
        options = {"output_len": arrivals.output_len[number]} if served.dec_timesteps else {}
        return served.value(int(arrivals.input_len[number])), options

    found = await live_and_simulated(
        lambda: served.policy(name, window), pool, served.tasks, served.profile.times(), arrivals, value, served.slo_s
    )
    return {"rate_rps": rate, **found}


async def live_and_simulated(
    policy: Callable[[], Policy],
    pool: WorkerPool,
    tasks: Tasks,
    times: NodeTimes,
    arrivals: Arrivals,
    value: Callable[[int], tuple[Any, Mapping[str, Any]]],
    slo_s: float = math.inf,
) -> dict[str, Any]:
    """Return the result of the simulator and of the live runtime for the same arrivals at one worker.

    The live result also has how late requests were sent, the turn-round, `machine`: the time of the nodes divided by
    what the profile says of the same nodes and batches, and `errors`: the texts of tasks that failed and ran again."""
    (model,) = set(arrivals.models)
    simulated = simulate(policy(), arrivals, {model: times}, 1)
    run = await run_live(policy(), pool, tasks, value, arrivals, slo_s)
    profiled_s = sum(
        times.duration(task.batch_size, times.task_length(task), task.start, task.stop)
        if task.preemptible
        else times.whole_task(task)
        for task in (execution.task for execution in run.executions if not execution.error)
    )
    live = {
        **run.result,
        "late_ms": percentiles_ms(run.late_s),
        "tasks": run.tasks,
        "turn_us": turn_us(run.executions),
        "machine": sum(execution.execute_s for execution in run.executions if not execution.error) / profiled_s,
        "errors": [execution.error for execution in run.executions if execution.error],
    }
    return {"simulated": simulated.result, "live": live}


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One live run of an open loop.

    Attributes:
        result: The result keys of the run.
        served: The requests as they were served.
        late_s: How late each request was sent (s).
        executions: The tasks that ran.
        tasks: How many tasks the runtime counted.
        cpu_s: The processor time of this process, which has the runtime and the client.
    """

    result: dict[str, Any]
    served: list[Served]
    late_s: list[float]
    executions: list[Execution]
    tasks: int
    cpu_s: float


async def run_live(
    policy: Policy,
    pool: WorkerPool,
    tasks: Tasks,
    value: Callable[[int], tuple[Any, Mapping[str, Any]]],
    arrivals: Arrivals,
    slo_s: float = math.inf,
    *,
    seed: int | None = None,
    around: contextlib.AbstractContextManager[object] | None = None,
) -> LiveRun:
    """Serve arrivals of one model at one worker.

    Args:
        policy: A new policy.
        pool: The worker.
        tasks: The tasks of the model.
        value: Returns the input and the options of a request by its number.
        arrivals: The requests.
        slo_s: The target of each request (s).
        seed: The seed that the result reports.
        around: The context in which requests are sent; None for none.
    """
    (model,) = set(arrivals.models)
    executions: list[Execution] = []
    async with Runtime(policy, pool, tasks, on_execution=executions.append) as runtime:
        with around or contextlib.nullcontext():
            cpu_s = time.process_time()
            served, late = await open_loop(runtime, model, value, np.array(arrivals.arrival), slo_s)
            cpu_s = time.process_time() - cpu_s
        counts = runtime.statistics()
    result = summarize(
        ServedTimes.of(served),
        runtime.ledger,
        batch_size_mean=counts.request_node_runs / counts.node_runs,
        busy_s=counts.busy_s,
        workers=1,
        wall_s=0.0,
        seed=seed,
    )
    return LiveRun(dict(result), served, late, executions, counts.tasks, cpu_s)


def turn_us(executions: Sequence[Execution]) -> dict[str, float] | None:
    """Return median and p99 (us) from the end of a task until the next one begins, where a request waited at that end.

    It is None for LEAST_TURNS or fewer."""
    turns = [
        1e6 * (after.started - before.ended)
        for before, after in pairwise(executions)
        if min(request.arrival for request in after.task.requests) < before.ended
    ]
    if len(turns) <= LEAST_TURNS:
        return None
    return {"median": float(np.median(turns)), "p99": float(np.percentile(turns, 99))}


async def open_loop(
    runtime: Runtime,
    model: str,
    value: Callable[[int], tuple[Any, Mapping[str, Any]]],
    arrivals: np.ndarray,
    slo_s: float = math.inf,
) -> tuple[list[Served], list[float]]:
    """Send requests at the times `arrivals` (s), which count from a moment after now.

    `value` returns the input and the options of a request, given its number. Returns the requests as they were served,
    and how late each was sent (s). Latency counts from the planned arrival. Raises the error of a request that was not
    served, and HeadraceError if answers are missing END_S after the last arrival."""
    served: list[Served] = []
    late: list[float] = []
    done = asyncio.get_running_loop().create_future()
    begin = time.monotonic() + 0.05
    calls = set()

    async def call(number: int, planned: float) -> None:
        arrival = planned - runtime.origin
        given, options = value(number)
        inference = await runtime.infer(model, given, arrival=arrival, deadline=arrival + slo_s, **options)
        served.append(inference.served)

    def ended(of: asyncio.Task[None]) -> None:
        calls.discard(of)
        if done.done() or of.cancelled():
            return
        if error := of.exception():
            done.set_exception(error)
        elif len(served) == len(arrivals):
            done.set_result(None)

    def ring() -> None:
        now = time.monotonic()
        while len(late) < len(arrivals) and begin + arrivals[len(late)] <= now:
            planned = begin + float(arrivals[len(late)])
            sent = asyncio.ensure_future(call(len(late), planned))
            calls.add(sent)
            sent.add_done_callback(ended)
            late.append(now - planned)
        if len(late) < len(arrivals):
            timer.set(begin + float(arrivals[len(late)]))

    timer = PreciseTimer(ring)
    timer.set(begin + float(arrivals[0]))
    try:
        await asyncio.wait_for(done, float(arrivals[-1]) + END_S)
    except TimeoutError as error:
        raise HeadraceError(
            f"{len(arrivals) - len(served)} of {len(arrivals)} requests were not answered {END_S:g} s after the last "
            "one was sent; is the machine busy with something else? Measure again when it is not"
        ) from error
    finally:
        timer.close()
        for each in calls:
            each.cancel()
    return served, late
