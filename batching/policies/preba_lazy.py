"""`preba-lazy`: requests are grouped by `preba` and scheduled inside their group by `lazy`.

A group is what begins in an empty BatchTable, and it leaves as `preba` says: at Batch_knee, or Time_queue after its
first request came. Inside, `lazy` decides at every node boundary who runs. A group that has begun stays open: while it
has less than Batch_knee requests, waiting ones of its model may enter above it, before they make a group of their own,
by LazyBatching's slack rule. Two things bound what that does to those who still wait:

- Joining only shortens the lines of `preba`, in which everyone waits until they begin. So an idle worker still gets a
  request Time_queue after it came, at the latest.
- Nobody enters above a group while the group that `preba` would let go next is another model's: it has waited longer.
  The table, of Batch_knee requests at most, then runs empty, and its worker turns to that group. That is also why it
  keeps its batches whole in an overload of several models. (`lazy` by itself has the same from the moment at which
  another model's request waits: no more than a table full runs before it.)

Where inputs vary in length, `preba` has buckets, and forms and merges groups from them. A table is open to the bucket
of the longest input that it began with, up to that one's Batch_knee: so no batch is above the Batch_max of the longest
input in it. The other buckets count as other models do.

With networks of one node nobody can enter above anything, and this is `preba`.
"""

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
    """`times` has the node latencies of each model and `profiles` its curve, on these workers; `dec_timesteps` the
    decoder steps assumed for each model that has a decoder. Where workers differ, `profiles` are of each, and `times`,
    by which slack is kept, are to be the longest. Buckets are as in preba.py. Raises UsageError."""

    def __init__(
        self,
        times: Mapping[str, NodeTimes],
        profiles: Profiles,
        workers: int,
        dec_timesteps: Mapping[str, int] | None = None,
        bucket_s: float = BUCKET_S,
        bucket_width: float = BUCKET_WIDTH,
        merge: bool = True,
    ) -> None:
        self.ahead: Final[int] = 1
        graphs = [known.graph for known in times.values()]
        self._preba: PrebaBatching = PrebaBatching(graphs, profiles, workers, bucket_s, bucket_width, merge)
        # All wait in the lines of `preba`; `lazy` takes from them who joins.
        self._lazy: LazyBatching = LazyBatching(
            times, workers, dec_timesteps=dec_timesteps, lines=self._preba.all_lines
        )

    def submit(self, request: Request, now: float) -> None:
        self._preba.submit(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        running = self._lazy.running(worker)
        if running is None:
            group = self._preba.next_task(worker, now)
            if group is None:
                return None
            line = self._preba.line_of(max(group.requests, key=_length))
            assert line is not None
            return self._lazy.start(worker, line, group.requests, group.reason, now)
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
        )
