"""The operators of a decoder's step, with measured latencies: NVIDIA's tables (sim/hardware/gpu/tables.py).

An `Operators` object has the tables of one GPU and of one server's kernels (TensorRT-LLM, SGLang, vLLM). Each method
returns the latency of one operator, by the size that varies from step to step:

- A `Curve` is the latency by one size: tokens, elements of a message. It is piecewise linear, and beyond the largest
  measured size it grows in proportion.
- A `Surface` is the latency of attention by requests and length. Between measured sizes it is linear in both. Sizes
  too large to measure take in proportion to the requests, and lengths beyond the last continue its last line. Where a
  number of heads of queries was not measured, the surface is on lines between the next fewer and the next more, with
  the same heads of keys.

Where the tables have no row for a choice (a precision, heads, experts, GPUs), `NoMeasurement` says which to change.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from headrace.batching.errors import UsageError
from headrace.sim.decoding.architecture import KEY_BYTES, WEIGHT_BYTES, Experts
from headrace.sim.hardware.gpu.kernels import FITTED, Floats
from headrace.sim.hardware.gpu.tables import (
    BACKENDS,
    BF16,
    CONTEXT,
    DECODER_FOLDERS,
    ENCODER,
    GENERATION,
    AttentionRows,
    AttentionTable,
    Flags,
    attention_rows,
    columns,
    product_table,
    table_file,
)

# The names of number formats in the tables of products. For fp8 with static scales, see `Operators.products`.
FORMATS: Final[Mapping[str, str]] = {
    "bf16": BF16,
    "fp8": "fp8",
    "fp8_static": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
}
EXPERT_FORMATS: Final[Mapping[str, tuple[str, ...]]] = {  # the first that a table has
    "bf16": (BF16,),
    "fp8": ("fp8",),
    "fp8_static": ("fp8",),
    "fp8_block": ("fp8_block",),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4"),
}
KEY_FORMATS: Final[Mapping[str, str]] = {"bf16": BF16, "fp8": "fp8"}
# How unevenly the router of the measurements loads its experts: a power law of this exponent.
ROUTING: Final = "power_law_1.2"
_WIDEST: Final = 65536  # the columns of the widest measured product


class NoMeasurement(UsageError):
    """The tables have no measurement for a choice."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A GPU's memory: bytes, and bytes a second."""

    size: float
    bandwidth: float


# NVIDIA's data sheets: A100 80 GB SXM, H100 SXM, H200 SXM, B200 (DGX), B300, GB200 and GB300, for one GPU.
MEMORY: Final[Mapping[str, Memory]] = {
    "a100-80gb": Memory(80 * 2**30, 2.039e12),
    "h100": Memory(80 * 2**30, 3.35e12),
    "h200": Memory(141 * 1e9, 4.8e12),
    "b200": Memory(180 * 1e9, 7.7e12),
    "b300": Memory(275_040 * 2**20, 7.75e12),
    "gb200": Memory(189_471 * 2**20, 8e12),
    "gb300": Memory(284_208 * 2**20, 8e12),
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds by one size: straight lines between `sizes`, which rise; in proportion beyond the last."""

    sizes: Floats
    seconds: Floats

    def at(self, sizes: Floats) -> Floats:
        """Return the seconds at any sizes."""
        found: Floats = np.interp(sizes, self.sizes, self.seconds) * np.maximum(1.0, sizes / self.sizes[-1])
        return found


@dataclass(frozen=True, slots=True)
class Surface:
    """Seconds of attention by the requests and their length.

    Attributes:
        requests: The numbers of requests, rising.
        lengths: The lengths in tokens, rising.
        seconds: The latency, requests x lengths, without gaps.
    """

    requests: tuple[float, ...]
    lengths: tuple[float, ...]
    seconds: Floats

    def row(self, requests: float) -> list[float]:
        """Return the seconds at each of `lengths`, for any number of requests."""
        last = self.requests[-1]
        if requests >= last:
            return list((self.seconds[-1] * (requests / last)).tolist())
        above = max(bisect_left(self.requests, requests), 1)
        low, high = self.requests[above - 1], self.requests[above]
        share = max(0.0, (requests - low) / (high - low))
        return list(((1 - share) * self.seconds[above - 1] + share * self.seconds[above]).tolist())


class Operators:
    """The measured operators of a server's kernels on a GPU.

    Args:
        gpu: One of DECODER_FOLDERS.
        backend: One of BACKENDS.
        version: The release whose kernels are taken, where the tables have it; None for that in BACKENDS.
        experts_version: The release whose experts are taken; None for `version`.

    Raises UsageError if the GPU or the server is unknown, and NoMeasurement if the version is."""

    def __init__(self, gpu: str, backend: str, version: str | None = None, experts_version: str | None = None) -> None:
        if gpu not in DECODER_FOLDERS:
            raise UsageError(f"there are no measured operators of the GPU {gpu!r}; choose from {', '.join(MEMORY)}")
        if backend not in BACKENDS:
            raise UsageError(f"there are no measured operators of {backend!r}; choose from {', '.join(BACKENDS)}")
        if version is not None and table_file(gpu, "gemm", "gemm", backend, version) is None:
            raise NoMeasurement(f"there are no kernels of {backend} {version} on {gpu}; leave the version out")
        self.gpu = gpu
        self.backend = backend
        self.version = version
        self.experts_version = version if experts_version is None else experts_version
        self.memory = MEMORY[gpu]

    @property
    def _where(self) -> str:
        return f"{self.backend} on {self.gpu}"

    def products(self, precision: str, n: int, k: int) -> Curve:
        """Return the latency of (tokens x k) @ (k x n) with trained weights, by tokens.

        A product wider than the widest measured one counts as several of equal width. Products in fp8 find the scale
        of their input in each step, and the tables include that. With `fp8_static` the checkpoint has the scales: the
        table's time to find them is taken off, down to the time to read the weights.

        Raises NoMeasurement if the sizes or the precision are not in the tables."""
        if precision not in FORMATS:
            raise NoMeasurement(
                f"there are no products in {precision}; choose from {', '.join(FORMATS)}, and give other formats to "
                "the experts alone"
            )
        table = product_table(self.gpu, self.backend, FORMATS[precision], self.version)
        parts = -(-n // _WIDEST)
        width, depth = np.full(len(table.m), n / parts), np.full(len(table.m), float(k))
        if not table.covers(width, depth).all():
            raise NoMeasurement(
                f"{self._where}: a product of {k} x {n} is outside the tables ({table.k[0]:g} to {table.k[-1]:g} x "
                f"{table.n[0]:g} to {table.n[-1]:g}); choose fewer GPUs for a model"
            )
        seconds = table.seconds(table.m, width, depth)
        if precision == "fp8_static":
            read = WEIGHT_BYTES[precision] * width * depth / self.memory.bandwidth
            seconds = np.maximum(seconds - self._scales(k).at(table.m), np.minimum(seconds, read))
        return Curve(table.m, parts * seconds)

    def _scales(self, k: int) -> Curve:
        """Return the time to find the scale of tokens x k elements, by tokens; zero where it was not measured."""
        path = table_file(self.gpu, "quantize", "computescale", self.backend, self.version)
        found = {} if path is None else columns(path, ("m", "k"), quant_dtype="fp8")
        if not found or not len(found["m"]):
            return Curve(np.array([1.0]), np.zeros(1))
        depths = np.unique(found["k"])
        near = found["k"] == depths[np.abs(np.log(depths / k)).argmin()]
        return _curve(found["m"][near], found["seconds"][near])

    def experts(self, precision: str, hidden: int, experts: Experts, tp: int, ep: int) -> Curve:
        """Return the latency of a layer's experts on each GPU, by the tokens of the step.

        Args:
            precision: The number format of the experts.
            hidden: The elements of a token.
            experts: The experts.
            tp: The GPUs that share each expert.
            ep: The groups of such GPUs; each group has a part of the experts.

        If the tables lack this way of sharing, experts that as many GPUs share in another way stand in: each GPU has
        the same number of weights. Raises NoMeasurement if they lack the experts on so many GPUs."""
        path = table_file(self.gpu, "moe", "moe", self.backend, self.experts_version)
        sizes = {
            "hidden_size": hidden,
            "inter_size": experts.intermediate,
            "topk": experts.chosen,
            "num_experts": experts.count,
            "distribution": ROUTING,
        }
        for name in EXPERT_FORMATS.get(precision, ()):
            if path is None:
                break
            found = columns(path, ("num_tokens", "moe_tp_size", "moe_ep_size"), moe_dtype=name, **sizes)
            groups = found["moe_ep_size"][found["moe_tp_size"] * found["moe_ep_size"] == tp * ep]
            if len(groups):
                near = groups[np.abs(np.log(groups / ep)).argmin()]
                chosen = (found["moe_ep_size"] == near) & (found["moe_tp_size"] == tp * ep / near)
                return _curve(found["num_tokens"][chosen], found["seconds"][chosen])
        raise NoMeasurement(
            f"{self._where}: {experts.count} experts of {hidden} x {experts.intermediate} in {precision}, "
            f"{experts.chosen} for a token, were not measured on {tp * ep} GPUs; choose another precision, model, "
            "server or number of GPUs"
        )

    def all_reduce(self, gpus: int) -> Curve:
        """Return the latency of a sum over `gpus` GPUs, by the bf16 elements of the message.

        It is the server's own kernel, in a captured graph. Raises NoMeasurement if the number was not measured."""
        path = table_file(self.gpu, "comm", "custom_allreduce", self.backend)
        if path is not None:
            graph = f"{self.backend}_graph"  # the column is missing where there is one kernel
            found = columns(path, ("message_size",), num_gpus=gpus, allreduce_dtype=BF16, backend=graph)
            if len(found["message_size"]):
                return _curve(found["message_size"], found["seconds"])
        raise NoMeasurement(f"{self._where}: sums over {gpus} GPUs were not measured; choose 1, 2, 4 or 8 GPUs")

    def context(self, heads: int, kv_heads: int, head_dim: int, keys: str, window: int = 0) -> Surface:
        """Return the latency of one layer's attention of prompts, by requests and by tokens of each.

        A query sees the keys before it; with a `window`, that many of them. Raises NoMeasurement."""
        return _attention(self, CONTEXT, heads, kv_heads, head_dim, keys, window)

    def generation(self, heads: int, kv_heads: int, head_dim: int, keys: str, window: int = 0) -> Surface:
        """Return the latency of one layer's attention of one query for each request, by requests and by keys of each.

        Raises NoMeasurement."""
        return _attention(self, GENERATION, heads, kv_heads, head_dim, keys, window)

    def encoder(self, head_dim: int) -> AttentionTable:
        """Return the latency of one layer's attention in which all queries see all keys, by heads and keys.

        Raises NoMeasurement."""
        rows = attention_rows(self.gpu, ENCODER, self.backend, version=self.version)
        if rows is None or not (rows.head == head_dim).any():
            raise NoMeasurement(
                f"{self._where}: attention of encoders with heads of {head_dim} was not measured; choose another GPU, "
                "or a model without an encoder"
            )
        return AttentionTable(rows, head_dim, logarithms=True)

    def moved(self, moved_bytes: float, kernels: int) -> Curve:
        """Return the latency of kernels that only move bytes, by tokens. `moved_bytes` are those of one token."""
        per_token = moved_bytes / (FITTED.memory * self.memory.bandwidth)
        sizes = np.array([1.0, float(1 << 20)])
        return Curve(sizes, kernels * FITTED.kernel_s + per_token * sizes)


def total(curves: Iterable[tuple[float, Curve]]) -> Curve:
    """Return the sum of curves of one size, each with its factor."""
    chosen = list(curves)
    sizes = np.unique(np.concatenate([curve.sizes for _, curve in chosen]))
    return Curve(sizes, np.sum([factor * curve.at(sizes) for factor, curve in chosen], axis=0))


def _curve(sizes: Floats, seconds: Floats) -> Curve:
    """Return the curve of rows in any order. Where several kernels have one size, the fastest counts."""
    found = np.unique(sizes)
    return Curve(found, np.array([seconds[sizes == size].min() for size in found]))


def _attention(
    operators: Operators, kind: str, heads: int, kv_heads: int, head_dim: int, keys: str, window: int
) -> Surface:
    where = operators._where
    if keys not in KEY_BYTES:
        raise NoMeasurement(f"there is no KV cache in {keys!r}; choose from {', '.join(KEY_BYTES)}")
    # Prompts in fp8 have queries in fp8 where such kernels were measured. Generation was measured with queries in bf16.
    for queries in ("fp8", BF16) if keys == "fp8" and kind == CONTEXT else (BF16,):
        found = _surface(
            operators.gpu, operators.backend, operators.version, kind, queries, keys, heads, kv_heads, head_dim, window
        )
        if found is not None:
            return found
    raise NoMeasurement(
        f"{where}: {kind} attention of {heads} and {kv_heads} heads of {head_dim} with a KV cache in {keys}"
        f"{f' and a window of {window}' if window else ''} was not measured; choose another precision, GPU, server, or "
        "number of GPUs for a model"
    )


@cache
def _surface(
    gpu: str,
    backend: str,
    version: str | None,
    kind: str,
    queries: str,
    keys: str,
    heads: int,
    kv_heads: int,
    head_dim: int,
    window: int,
) -> Surface | None:
    rows = attention_rows(gpu, kind, backend, queries, KEY_FORMATS[keys], window, version)
    if rows is None:
        return None
    alike = (rows.kv_heads == kv_heads) & (rows.head == head_dim)
    measured = np.unique(rows.heads[alike])
    if heads in measured:
        return _measured_surface(rows, alike & (rows.heads == heads))
    above = int(np.searchsorted(measured, heads))
    if not 0 < above < len(measured):
        return None
    fewer, more = measured[above - 1], measured[above]
    low, high = (_measured_surface(rows, alike & (rows.heads == each)) for each in (fewer, more))
    return _between_surfaces(low, high, float((heads - fewer) / (more - fewer)))


def _between_surfaces(low: Surface, high: Surface, share: float) -> Surface:
    """Return the surface on lines between two, at the requests and lengths that both have."""
    requests = np.intersect1d(low.requests, high.requests)
    lengths = np.intersect1d(low.lengths, high.lengths)
    low_s, high_s = (
        each.seconds[np.ix_(np.isin(each.requests, requests), np.isin(each.lengths, lengths))] for each in (low, high)
    )
    return Surface(tuple(requests.tolist()), tuple(lengths.tolist()), (1 - share) * low_s + share * high_s)


def _measured_surface(rows: AttentionRows, chosen: Flags) -> Surface:
    batch, length, seconds = rows.batch[chosen], rows.keys[chosen], rows.seconds[chosen]
    requests, lengths = np.unique(batch), np.unique(length)
    grid = np.full((len(requests), len(lengths)), np.inf)
    np.minimum.at(grid, (np.searchsorted(requests, batch), np.searchsorted(lengths, length)), seconds)
    grid[np.isinf(grid)] = np.nan
    for place in range(1, len(requests)):  # what was too large to measure
        gaps = np.isnan(grid[place])
        grid[place, gaps] = grid[place - 1, gaps] * (requests[place] / requests[place - 1])
    complete = ~np.isnan(grid).any(axis=0)
    return Surface(tuple(requests.tolist()), tuple(lengths[complete].tolist()), grid[:, complete])
