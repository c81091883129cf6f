"""Read the step times that were measured on a server, and fit a latency model to them.

A file has one row for each step. A step may have several chunks: their numbers stand in one cell, separated by blanks.

    prefill_tokens,cached_tokens,decode_requests,context_tokens,ms
    512,0,0,0,21.4
    ,,8,4210,7.9
    128 300,512 0,8,4218,19.6

The model is a sum of terms that grow with the work of a step:

- a constant
- the chunks, their tokens, and their pairs of query and key
- the requests that decode, and the tokens that they attend to
- all tokens of the step beyond each of KNOTS, because large steps are bound by arithmetic

Its coefficients are the least squares of relative errors, and none is negative. So more work never takes less time, and
sizes between and beyond the measured ones have a defined latency. The weights of a second pass are the latencies of the
first, so that steps that were held up by chance do not pull the mean down.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.sim.text_files import header, read_rows
from headrace.sim.workload.token_traces import MAX_TOKENS

COLUMNS: Final = ("prefill_tokens", "cached_tokens", "decode_requests", "context_tokens", "ms")
KNOTS: Final = (64, 256, 1024, 4096)  # tokens of a step
PASSES: Final = 3  # of the fit
MAX_MS: Final = 1e9


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step and its duration.

    Args:
        prefill: For each chunk, its tokens and the tokens of its request that were in the cache before it.
        decode_requests: The requests that decoded one token each.
        decode_context_tokens: The sum over these of the tokens that they attended to, with their own.
        seconds: The duration (s).
    """

    prefill: tuple[tuple[int, int], ...]
    decode_requests: int
    decode_context_tokens: int
    seconds: float


class MeasuredSteps:
    """The latency of steps by measurements, for `simulate_decoding`.

    Args:
        steps: The measured steps. Their order does not matter.

    Attributes:
        rows: The number of measured steps.
        mean_error: The mean of |fitted - measured| / measured.

    Raises:
        UsageError: There are no steps, or one has no work or no duration above 0.
    """

    def __init__(self, steps: Iterable[MeasuredStep]) -> None:
        from scipy.optimize import nnls  # it takes a while to load

        measured = list(steps)
        if not measured:
            raise UsageError("there are no measured steps; give at least one")
        for step in measured:
            if not (step.prefill or step.decode_requests) or not 0 < step.seconds < math.inf:
                raise UsageError(
                    f"{step} has no work, or no duration above 0; give steps with a chunk or a request that decodes"
                )
        largest = max(_tokens(step.prefill, step.decode_requests) for step in measured)
        self._knots: tuple[int, ...] = tuple(knot for knot in KNOTS if knot < largest)
        terms = np.array(
            [self._terms(each.prefill, each.decode_requests, each.decode_context_tokens) for each in measured]
        )
        seconds = np.array([step.seconds for step in measured])
        scale = np.maximum(terms.max(axis=0), 1.0)
        fitted: NDArray[np.float64] = seconds
        for _ in range(PASSES):
            found, _ = nnls(terms / scale / fitted[:, None], seconds / fitted)
            fitted = np.maximum(terms / scale @ found, 1e-3 * seconds)
        self._coefficients: list[float] = (found / scale).tolist()
        self.rows: int = len(measured)
        self.mean_error: float = float(np.mean(np.abs(fitted / seconds - 1)))

    @classmethod
    def read(cls, path: Path | str) -> "MeasuredSteps":
        """Return the model of the steps in a CSV file. Its columns are those of `read_steps`.

        Raises UsageError that names the file and the line."""
        path = Path(path)
        steps = list(read_steps(path))
        if not steps:
            raise UsageError(f"{path} has no steps; give rows of {header(COLUMNS)}")
        return cls(steps)

    def seconds(self, prefill: Sequence[tuple[int, int]], decode_requests: int, decode_context_tokens: int) -> float:
        """Return the duration (s) of a step, as `StepLatencyModel` says."""
        if not prefill and decode_requests == 0:
            return 0.0
        total = 0.0
        for factor, term in zip(
            self._coefficients, self._terms(prefill, decode_requests, decode_context_tokens), strict=True
        ):
            total += factor * term
        return total

    def _terms(self, prefill: Sequence[tuple[int, int]], decode_requests: int, context: int) -> list[float]:
        new_tokens, pairs = 0, 0.0
        for new, cached in prefill:
            new_tokens += new
            pairs += new * (cached + (new + 1) / 2)
        terms = [1.0, new_tokens, len(prefill), pairs, decode_requests, context]
        tokens = new_tokens + decode_requests
        for knot in self._knots:
            terms.append(tokens - knot if tokens > knot else 0.0)
        return terms


def read_steps(path: Path) -> Iterable[MeasuredStep]:
    """Yield the steps of a CSV file with the columns prefill_tokens, cached_tokens, decode_requests, context_tokens and
    ms. The first two have a number for each chunk, separated by blanks. Raises UsageError that names the file and the
    line."""
    for where, row in read_rows(path, COLUMNS):
        try:
            chunks, cached = _several(row, "prefill_tokens"), _several(row, "cached_tokens")
            if 0 in chunks:
                chunks = [] if chunks == [0] else chunks
                cached = cached if chunks else []
            if len(chunks) != len(cached):
                raise ValueError(f"prefill_tokens has {len(chunks)} numbers, and cached_tokens {len(cached)}")
            if 0 in chunks:
                raise ValueError("prefill_tokens has a chunk of 0 tokens")
            requests, context = _one(row, "decode_requests"), _one(row, "context_tokens")
            if context < requests:
                raise ValueError(f"{requests} requests decode, and attend to {context} tokens, which are too few")
            if not (chunks or requests):
                raise ValueError("the step has no chunk and no request that decodes")
            ms = float(row["ms"] or "nan")
            if not 0 < ms < MAX_MS:
                raise ValueError(f"ms is {row['ms'] or 'empty'}, which is no time above 0")
        except (TypeError, ValueError) as error:
            raise UsageError(f"{where}: {error}; give {header(COLUMNS)}") from None
        yield MeasuredStep(tuple(zip(chunks, cached, strict=True)), requests, context, ms / 1e3)


def write_steps(path: Path, steps: Iterable[MeasuredStep]) -> None:
    """Write steps to a CSV file as `read_steps` reads it."""
    with path.open("w") as file:
        file.write(header(COLUMNS) + "\n")
        for step in steps:
            chunks, cached = (" ".join(str(each[place]) for each in step.prefill) for place in (0, 1))
            file.write(
                f"{chunks},{cached},{step.decode_requests},{step.decode_context_tokens},{step.seconds * 1e3:.6g}\n"
            )


def _tokens(prefill: Iterable[tuple[int, int]], decode_requests: int) -> int:
    return decode_requests + sum(new for new, _ in prefill)


def _several(row: dict[str, str], name: str) -> list[int]:
    """Return the whole numbers of a cell. Raises ValueError."""
    found = []
    for word in (row[name] or "").split():
        if not word.isascii() or not word.isdigit() or int(word) > MAX_TOKENS:
            raise ValueError(f"{name} is {row[name][:40]}, which is no list of whole numbers from 0 to {MAX_TOKENS}")
        found.append(int(word))
    return found


def _one(row: dict[str, str], name: str) -> int:
    """Return the whole number of a cell, 0 if it is empty. Raises ValueError."""
    found = _several(row, name)
    if len(found) > 1:
        raise ValueError(f"{name} has {len(found)} numbers, where one is wanted")
    return found[0] if found else 0
