"""The policy `preba` batches with limits from the profile of the GPU slice that runs the model.

A batch leaves when it has reached the knee of the slice's throughput curve, or when its oldest request has waited
Time_queue. Inputs of different lengths wait in separate buckets, each with its own limits.

Source: PREBA, Section 4.3.

Rules
-----
1. Batch_max is Batch_knee, the batch size at the knee of the curve of throughput and latency. A larger batch costs
   latency and gains almost no throughput. graphs/profile.py has the exact definition of the knee.
2. Time_queue is Time_knee / n, where n slices take turns and Time_knee is the latency at the knee. A slice becomes idle
   every Time_knee / n on average, so a batch need not wait longer to find one.
3. An idle slice gets the ready batch whose oldest request has waited longest.
4. Requests go into buckets by input length. All buckets have the same width, and are half-open, so that no length
   belongs to two. Each bucket has its own queue. Its Batch_max and Time_queue are those of the longest input that it
   can hold.
5. The window of a bucket may be over before the batch is full. Then the batch also takes requests from the two
   neighbouring buckets, first from the shorter one. No batch exceeds the Batch_max of its longest input.
6. A network that joins its inputs, such as the patches of images, pads nothing, so it has one bucket. Its Batch_max is
   a number of tokens: those of the knee at the typical length, or of the longest input if that has more. Time_queue is
   that of the typical length. This is an addition to the paper.

Example
-------
Two slices, inputs of one length. A batch of 1 takes 4 ms, of 2 takes 6 ms, of 4 takes 12 ms. Throughput does not grow
beyond 2, so Batch_knee is 2, Time_knee is 6 ms, and Time_queue is 6 / 2 = 3 ms. R1 to R4 arrive at 0, 4, 5 and 6 ms.

    time (ms)     worker   requests        reason
    3 - 7         0        R1              window
    5 - 11        1        R2 R3           knee
    9 - 13        0        R4              window

- R1 waits for Time_queue, and leaves alone at 3 ms.
- R2 and R3 are a full batch at 5 ms, before the window of R2 is over.
- R4 waits from 6 ms on, and leaves when its window is over at 9 ms.

Beyond the paper
----------------
- Slices of several sizes. The paper has equal slices. Here each slice has its own knee, and Batch_max is that of the
  slice that takes the batch. A slice becomes idle once in its own Time_knee, so Time_queue = 1 / (sum of 1 / Time_knee
  over the slices). For equal slices this is rule 2. Large slices must come first among the workers. Idle slices are
  asked in that order, so a batch whose window is over leaves with the fastest idle slice (benchmarks/mixed_slices.py).
- Bucket borders. The paper prints its windows of 2.5 s as closed at both ends. With `strict` they are closed above, so
  that a clip of exactly 2.5 s has the limits of 2.5 s.
- Number of buckets. The longest profiled input determines it. The last bucket also takes longer inputs.
- Neighbours. The paper merges "adjacent" buckets, and does not say which comes first or how far it goes. Here the
  shorter neighbour comes first: its requests change neither the time of the batch nor its limit. Then requests of the
  longer neighbour join, as many as that bucket's Batch_max allows for the whole batch. Farther buckets are not used,
  because most of their batch would be padding. The requests that join are the next ones of their queues.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from headrace.batching.context import PolicyContext, Profiles
from headrace.batching.errors import UnknownModel, UsageError, check_workers
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.graphs.profile import KNEE_GROWTH, Profile
from headrace.batching.policies.bucketed_graph import BUCKET_WIDTH
from headrace.batching.policies.shared.settings import PaperStrict, TokenLimit
from headrace.batching.policies.shared.window import BatchLimits, WindowBatching, WindowQueue
from headrace.batching.policy import Policy
from headrace.batching.request import KNEE, Request
from headrace.batching.settings import setting, settings

BUCKET_S = 2.5  # seconds; PREBA, Section 4.3
ON_THE_EDGE = 1e-9  # in buckets: 250 frames of 30 ms are 7.5 s, but not exactly in binary fractions
MAX_BUCKETS = 1024  # buckets of a model; every decision looks at all of them


def preba_limits(profile: Profile, workers: int, length: float | None = None) -> BatchLimits:
    """Return Batch_max and Time_queue for a model on equal slices.

    Args:
        profile: The model's profile on one of the slices.
        workers: The number of slices.
        length: The input length in the model's unit; None for the profile's typical length.
    """
    check_workers(workers)
    return slice_limits([profile] * workers, length)


def slice_limits(profiles: Sequence[Profile], length: float | None = None) -> BatchLimits:
    """Return Batch_max and Time_queue for slices that may differ. The head of this file has the formula.

    Args:
        profiles: The model's profile on each slice.
        length: The input length in the model's unit; None for each profile's typical length.
    """
    of = {id(profile): profile.knee(length) for profile in profiles}
    knees = [of[id(profile)] for profile in profiles]
    batches = tuple([knee.batch for knee in knees])
    first_s = knees[0].latency_s
    turns = sum(
        [first_s / knee.latency_s for knee in knees]
    )  # batches of all slices in the time of one batch of the first: n if the slices are equal
    return BatchLimits(max(batches), first_s / turns, batches if min(batches) < max(batches) else ())


def joined_limits(profiles: Sequence[Profile], max_tokens: float) -> BatchLimits:
    """Return the limits for a network that joins its inputs, by rule 6 at the head of this file."""
    shortest = max([profile.lengths[0] for profile in profiles])
    knees = [profile.knee() for profile in profiles]
    longest = max([profile.lengths[-1] for profile in profiles])
    knee_tokens = max([knee.batch * knee.length for knee in knees])
    small = slice_limits(profiles, shortest)
    window_s = slice_limits(profiles).window_s
    return BatchLimits(small.max_batch, window_s, small.by_worker, min(max_tokens, max(knee_tokens, longest)))


def profiles_of(graphs: Sequence[ModelGraph], profiles: Profiles, workers: int) -> dict[str, list[Profile]]:
    """Return, by model, its profile on each worker.

    Raises:
        UsageError: A model has no profile, or the profiles are of another number of workers.
    """
    check_workers(workers)
    of_each = [profiles] * workers if isinstance(profiles, Mapping) else list(profiles)
    if len(of_each) != workers:
        raise UsageError(
            f"preba has profiles of {len(of_each)} workers for {workers}; give one mapping for each, or one for all"
        )
    for of_one in of_each:
        missing = [graph.name for graph in graphs if graph.name not in of_one]
        if missing:
            raise UsageError(
                f"preba has no profile of {', '.join(missing)}: run `headrace profile --model {missing[0]}` first"
            )
    return {graph.name: [of_one[graph.name] for of_one in of_each] for graph in graphs}


class Bucket(WindowQueue):
    """The queue of one bucket. `shorter` and `longer` are the neighbouring buckets of the same model."""

    def __init__(self, graph: ModelGraph, limits: BatchLimits) -> None:
        super().__init__(graph, limits)
        self.shorter: Bucket | None = None
        self.longer: Bucket | None = None


class PrebaBatching(WindowBatching):
    """A `Policy` whose limits come from profiles.

    Args:
        graphs: The graphs of the models.
        profiles: By model, its profile: one mapping for all workers, or one for each.
        workers: The number of workers.
        bucket_s: The width of buckets (s), for profiles that know the duration of a unit of length.
        bucket_width: The width of buckets in the model's unit, for other profiles. Infinity makes one bucket.
        merge: Whether a batch takes requests from neighbouring buckets (rule 5).
        strict: Whether a length at the border of two buckets belongs to the shorter one, as in the paper.
        max_tokens: The most tokens of a batch, the sum of its input lengths.

    Raises:
        UsageError: An argument is out of range, or a profile is missing.
    """

    def __init__(
        self,
        graphs: Iterable[ModelGraph],
        profiles: Profiles,
        workers: int,
        bucket_s: float = BUCKET_S,
        bucket_width: float = BUCKET_WIDTH,
        merge: bool = True,
        strict: bool = False,
        max_tokens: float = math.inf,
    ) -> None:
        graphs = tuple(graphs)
        curves = profiles_of(graphs, profiles, workers)
        self._merge: bool = merge
        self._strict: bool = strict
        self._widths: dict[str, float] = {}  # by model, in the model's unit
        self._buckets: dict[str, list[Bucket]] = {}
        for graph in graphs:
            of_each = curves[graph.name]
            step_s = of_each[0].step_s
            width = bucket_width if step_s is None else bucket_s / step_s
            self._widths[graph.name] = width
            self._buckets[graph.name] = _buckets(graph, of_each, width, strict, max_tokens)
        super().__init__([bucket for buckets in self._buckets.values() for bucket in buckets], KNEE)

    def queue_of(self, request: Request) -> WindowQueue | None:
        buckets = self._buckets.get(request.model)
        if buckets is None:
            return None
        last = len(buckets) - 1
        if last == 0:
            return buckets[0]
        # The length is not rounded by `steps`, which would make 2 of 2.5 s.
        place = min(request.input_len / self._widths[request.model], last + 1.0)
        number = math.ceil(place - ON_THE_EDGE) - 1 if self._strict else int(place + ON_THE_EDGE)
        return buckets[min(max(number, 0), last)]

    def short_batch(self, queue: WindowQueue, worker: int) -> tuple[Request, ...]:
        assert isinstance(queue, Bucket)
        batch = queue.take(queue.max_batch_for(worker))
        if not self._merge or (queue.shorter is None and queue.longer is None):
            return batch
        shorter, longer = queue.shorter, queue.longer
        if shorter is not None and shorter.size() > 0:
            batch += shorter.take(queue.max_batch_for(worker) - len(batch), _tokens(batch))
        if longer is not None and longer.size() > 0 and len(batch) < longer.max_batch_for(worker):
            batch += longer.take(longer.max_batch_for(worker) - len(batch), _tokens(batch))
        return batch

    def largest_batch(self, model: str) -> int:
        buckets = self._buckets.get(model)
        if buckets is None:
            raise UnknownModel.among(model, self._buckets)
        return max(bucket.max_batch for bucket in buckets)


def _tokens(batch: tuple[Request, ...]) -> float:
    return sum([request.input_len for request in batch])


def _buckets(
    graph: ModelGraph, profiles: Sequence[Profile], width: float, strict: bool, max_tokens: float
) -> list[Bucket]:
    """Return the buckets of a model by rising length. Raises UsageError.

    `profiles` has the model's profile on each worker. `width` is in the model's unit."""
    if profiles[0].joined:
        return [Bucket(graph, joined_limits(profiles, max_tokens))]
    longest = max([profile.lengths[-1] for profile in profiles])
    if all([len(profile.lengths) == 1 for profile in profiles]):
        width = math.inf
    if not width > 0:  # also true for NaN
        raise UsageError(f"buckets of {width} in the unit of {graph.name!r}: give them a width above 0")
    if longest / width >= MAX_BUCKETS:
        raise UsageError(
            f"buckets of {width:g} are more than {MAX_BUCKETS} up to {longest:g}, the longest input of the profile of "
            f"{graph.name!r}: give wider ones"
        )
    count = max(math.ceil(longest / width - ON_THE_EDGE), 1) if strict else int(longest / width) + 1
    ends = [min(longest, (number + 1) * width) for number in range(count)]
    buckets = [Bucket(graph, replace(slice_limits(profiles, end), max_tokens=max_tokens)) for end in ends]
    for shorter, longer in pairwise(buckets):
        shorter.longer = longer
        longer.shorter = shorter
    return buckets


@settings(limits_from_profile=True)
class Buckets(TokenLimit):
    """Settings of policies that use PREBA's batch limits, by buckets of the input length."""

    bucket_s: float = setting(default=BUCKET_S, help="Width of a bucket of audio, in seconds.", gt=0, le=86_400)
    bucket_width: int = setting(
        default=BUCKET_WIDTH, help="Width of a bucket of other inputs, in steps.", ge=1, le=100_000
    )
    merge_buckets: bool = setting(
        default=True, help="Let a bucket that is due take requests of the buckets next to it."
    )
    knee_growth: float = setting(
        default=KNEE_GROWTH, help="The knee is where throughput grows by less than this factor.", ge=KNEE_GROWTH, le=100
    )


@settings()
class Preba(Buckets, PaperStrict):
    """Take the batch limit and the window from the profile of the slice that runs the model (PREBA)."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return PrebaBatching(
            context.graphs,
            context.profiles(self.knee_growth),
            context.workers,
            self.bucket_s,
            self.bucket_width,
            self.merge_buckets,
            self.strict,
            self.token_limit,
        )
