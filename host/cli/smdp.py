"""The command `headrace smdp`, which computes the optimal batch size for every queue length.

Times are in ms, energies in mJ, and so powers in W."""

import dataclasses
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from headrace.batching import ModelGraph, NodeTimes, UsageError
from headrace.batching.smdp import (
    BatchService,
    Mmpp2,
    Smdp,
    Solution,
    Weights,
    build,
    policy_iteration,
    relative_value_iteration,
    solve,
)
from headrace.batching.smdp.mixture import Mixture, least_power_mixture
from headrace.batching.smdp.slo import Target, least_power
from headrace.batching.smdp.tail import LatencyTail
from headrace.host.cli.console import Stages, numbers_of, out, progress, show_json, warn
from headrace.host.cli.options import Json, command, readable
from headrace.sim.hardware.profiles import read_profile

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Method(StrEnum):
    """The solvers: policy iteration, and relative value iteration."""

    PI = "pi"
    RVI = "rvi"


@command
def smdp(
    tau: Annotated[
        str | None, typer.Option(help="Latency of a batch of size b, as ALPHA,TAU0: it is ALPHA b + TAU0 ms.")
    ] = None,
    zeta: Annotated[
        str | None, typer.Option(help="Energy of a batch of size b, as BETA,ZETA0: it is BETA b + ZETA0 mJ.")
    ] = None,
    bmax: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Largest batch [32, or the largest of the profile].")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(callback=readable, help="Latencies from `headrace profile`, in place of --tau.")
    ] = None,
    busy_w: Annotated[float | None, typer.Option(help="Power (W) of a busy server, in place of --zeta.")] = None,
    rho: Annotated[
        float | None,
        typer.Option(help="Load: the arrival rate divided by the rate that batches of --bmax serve."),
    ] = None,
    rate_rps: Annotated[
        float | None, typer.Option(help="Arrival rate (requests/s) of all servers, in place of --rho.")
    ] = None,
    mmpp: Annotated[
        str | None,
        typer.Option(
            help="Bursty arrivals, as RPS0,RPS1,MS0,MS1: two rates (requests/s) and their mean durations (ms)."
        ),
    ] = None,
    servers: Annotated[
        int, typer.Option(min=1, max=1024, help="Number of identical servers. The solution is approximate above 1.")
    ] = 1,
    w1: Annotated[float | None, typer.Option(help="Weight of 1 ms of mean latency [1].")] = None,
    w2: Annotated[float | None, typer.Option(help="Weight of 1 W of mean power [0].")] = None,
    smax: Annotated[
        int | None, typer.Option(help="Longest queue of the model, in requests [chosen by the solver].")
    ] = None,
    overflow_cost: Annotated[
        float | None,
        typer.Option(help="Abstract cost c_o of 1 ms with a queue beyond --smax [chosen by the solver]."),
    ] = None,
    method: Annotated[
        Method, typer.Option(help="Solver: policy iteration (pi) or relative value iteration (rvi).")
    ] = Method.PI,
    eps: Annotated[float | None, typer.Option(help="Span at which relative value iteration stops [0.01].")] = None,
    slo_ms: Annotated[
        float | None, typer.Option(help="Minimise power while the mean latency is at most this (ms).")
    ] = None,
    slo_quantile: Annotated[
        float | None, typer.Option(help="Apply --slo-ms to this quantile of the latency, in place of the mean.")
    ] = None,
    mixture: Annotated[
        bool, typer.Option("--mixture", help="Meet a mean of --slo-ms exactly, by a mixture of two policies.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compute the optimal batch size for every queue length, by a semi-Markov decision process.

    The solution minimises w1 times the mean latency plus w2 times the mean power. The result `policy` lists the batch
    size by the number of waiting requests. 0 means to wait for more. The last entry is for the overflow state."""
    service = _service(tau, zeta, bmax, profile, busy_w)
    arrivals = _arrivals(service, servers, rho, rate_rps, mmpp)
    if mixture and (slo_ms is None or slo_quantile is not None):
        raise UsageError("--mixture meets a mean latency: give --slo-ms, and leave out --slo-quantile")
    began = time.perf_counter()
    if slo_ms is not None:
        _leave_out(
            "--slo-ms finds the weights and truncation itself",
            {"--w1": w1, "--w2": w2, "--smax": smax, "--overflow-cost": overflow_cost, "--eps": eps, "--mmpp": mmpp},
        )
        if method is Method.RVI:
            raise UsageError("--slo-ms is solved by policy iteration; leave out --method")
        target = Target(slo_ms, slo_quantile)
        with progress() as shown:
            stages = Stages(shown)
            stages.stage("searching for the weight of power; models solved")
            if mixture:
                mixed = least_power_mixture(service, float(arrivals), slo_ms, servers, stages.step)  # type: ignore[arg-type]
            else:
                solution = least_power(service, float(arrivals), target, servers, stages.step)  # type: ignore[arg-type]
    else:
        if slo_quantile is not None:
            raise UsageError("--slo-quantile needs --slo-ms")
        weights = Weights(1.0 if w1 is None else w1, 0.0 if w2 is None else w2)
        solution = _solve(build(service, arrivals, weights, servers), smax, overflow_cost, method, eps)
    solve_ms = 1e3 * (time.perf_counter() - began)
    if mixture:
        _show_mixture(mixed, solve_ms, as_json)
        return
    if w2 and not service.energy.any():
        warn("--w2 has no effect: no energies are given (--zeta, or --busy-w)")
    if solution.waits_for_ever:
        warn("the cheapest policy never serves: raise --smax or --overflow-cost, or leave both out")
    result = _as_json(solution, solve_ms)
    if None in (result["latency_quantiles_ms"] or {}).values():
        warn(f"the queue outgrows --smax {solution.s_max}: raise it, or leave out --smax and --overflow-cost")
    if as_json:
        show_json(result)
    else:
        _print(solution, result)


def _numbers(option: str, text: str, names: str) -> list[float]:
    """Return the numbers of an option's text; `names` says how many there are. Raises UsageError."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != len(names.split(",")) or not np.isfinite(numbers).all():
        raise UsageError(f"{option} {text!r}: give {names}, numbers separated by commas")
    return numbers


def _leave_out(why: str, given: dict[str, Any]) -> None:
    """Raise UsageError if one of these options is given."""
    named = [option for option, value in given.items() if value is not None]
    if named:
        raise UsageError(f"{why}; leave out {', '.join(named)}")


def _service(
    tau: str | None, zeta: str | None, bmax: int | None, profile: Path | None, busy_w: float | None
) -> BatchService:
    """Return the latencies and energies of batches. Raises UsageError."""
    if (tau is None) == (profile is None):
        raise UsageError("give the latencies, by --tau ALPHA,TAU0 or by --profile FILE")
    if zeta is not None and busy_w is not None:
        raise UsageError("give energies by --zeta or by --busy-w, not by both")
    if busy_w is not None and not (np.isfinite(busy_w) and busy_w > 0):
        raise UsageError(f"--busy-w {busy_w}: give a number above 0")
    if profile is not None:
        measured = read_profile(profile)
        times = NodeTimes(ModelGraph.opaque(measured.model), measured)
        length = measured.typical_length
        seconds = BatchService.of_times(times, bmax or measured.curve(length)[-1].batch, (length, 1))
        latency = 1e3 * seconds.latency
    else:
        alpha, tau0 = _numbers("--tau", str(tau), "ALPHA,TAU0")
        latency = BatchService.linear((alpha, tau0), (0.0, 0.0), bmax or 32).latency
    energy = (busy_w or 0.0) * latency
    if zeta is not None:
        beta, zeta0 = _numbers("--zeta", zeta, "BETA,ZETA0")
        energy = beta * np.arange(1.0, len(latency) + 1) + zeta0
    return BatchService(latency, energy)


def _arrivals(
    service: BatchService, servers: int, rho: float | None, rate_rps: float | None, mmpp: str | None
) -> float | Mmpp2:
    """Return the arrivals of all servers: a rate in requests/ms, or a bursty process. Raises UsageError."""
    if sum(value is not None for value in (rho, rate_rps, mmpp)) != 1:
        raise UsageError("give the arrivals by one of --rho, --rate-rps and --mmpp")
    if mmpp is not None:
        slow, fast, dwell0, dwell1 = _numbers("--mmpp", mmpp, "RPS0,RPS1,MS0,MS1")
        return Mmpp2(np.array([slow, fast]) / 1e3, np.array([dwell0, dwell1]))
    for option, value in (("--rate-rps", rate_rps), ("--rho", rho)):
        if value is not None and value <= 0:
            raise UsageError(f"{option} {value}: give a number above 0")
    if rate_rps is not None:
        return rate_rps / 1e3
    assert rho is not None
    return servers * service.arrival_rate(rho)


def _solve(model: Smdp, smax: int | None, overflow_cost: float | None, method: Method, eps: float | None) -> Solution:
    """Return the solution. The truncation is chosen if it is not given. Raises UsageError."""
    if method is Method.PI and eps is not None:
        raise UsageError("--eps is for --method rvi: leave it out, because policy iteration is exact")
    if (smax is None) != (overflow_cost is None):
        raise UsageError("give --smax and --overflow-cost together, or leave both out to have them chosen")
    if smax is None or overflow_cost is None:
        chosen = solve(model)
        if method is Method.PI:
            return chosen
        smax, overflow_cost = chosen.s_max, chosen.overflow_cost
    if method is Method.PI:
        return policy_iteration(model, smax, overflow_cost)
    solution = relative_value_iteration(model, smax, overflow_cost, 0.01 if eps is None else eps)
    if not solution.converged:
        warn(f"relative value iteration did not reach --eps in {solution.iterations} iterations; raise --eps")
    return solution


def _as_json(solution: Solution, solve_ms: float) -> dict[str, Any]:
    model = solution.model
    phases = solution.policy.shape[1]
    return {
        "g": solution.g,
        "iterations": solution.iterations,
        "delta": solution.delta,
        "s_max": solution.s_max,
        "overflow_cost": solution.overflow_cost,
        "control_limit": solution.control_limit,
        "policy": solution.policy[:, 0].tolist() if phases == 1 else solution.policy.tolist(),
        "latency_ms": solution.latency,
        "latency_quantiles_ms": None if phases > 1 or solution.waits_for_ever else _quantiles(solution),
        "power_w": solution.power if model.service.energy.any() else None,
        "weights": dataclasses.asdict(model.weights),
        "rate_rps": 1e3 * model.rate,
        "rho": model.load,
        "servers": model.servers,
        "method": solution.method,
        "solve_ms": solve_ms,
    }


def _show_mixture(mixture: Mixture, solve_ms: float, as_json: bool) -> None:
    """Print a mixture: its costs, and the table of each policy."""
    model = mixture.fast.model
    result = {
        "latency_ms": mixture.latency,
        "power_w": mixture.power,
        "share": mixture.share,
        "state": mixture.state,
        "chance": mixture.chance,
        "policies": [solution.policy[:, 0].tolist() for solution in (mixture.fast, mixture.frugal)],
        "rate_rps": 1e3 * model.rate,
        "rho": model.load,
        "servers": model.servers,
        "method": "mixture",
        "solve_ms": solve_ms,
    }
    if as_json:
        show_json(result)
        return
    _print_numbers(
        "mixture of two policies",
        {name: value for name, value in result.items() if name != "policies"},
    )
    for name, solution in (("fast", mixture.fast), ("frugal", mixture.frugal)):
        _print_table(f"{name} policy", solution)


def _quantiles(solution: Solution) -> dict[str, float | None]:
    """Return quantiles of the latency (ms). A quantile is None if the truncation of the queue hides it.

    The search need not go far: by Markov's inequality p99 is at most 100 times the mean."""
    found: dict[str, float | None] = dict.fromkeys(QUANTILES)
    for means in (4, 8, 16, 32, 64, 128):
        tail = LatencyTail(solution, means * solution.latency)
        for name, share in QUANTILES.items():
            if found[name] is None:
                found[name] = tail.quantile(share)
        if None not in found.values():
            break
    return found


def _print(solution: Solution, result: dict[str, Any]) -> None:
    _print_numbers("optimal batching", {name: value for name, value in result.items() if name != "policy"})
    _print_table("batch by requests waiting", solution)


def _print_numbers(title: str, result: dict[str, Any]) -> None:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, number in numbers_of(result):
        shown = "-" if number is None else f"{number:.6g}" if isinstance(number, float) else str(number)
        table.add_row(name, shown)
    out.print(table)


def _print_table(title: str, solution: Solution) -> None:
    rows = Table(title=title, title_justify="left")
    rows.add_column("waiting", justify="right")
    for phase in range(solution.policy.shape[1]):
        rows.add_column("batch" if solution.policy.shape[1] == 1 else f"batch in phase {phase}", justify="right")
    states = solution.policy[:-1].tolist()
    first = 0
    for state in range(1, len(states) + 1):
        if state == len(states) or _text(states[state], state) != _text(states[first], first):
            waiting = str(first) if state == first + 1 else f"{first} to {state - 1}"
            rows.add_row(waiting, *_text(states[first], first))
            first = state
    out.print(rows)


def _text(actions: list[int], state: int) -> list[str]:
    """Return the batch of each phase in words, for `state` waiting requests."""
    return ["wait" if action == 0 else "all" if action == state else str(action) for action in actions]
