"""Measured latencies of kernels on whole GPUs: NVIDIA's tables, as the package aiconfigurator-core carries them.

The tables are files of that package (Apache-2.0), which the extra `measured` installs. This module reads the files and
runs no code of the package. There are tables for each GPU, each server's kernels (BACKENDS) and each number format. The
networks of a measured GPU (measured.py) take vLLM's kernels in bf16, and decoders (decoding/operators.py) any:

- Products of m rows with a trained k x n matrix, by m, n and k.
- Attention as one kernel: `encoder` sees all keys, `context` the keys before a query alone, and `generation` has one
  query for each head. The last two also write the cache of keys and values. The A100 has no `encoder`.

Between sizes, latencies are interpolated on lines; between numbers of keys, `encoder` and `context` on lines of
logarithms. `headrace reproduce gpu` tells how accurate that is. Beyond the largest number of rows or heads, the latency
grows in proportion.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu.kernels import Floats

PACKAGE: Final = "aiconfigurator-core"
VERSION: Final = "0.12.0"
# The folders of the tables by the GPU's name in mig.py. Those of A100 were measured with 80 GB.
FOLDERS: Final[Mapping[str, str]] = {"a100-80gb": "a100_sxm", "h100": "h100_sxm", "h200": "h200_sxm"}
# GPUs of whose kernels decoders are made. Not all of them have tables of encoders.
DECODER_FOLDERS: Final[Mapping[str, str]] = {
    **FOLDERS,
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
}
TENSORRT_LLM, SGLANG, VLLM = "trtllm", "sglang", "vllm"
# The servers, and the release whose tables the package calls current. An older one stands in where that has no table.
BACKENDS: Final[Mapping[str, str]] = {TENSORRT_LLM: "1.3.0rc20", SGLANG: "0.5.14", VLLM: "0.24.0"}
ENCODER, CONTEXT, GENERATION = "encoder", "context", "generation"
KINDS_OF_ATTENTION: Final = (ENCODER, CONTEXT, GENERATION)
BY_LOGARITHMS: Final = (ENCODER, CONTEXT)  # where lines of logarithms are closer to a size that is left out
Flags = NDArray[np.bool_]
LARGEST_HEAD: Final = 128  # Hopper's rows of longer heads are of other kernels
BF16: Final = "bfloat16"
_SMALLEST: Final = 32  # a few products with fewer columns than this are measured, and are not on the grid
_ATTENTION_COLUMNS: Final = ("batch_size", "num_heads", "head_dim")


@dataclass(frozen=True, slots=True)
class ProductRows:
    """Measured products (m x k) @ (k x n): arrays of one row each. Times are in seconds."""

    m: Floats
    n: Floats
    k: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """Measured attention: arrays of one row each. Times are in seconds.

    Attributes:
        batch: The requests.
        heads: The heads of queries of a request.
        kv_heads: The heads of keys and values of a request.
        head: The elements of a head.
        queries, keys: How many a head has.
        seconds: The latency.
    """

    batch: Floats
    heads: Floats
    kv_heads: Floats
    head: Floats
    queries: Floats
    keys: Floats
    seconds: Floats


def package_file(name: str) -> Path:
    """Return the path of a file or folder in the package. Raises UsageError if the package is not there."""
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise UsageError(
            f"measured latencies need the package {PACKAGE}; install it with: pip install 'headrace[measured]'"
        ) from None
    if package.version != VERSION:
        raise UsageError(
            f"measured latencies need {PACKAGE} {VERSION}, and {package.version} is installed; install it with: "
            "pip install 'headrace[measured]'"
        )
    return Path(str(package.locate_file(f"aiconfigurator_core/systems/{name}")))


def table_file(gpu: str, kind: str, name: str, backend: str = VLLM, version: str | None = None) -> Path | None:
    """Return the file of a table, None if the package has none of this kind for the GPU. Raises UsageError.

    Args:
        gpu: One of DECODER_FOLDERS.
        kind: The folder of the table.
        name: The file's name, without its end.
        backend: One of BACKENDS.
        version: The release whose kernels were measured; None for the newest that is not newer than in BACKENDS.
    """
    if gpu not in DECODER_FOLDERS:
        raise UsageError(f"there are no tables of {gpu!r}; choose from {', '.join(DECODER_FOLDERS)}")
    folder = package_file(f"data/{DECODER_FOLDERS[gpu]}/{kind}/{backend}")
    files = {file.parent.name: file for file in folder.glob(f"*/{name}_perf.parquet")}
    if version is not None:
        return files.get(version)
    known = sorted((each for each in files if _order(each) <= _order(BACKENDS[backend])), key=_order)
    return files[known[-1]] if known else None


def _order(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, by which versions are in order."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def columns(path: Path, names: tuple[str, ...], **equal: Any) -> dict[str, Floats]:
    """Return columns of a file as arrays, of the rows in which the columns of `equal` have these values.

    "seconds" holds the latencies. A column that the file does not have is not compared. Raises UsageError."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "measured latencies need pyarrow; install it with: pip install 'headrace[measured]'"
        ) from error
    has = set(parquet.read_schema(path).names)
    filters = [(name, "==", value) for name, value in equal.items() if name in has]
    table = parquet.read_table(path, columns=[name for name in (*names, "latency") if name in has], filters=filters)
    found = {name: np.asarray(table[name], dtype=np.float64) for name in table.column_names}
    return {**found, "seconds": found["latency"] / 1e3}


@cache
def product_rows(gpu: str, backend: str = VLLM, dtype: str = BF16, version: str | None = None) -> ProductRows:
    """Return the measured products of a GPU, one of DECODER_FOLDERS. Raises UsageError if there are none."""
    path = table_file(gpu, "gemm", "gemm", backend, version)
    found = {} if path is None else columns(path, ("m", "n", "k"), gemm_dtype=dtype)
    if not found or not len(found["m"]):
        raise UsageError(
            f"there are no products of {backend}{f' {version}' if version else ''} in {dtype} on {gpu}; "
            "choose another number format, server or GPU"
        )
    chosen = found["n"] >= _SMALLEST
    return ProductRows(*(found[name][chosen] for name in ("m", "n", "k", "seconds")))


@cache
def attention_rows(
    gpu: str,
    kind: str,
    backend: str = VLLM,
    queries: str = BF16,
    keys: str = BF16,
    window: int = 0,
    version: str | None = None,
) -> AttentionRows | None:
    """Return the measured attention of a kind of KINDS_OF_ATTENTION; None if the GPU has none. Raises UsageError.

    Args:
        gpu: One of DECODER_FOLDERS.
        kind: One of KINDS_OF_ATTENTION.
        backend: The server whose kernels were measured.
        queries: The number format of queries.
        keys: The number format of the cache of keys and values.
        window: How many keys a query sees; 0 for all.
        version: As in `table_file`.
    """
    folder = "encoder_attention" if kind == ENCODER else "attention"
    path = table_file(gpu, folder, f"{kind}_attention", backend, version)
    if path is None:
        return None
    names = (*_ATTENTION_COLUMNS, "num_key_value_heads", "isl", "step")
    found = columns(path, names, attn_dtype=queries, kv_cache_dtype=keys, window_size=window)
    chosen = found["head_dim"] <= LARGEST_HEAD
    found = {name: values[chosen] for name, values in found.items()}
    if not len(found["isl"]):
        return None
    batch, heads, head = (found[name] for name in _ATTENTION_COLUMNS)
    seen = found["isl"] + (found["step"] if kind == GENERATION else 0.0)
    return AttentionRows(
        batch, heads, found.get("num_key_value_heads", heads), head, found["isl"], seen, found["seconds"]
    )


class ProductTable:
    """The latency of products by their sizes, from rows on a grid.

    `grid` has the seconds by m, n and k, which are rising."""

    def __init__(self, rows: ProductRows) -> None:
        from scipy.interpolate import RegularGridInterpolator  # takes long to load

        self.m, self.n, self.k = axes = tuple(np.unique(values) for values in (rows.m, rows.n, rows.k))
        grid = np.full([len(axis) for axis in axes], np.nan)
        grid[tuple(np.searchsorted(*each) for each in zip(axes, (rows.m, rows.n, rows.k), strict=True))] = rows.seconds
        for m, n in np.argwhere(np.isnan(grid).all(axis=2)):  # too many rows to measure take in proportion
            grid[m, n] = grid[m - 1, n] * (self.m[m] / self.m[m - 1])
        for m, n, k in np.argwhere(np.isnan(grid)):  # the few that were too large to measure continue a line over k
            slope = (grid[m, n, k - 1] - grid[m, n, k - 2]) / (self.k[k - 1] - self.k[k - 2])
            grid[m, n, k] = grid[m, n, k - 1] + slope * (self.k[k] - self.k[k - 1])
        if np.isnan(grid).any():
            raise UsageError(f"the tables of {PACKAGE} are not a grid; install version {VERSION}")
        self.grid = grid
        self._between = RegularGridInterpolator(axes, grid)

    def covers(self, n: Floats, k: Floats) -> Flags:
        """Return whether products of these sizes lie within the table. Any number of rows does."""
        inside: Flags = (self.n[0] <= n) & (n <= self.n[-1]) & (self.k[0] <= k) & (k <= self.k[-1])
        return inside

    def seconds(self, m: Floats, n: Floats, k: Floats) -> Floats:
        """Return the seconds of products that the table covers: arrays of one shape."""
        found: Floats = self._between((np.minimum(m, self.m[-1]), n, k)) * np.maximum(1.0, m / self.m[-1])
        return found


class AttentionTable:
    """The latency of attention by heads and keys, for heads of one size, with as many heads of keys as of queries.

    The heads are those of all requests: a request of 8 heads takes the same as 8 requests of one. `curves` has, by the
    number of keys, the numbers of heads and their seconds, which are rising."""

    def __init__(self, rows: AttentionRows, head: int, *, logarithms: bool) -> None:
        chosen = (rows.head == head) & (rows.heads == rows.kv_heads)
        heads, keys, seconds = (rows.batch * rows.heads)[chosen], rows.keys[chosen], rows.seconds[chosen]
        self.curves: dict[float, tuple[Floats, Floats]] = {}
        for length in np.unique(keys):
            at = keys == length
            sizes = np.unique(heads[at])
            means = [np.exp(np.mean(np.log(seconds[at & (heads == size)]))) for size in sizes]
            self.curves[float(length)] = sizes, np.array(means)
        self.keys = tuple(self.curves)
        self._logarithms = logarithms

    def covers(self, keys: float) -> bool:
        """Return whether this number of keys lies within the table. Any number of heads does."""
        return self.keys[0] <= keys <= self.keys[-1]

    def seconds(self, heads: Floats, keys: float) -> Floats:
        """Return the seconds of attention that the table covers, of so many heads in all."""
        above = min(max(bisect_left(self.keys, keys), 1), len(self.keys) - 1)
        low, high = self.keys[above - 1], self.keys[above]
        return between(low, self.at(low, heads), high, self.at(high, heads), keys, logarithms=self._logarithms)

    def at(self, keys: float, heads: Floats) -> Floats:
        """Return the seconds at one of `self.keys`."""
        sizes, seconds = self.curves[keys]
        found: Floats = np.interp(heads, sizes, seconds) * np.maximum(1.0, heads / sizes[-1])
        return found


def between(low: float, before: Floats, high: float, after: Floats, at: float, *, logarithms: bool) -> Floats:
    """Return the value at `at` from those at `low` and `high`: on a line, or on one of the logarithms of both axes."""
    if not logarithms:
        return before + (after - before) * ((at - low) / (high - low))
    share = math.log(at / low) / math.log(high / low)
    found: Floats = before * (after / before) ** share
    return found


@cache
def product_table(gpu: str, backend: str = VLLM, dtype: str = BF16, version: str | None = None) -> ProductTable:
    """Return the table of products of a GPU, as `product_rows`. Raises UsageError."""
    return ProductTable(product_rows(gpu, backend, dtype, version))


@cache
def attention_table(gpu: str, kind: str, head: int) -> AttentionTable | None:
    """Return the table of attention of a kind, for heads of this size; None if there is none. Raises UsageError."""
    rows = attention_rows(gpu, kind)
    if rows is None or not (rows.head == head).any():
        return None
    return AttentionTable(rows, head, logarithms=kind in BY_LOGARITHMS)
