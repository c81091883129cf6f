"""`preba`: dynamic batching whose limits come from the profile of the GPU slice that runs the model (PREBA,
Section 4.3).

Batch_max is the knee of the slice's throughput-latency curve: beyond it a larger batch costs latency and buys no
throughput. With n slices taking turns, a slice falls idle every Time_knee / n on average, so a batch need not wait
longer than that to find one: Time_queue = Time_knee / n.

Slices of several sizes (the paper has equal ones) each have their own knee. Batch_max is that of the slice which takes
the batch. A slice falls idle once in its own Time_knee, so one of all falls idle every Time_queue = 1 / (sum of the
slices' 1 / Time_knee), which for equal slices is the same. Large slices should come first among the workers: several
that are idle at one instant are asked in that order, and what waits Time_queue leaves with the first of them, which is
then the fastest (benchmarks/mixed_slices.py).

Where inputs vary in length so does the knee. Requests go by length into buckets of one width, half-open, so that none
belongs to two; each has its own queue, Batch_max and Time_queue, those of the longest input that it can hold. (The
paper prints its windows of 2.5 s closed at both ends.) There are as many as the longest profiled input asks for, and
the last one also takes what is longer.

A bucket whose oldest request has waited Time_queue leaves before it is full, and takes along what waits in the buckets
beside it. First the shorter one's: they change neither how long the batch takes, which is that of its longest input,
nor its limit. Then the longer one's, as many as the Batch_max of that bucket allows for all of them: never is a batch
above the Batch_max of the longest input in it. Who joins was next in their own queue. Only the buckets directly beside
it: what comes from further off is mostly padding. (The paper says "adjacent", and neither which first nor how far.)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from headrace.batching.context import PolicyContext, Profiles
from headrace.batching.errors import UnknownModel, UsageError, check_workers
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.graphs.profile import KNEE_GROWTH, Profile
from headrace.batching.policies.bucketed_graph import BUCKET_WIDTH
from headrace.batching.policies.shared.window import BatchLimits, WindowBatching, WindowLine
from headrace.batching.policy import Policy
from headrace.batching.request import KNEE, Request
from headrace.batching.settings import setting, settings

BUCKET_S = 2.5  # PREBA, Section 4.3
ON_THE_EDGE = 1e-9  # of a bucket: 250 frames of 30 ms are 7.5 s, though not in binary fractions
MAX_BUCKETS = 1024  # of a model: every decision looks at each


def preba_limits(profile: Profile, workers: int, length: float | None = None) -> BatchLimits:
    """Batch_max and Time_queue of PREBA for a model profiled as `profile`, served by `workers` equal slices, and inputs
    of that length; of the profile's typical one if it is None."""
    check_workers(workers)
    return slice_limits([profile] * workers, length)


def slice_limits(profiles: Sequence[Profile], length: float | None = None) -> BatchLimits:
    """The same for slices that may differ, by the profile on each; see the head of this file."""
    of = {id(profile): profile.knee(length) for profile in profiles}
    knees = [of[id(profile)] for profile in profiles]
    batches = tuple([knee.batch for knee in knees])
    first_s = knees[0].latency_s
    turns = sum([first_s / knee.latency_s for knee in knees])  # of all, in one of the first: n if they are equal
    return BatchLimits(max(batches), first_s / turns, batches if min(batches) < max(batches) else ())


def profiles_of(graphs: Sequence[ModelGraph], profiles: Profiles, workers: int) -> dict[str, list[Profile]]:
    """By model, of each worker. Raises UsageError if a network has none, or a worker."""
    check_workers(workers)
    of_each = [profiles] * workers if isinstance(profiles, Mapping) else list(profiles)
    if len(of_each) != workers:
        raise UsageError(f"preba has profiles of {len(of_each)} workers for {workers}; give them of each, or of all")
    for of_one in of_each:
        missing = [graph.name for graph in graphs if graph.name not in of_one]
        if missing:
            raise UsageError(
                f"preba has no profile of {', '.join(missing)}: run `headrace profile --model {missing[0]}` first"
            )
    return {graph.name: [of_one[graph.name] for of_one in of_each] for graph in graphs}


class Bucket(WindowLine):
    """`shorter` and `longer` are the buckets of the same model beside it."""

    def __init__(self, graph: ModelGraph, limits: BatchLimits) -> None:
        super().__init__(graph, limits)
        self.shorter: Bucket | None = None
        self.longer: Bucket | None = None


class PrebaBatching(WindowBatching):
    """A `Policy`. Buckets are `bucket_s` seconds wide where a profile says what its lengths are in seconds, else
    `bucket_width` in the model's unit; infinite is one bucket. Raises UsageError."""

    def __init__(
        self,
        graphs: Iterable[ModelGraph],
        profiles: Profiles,
        workers: int,
        bucket_s: float = BUCKET_S,
        bucket_width: float = BUCKET_WIDTH,
        merge: bool = True,
    ) -> None:
        graphs = tuple(graphs)
        curves = profiles_of(graphs, profiles, workers)
        self._merge: bool = merge
        self._widths: dict[str, float] = {}  # in the model's unit
        self._buckets: dict[str, list[Bucket]] = {}
        for graph in graphs:
            of_each = curves[graph.name]
            step_s = of_each[0].step_s
            width = bucket_width if step_s is None else bucket_s / step_s
            self._widths[graph.name] = width
            self._buckets[graph.name] = _buckets(graph, of_each, width)
        super().__init__([bucket for buckets in self._buckets.values() for bucket in buckets], KNEE)

    def line_of(self, request: Request) -> WindowLine | None:
        buckets = self._buckets.get(request.model)
        if buckets is None:
            return None
        last = len(buckets) - 1
        if last == 0:
            return buckets[0]
        # Divided as it is: `steps` would round 2.5 s to 2.
        return buckets[int(min(request.input_len / self._widths[request.model] + ON_THE_EDGE, last))]

    def short_batch(self, line: WindowLine, worker: int) -> tuple[Request, ...]:
        assert isinstance(line, Bucket)
        batch = line.take(line.most(worker))
        if not self._merge:
            return batch
        shorter, longer = line.shorter, line.longer
        if shorter is not None and shorter.size() > 0:
            batch += shorter.take(line.most(worker) - len(batch))
        if longer is not None and longer.size() > 0 and len(batch) < longer.most(worker):
            batch += longer.take(longer.most(worker) - len(batch))
        return batch

    def largest_batch(self, model: str) -> int:
        buckets = self._buckets.get(model)
        if buckets is None:
            raise UnknownModel.among(model, self._buckets)
        return max(bucket.max_batch for bucket in buckets)


def _buckets(graph: ModelGraph, profiles: Sequence[Profile], width: float) -> list[Bucket]:
    """By length, `width` wide in the model's unit. Raises UsageError."""
    longest = max([profile.lengths[-1] for profile in profiles])
    if all([len(profile.lengths) == 1 for profile in profiles]):
        width = math.inf
    if not width > 0:  # also refuses NaN
        raise UsageError(f"buckets of {width} in the unit of {graph.name!r}: give them a width above 0")
    if longest / width >= MAX_BUCKETS:
        raise UsageError(
            f"buckets of {width:g} are more than {MAX_BUCKETS} up to {longest:g}, the longest input of the profile of "
            f"{graph.name!r}: give wider ones"
        )
    count = int(longest / width) + 1
    ends = [min(longest, (number + 1) * width) for number in range(count)]
    buckets = [Bucket(graph, slice_limits(profiles, end)) for end in ends]
    for shorter, longer in pairwise(buckets):
        shorter.longer = longer
        longer.shorter = shorter
    return buckets


@settings(limits_from_profile=True)
class Buckets:
    """Settings of policies that take the batch limits of PREBA, by buckets of the input's length."""

    bucket_s: float = setting(default=BUCKET_S, help="Width of a bucket of audio, in seconds.", gt=0)
    bucket_width: int = setting(
        default=BUCKET_WIDTH, help="Width of a bucket of other inputs, in steps.", ge=1, le=100_000
    )
    merge_buckets: bool = setting(
        default=True, help="Let a bucket that is due take requests of the buckets next to it."
    )
    knee_growth: float = setting(
        default=KNEE_GROWTH, help="The knee is where throughput grows by less than this factor.", ge=KNEE_GROWTH
    )


@settings()
class Preba(Buckets):
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
        )
