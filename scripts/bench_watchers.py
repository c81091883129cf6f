"""What the server's own watchers, Prometheus' counters and the live page, cost a request: microseconds of one core.

.venv/bin/python scripts/bench_watchers.py [--json]
"""

import json
import sys
import time
import timeit
from collections.abc import Callable

from headrace.batching import Request, Served, Task
from headrace.host.live.runtime import Execution, Inference
from headrace.host.server.observe.dashboard import Dashboard
from headrace.host.server.observe.metrics import Metrics
from headrace.host.server.observe.watch import RequestTrace, RowTrace, Snapshot
from headrace.host.server.protocol.messages import OK

TIMES = 100_000
NOTHING = Snapshot([], 0, [], {}, {}, {}, {}, {}, {})
BATCH = 8


def main() -> None:
    live, metrics = Dashboard(lambda: NOTHING), Metrics(lambda: NOTHING)
    for watcher in (live, metrics):
        watcher.add("m")
    task = Task(0, "m", tuple(Request(id, "m", 0.0) for id in range(BATCH)), 0, 1)
    execution = Execution(0, task, 0.0, 0.1, 0.1, 0.2, 0.2, None)
    inference = Inference(0, {}, Served(0.0, 0.0, 0.1, 0.2, 1.0, BATCH), execution, 0.1)
    visit = _visit()
    visit.rows[0].inference = inference
    origin = time.monotonic()
    found = {
        "visit_us": _us(_visit),
        "live_request_us": _us(lambda: live.answered(visit)),
        "live_task_us": _us(lambda: live.executed("cpu 0", origin, execution)),
        "metrics_request_us": _us(lambda: metrics.answered(visit)),
        "metrics_task_us": _us(lambda: metrics.executed("cpu 0", origin, execution)),
        "status_us": _us(live.status, 500),
    }
    found["live_page_us"] = found["visit_us"] + found["live_request_us"] + found["live_task_us"] / BATCH
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for name, us in found.items():
        print(f"{name:<20} {us:8.2f}")
    print(f"live_page_us: what is told of a request, and of its task in batches of {BATCH}")


def _visit() -> RequestTrace:
    return RequestTrace("m", "http", "127.0.0.1", rows=[RowTrace()], outcome=OK, answered=time.monotonic())


def _us(call: Callable[[], object], times: int = TIMES) -> float:
    return min(timeit.repeat(call, number=times, repeat=5)) / times * 1e6


if __name__ == "__main__":
    main()
