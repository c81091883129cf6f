#!/usr/bin/env python3
"""Fit the constants of products and of attention on whole GPUs (sim/hardware/gpu/kernels.py) to NVIDIA's tables.

    .venv/bin/python scripts/calibrate_gpu_kernels.py

Prints the constants of AMPERE_WHOLE and HOPPER_WHOLE. Both Hoppers share theirs. A fit sees half of the sizes: of
products every other pair of n and k, of attention every other pair of heads and elements of a head. It minimizes the
mean of |log(modelled / measured)| over a sample of these rows. `headrace reproduce gpu` has the errors of both halves.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from headrace.sim.experiments.gpu.kernels import Sample, attention_sample, product_sample
from headrace.sim.hardware.gpu.kernels import AMPERE_WHOLE, FITTED, HOPPER_WHOLE, Attention, Kernels
from headrace.sim.hardware.gpu.tables import KINDS_OF_ATTENTION

GPUS = {"AMPERE_WHOLE": ("a100-80gb",), "HOPPER_WHOLE": ("h100", "h200")}
SAMPLED = 3000  # rows of a table
ROUNDS, EVALUATIONS = 3, 550
PRODUCTS = {
    "memory": 0.85,
    "sm_bytes": 13.0,
    "kernel_s": 2.4e-6,
    "macs": 0.9,
    "soft_tiles": 0.5,
    "soft_waves": 0.5,
    "tile_clocks": 300.0,
    "split_s": 2e-6,
    "overlap": 2.0,
}
ATTENTION = {
    "macs": 0.6,
    "memory": 0.9,
    "kernel_s": 7e-6,
    "tile_clocks": 3000.0,
    "split_s": 1e-6,
    "soft_waves": 0.5,
}
SHARES = ("soft_tiles", "soft_waves", "memory", "macs")  # between 0 and 1


def fit(samples: Sequence[Sample], start: dict[str, float], kernels: Callable[[dict[str, Any]], Kernels]) -> Kernels:
    """Return the kernels with which the samples are met best. The search is over unbounded numbers."""

    def values(at: NDArray[np.float64]) -> dict[str, Any]:
        return {
            name: 1 / (1 + math.exp(-x)) if name in SHARES else math.exp(x) + (name == "overlap")
            for name, x in zip(start, at, strict=True)
        }

    works = [sample.work() for sample in samples]

    def mean_error(at: NDArray[np.float64]) -> float:
        tried = kernels(values(at))
        found = [sample.ratios(tried, work) for sample, work in zip(samples, works, strict=True)]
        return float(np.mean([np.mean(np.abs(np.log(ratios))) for ratios in found]))

    at = np.array(
        [
            math.log(value / (1 - value)) if name in SHARES else math.log(value - (name == "overlap"))
            for name, value in start.items()
        ]
    )
    for _ in range(ROUNDS):  # a shrunk simplex may be stuck, so each round starts from the last one's result
        simplex = np.vstack([at, at + 0.3 * np.eye(len(at))])
        options = {"maxfev": EVALUATIONS, "initial_simplex": simplex}
        at = minimize(mean_error, at, method="Nelder-Mead", options=options).x
    print(f"  mean |log(modelled / measured)| {mean_error(at):.3f}")
    return kernels(values(at))


def shown(constants: Kernels | Attention) -> str:
    return ", ".join(
        f"{field.name}={value:.4g}"
        for field in fields(constants)
        if isinstance(value := getattr(constants, field.name), float)
    )


def main() -> None:
    base = Kernels(FITTED.grouped, 1.0, 1.0, 1.0, operand_bytes=math.inf, splits=HOPPER_WHOLE.products.splits)
    for name, gpus in GPUS.items():
        print(f"{name}, products")
        samples = [product_sample(gpu).fitted().some(SAMPLED) for gpu in gpus]
        products = fit(samples, PRODUCTS, lambda given: replace(FITTED, products=replace(base, **given))).products
        print(f"  {shown(products)}", flush=True)
        print(f"{name}, attention")
        samples = [
            found.fitted().some(SAMPLED)
            for gpu in gpus
            for kind in KINDS_OF_ATTENTION
            if (found := attention_sample(gpu, kind)) is not None
        ]
        whole = {"AMPERE_WHOLE": AMPERE_WHOLE, "HOPPER_WHOLE": HOPPER_WHOLE}[name]
        found = fit(samples, ATTENTION, lambda given, whole=whole: replace(whole, attention=Attention(**given)))
        print(f"  {shown(found.attention)}", flush=True)


if __name__ == "__main__":
    main()
