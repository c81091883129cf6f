"""This module searches for the single stage that explains the tensors of an otherwise unknown candidate.

A hypothesis is the reference with another function, or another setting, for one stage. The search makes the tensor of
each hypothesis for the same file, and compares it with the candidate's. A match has one of three grades:

    exactly       every value is equal
    to rounding   no value differs by more than a hundredth of a level, or by 0.001 of a feature
    mostly        the mean difference falls to a tenth or less

Without a match, the stage is "unknown". If several hypotheses match a file, the one that matches most files wins.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError
from headrace.host.compare.difference import gap
from headrace.host.compare.stages import NO_STAGE

ROUNDING_ALONE: Final = "nothing but the rounding of the last bits"
MOSTLY: Final = 0.1  # share of the mean difference that a hypothesis may leave


class Grade(IntEnum):
    """How well a hypothesis explains a difference. A lower one is better."""

    EXACTLY = 0
    TO_ROUNDING = 1
    MOSTLY = 2

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


class Hypothesis(NamedTuple):
    """A stage, what another front end does there, and the tensor of such a front end for the file at hand."""

    stage: str
    text: str
    tensor: Callable[[], NDArray[Any]]


class Arrangement(NamedTuple):
    """Another order of the axes or of the values of a tensor, and the function that makes it."""

    text: str
    of: Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Match:
    """A hypothesis that explains the difference of one file."""

    stage: str
    text: str
    grade: Grade


UNEXPLAINED: Final = Match(NO_STAGE, "no single stage explains it", Grade.MOSTLY)


def matches(
    found: NDArray[Any],
    expected: NDArray[Any],
    arrangements: Iterable[Arrangement],
    hypotheses: Iterable[Hypothesis],
    rounding: float,
) -> list[Match]:
    """Return the hypotheses that explain the tensor of a candidate, the best grade alone.

    Args:
        found, expected: The tensor of the candidate, and that of the reference, which differ.
        arrangements: Other layouts. A hypothesis holds in the layout that comes nearest to the candidate's.
        hypotheses: What the front end may do elsewhere. One that fails for this file explains nothing.
        rounding: Largest difference that counts as rounding.
    """
    if found.shape == expected.shape:
        layout, arranged = None, expected
        tried = [*hypotheses_of(arrangements, expected), *hypotheses]
    else:
        layout, tried = _arrangement(found, expected, arrangements), list(hypotheses)
        arranged = expected if layout is None else layout.of(expected)
    before = _mean(found, arranged) if arranged.shape == found.shape else np.inf
    grade = _grade(found, arranged, before, rounding) if arranged.shape == found.shape else None
    if layout is not None and grade in (Grade.EXACTLY, Grade.TO_ROUNDING):
        return [Match("layout", layout.text, grade)]
    if grade is Grade.TO_ROUNDING:
        return [Match("normalize", ROUNDING_ALONE, grade)]
    by_grade: dict[Grade, list[Match]] = {}
    ends_with: str | None = None  # the stage that explains everything: no later one is tried
    for each in tried:
        if ends_with not in (None, each.stage):
            break
        try:
            tensor = each.tensor()
            tensor = tensor if layout is None else layout.of(tensor)
        except (HeadraceError, ValueError, RuntimeError, MemoryError, cv2.error):  # it does not apply to this file
            continue
        if tensor.shape != found.shape or (grade := _grade(found, tensor, before, rounding)) is None:
            continue
        by_grade.setdefault(grade, []).append(Match(each.stage, _and(each.text, layout), grade))
        if grade is Grade.EXACTLY:
            ends_with = each.stage
    if not by_grade:
        return [] if layout is None else [Match("layout", f"{layout.text}, and more", Grade.MOSTLY)]
    return by_grade[min(by_grade)]


def hypotheses_of(arrangements: Iterable[Arrangement], expected: NDArray[Any]) -> Iterator[Hypothesis]:
    """Yield the layouts that keep the shape as hypotheses."""
    for each in arrangements:
        yield Hypothesis("layout", each.text, partial(each.of, expected))


def _and(text: str, layout: Arrangement | None) -> str:
    return text if layout is None else f"{text}; and at the end, {layout.text}"


def _arrangement(
    found: NDArray[Any], expected: NDArray[Any], arrangements: Iterable[Arrangement]
) -> Arrangement | None:
    """Return the layout with the shape of the candidate's tensor that comes nearest to it.

    The size may differ, too, so a layout with as many axes is the next best. None is the reference's own."""
    least, best, like = np.inf, None, None
    for each in arrangements:
        try:
            tensor = each.of(expected)
        except (ValueError, IndexError):  # it does not apply to this layout
            continue
        if tensor.shape == found.shape and (mean := _mean(found, tensor)) < least:
            least, best = mean, each
        if like is None and _like(tensor.shape, found.shape):
            like = each
    return best or (None if _like(expected.shape, found.shape) else like)


def _like(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Tell whether two shapes have as many axes, and the channels at the same place."""
    return len(ours) == len(theirs) and all((a == 3) == (b == 3) for a, b in zip(ours, theirs, strict=True))


def _mean(found: NDArray[Any], tensor: NDArray[Any]) -> float:
    gaps = gap(found, tensor)
    return float(gaps[np.isfinite(gaps)].mean()) if np.isfinite(gaps).any() else np.inf


def _grade(found: NDArray[Any], tensor: NDArray[Any], before: float, rounding: float) -> Grade | None:
    gaps = gap(found, tensor)
    largest = float(gaps.max(initial=0.0))
    if largest == 0:
        return Grade.EXACTLY
    if largest <= rounding:
        return Grade.TO_ROUNDING
    mean = float(gaps.mean())
    return Grade.MOSTLY if np.isfinite(before) and mean <= MOSTLY * before else None


def chosen(of_files: Sequence[list[Match]]) -> list[Match]:
    """Return one match for each file: of those that explain it, the one that explains most files."""
    counts = Counter(match.text for found in of_files for match in found)
    return [max(found, key=lambda match: counts[match.text]) if found else UNEXPLAINED for found in of_files]
