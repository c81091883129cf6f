"""Samples of measured kernels, with the slice model's time for each: products and attention on whole GPUs.

Half of the sizes are fitted, and the other half is held out (scripts/calibrate_gpu_kernels.py)."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.batching.graphs.model_graph import ATTENTION, CAUSAL, Kernel, MatMul, ModelGraph, Node
from headrace.sim.hardware.gpu.kernels import Floats, Kernels
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.gpu.slice import HALF, Work, whole
from headrace.sim.hardware.gpu.tables import (
    CONTEXT,
    GENERATION,
    Flags,
    attention_rows,
    product_rows,
)

PRODUCT: Final = "product"


@dataclass(frozen=True, slots=True)
class Sample:
    """Measured kernels of one kind on a whole GPU.

    Attributes:
        gpu: The GPU's name.
        kind: PRODUCT, or a kind of attention.
        sizes: By these, errors are told apart: rows of a product, keys of attention.
        launched: The kernels, as a graph has them.
        measured_s: Their latencies.
        odd: Whether a size is held out.
    """

    gpu: str
    kind: str
    sizes: Floats
    launched: tuple[Kernel, ...]
    measured_s: Floats
    odd: Flags

    def only(self, chosen: Flags) -> "Sample":
        """Return the chosen kernels."""
        launched = tuple(kernel for kernel, wanted in zip(self.launched, chosen, strict=True) if wanted)
        return Sample(self.gpu, self.kind, self.sizes[chosen], launched, self.measured_s[chosen], self.odd[chosen])

    def fitted(self) -> "Sample":
        return self.only(~self.odd)

    def held_out(self) -> "Sample":
        return self.only(self.odd)

    def some(self, count: int) -> "Sample":
        """Return so many kernels, drawn at random, or all if there are fewer."""
        chosen = np.zeros(len(self.launched), dtype=np.bool_)
        chosen[np.random.default_rng(0).permutation(len(chosen))[:count]] = True
        return self.only(chosen)

    def work(self) -> Work:
        return Work(ModelGraph(self.kind, (Node(self.kind, kernels=self.launched),)), 1.0)

    def ratios(self, kernels: Kernels | None = None, work: Work | None = None) -> Floats:
        """Return measured by modelled of each kernel: with these constants, or with those of the whole GPU.

        `work` is that of `self.work()`, which a caller that asks often makes once."""
        instance = whole(gpu_named(self.gpu))
        chosen = kernels or instance.kernels
        seconds = (work or self.work()).seconds(np.ones(1), instance, HALF, chosen)[0]
        if self.kind in (CONTEXT, GENERATION):  # another kernel writes keys and values into the cache
            seconds = seconds + (chosen.products or chosen).kernel_s
        ratios: Floats = self.measured_s / seconds
        return ratios


def _every_other(*columns: Floats) -> Flags:
    """Return whether the places of a row's values, among all values of their columns, add up to an odd number."""
    places = np.sum([np.searchsorted(np.unique(column), column) for column in columns], axis=0)
    odd: Flags = places % 2 == 1
    return odd


def product_sample(gpu: str) -> Sample:
    """Return the measured products of a GPU. Held out is every other pair of n and k. Raises UsageError."""
    rows = product_rows(gpu)
    launched = tuple(
        Kernel("mm", m * k, m * n, n * k, (MatMul(m, k, n),))
        for m, n, k in zip(*(column.astype(int).tolist() for column in (rows.m, rows.n, rows.k)), strict=True)
    )
    return Sample(gpu, PRODUCT, rows.m, launched, rows.seconds, _every_other(rows.n, rows.k))


def attention_sample(gpu: str, kind: str) -> Sample | None:
    """Return the measured attention of a kind; None if the GPU has none.

    Held out is every other combination of heads and elements of a head. Raises UsageError."""
    rows = attention_rows(gpu, kind)
    if rows is None:
        return None
    name = ATTENTION + (CAUSAL if kind == CONTEXT else "")
    columns = (rows.batch, rows.heads, rows.kv_heads, rows.head, rows.queries, rows.keys)
    launched = []
    for batch, heads, kv_heads, head, queries, keys in zip(
        *(each.astype(int).tolist() for each in columns), strict=True
    ):
        # The queries of all heads that share keys are one tile's.
        shared = heads // kv_heads if kind == GENERATION else 1
        scores = MatMul(queries * shared, head, keys, batch * heads // shared, weights=False)
        read = batch * head * (queries * heads + 2 * keys * kv_heads)
        launched.append(Kernel(name, read, batch * head * queries * heads, 0, (scores,)))
    odd = _every_other(rows.heads, rows.head)
    return Sample(gpu, kind, rows.keys, tuple(launched), rows.seconds, odd)
