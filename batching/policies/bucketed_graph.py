"""`bucketed-graph`: whole graphs in buckets of similar length, what the BatchMaker paper (EuroSys 2018, Section 7)
compares with as MXNet and TensorFlow.

A batch of whole graphs is padded to its longest request. To pad less, requests go by input length into buckets, and a
batch is of one bucket. An idle worker starts a batch at once if anything waits. The buckets that are not empty, of all
models, take turns: one that has had its turn, or was empty, goes behind the others.

Padding is the driver's: a whole-graph task takes as long as its longest request (`NodeTimes.whole_task`), as with
TensorFlow's `bucket_by_sequence_length`. To pad to the end of the bucket, as that does with `pad_to_bucket_boundary`,
give the requests an input length of `bucket_end(...)`: they get into the same bucket.
"""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.errors import UnknownModel, UsageError, check_max_batch
from headrace.batching.graphs.execution import steps
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.fifo import Fifo
from headrace.batching.request import FULL, IDLE, Request, Task

BUCKET_WIDTH = 10  # BatchMaker, Section 7


def bucket_end(input_len: float, bucket_width: int = BUCKET_WIDTH) -> int:
    """The longest input (steps) of the bucket that an input of that length is in: 10 for lengths 1 to 10."""
    return -(-steps(input_len) // bucket_width) * bucket_width


class _Bucket(Fifo):
    def __init__(self, graph: ModelGraph, end: int) -> None:
        super().__init__(graph)
        self.end: int = end


class BucketedGraphBatching:
    """A `Policy`: `max_batch` in requests, `bucket_width` in steps of the input. Raises UsageError."""

    def __init__(self, graphs: Iterable[ModelGraph], max_batch: int, bucket_width: int = BUCKET_WIDTH) -> None:
        check_max_batch(max_batch)
        if bucket_width < 1:
            raise UsageError(f"bucket_width is {bucket_width}: give buckets a width of 1 step or more")
        self._graphs: dict[str, ModelGraph] = {graph.name: graph for graph in graphs}
        self.ahead: Final[int] = 1
        self._max_batch: int = max_batch
        self._bucket_width: int = bucket_width
        self._buckets: dict[tuple[str, int], _Bucket] = {}  # those that are not empty: there are as many as lengths
        self._turns: list[_Bucket] = []  # the same, next one first
        self._tasks: int = 0

    def _key(self, request: Request) -> tuple[str, int]:
        return request.model, bucket_end(request.input_len, self._bucket_width)

    def _open(self, key: tuple[str, int]) -> _Bucket:
        """The bucket, without a turn if it is new."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = _Bucket(self._graphs[key[0]], key[1])
            self._buckets[key] = bucket
        return bucket

    def _close(self, bucket: _Bucket) -> None:
        """It is empty."""
        del self._buckets[(bucket.model, bucket.end)]

    def submit(self, request: Request, now: float) -> None:
        if request.model not in self._graphs:
            raise UnknownModel.asked_for(request.id, request.model, self._graphs)
        bucket = self._open(self._key(request))
        if bucket.size() == 0:
            self._turns.append(bucket)
        bucket.append(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        if not self._turns:
            return None
        bucket = self._turns.pop(0)
        reason = FULL if bucket.size() >= self._max_batch else IDLE
        task = Task(self._tasks, bucket.model, bucket.take(self._max_batch), 0, bucket.nodes, reason=reason)
        self._tasks += 1
        if bucket.size() > 0:
            self._turns.append(bucket)
        else:
            self._close(bucket)
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop > task.start:
            return list(task.requests)
        if task.requests:  # the worker was lost, and with it the bucket's turn, which it gets again
            bucket = self._open(self._key(task.requests[0]))
            if bucket.size() > 0:
                self._turns.remove(bucket)
            bucket.put_back(task.requests)
            self._turns.insert(0, bucket)
        return []

    def withdraw(self, request: Request, now: float) -> bool:
        if request.model not in self._graphs:
            return False
        bucket = self._buckets.get(self._key(request))
        if bucket is None or not bucket.remove(request):
            return False
        if bucket.size() == 0:
            self._turns.remove(bucket)
            self._close(bucket)
        return True

    def largest_batch(self, model: str) -> int:
        if model not in self._graphs:
            raise UnknownModel.among(model, self._graphs)
        return self._max_batch

    def wakeup(self) -> float:
        return math.inf
