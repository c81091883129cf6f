"""Policies live on one worker at three loads, with the simulator on the measured profile.

LazyBatching's Fig. 17 compares `lazy` with `graph` in this way, on a GPU."""

import asyncio
from collections.abc import AsyncGenerator, Iterator

from headrace.batching import UsageError
from headrace.host.live.results import Overloaded
from headrace.host.validation.live import LOADS, ServedNetwork, live_round, served_split, served_transformer, worker_of
from headrace.host.validation.plan import NETWORKS, Check, Row, failed
from headrace.host.workers.devices import worker_devices

COUNTS = ("requests", "finished", "failed", "shed", "dropped", "cancelled")


def rows(check: Check) -> Iterator[Row]:
    (worker,) = worker_devices(1)
    if worker.device != check.device:
        raise UsageError(
            f"workers run on {worker.device}, and torch on {check.device}: install nvidia-ml-py, by which workers find "
            "GPUs"
        )
    with asyncio.Runner() as runner:
        for name in check.sizes.live:
            found = _network(check, name)
            try:
                while (row := runner.run(_next(found))) is not None:
                    yield row
            except Exception as error:
                yield failed(name, "mean latency", "ms", error)
            finally:
                runner.run(found.aclose())


async def _next(found: AsyncGenerator[Row]) -> Row | None:
    return await anext(found, None)


async def _served(check: Check, name: str) -> ServedNetwork:
    if name == "transformer":
        return await served_transformer(check.sizes.hidden, check.sizes.max_batch)
    return await served_split(NETWORKS[name][0], max_batch=check.sizes.max_batch)


async def _network(check: Check, name: str) -> AsyncGenerator[Row]:
    served = await _served(check, name)
    async with worker_of(served) as pool:
        for load in LOADS:
            for policy, window in check.sizes.policies:
                case = f"{name}, load {load:g}, {policy}{f' {window:g}' if policy == 'graph' else ''}"
                if check.left_s() <= 0:
                    yield Row(case, "mean latency", "ms", None, None, "no time was left")
                    return
                try:
                    found = await live_round(served, pool, policy, window, load, check.sizes.live_s, seed=0)
                except Overloaded as error:
                    yield Row(case, "mean latency", "ms", None, None, f"the worker was too slow: {error}")
                    continue
                live, simulated = found["live"], found["simulated"]
                details = {
                    "network": name,
                    "load": load,
                    "policy": policy,
                    "window": window,
                    "window_ms": 1e3 * window * served.alone_s,
                    "slo_ms": 1e3 * served.slo_s,
                    "rate_rps": found["rate_rps"],
                    "counts": {key: live[key] for key in COUNTS},
                    "live": live,
                    "simulated": simulated,
                }
                if live["errors"]:
                    yield Row(case, "failed tasks", "", None, len(live["errors"]), error=live["errors"][0])
                note = (
                    f"{live['requests']} requests, mean batch {live['batch_size_mean']:.2f}, nodes "
                    f"{live['machine']:.2f} times as slow as in the profile"
                )
                expected, measured = (each["latency_ms"]["mean"] for each in (simulated, live))
                yield Row(case, "mean latency", "ms", expected, measured, note, details)
                expected, measured = (100 * each["sla_violation_rate"] for each in (simulated, live))
                yield Row(case, "late", "%", expected, measured)
