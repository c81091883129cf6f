#!/usr/bin/env python3
"""A fleet in the simulator: what it costs by its number of servers, and how far each router is from one big server.

    .venv/bin/python scripts/bench_fleet.py [--requests 200000] [--rounds 3] [--json]
    .venv/bin/python scripts/bench_fleet.py --memory 10000000   # one run with 1,000 servers: requests/s, peak memory
    .venv/bin/python scripts/bench_fleet.py --table [--seeds 3] # latencies over those of one big server, as Markdown

The table's fleet is of 16 servers, each with two NPUs and GNMT (translations, of 17 words on average); the big server
has 32 NPUs behind one policy. Its figures are of simulated time: the same on every machine.
"""

import argparse
import json
import resource
import statistics
import time
from dataclasses import replace

from headrace.sim.fleet.routers import ROUTERS
from headrace.sim.scenario import Scenario, run_scenario

FLEETS = (1, 10, 100, 1000)
POLICIES = ("graph", "preba", "smdp", "lazy")
SERVERS, NPUS = 16, 2  # of the table
RATES_RPS = (200.0, 400.0, 800.0)  # for each NPU, which does 153/s one by one and 2,366/s in batches of 16 alike


def fleet_of(servers: int, requests: int, router: str = "power-of-two") -> Scenario:
    """Of NPUs that are half busy, each with one MobileNet at a time."""
    return Scenario(
        policy="serial",
        model="mobilenet_v1",
        rate_rps=1500.0 * servers,
        requests=requests,
        stream=True,
        servers=servers,
        router=router,
    )


def requests_per_s(servers: int, requests: int, router: str) -> float:
    began = time.perf_counter()
    run_scenario(fleet_of(servers, requests, router))
    return requests / (time.perf_counter() - began)


def speed(requests: int, rounds: int) -> dict[str, dict[int, float]]:
    """Medians by router and number of servers; each round runs all once."""
    found: dict[tuple[str, int], list[float]] = {(router, servers): [] for router in ROUTERS for servers in FLEETS}
    for _ in range(rounds):
        for (router, servers), rates in found.items():
            rates.append(requests_per_s(servers, requests, router))
    return {router: {n: statistics.median(found[router, n]) for n in FLEETS} for router in ROUTERS}


def table(requests: int, seeds: int, rate_rps: float) -> list[dict[str, object]]:
    """By policy, mean and p99 (ms) of one big server and, by router, how many times as long they are; medians over
    seeds."""
    rows: list[dict[str, object]] = []
    for policy in POLICIES:
        found: dict[str, list[dict[str, float]]] = {}
        for seed in range(seeds):
            one = Scenario(
                policy=policy,
                model="gnmt",
                rate_rps=rate_rps * NPUS * SERVERS,
                requests=requests,
                max_batch=16,
                window_ms=2.0,
                npus=NPUS,
                stream=True,
                seed=seed,
            )
            runs = {"one": replace(one, npus=NPUS * SERVERS)}
            runs |= {router: replace(one, servers=SERVERS, router=router) for router in ROUTERS}
            for name, scenario in runs.items():
                latency = run_scenario(scenario)[0].result["latency_ms"]
                assert isinstance(latency, dict)
                found.setdefault(name, []).append(latency)
        middle = {
            name: {key: statistics.median(each[key] for each in of) for key in ("mean", "p99")}
            for name, of in found.items()
        }
        big = middle.pop("one")
        times = {router: {key: of[key] / big[key] for key in big} for router, of in middle.items()}
        rows.append({"policy": policy, "rate_rps": rate_rps, "one_ms": big, "times": times})
    return rows


def show_table(rows: list[dict[str, object]]) -> None:
    print("| requests/s an NPU | policy | one big server: mean, p99 ms | " + " | ".join(ROUTERS) + " |")
    print("| --- " * (3 + len(ROUTERS)) + "|")
    for row in rows:
        big, times = row["one_ms"], row["times"]
        assert isinstance(big, dict) and isinstance(times, dict)
        cells = [f"{times[router]['mean']:.2f}, {times[router]['p99']:.2f}" for router in ROUTERS]
        print(f"| {row['rate_rps']:g} | {row['policy']} | {big['mean']:.1f}, {big['p99']:.1f} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--memory", type=int, metavar="REQUESTS")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.memory is not None:
        rate = requests_per_s(1000, options.memory, "power-of-two")
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if options.json:
            print(json.dumps({"requests": options.memory, "requests_per_s": rate, "peak_mib": peak_mib}, indent=2))
        else:
            print(f"{options.memory} requests, 1000 servers: {rate:,.0f} requests/s, {peak_mib:.0f} MiB at most")
    elif options.table:
        rows = [row for rate in RATES_RPS for row in table(options.requests, options.seeds, rate)]
        if options.json:
            print(json.dumps(rows, indent=2))
        else:
            show_table(rows)
    else:
        found = speed(options.requests, options.rounds)
        if options.json:
            print(json.dumps({"requests": options.requests, "requests_per_s": found}, indent=2))
            return
        print(f"simulated requests/s, {options.requests} requests, medians of {options.rounds}, by servers")
        print(f"{'':18}" + "".join(f"{servers:>10}" for servers in FLEETS))
        for router, rates in found.items():
            print(f"{router:18}" + "".join(f"{rates[servers]:>10,.0f}" for servers in FLEETS))


if __name__ == "__main__":
    main()
