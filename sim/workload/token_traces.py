"""Traces of requests to models that decode: when each came, its prompt and output in tokens, and its images.

Three published formats are read, and told from one another by their first line:

- Azure's LLM inference traces (2023 and later): CSV with the columns TIMESTAMP (UTC), ContextTokens and
  GeneratedTokens. Source: Patel et al., "Splitwise", ISCA 2024.
- BurstGPT: CSV with the columns Timestamp (seconds), Request tokens and Response tokens, besides Model, Total tokens
  and Log Type. BurstGPT_3 also has Session ID and Elapsed time. A request without response tokens failed when the trace
  was recorded, and is left out. Source: Wang et al., "BurstGPT", 2024, arXiv 2401.17644; the files and README of the
  repository HPMLL/BurstGPT.
- Mooncake: one JSON object a line, with timestamp (ms), input_length and output_length. Source: Qin et al., "Mooncake",
  FAST 2025; the folder FAST25-release/traces of the repository kvcache-ai/Mooncake. Its key hash_ids has a number for
  each block of 512 tokens of the prompt, the last one as far as it goes. Prompts whose numbers begin alike begin alike.

A column, or key, NumImages tells how many images a request has. All other columns are ignored.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import LONGEST_NAME, UsageError
from headrace.sim.text_files import header, read_rows, read_text
from headrace.sim.workload.contents import Contents, contents_of_hashes
from headrace.sim.workload.lengths import Lengths

MAX_TOKENS = 10_000_000
MAX_IMAGES = 10_000
IMAGES = "NumImages"
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")
MOONCAKE = ("timestamp", "input_length", "output_length")
_UTC = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:Z|\+00:00)?", re.ASCII)
_S, _MS = 10**9, 10**6  # nanoseconds

HASHED_TOKENS = 512  # of a block of Mooncake's hash_ids
MAX_HASH = 1 << 63
Row = tuple[int, int, int, int]  # time (ns), prompt, output and images
Hashes = list[int]  # of a prompt; empty if the trace does not tell


@dataclass(frozen=True, slots=True, eq=False)
class TokenTrace:
    """Requests to a model that decodes, as arrays of shape (requests,).

    Args:
        arrival_s: Times of arrival (s), which start at 0 and do not fall.
        prompt_tokens: The tokens of each prompt, at least 1.
        output_tokens: The tokens of each output, at least 1.
        images: The number of images of each request; None if the trace does not tell.
        failed: How many requests of the file were left out, because they failed when it was recorded.
        contents: What the prompts have in common; None if the trace does not tell.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    images: NDArray[np.int64] | None = None
    failed: int = 0
    contents: Contents | None = None

    @property
    def requests(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_s)

    @property
    def rate_rps(self) -> float:
        """Return the mean rate (requests/s) from the first arrival to the last.

        Raises UsageError if they take no time."""
        if not self.arrival_s[-1] > 0:
            raise UsageError("all requests of the trace arrive at one time; give one that lasts")
        return float((self.requests - 1) / self.arrival_s[-1])

    @classmethod
    def drawn(cls, arrival_s: NDArray[np.float64], lengths: Lengths, seed: int) -> "TokenTrace":
        """Return requests at given times of arrival (s), with tokens that are drawn. Inputs are rounded up."""
        inputs, outputs = lengths.sample(len(arrival_s), np.random.default_rng((seed, 3)))
        return cls(arrival_s, np.ceil(inputs).astype(np.int64), outputs)


def read_token_trace(path: Path | str) -> TokenTrace:
    """Read a trace of LLM inference: CSV as Azure or BurstGPT publish it, or JSON lines as Mooncake does.

    Times are counted from the first request. A column or key NumImages tells the images of each request. Mooncake's
    hash_ids tell what prompts have in common. Raises UsageError that names the file and the line."""
    path = Path(path)
    rows, hashes, failed = [], [], 0
    last = -math.inf
    for where, row, numbers in _rows(path):
        at, prompt, output, _ = row
        if at < last:
            raise UsageError(f"{where}: it comes before the line above; sort the file by time")
        last = at
        if output == 0:
            failed += 1
        elif prompt == 0:
            raise UsageError(f"{where}: a prompt of 0 tokens; give 1 or more")
        else:
            rows.append(row)
            hashes.append(numbers)
    if not rows:
        raise UsageError(f"{path} has no requests")
    origin = rows[0][0]
    arrival = np.array([(row[0] - origin) / _S for row in rows])
    prompts, outputs, images = (np.array([row[place] for row in rows], np.int64) for place in (1, 2, 3))
    pictures = np.maximum(images, 0) if (images >= 0).any() else None
    contents = contents_of_hashes(hashes, prompts.tolist(), HASHED_TOKENS)
    return TokenTrace(arrival, prompts, outputs, pictures, failed, contents)


def _rows(path: Path) -> Iterator[tuple[str, Row, Hashes]]:
    text = read_text(str(path), path)
    first = text.lstrip().partition("\n")[0]
    if first.startswith("{"):
        return _mooncake(path, text)
    columns = {name.strip() for name in first.split(",")}
    for known, read in ((AZURE, _azure), (BURSTGPT, _burstgpt)):
        if columns.issuperset(known):
            return _csv(path, known, read)
    raise UsageError(
        f"{path}: the first line is that of no known trace; begin with {header(AZURE)} (Azure) or {header(BURSTGPT)} "
        f'(BurstGPT), or give JSON lines with "{header(MOONCAKE)}" (Mooncake)'
    )


def _csv(
    path: Path, columns: tuple[str, ...], read: Callable[[Mapping[str, str]], tuple[int, int, int]]
) -> Iterator[tuple[str, Row, Hashes]]:
    for where, row in read_rows(path, columns):
        try:
            at, prompt, output = read(row)
            yield where, (at, prompt, output, _images(row)), []
        except ValueError as error:
            raise UsageError(f"{where}: {error}; give {header(columns)}") from None


def _azure(row: Mapping[str, str]) -> tuple[int, int, int]:
    return _utc(row["TIMESTAMP"]), _tokens(row, "ContextTokens"), _at_least_one(row, "GeneratedTokens")


def _burstgpt(row: Mapping[str, str]) -> tuple[int, int, int]:
    at = _nanoseconds(row["Timestamp"], "Timestamp", _S)
    return at, _tokens(row, "Request tokens"), _tokens(row, "Response tokens")


def _mooncake(path: Path, text: str) -> Iterator[tuple[str, Row, Hashes]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("it is no JSON object")
            lacking = [name for name in MOONCAKE if name not in row]
            if lacking:
                raise ValueError(f"it lacks {', '.join(lacking)}")
            at = _nanoseconds(row["timestamp"], "timestamp", _MS)
            prompt, output = _tokens(row, "input_length"), _at_least_one(row, "output_length")
            yield where, (at, prompt, output, _images(row)), _hashes(row, prompt)
        except json.JSONDecodeError as error:
            raise UsageError(f"{where}: it is no JSON ({error.msg}); give one object a line") from None
        except (ValueError, RecursionError) as error:
            why = "it nests too deep" if isinstance(error, RecursionError) else str(error)
            raise UsageError(f"{where}: {why}; give {header(MOONCAKE)}") from None


def _utc(text: str | None) -> int:
    """Return a time as nanoseconds. Raises ValueError."""
    match = _UTC.fullmatch((text or "").strip())
    try:
        if match is None:
            raise ValueError
        day = date.fromisoformat(match[1]).toordinal()
        hours, minutes, seconds = int(match[2]), int(match[3]), int(match[4])
        if hours > 23 or minutes > 59 or seconds > 60:
            raise ValueError
    except ValueError:
        raise ValueError(f"TIMESTAMP is {_shown(text)}, which is no time such as 2023-11-16 18:17:03.9799600") from None
    return (((day * 24 + hours) * 60 + minutes) * 60 + seconds) * _S + int((match[5] or "0").ljust(9, "0"))


def _nanoseconds(given: Any, name: str, unit: int) -> int:
    """Return a number of `unit` nanoseconds as nanoseconds. Raises ValueError."""
    try:
        if isinstance(given, bool):
            raise TypeError
        number = float(given)
        if not 0 <= number < 1e11 * _S / unit:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {_shown(given)}, which is no time of 0 or more") from None
    return round(number * unit)


def _tokens(row: Mapping[str, Any], name: str) -> int:
    return _count(row[name], name, MAX_TOKENS)


def _at_least_one(row: Mapping[str, Any], name: str) -> int:
    tokens = _tokens(row, name)
    if tokens == 0:
        raise ValueError(f"{name} is 0, and an output has 1 token or more")
    return tokens


def _images(row: Mapping[str, Any]) -> int:
    """Return the number of images, or -1 if the row does not tell. Raises ValueError."""
    return _count(row[IMAGES], IMAGES, MAX_IMAGES) if IMAGES in row else -1


def _hashes(row: Mapping[str, Any], prompt: int) -> Hashes:
    """Return the numbers of the blocks of a prompt; none if the row does not tell. Raises ValueError."""
    given = row.get("hash_ids")
    if given is None:
        return []
    if not isinstance(given, list):
        raise ValueError(f"hash_ids is {_shown(given)}, which is no list")
    blocks = -(-prompt // HASHED_TOKENS)
    if len(given) != blocks:
        raise ValueError(
            f"hash_ids has {len(given)} numbers, and a prompt of {prompt} tokens has {blocks} blocks of {HASHED_TOKENS}"
        )
    return [_count(each, "a number of hash_ids", MAX_HASH) for each in given]


def _count(given: Any, name: str, largest: int) -> int:
    """Return a whole number from 0 to `largest`. Raises ValueError."""
    try:
        if isinstance(given, (bool, float)):
            raise TypeError
        number = int(given)
        if not 0 <= number <= largest:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {_shown(given)}, which is no whole number from 0 to {largest}") from None
    return number


def _shown(given: Any) -> str:
    return repr(given)[:LONGEST_NAME] if not isinstance(given, str) else (given[:40] or "empty")
