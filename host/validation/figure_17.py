"""Measure LazyBatching's Fig. 17 on this machine: the Transformer under `lazy` and `graph`, live on one worker.

The experiment lies in sim, which knows no worker. So `headrace reproduce` hands `measure_figure_17` to it."""

import asyncio

from headrace.batching import ProfilePoint
from headrace.host.validation.device import worker_name
from headrace.host.validation.live import LOADS, WINDOWS, live_round, served_transformer, worker_of
from headrace.sim.experiments.lazybatching.rows import LiveRow
from headrace.sim.experiments.lazybatching.runs import Scale
from headrace.sim.sweeps.sweep import Progress

POLICIES = (("lazy", 0.0), *(("graph", window) for window in WINDOWS))
SEED = 0


def measure_figure_17(figure: str, scale: Scale, progress: Progress) -> list[LiveRow]:
    """Return one row for each load and policy. The worker is on a GPU if there is one, else on the CPU.

    Raises UsageError if torch is missing, and WorkerLost if no worker can be started."""
    return asyncio.run(_measure(scale, progress))


async def _measure(scale: Scale, progress: Progress) -> list[LiveRow]:
    device = worker_name()
    progress.stage(f"measuring the latencies of a Transformer on {device}")

    def on_point(point: ProfilePoint) -> None:
        progress.step()

    served = await served_transformer(scale.live_hidden, scale.live_max_batch, on_point)
    runs = [(load, *policy) for load in LOADS for policy in POLICIES]
    progress.stage(f"live runs on {device}", len(runs))
    rows = []
    async with worker_of(served) as pool:
        for load, policy, window in runs:
            found = await live_round(served, pool, policy, window, load, scale.live_s, SEED)
            live, simulated = found["live"], found["simulated"]
            rows.append(
                LiveRow(
                    device,
                    load,
                    found["rate_rps"],
                    SEED,
                    policy,
                    window,
                    1e3 * window * served.alone_s,
                    1e3 * served.slo_s,
                    live["requests"],
                    live["latency_ms"]["mean"],
                    live["latency_ms"]["p95"],
                    live["sla_violation_rate"],
                    simulated["latency_ms"]["mean"],
                    simulated["sla_violation_rate"],
                    live["machine"],
                )
            )
            progress.step()
    return rows
