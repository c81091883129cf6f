"""`preba-lazy`: requests are grouped by `preba` and scheduled inside their group by `lazy`.

A group is what begins in an empty BatchTable, and it leaves as `preba` says: at Batch_knee, or Time_queue after its
first request came. Inside, `lazy` decides at every node boundary who runs. A group that has begun stays open: while it
has less than Batch_knee requests, waiting ones of its model may enter above it, before they make a group of their own,
by LazyBatching's slack rule. Two things bound what that does to those who still wait:

- Joining only shortens the lines of `preba`, in which everyone waits until they begin. So an idle worker still gets a
  request Time_queue after it came, at the latest.
- Nobody enters above a group while the group that `preba` would let go next is another model's: it has waited longer.
  The table, of Batch_knee requests at most, then runs empty, and its worker turns to that group. That is also why it
  keeps its batches whole in an overload of several models.

With networks of one node nobody can enter above anything, and this is `preba`.
"""

from collections.abc import Mapping
from typing import Final

from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.profile import Profile
from headrace.batching.policies.lazy import LazyBatching
from headrace.batching.policies.preba import Preba
from headrace.batching.request import Request, Task


class PrebaLazy:
    """`times` has the node latencies of each model and `profiles` its curve, on these workers; `dec_timesteps` the
    decoder steps assumed for each model that has a decoder. Raises UsageError."""

    def __init__(
        self,
        times: Mapping[str, NodeTimes],
        profiles: Mapping[str, Profile],
        workers: int,
        dec_timesteps: Mapping[str, int] | None = None,
    ) -> None:
        self.ahead: Final[int] = 1
        self._preba: Preba = Preba([known.graph for known in times.values()], profiles, workers)
        lines = self._preba.lines  # all wait here; `lazy` takes from them who joins, and puts back who was lost
        knees = {model: line.max_batch for model, line in lines.items()}
        self._lazy: LazyBatching = LazyBatching(times, workers, knees, dec_timesteps, lines=lines)

    def submit(self, request: Request, now: float) -> None:
        self._preba.submit(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        running = self._lazy.running(worker)
        if running is None:
            group = self._preba.next_task(worker, now)
            if group is None:
                return None
            return self._lazy.start(worker, group.model, group.requests, group.reason, now)
        ready = self._preba.ready(now)
        if ready is None or ready.model == running:
            return self._lazy.next_task(worker, now)
        return self._lazy.go_on(worker)

    def complete(self, task: Task, now: float) -> list[Request]:
        return self._lazy.complete(task, now)

    def withdraw(self, request: Request, now: float) -> bool:
        return self._preba.withdraw(request, now)

    def largest_batch(self, model: str) -> int:
        return self._preba.largest_batch(model)

    def wakeup(self) -> float:
        return self._preba.wakeup()
