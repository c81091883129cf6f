"""Describe the tokens that prompts of a trace have in common, as segments with numbers that stand for them.

A prompt is a path in a tree. Requests with the same first tokens share the path as far as these go:

    R0   0 ---- 512 ---- 1024 ---- 1100             segments ((0, 1024), (1, 1100))
    R1   0 ---- 512 ---- 1024 ---- 1536 ---- 1600   segments ((0, 1024), (2, 1600))

The number of a segment stands for all tokens up to its end, those before it included
(batching/steps/prefix_cache.py)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Segments = tuple[tuple[int, int], ...]  # numbers, and the tokens at which they end


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """The segments of all requests of a trace, one after another.

    Args:
        starts: Where the segments of each request start, and where those of the last one end; shape (requests + 1,).
        segments: Their numbers, of 0 or more; shape (segments,).
        ends: The tokens of a request at which they end; shape (segments,).
    """

    starts: NDArray[np.int64]
    segments: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def numbers(self) -> int:
        """Return a number above those of all segments."""
        return int(self.segments.max(initial=-1)) + 1

    def of(self, first: int, last: int, shift: int) -> list[Segments]:
        """Return the segments of the requests from `first` up to `last`, with `shift` added to their numbers."""
        starts = self.starts[first : last + 1].tolist()
        part = slice(starts[0], starts[-1])
        pairs = list(zip((self.segments[part] + shift).tolist(), self.ends[part].tolist(), strict=True))
        return [tuple(pairs[a - starts[0] : b - starts[0]]) for a, b in pairwise(starts)]

    def every(self, n: int, first: int) -> "Contents":
        """Return the segments of each `n`-th request, from number `first` on."""
        kept = np.zeros(len(self.starts) - 1, bool)
        kept[first::n] = True
        lengths = np.diff(self.starts)
        of_kept = np.repeat(kept, lengths)
        starts = np.concatenate(([0], np.cumsum(lengths[kept])))
        return Contents(starts, self.segments[of_kept], self.ends[of_kept])


def contents_of_hashes(
    hashes: Sequence[Sequence[int]], prompt_tokens: Sequence[int], hashed_tokens: int
) -> Contents | None:
    """Return the contents of prompts whose blocks of `hashed_tokens` tokens have numbers; None if no prompt has any.

    Prompts are the same as far as their numbers are, from the first one on. Blocks that follow each other in the same
    prompts make one segment."""
    if not any(hashes):
        return None
    nodes: dict[tuple[int, int], int] = {}  # by the node before, and the number of the block
    uses: list[int] = []
    paths = []
    for numbers in hashes:
        node, path = -1, []
        for number in numbers:
            node = nodes.setdefault((node, number), len(nodes))
            if node == len(uses):
                uses.append(0)
            uses[node] += 1
            path.append(node)
        paths.append(path)
    starts, segments, ends = [0], [], []
    for path, tokens in zip(paths, prompt_tokens, strict=True):
        for place, node in enumerate(path):
            last = place + 1 == len(path)
            # As many prompts have the next block as have this one, so they are the same.
            if last or uses[path[place + 1]] < uses[node]:
                segments.append(node)
                ends.append(min(tokens, (place + 1) * hashed_tokens))
        starts.append(len(segments))
    return Contents(np.array(starts), np.array(segments, np.int64), np.array(ends, np.int64))
