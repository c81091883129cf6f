"""A fleet in the simulator: its cost by number of servers, and each router in comparison with one big server.

    .venv/bin/python -m benchmarks.fleet [--requests 200000] [--rounds 3] [--json [FILE]]
    .venv/bin/python -m benchmarks.fleet --only memory --requests 10000000
    .venv/bin/python -m benchmarks.fleet --only routers --requests 100000 [--seeds 3]

- speed: simulated requests/s by router and number of servers. NPUs are half busy, each with one MobileNet at a time.
- memory: one run with 1,000 servers: requests/s and the peak of memory.
- routers: latencies as multiples of those of one big server. The fleet has 16 servers, each with two NPUs and GNMT
  (translations of 17 words on average); the big server has 32 NPUs with one policy. The figures are of simulated time,
  so they are the same on every machine. They are medians over seeds.
"""

import argparse
import resource

from benchmarks.harness import Report, arguments, main, measure, median, seconds, table
from headrace.sim.fleet.routers import ROUTERS
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario

FLEETS = (1, 10, 100, 1000)
POLICIES = ("graph", "preba", "smdp", "lazy")
SERVERS, NPUS = 16, 2  # of the part routers
RATES_RPS = (200.0, 400.0, 800.0)  # for each NPU, which does 153/s one by one and 2,366/s in batches of 16 alike


def requests_per_s(servers: int, requests: int, router: str = "power-of-two") -> float:
    fleet = Scenario.of(
        policy="serial",
        model="mobilenet_v1",
        rate_rps=1500.0 * servers,
        requests=requests,
        stream=True,
        servers=servers,
        router=router,
    )
    return requests / seconds(lambda: run_scenario(fleet))


def speed(options: argparse.Namespace) -> Report:
    cases = {
        f"{router} {servers}": lambda _, setup=(servers, options.requests, router): requests_per_s(*setup)
        for router in ROUTERS
        for servers in FLEETS
    }
    rates = measure(cases, options.rounds)
    medians = {router: {n: median(rates[f"{router} {n}"]) for n in FLEETS} for router in ROUTERS}
    rows = [" | ".join([router, *(f"{rate:,.0f}" for rate in of.values())]) for router, of in medians.items()]
    head = " | ".join(["requests/s with servers", *map(str, FLEETS)])
    return Report({"requests_per_s": medians}, table(head, rows))


def memory(options: argparse.Namespace) -> Report:
    rate = requests_per_s(1000, options.requests)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = f"{options.requests:,} | {rate:,.0f} | {peak_mib:.0f}"
    figures = {"requests_per_s": rate, "peak_mib": peak_mib}
    return Report(figures, table("requests to 1000 servers | requests/s | peak MiB", [row]))


def routers(options: argparse.Namespace) -> Report:
    figures, rows = [], []
    for rate_rps in RATES_RPS:
        for policy in POLICIES:
            one = Scenario.of(
                policy=policy,
                model="gnmt",
                rate_rps=rate_rps * NPUS * SERVERS,
                requests=options.requests,
                max_batch=16,
                window_ms=2.0,
                npus=NPUS,
                stream=True,
            )
            runs = {"one": one.having(npus=NPUS * SERVERS)}
            runs |= {router: one.having(servers=SERVERS, router=router) for router in ROUTERS}
            cases = {
                name: lambda seed, of=of: run_scenario(of.having(seed=seed))[0].result["latency_ms"]
                for name, of in runs.items()
            }
            found = measure(cases, options.seeds)
            middle = {name: {key: median(each, key) for key in ("mean", "p99")} for name, each in found.items()}
            big = middle.pop("one")
            times = {router: {key: of[key] / big[key] for key in big} for router, of in middle.items()}
            figures.append({"policy": policy, "rate_rps": rate_rps, "one_ms": big, "times": times})
            cells = [f"{of['mean']:.2f}, {of['p99']:.2f}" for of in times.values()]
            rows.append(f"{rate_rps:g} | {policy} | {big['mean']:.1f}, {big['p99']:.1f} | {' | '.join(cells)}")
    head = f"requests/s an NPU | policy | one big server: mean, p99 ms | {' | '.join(ROUTERS)}"
    return Report({"rows": figures}, table(head, rows))


PARTS = {"speed": speed, "memory": memory, "routers": routers}

if __name__ == "__main__":
    parser = arguments(__doc__, rounds=3, requests=200_000, seeds=3)
    parser.add_argument("--only", choices=PARTS, default="speed", help="the part to run; default: speed")
    main(parser, lambda options: PARTS[options.only](options))
