"""The slice model's prediction for a whole GPU: how long a network takes by batch and precision.

This module needs no torch."""

from functools import cache
from typing import Final

from headrace.batching.errors import OutOfMemory
from headrace.host.validation.plan import NETWORKS
from headrace.sim.hardware.gpu.mig import Gpu, gpu_named
from headrace.sim.hardware.gpu.slice import CAPTURED, PREBA, PRECISIONS, SliceTimes, check_fits, whole
from headrace.sim.zoo.traced import traced

ON_CPU: Final = "h100"  # the GPU that is predicted where there is none
_PRODUCTS: Final = (("H200", "h200"), ("H100", "h100"))  # parts of product names, and the model's names


def model_of(product: str) -> Gpu | None:
    """Return the modelled GPU of a product name, as torch gives it. None if no model is of this GPU, or of its slice.

    An empty name stands for the CPU, and gives the model of ON_CPU."""
    if not product:
        return gpu_named(ON_CPU)
    if "MIG" in product:
        return None
    for part, name in _PRODUCTS:
        if part in product:
            return gpu_named(name)
    if "A100" in product:
        return gpu_named("a100-80gb" if "80GB" in product else "a100-40gb")
    return None


@cache
def _times(gpu: str, network: str, precision: str, captured: bool) -> SliceTimes:
    host = CAPTURED if captured else PREBA
    return SliceTimes(traced(network), whole(gpu_named(gpu)), host, PRECISIONS[precision])


def expected_ms(product: str, network: str, precision: str, batch: int, *, captured: bool) -> float | None:
    """Return what a row of the part `profiles` expects (ms); None if the GPU has no model, or no memory for the batch.

    `product` is the GPU's product name, empty on the CPU. The other arguments are those of `predicted_s`."""
    gpu = model_of(product)
    seconds = None if gpu is None else predicted_s(gpu, network, precision, batch, captured=captured)
    return None if seconds is None else 1e3 * seconds


def predicted_s(gpu: Gpu, network: str, precision: str, batch: int, *, captured: bool = False) -> float | None:
    """Return the predicted seconds of a batch; None if the GPU has no memory for the batch.

    Launched kernel by kernel, it includes the copy of the inputs to the GPU. `captured` is one CUDA graph, without it.

    Args:
        network: A name of NETWORKS, which also gives the length of the input.
        precision: A name of the slice model's PRECISIONS.
    """
    times, length = _times(gpu.name, network, precision, captured), NETWORKS[network][1]
    try:
        check_fits(times.network, batch, length, times.instance, times.precision)
    except OutOfMemory:
        return None
    return float(times.batch_s([batch], length)[0])
