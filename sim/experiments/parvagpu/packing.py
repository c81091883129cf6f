"""Segments on the fewest GPUs: a mixed-integer linear program of slices and partitions, with all GPUs as one pool.

The planner's program (sim/planner/allocate.py) also assigns the CPU cores and cards of every server. Here there are
only GPUs. So it does not matter which GPU has which slice once their partitions have enough of each.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.experiments.parvagpu.published import GPU, SLICES, Demand, Segment
from headrace.sim.hardware.gpu.mig import gpu_named, partitions

Gpus = tuple[tuple[Segment, ...], ...]  # the segments of each GPU

LIMIT_S = 60.0
MAX_HEADROOM = 0.1  # the search looks for no more
GAP = 0.05  # the allowed gap between the headroom and its optimum


def fewest(
    wanted: Sequence[Demand],
    segments: Mapping[str, Sequence[Segment]],
    serves_rps: Callable[[Segment], float] = lambda segment: segment.throughput_rps,
) -> int:
    """Return the fewest GPUs for segments of the given choices, each serving the rate that `serves_rps` returns.

    Raises UsageError for a network without a choice, and HeadraceError if the program takes longer than LIMIT_S."""
    return _Program(wanted, segments, serves_rps).fewest()


def on_fewest(
    wanted: Sequence[Demand],
    segments: Mapping[str, Sequence[Segment]],
    serves_rps: Callable[[Segment], float] = lambda segment: segment.throughput_rps,
) -> Gpus:
    """Return the segments of each GPU, on as many GPUs as `fewest` returns, with the same errors.

    Of these packings it is the one with the most headroom of the network that has the least. Headroom is what the
    segments of a network serve above its rate."""
    program = _Program(wanted, segments, serves_rps)
    return program.with_headroom(program.fewest())


class _Program:
    """The program. Columns are GPUs in each partition, segments of each choice, and the factor by which they exceed the
    rates."""

    def __init__(
        self,
        wanted: Sequence[Demand],
        segments: Mapping[str, Sequence[Segment]],
        serves_rps: Callable[[Segment], float],
    ) -> None:
        for each in wanted:
            if not segments[each.model]:
                raise UsageError(f"no slice serves {each.model} within {1e3 * each.slo_s:g} ms: allow more")
        self.choice = [segment for each in wanted for segment in segments[each.model]]
        self.cuts = _cuts()
        slices = [
            [-cut[size] for cut in self.cuts] + [float(each.gpcs == size) for each in self.choice] + [0.0]
            for size in SLICES
        ]
        rates = [
            [0.0] * len(self.cuts)
            + [serves_rps(s) / each.rate_rps if s.model == each.model else 0.0 for s in self.choice]
            + [-1.0]
            for each in wanted
        ]
        self.rows = LinearConstraint(
            np.array(slices + rates),
            [-np.inf] * len(slices) + [0.0] * len(rates),
            [0.0] * len(slices) + [np.inf] * len(rates),
        )

    def fewest(self) -> int:
        return round(float(self._solve([*self._gpus(), 0.0], max_factor=1.0, rows=[self.rows]).fun))

    def with_headroom(self, gpus: int) -> Gpus:
        limit = LinearConstraint(np.array([[*self._gpus(), 0.0]]), 0, gpus)
        headroom = [0.0] * (len(self.cuts) + len(self.choice)) + [-1.0]
        solution = self._solve(headroom, max_factor=1 + MAX_HEADROOM, rows=[self.rows, limit])
        counts = np.round(solution.x[:-1]).astype(int).tolist()
        chosen = [s for s, n in zip(self.choice, counts[len(self.cuts) :], strict=True) for _ in range(n)]
        waiting = {size: [segment for segment in chosen if segment.gpcs == size] for size in SLICES}
        found_gpus = []
        for cut, count in zip(self.cuts, counts, strict=False):
            for _ in range(count):
                slices = [size for size in sorted(SLICES, reverse=True) for _ in range(cut[size])]
                found_gpus.append(tuple(waiting[size].pop() for size in slices if waiting[size]))
        return tuple(found_gpus)

    def _gpus(self) -> list[float]:
        return [1.0] * len(self.cuts) + [0.0] * len(self.choice)

    def _solve(self, weights: Sequence[float], max_factor: float, rows: Sequence[LinearConstraint]) -> Any:
        whole = len(self.cuts) + len(self.choice)
        solution = milp(
            weights,
            integrality=[1] * whole + [0],
            bounds=Bounds([0.0] * whole + [1.0], [np.inf] * whole + [max_factor]),
            constraints=rows,
            options={"time_limit": LIMIT_S, "mip_rel_gap": GAP if max_factor > 1 else 0.0},
        )
        if solution.status != 0:
            raise HeadraceError(f"no packing of {len(self.choice)} segments was found in {LIMIT_S:g} s")
        return solution


@cache
def _cuts() -> tuple[Counter[int], ...]:
    """Return the slices by GPCs of each partition of the GPU to which nothing can be added."""
    gpcs = {name: size for size, name in SLICES.items()}
    distinct = {
        tuple(sorted(gpcs[profile.name] for profile in parts if profile.name in gpcs))
        for parts in partitions(gpu_named(GPU), full=True)
    }
    cuts = [Counter(sizes) for sizes in sorted(distinct)]
    return tuple(cut for cut in cuts if not any(cut < other for other in cuts))
