"""The policy `bucketed-graph` batches whole graphs in buckets of similar input length.

Requests wait in buckets by input length, and a batch consists of requests of one bucket. An idle worker starts a batch
as soon as any request waits, full or not.

Source: BatchMaker (EuroSys 2018), Section 7.1. The paper uses it as a baseline, for MXNet and TensorFlow.

Rules
-----
1. There is one graph for each bucket, made in advance. A batch is padded to the end of its bucket, so a request of
   length 21 runs as one of length 30 (Section 7.3).
2. The batches of all buckets, of all models, take turns in the order in which they were opened.
3. A bucket whose batch is full opens another one, with a turn of its own.

The driver pads the inputs, to the length that a task states (`Task.padded_to`). A network in PyTorch has no graph for
each bucket, and pads to its longest request instead.

Deviation from the paper
------------------------
The paper says "round-robin scheduling across buckets", and that a batch starts at its turn. If turns belonged to
buckets, each bucket would run one batch a round, however many requests wait in it. On WMT-15 lengths, 33 % of which lie
between 11 and 20, that would serve a third of the paper's throughput. So turns belong to batches here.
"""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from headrace.batching.context import PolicyContext
from headrace.batching.errors import BadInput, UnknownModel, UsageError, check_max_batch
from headrace.batching.graphs.execution import steps
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.fifo import Fifo
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policy import Policy
from headrace.batching.request import FULL, IDLE, Request, Task
from headrace.batching.settings import setting, settings

BUCKET_WIDTH = 10  # steps; BatchMaker, Section 7.1


def bucket_end(input_len: float, bucket_width: int = BUCKET_WIDTH) -> int:
    """Return the longest input (steps) of the bucket for an input of this length. It is 10 for lengths 1 to 10."""
    return -(-steps(input_len) // bucket_width) * bucket_width


class _Bucket(Fifo):
    """The queue of one bucket. `end` is the longest input (steps) that it can hold.

    All inputs of a batch are padded to `end`, so its `max_batch` follows from the most tokens of a batch."""

    def __init__(self, graph: ModelGraph, end: int, max_batch: int, max_tokens: float) -> None:
        super().__init__(graph, max_tokens)
        self.end: int = end
        self.max_batch: int = max_batch if max_tokens >= max_batch * end else max(1, int(max_tokens // end))


class BucketedGraphBatching:
    """A `Policy` with one queue for each bucket.

    Args:
        graphs: The graphs of the models.
        max_batch: The largest batch, in requests.
        bucket_width: The width of a bucket, in steps of the input.
        max_tokens: The most tokens of a batch, the sum of its input lengths with padding.

    Raises:
        UsageError: A limit is below 1.
    """

    def __init__(
        self,
        graphs: Iterable[ModelGraph],
        max_batch: int,
        bucket_width: int = BUCKET_WIDTH,
        max_tokens: float = math.inf,
    ) -> None:
        check_max_batch(max_batch)
        if bucket_width < 1:
            raise UsageError(f"bucket_width is {bucket_width}: give buckets a width of 1 step or more")
        self._graphs: dict[str, ModelGraph] = {graph.name: graph for graph in graphs}
        self.ahead: Final[int] = 1
        self._max_batch: int = max_batch
        self._bucket_width: int = bucket_width
        self._max_tokens: float = max_tokens
        self._buckets: dict[
            tuple[str, int], _Bucket
        ] = {}  # only those that are not empty, because there are as many as lengths
        self._turns: deque[_Bucket] = deque()  # one entry for each batch of a bucket, the next one first
        self._tasks: int = 0

    def _key(self, request: Request) -> tuple[str, int]:
        return request.model, bucket_end(request.input_len, self._bucket_width)

    def _batches(self, bucket: _Bucket) -> int:
        """Return the number of batches that wait in the bucket. The bucket has as many turns."""
        return -(-bucket.size() // bucket.max_batch)

    def _open(self, key: tuple[str, int]) -> _Bucket:
        """Return the bucket. A new bucket has no turn yet."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = _Bucket(self._graphs[key[0]], key[1], self._max_batch, self._max_tokens)
            self._buckets[key] = bucket
        return bucket

    def _close(self, bucket: _Bucket) -> None:
        """Delete the bucket, because it is empty."""
        del self._buckets[(bucket.model, bucket.end)]

    def submit(self, request: Request, now: float) -> None:
        if request.model not in self._graphs:
            raise UnknownModel.asked_for(request.id, request.model, self._graphs)
        if request.input_len > self._max_tokens:
            raise BadInput.too_many_tokens(request.id, request.input_len, self._max_tokens)
        bucket = self._open(self._key(request))
        bucket.append(request, now)
        if bucket.size() % bucket.max_batch == 1 or bucket.max_batch == 1:
            self._turns.append(bucket)

    def next_task(self, worker: int, now: float) -> Task | None:
        if not self._turns:
            return None
        bucket = self._turns.popleft()
        reason = FULL if bucket.size() >= bucket.max_batch else IDLE
        task = Task(
            self._tasks,
            bucket.model,
            bucket.take(bucket.max_batch),
            0,
            bucket.nodes,
            reason=reason,
            padded_to=float(bucket.end),
        )
        self._tasks += 1
        if bucket.size() == 0:
            self._close(bucket)
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop > task.start:
            return list(task.requests)
        if task.requests:  # the worker was lost, so the batch gets its turn again
            bucket = self._open(self._key(task.requests[0]))
            before = self._batches(bucket)
            bucket.put_back(task.requests)
            if self._batches(bucket) == before:  # the requests fit into the last batch, which was not full
                self._give_up_turn(bucket)
            self._turns.appendleft(bucket)
        return []

    def _give_up_turn(self, bucket: _Bucket) -> None:
        """Delete the turn of the bucket's last batch."""
        for place, other in enumerate(reversed(self._turns), 1):
            if other is bucket:
                del self._turns[-place]
                return

    def withdraw(self, request: Request, now: float) -> bool:
        if request.model not in self._graphs:
            return False
        bucket = self._buckets.get(self._key(request))
        if bucket is None:
            return False
        before = self._batches(bucket)
        if not bucket.remove(request):
            return False
        if self._batches(bucket) < before:
            self._give_up_turn(bucket)
        if bucket.size() == 0:
            self._close(bucket)
        return True

    def latest_start(self, request: Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        if model not in self._graphs:
            raise UnknownModel.among(model, self._graphs)
        return self._max_batch

    def wakeup(self) -> float:
        return math.inf


@settings()
class BucketedGraph(BatchLimit):
    """Batch whole graphs of requests whose inputs are of similar length (a baseline of BatchMaker)."""

    bucket_width: int = setting(
        default=BUCKET_WIDTH, help="Width of a bucket, in steps of the input.", ge=1, le=100_000
    )

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return BucketedGraphBatching(context.graphs, self.max_batch, self.bucket_width, self.token_limit)
