"""Servers that take an exponential time of mean 1 s for a request, in steps of a hundredth, and Poisson arrivals."""

import math

import numpy as np

from headrace.batching import MatMul, ModelGraph, Node, NodeKind, NodeTimes, SerialBatching
from headrace.sim.engine import Arrivals
from headrace.sim.fleet.settings import Fleet
from headrace.sim.fleet.simulation import simulate_fleet

STEPS = 100.0


class Step:
    def latency(self, node, batch, length):
        return 1 / STEPS


NET = ModelGraph("net", (Node("step", NodeKind.DECODER, operators=(MatMul(1, 1, 1),)),))
TIMES = {"net": NodeTimes(NET, Step())}


def arrivals(rate_rps, count, seed=0):
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1 / rate_rps, count)).tolist()
    steps = rng.geometric(1 / STEPS, count).tolist()
    return Arrivals(["net"] * count, times, [math.inf] * count, [1.0] * count, steps)


def fleet_run(fleet, rate_rps, count, seed=0, **more):
    return simulate_fleet(
        fleet, lambda: SerialBatching([NET]), arrivals(rate_rps, count, seed), TIMES, 1, seed=seed, **more
    )


def mean_s(servers, router, load, count, seed=0):
    return fleet_run(Fleet(servers, router), servers * load, count, seed).result["latency_ms"]["mean"] / 1e3
