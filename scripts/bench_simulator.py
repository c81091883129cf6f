#!/usr/bin/env python3
"""Simulated requests per second of the engine, beside the same M/D/1 queue in SimPy (pip install simpy).

    .venv/bin/python scripts/bench_simulator.py [--requests 100000] [--rounds 5] [--json]

Each round runs everything once, so that a slow moment of the machine meets all alike; the medians are printed.
"""

import argparse
import importlib.util
import json
import random
import statistics
import time
from collections.abc import Callable

import numpy as np

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
)
from headrace.batching.policies import lazy
from headrace.sim.engine import Arrivals
from headrace.sim.hardware.npu import npu_times
from headrace.sim.preprocessing import Preprocessor, Step
from headrace.sim.scenario import usual_lengths
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Fixed, dec_timesteps
from headrace.sim.workload.traffic import generate, poisson
from headrace.sim.zoo import model_graph

SERVICE_S, RATE_RPS = 0.001, 700.0  # load 0.7


class Constant:
    def latency(self, node: int, batch: int, length: float) -> float:
        return SERVICE_S


class Slice:
    """Of the times that PREBA's image networks take on a seventh of an A100: 2 ms and 1 ms more for each request."""

    def latency(self, node: int, batch: int, length: float) -> float:
        return 0.002 + 0.001 * batch


def four_units() -> Preprocessor:
    """A chain as a DPU's: to the card, two kinds of compute unit, 4 of each, and to the GPU."""

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
    """Mean latency (s): one process a request, one server, arrivals and service as below."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    n = options.requests

    server = ModelGraph("server", (Node("service", operators=(MatMul(1, 1, 1),)),))
    one = {"server": NodeTimes(server, Constant())}
    resnet = {"resnet50": npu_times(model_graph("resnet50"))}
    queue = arrivals("server", RATE_RPS, n)
    images = arrivals("resnet50", 1000.0, n)
    gnmt = {"gnmt": npu_times(model_graph("gnmt"))}
    steps = {"gnmt": dec_timesteps(usual_lengths("gnmt"), 0.9)}
    sentences = arrivals("gnmt", 1000.0, n)
    runs: dict[str, Callable[[], object]] = {
        "serial, M/D/1 at 0.7": lambda: simulate(SerialBatching([server]), queue, one, 1),
        "graph (5 ms, 64), the same": lambda: simulate(GraphBatching([server], 0.005, 64), queue, one, 1),
        "lazy, ResNet-50 on the NPU at 1000/s": lambda: simulate(LazyBatching(resnet, 1), images, resnet, 1),
        "lazy, GNMT on the NPU at 1000/s": lambda: simulate(
            LazyBatching(gnmt, 1, dec_timesteps=steps), sentences, gnmt, 1
        ),
    }
    slices = {"server": NodeTimes(server, Slice())}
    curve = {"server": Profile.of("server", slices["server"], 7)}
    photos = arrivals("server", 5900.0, n)
    sizes = np.random.default_rng(0).uniform(0.5, 1.5, n)
    runs["preba, 7 slices at 0.9"] = lambda: simulate(PrebaBatching([server], curve, 7), photos, slices, 7)
    runs["the same behind a DPU of 4 steps, 4 CUs"] = lambda: simulate(
        PrebaBatching([server], curve, 7), photos, slices, 7, preprocessor=four_units(), sizes=lambda arrivals: sizes
    )
    if importlib.util.find_spec("simpy"):
        runs["SimPy, M/D/1 at 0.7"] = lambda: simpy_md1(n)
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, work in runs.items():
            began = time.perf_counter()
            work()
            rates[name].append(n / (time.perf_counter() - began))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    base = medians.get("SimPy, M/D/1 at 0.7")
    compiled = not lazy.__file__.endswith(".py")
    if options.json:
        print(json.dumps({"requests": n, "compiled": compiled, "requests_per_s": rates, "median": medians}, indent=2))
        return
    print(f"{n} requests, {options.rounds} rounds, {'compiled' if compiled else 'NOT compiled: run scripts/setup'}")
    for name, rate in medians.items():
        spread = f"{min(rates[name]):,.0f} to {max(rates[name]):,.0f}"
        print(f"{name:40} {rate:12,.0f} requests/s  ({spread})" + (f"  {rate / base:5.1f} x SimPy" if base else ""))


if __name__ == "__main__":
    main()
