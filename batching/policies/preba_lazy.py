"""The policy `preba-lazy` groups requests as `preba` does, and schedules inside a group as `lazy` does.

`preba` decides when a group leaves its queue: at Batch_knee, or when its first request has waited Time_queue. Inside
the group, `lazy` decides at every node boundary which sub-batch runs and which waiting requests still enter.

Source: the combination is this project's. Its parts are PREBA, Section 4.3 (preba.py), and LazyBatching, HPCA 2021,
Section IV (lazy.py).

Rules
-----
1. A worker with an empty BatchTable gets the next group of `preba`. The group begins the table.
2. While the table has fewer than Batch_knee requests, waiting requests of its model may enter, by the slack rule of
   `lazy`. They need not wait until they form a group.
3. No request enters while the next group of `preba` belongs to another model. That group has waited longer. The table
   then runs empty, and its worker turns to that group.
4. Buckets count like models. A table is open only to the bucket of the longest input with which it began, up to that
   bucket's Batch_knee. So no batch exceeds the Batch_max of its longest input.

Two bounds follow. Entering only shortens the queues of `preba`, so an idle worker still gets a request at the latest
Time_queue after its arrival. By rule 3, at most Batch_knee requests run on a worker before it turns to a group that has
waited longer. So batches stay whole in an overload of several models. (`lazy` alone has the same bound from the moment
at which a request of another model waits.)

For networks of one node no request can enter a running table, and the policy equals `preba`.

Example
-------
One worker. The graph has nodes A to C, 1 ms each at any batch size up to 3. Batch_knee is 3 and Time_knee is 3 ms, so
Time_queue is 3 ms. R1 to R4 arrive at 0, 3.5, 5.5 and 6.5 ms, each with an slo of 15 ms.

    time (ms)     worker   requests        nodes     reason
    3 - 4         0        R1              A         window
    4 - 5         0        R2              A         slack
    5 - 6         0        R1 R2           B         merge
    6 - 7         0        R3              A         slack
    7 - 8         0        R3              B         idle
    8 - 9         0        R1 R2 R3        C         merge
    9.5 - 12.5    0        R4              A B C     window

- R1 waits for Time_queue and begins a group at 3 ms.
- R2 enters at 4 ms without waiting for its own window: both keep their slack. It is merged with R1 at node B.
- R3 enters at 6 ms in the same way. The table then has Batch_knee requests.
- R4 finds no room at 7 ms. Its own window is over at 9.5 ms.
"""

import math
from collections.abc import Mapping
from typing import Final

from headrace.batching.context import PolicyContext, Profiles
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.policies.bucketed_graph import BUCKET_WIDTH
from headrace.batching.policies.lazy import LazyBatching
from headrace.batching.policies.preba import BUCKET_S, Buckets, PrebaBatching
from headrace.batching.policies.shared.settings import Prediction
from headrace.batching.policy import Policy
from headrace.batching.request import Request, Task
from headrace.batching.settings import settings


class PrebaLazyBatching:
    """A `Policy` with node-level tasks.

    Args:
        times: By model, the node latencies on these workers. Where workers differ, these must be the longest, because
            slack is computed from them.
        profiles: By model, its profile: one mapping for all workers, or one for each.
        workers: The number of workers.
        dec_timesteps: By model that has a decoder, the number of decoder steps that is assumed for every output.
        bucket_s, bucket_width, merge, max_tokens: See `PrebaBatching`.

    Raises:
        UsageError: An argument is out of range, or a profile or `dec_timesteps` is missing.
    """

    def __init__(
        self,
        times: Mapping[str, NodeTimes],
        profiles: Profiles,
        workers: int,
        dec_timesteps: Mapping[str, int] | None = None,
        bucket_s: float = BUCKET_S,
        bucket_width: float = BUCKET_WIDTH,
        merge: bool = True,
        max_tokens: float = math.inf,
    ) -> None:
        self.ahead: Final[int] = 1
        graphs = [known.graph for known in times.values()]
        self._preba: PrebaBatching = PrebaBatching(
            graphs, profiles, workers, bucket_s, bucket_width, merge, max_tokens=max_tokens
        )
        # All requests wait in the queues of `preba`. `lazy` takes newcomers from the same queues.
        self._lazy: LazyBatching = LazyBatching(
            times, workers, dec_timesteps=dec_timesteps, queues=self._preba.all_queues
        )

    def submit(self, request: Request, now: float) -> None:
        self._preba.submit(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        running = self._lazy.running(worker)
        if running is None:
            group = self._preba.next_task(worker, now)
            if group is None:
                return None
            queue = self._preba.queue_of(max(group.requests, key=_length))
            assert queue is not None
            return self._lazy.start(worker, queue, group.requests, group.reason, now)
        ready = self._preba.ready(worker, now)
        if ready is None or ready is running:
            return self._lazy.next_task(worker, now)
        return self._lazy.go_on(worker)

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self._preba.put_back(self._lazy.lost(task))
            return []
        return self._lazy.complete(task, now)

    def withdraw(self, request: Request, now: float) -> bool:
        return self._preba.withdraw(request, now)

    def latest_start(self, request: Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        return self._preba.largest_batch(model)

    def wakeup(self) -> float:
        return self._preba.wakeup()


def _length(request: Request) -> float:
    return request.input_len


@settings(tasks="nodes")
class PrebaLazy(Buckets, Prediction):
    """Group requests as `preba` does, and schedule inside a group as `lazy` does."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return PrebaLazyBatching(
            context.slowest(),
            context.profiles(self.knee_growth),
            context.workers,
            context.decoder_steps(self.dec_timesteps, self.coverage),
            self.bucket_s,
            self.bucket_width,
            self.merge_buckets,
            self.token_limit,
        )
