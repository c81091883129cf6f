"""Run one scenario: make its policy and its arrivals, and hand both to the simulator of a server or of a fleet."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching.context import Bursts, PolicyContext, Profiles
from headrace.batching.errors import UsageError
from headrace.sim.engine import Arrivals
from headrace.sim.fleet.simulation import simulate_fleet
from headrace.sim.hardware.settings import MeasuredGpu
from headrace.sim.machine import (
    Machine,
    curves,
    longest,
    machine_of,
    max_batch_of,
    measured_nodes,
    measured_share,
    rate_shares,
    trace_of,
)
from headrace.sim.preprocessing import Preprocessor, input_lengths
from headrace.sim.scenario import Scenario
from headrace.sim.simulation import Simulation, simulate
from headrace.sim.system.card import too_many
from headrace.sim.system.system import System
from headrace.sim.workload import replay, traffic
from headrace.sim.workload.lengths import Lengths, dec_timesteps
from headrace.sim.workload.settings import Bursty, Poisson


def run_scenario(
    scenario: Scenario, *, record: bool = False, max_late: int | None = None
) -> tuple[Simulation, list[str]]:
    """Simulate a scenario.

    Args:
        record: Keep every task that ran.
        max_late: Stop when so many requests were late, as in `simulate`.

    Returns the run, and warnings about settings that were hardly meant. Raises UsageError."""
    machine = machine_of(scenario)
    if record and getattr(scenario.workload.traffic, "stream", False):
        raise UsageError("--stream keeps no tasks; leave out --trace")
    if scenario.fleet is not None and (record or max_late is not None):
        raise UsageError("--servers keeps no tasks and no requests; leave out --trace")
    system, times, lengths = machine.system, machine.times, machine.lengths
    context = context_of(scenario, machine)
    new_policy = partial(scenario.policy.build, context)
    policy = new_policy()
    if system is not None and not scenario.entry.limits_from_profile:  # profiles end where memory does
        system.check_memory(policy, {model: longest(known) for model, known in lengths.items()})
    arrivals = _arrivals(scenario, lengths)
    models = None if context.cells is None else dict(context.cells)
    preprocessor = _preprocessor(scenario, system)
    node_times = times if system is None else system.times()
    sizes = input_lengths if system is None else system.sizes(scenario.seed)
    if scenario.fleet is not None:
        fleet = scenario.fleet.fleet()
        done = simulate_fleet(
            fleet,
            new_policy,
            arrivals,
            node_times,
            machine.workers,
            seed=scenario.seed,
            busy_power_w=scenario.hardware.busy_w,
            cell_models=models,
            preprocessor=preprocessor,
            sizes=sizes,
        )
        alone = scenario
        if hasattr(scenario.workload.traffic, "rate_rps"):
            alone = scenario.having(rate_rps=scenario.workload.drawn.rate_rps / fleet.servers)
        return done, warnings(alone, machine)
    done = simulate(
        policy,
        arrivals,
        node_times,
        machine.workers,
        seed=scenario.seed,
        record=record,
        busy_power_w=scenario.hardware.busy_w,
        cell_models=models,
        drop_late=scenario.drop_late,
        preprocessor=preprocessor,
        sizes=sizes,
        max_late=max_late,
    )
    if system is not None:
        done = replace(done, result=system.reported(done))
    if isinstance(hardware := scenario.hardware, MeasuredGpu):
        shares = {
            model: measured_share(measured_nodes(model, hardware, length=length))
            for model, (length, _) in machine.typical.items()
        }
        done = replace(done, result={**done.result, "measured_share": shares})
    return done, warnings(scenario, machine)


def context_of(scenario: Scenario, machine: Machine) -> PolicyContext:
    """Return the context from which the scenario's policy is built."""

    def profiles() -> Profiles:
        if machine.system is not None:
            return machine.system.profiles()
        if machine.profiles:
            return machine.profiles
        return {
            model: curves(model, known, machine.workers, machine.lengths[model])
            for model, known in machine.times.items()
        }

    return PolicyContext(
        machine.times,
        machine.workers,
        known_profiles=profiles,
        cells={name: model for name, (model, _) in machine.cells.items()} or None,
        typical=machine.typical,
        steps_of=lambda coverage: {
            model: dec_timesteps(machine.lengths[model], coverage)
            for model, known in machine.times.items()
            if len(known.sections.decoder) > 0
        },
        busy_w=scenario.hardware.busy_w,
        bursts=_bursts(scenario),
        slo_s=scenario.workload.slo_ms / 1e3,
    )


def _bursts(scenario: Scenario) -> Bursts | None:
    bursty = scenario.workload.traffic
    if not isinstance(bursty, Bursty):
        return None
    rates = {
        model: tuple(traffic.burst_rates(share * bursty.rate_rps)) for model, share in rate_shares(scenario).items()
    }
    return Bursts({model: (high, low) for model, (high, low) in rates.items()}, (bursty.burst_s, bursty.burst_s))


def _preprocessor(scenario: Scenario, system: System | None) -> Preprocessor | None:
    if system is None and scenario.overhead_ms == 0:
        return None
    passed = Preprocessor("ideal", ()) if system is None else system.preprocessor
    return replace(passed, delay_s=1e-3 * scenario.overhead_ms)


def _arrivals(scenario: Scenario, lengths: Mapping[str, Lengths]) -> Arrivals | Iterator[Arrivals]:
    workload, seed = scenario.workload, scenario.seed
    slo_s = workload.slo_ms / 1e3
    if (trace := workload.trace) is not None:
        whole = replay.faster(trace_of(scenario), trace.replay_speed, slo_s)
        return replay.every(whole, trace.replay_every, seed % trace.replay_every)
    drawn = workload.drawn
    shares = None if workload.shares is None else list(workload.given_shares().values())
    if isinstance(drawn, Poisson) and drawn.stream:
        blocks = traffic.poisson_blocks(drawn.rate_rps, drawn.requests, seed)
        return traffic.generate_blocks(blocks, lengths, slo_s, seed, shares)
    return traffic.generate(_checked(drawn.times(seed)), lengths, slo_s, seed, shares=shares)


def _checked(times: Any) -> NDArray[np.float64]:
    """Return times of arrival as an array. Raises UsageError unless they are numbers of 0 or more that rise."""
    found = np.asarray(times, dtype=np.float64)
    if found.ndim != 1 or len(found) < 1 or not np.isfinite(found).all() or found[0] < 0 or (np.diff(found) < 0).any():
        raise UsageError("--traffic: times(seed) must return a list of rising times of arrival, in seconds")
    return found


def warnings(scenario: Scenario, machine: Machine) -> list[str]:
    """Return warnings about what can be simulated but is hardly what was meant."""
    if scenario.entry.tasks == "cells":
        return []  # a node's latency is that of one cell there, and a request has many
    found, system = [], machine.system
    if system is not None and (excess := too_many(system.preprocessor)) is not None:
        found.append(f"--preprocess {scenario.preprocess.preprocess}: {excess}")
    slo_ms = scenario.workload.slo_ms
    for model, length in machine.typical.items():
        alone_ms = machine.times[model].whole(1, *length) * 1e3 + scenario.overhead_ms
        if alone_ms > slo_ms:
            found.append(f"--slo-ms {slo_ms:g} is below the {alone_ms:.2f} ms that {model} takes alone")
    if scenario.workload.trace is not None:
        return found
    shares, rate_rps = rate_shares(scenario), getattr(scenario.workload.drawn, "rate_rps", 0.0)
    if system is not None:
        limits = system.capacity_rps(machine.typical, shares)
    else:
        max_batch = max_batch_of(scenario)
        batch_s = sum(
            shares[model] * machine.times[model].whole(max_batch, *length) for model, length in machine.typical.items()
        )
        limits = {f"{machine.workers} workers": machine.workers * max_batch / batch_s}
    binds = min(limits, key=lambda part: limits[part])
    if rate_rps > limits[binds]:
        found.append(
            f"--rate-rps {rate_rps:g} is more than {binds} can serve (about {limits[binds]:.0f}/s in "
            "full batches): the queue will grow to the end of the run"
        )
    return found
