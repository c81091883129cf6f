"""A slow, obvious engine for comparison: it ends every preemptible task at every node and asks again."""

import heapq
import itertools
import math

from headrace.batching import Decoding, Task


def node_by_node(policy, arrivals, times, workers, drop_late=False):
    """Return ({request id: end}, [(worker, node, start, end, request ids)]), with one entry for each node that runs.

    Dropped requests have no end."""
    from headrace.batching import Request

    order = itertools.count()
    events = []
    for number, at in enumerate(arrivals.arrival):
        request = Request(
            number,
            arrivals.models[number],
            at,
            arrivals.deadline[number],
            arrivals.input_len[number],
            arrivals.output_len[number],
        )
        heapq.heappush(events, (at, 0, next(order), request))
        if drop_late:
            heapq.heappush(events, (max(at, request.deadline), 2, next(order), request))
    decoding = Decoding()
    idle = set(range(workers))
    finished, nodes = {}, []
    while events or idle:
        wakeup = policy.wakeup() if idle else math.inf
        now = min(events[0][0] if events else math.inf, wakeup)
        if now == math.inf:
            break
        while events and events[0][0] <= now:
            _, kind, _, payload = heapq.heappop(events)
            if kind == 0:
                policy.submit(payload, now)
                continue
            if kind == 2:
                policy.withdraw(payload, now)
                continue
            worker, task, stop = payload
            idle.add(worker)
            ended = decoding.end(task, stop, times[task.model].sections) if task.preemptible else task
            for request in policy.complete(ended, now):
                assert request.id not in finished
                finished[request.id] = now
        for worker in sorted(idle):
            task = policy.next_task(worker, now)
            if task is None:
                continue
            idle.remove(worker)
            known = times[task.model]
            if task.preemptible:
                stop = task.start + 1
                seconds = known.duration(task.batch_size, known.task_length(task), task.start, stop)
                nodes.append((worker, task.model, task.start, now, now + seconds, ids(task)))
            else:
                stop, seconds = task.stop, known.whole_task(task)
            heapq.heappush(events, (now + seconds, 1, next(order), (worker, task, stop)))
    return finished, nodes


def ids(task: Task) -> tuple[int, ...]:
    return tuple(request.id for request in task.requests)
