"""Simulated requests per second of the engine, with the same M/D/1 queue in SimPy for comparison.

    .venv/bin/python -m benchmarks.simulator [--requests 100000] [--rounds 5] [--json [FILE]]

SimPy is left out where it is not installed (`pip install simpy`).
"""

import argparse
import importlib.util
import random
import statistics
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Report, arguments, main, measure, seconds, spread, summary, table
from headrace.batching import (
    GraphBatching,
    LazyBatching,
    MatMul,
    ModelGraph,
    Node,
    NodeTimes,
    PrebaBatching,
    Profile,
    SerialBatching,
    SmdpBatching,
    WorkConservingBatching,
)
from headrace.batching.smdp import BatchService, Weights
from headrace.batching.smdp.tables import rate_tables
from headrace.sim.engine import Arrivals
from headrace.sim.hardware.npu import npu_times
from headrace.sim.machine import usual_lengths
from headrace.sim.preprocessing import Preprocessor, Step
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Fixed, dec_timesteps
from headrace.sim.workload.traffic import generate, poisson
from headrace.sim.zoo import model_graph

SERVICE_S, RATE_RPS = 0.001, 700.0  # load 0.7
SIMPY = "SimPy, M/D/1 at 0.7"


class Constant:
    def latency(self, node: int, batch: int, length: float) -> float:
        return SERVICE_S


class Slice:
    """Latencies of PREBA's image networks on a seventh of an A100: 2 ms, and 1 ms more for each request."""

    def latency(self, node: int, batch: int, length: float) -> float:
        return 0.002 + 0.001 * batch


class Measured:
    """The latencies of a service that is given by batch size."""

    def __init__(self, service: BatchService) -> None:
        self._latency = service.latency.tolist()

    def latency(self, node: int, batch: int, length: float) -> float:
        return self._latency[batch - 1]


def four_units() -> Preprocessor:
    """Return the chain of a DPU: a copy to the card, two kinds of compute unit, 4 of each, and a copy to the GPU."""

    def constant(seconds: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda sizes: np.full(len(sizes), seconds)

    return Preprocessor(
        "dpu:4",
        (
            Step("to the card", 1, constant(2e-5)),
            Step("A", 4, lambda sizes: 4e-4 * sizes),
            Step("B", 4, lambda sizes: 1e-4 * sizes),
            Step("to the GPU", 1, constant(4e-5)),
        ),
    )


def simpy_md1(requests: int) -> float:
    """Return the mean latency (s) in SimPy: one process a request, one server, the same arrivals and service times."""
    import simpy

    environment = simpy.Environment()
    server = simpy.Resource(environment, 1)
    rng = random.Random(0)
    latencies: list[float] = []

    def request(arrival: float):
        with server.request() as turn:
            yield turn
            yield environment.timeout(SERVICE_S)
        latencies.append(environment.now - arrival)

    def source():
        for _ in range(requests):
            yield environment.timeout(rng.expovariate(RATE_RPS))
            environment.process(request(environment.now))

    environment.process(source())
    environment.run()
    return statistics.fmean(latencies)


def arrivals(model: str, rate_rps: float, requests: int) -> Arrivals:
    lengths = {model: Fixed() if model == "server" else usual_lengths(model)}
    return generate(poisson(rate_rps, requests, 0), lengths, 0.1, 0)


def simulations(n: int) -> dict[str, Callable[[], object]]:
    server = ModelGraph("server", (Node("service", operators=(MatMul(1, 1, 1),)),))
    one = {"server": NodeTimes(server, Constant())}
    resnet = {"resnet50": npu_times(model_graph("resnet50"))}
    gnmt = {"gnmt": npu_times(model_graph("gnmt"))}
    slices = {"server": NodeTimes(server, Slice())}
    curve = {"server": Profile.of("server", slices["server"], 7)}
    steps = {"gnmt": dec_timesteps(usual_lengths("gnmt"), 0.9)}
    queue, images = arrivals("server", RATE_RPS, n), arrivals("resnet50", 1000.0, n)
    sentences, encoded = arrivals("gnmt", 1000.0, n), arrivals("server", 5900.0, n)
    sizes = np.random.default_rng(0).uniform(0.5, 1.5, n)
    found: dict[str, Callable[[], object]] = {
        "serial, M/D/1 at 0.7": lambda: simulate(SerialBatching([server]), queue, one, 1),
        "graph (5 ms, 64), the same": lambda: simulate(GraphBatching([server], 0.005, 64), queue, one, 1),
        "lazy, ResNet-50 on the NPU at 1000/s": lambda: simulate(LazyBatching(resnet, 1), images, resnet, 1),
        "lazy, GNMT on the NPU at 1000/s": lambda: simulate(
            LazyBatching(gnmt, 1, dec_timesteps=steps), sentences, gnmt, 1
        ),
        "preba, 7 slices at 0.9": lambda: simulate(PrebaBatching([server], curve, 7), encoded, slices, 7),
        "the same with a DPU of 4 steps, 4 CUs": lambda: simulate(
            PrebaBatching([server], curve, 7),
            encoded,
            slices,
            7,
            preprocessor=four_units(),
            sizes=lambda arrivals: sizes,
        ),
    }
    # GoogLeNet on a Tesla P4, in s and J (Xu, Sun, Zhou, Niu, ICC 2023), at a load of 0.7.
    p4 = BatchService.linear((0.3051e-3, 1.052e-3), (19.90e-3, 19.60e-3), 32)
    net, tables = {"server": NodeTimes(server, Measured(p4))}, {"server": rate_tables(p4, Weights(1.0, 1e-3), 1)}
    batches = arrivals("server", p4.arrival_rate(0.7), n)
    found["work-conserving, P4 at 0.7"] = lambda: simulate(WorkConservingBatching([server], 32), batches, net, 1)
    found["smdp, the same"] = lambda: simulate(SmdpBatching([server], tables, 32), batches, net, 1)
    if importlib.util.find_spec("simpy"):
        found[SIMPY] = lambda: simpy_md1(n)
    return found


def run(options: argparse.Namespace) -> Report:
    runs = simulations(options.requests)
    rates = measure(
        {name: lambda _, work=work: options.requests / seconds(work) for name, work in runs.items()}, options.rounds
    )
    base = statistics.median(rates[SIMPY]) if SIMPY in rates else float("nan")
    rows = [f"{name} | {spread(each)} | {statistics.median(each) / base:.1f}" for name, each in rates.items()]
    return Report({"requests_per_s": summary(rates)}, table("simulation | requests/s | times SimPy", rows))


if __name__ == "__main__":
    main(arguments(__doc__, rounds=5, requests=100_000), run)
