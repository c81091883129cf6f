"""Cost of the server's watchers, Prometheus' counters and the live page, for a request: microseconds of one core.

    .venv/bin/python -m benchmarks.watchers [--calls 100000] [--rounds 5] [--json [FILE]]

The table has the best round. `live_page_us` is the sum of what the page is told for a request: the trace, the answer
and its part of a task of 8 requests.
"""

import argparse
import time

from benchmarks.harness import Report, arguments, main, measure, seconds, table
from headrace.batching import Request, Served, Task
from headrace.host.live.runtime import Execution, Inference
from headrace.host.server.observe.dashboard import Dashboard
from headrace.host.server.observe.metrics import Metrics
from headrace.host.server.observe.watch import RequestTrace, RowTrace, Snapshot
from headrace.host.server.protocol.messages import OK

NOTHING = Snapshot([], 0, [], {}, {}, {}, {}, {}, {}, 0)
BATCH = 8
STATUS_SHARE = 200  # a status is that much longer than the other calls


def a_visit() -> RequestTrace:
    return RequestTrace("m", "http", "127.0.0.1", rows=[RowTrace()], outcome=OK, answered=time.monotonic())


def run(options: argparse.Namespace) -> Report:
    live, metrics = Dashboard(lambda: NOTHING), Metrics(lambda: NOTHING)
    for watcher in (live, metrics):
        watcher.add("m")
    task = Task(0, "m", tuple(Request(id, "m", 0.0) for id in range(BATCH)), 0, 1)
    execution = Execution(0, task, 0.0, 0.1, 0.1, 0.2, 0.2, None)
    visit = a_visit()
    visit.rows[0].inference = Inference(0, {}, Served(0.0, 0.0, 0.1, 0.2, 1.0, BATCH), execution, 0.1)
    origin = time.monotonic()
    calls = {
        "visit_us": a_visit,
        "live_request_us": lambda: live.answered(visit),
        "live_task_us": lambda: live.executed("cpu 0", origin, execution),
        "metrics_request_us": lambda: metrics.answered(visit),
        "metrics_task_us": lambda: metrics.executed("cpu 0", origin, execution),
        "status_us": live.status,
    }

    def us(name: str) -> float:
        times, call = max(1, options.calls // (STATUS_SHARE if name == "status_us" else 1)), calls[name]

        def repeated() -> None:
            for _ in range(times):
                call()

        return 1e6 * seconds(repeated) / times

    found = {
        name: min(each)
        for name, each in measure({name: lambda _, name=name: us(name) for name in calls}, options.rounds).items()
    }
    found["live_page_us"] = found["visit_us"] + found["live_request_us"] + found["live_task_us"] / BATCH
    return Report(found, table("what | us", (f"{name} | {value:.2f}" for name, value in found.items())))


if __name__ == "__main__":
    main(arguments(__doc__, rounds=5, calls=100_000), run)
