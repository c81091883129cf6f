"""Helpers of the parts that hold torch themselves: networks on a device, precisions, and the time of a call."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from headrace.host.validation.plan import NETWORKS
from headrace.host.workers.networks.models import LoadedModel, load_model

MIN_REPEATS: Final = 3
WARM_UPS: Final = 3  # libraries choose their kernels in the first runs
AUDIO_FRAMES: Final = 1001  # 10 s, with a hop of 10 ms


def load(network: str) -> LoadedModel:
    return load_model(NETWORKS[network][0])


def inputs_of(loaded: LoadedModel, batch: int) -> list[torch.Tensor]:
    """Return inputs of a batch in the host's memory: noise, and for networks of audio 10 s and their number of
    frames."""
    audio = any(spec.variable is not None for spec in loaded.inputs)
    generator = torch.Generator().manual_seed(0)
    made = []
    for spec in loaded.inputs:
        shape = (batch, *spec.sized(min(AUDIO_FRAMES, spec.longest)))
        kind = getattr(torch, spec.dtype)
        if kind.is_floating_point:
            made.append(torch.randn(shape, generator=generator).to(kind))
        else:  # a number of frames, or indices of a table, of which each has 0
            made.append(torch.full(shape, AUDIO_FRAMES if audio else 0, dtype=kind))
    return made


@contextlib.contextmanager
def precision(name: str) -> Iterator[Callable[[Any], Any]]:
    """Set torch to a precision of the slice model. Yields a function that gives a module or a tensor its format.

    "fp32" is torch's default (TF32 in convolutions alone), "tf32" has TF32 in all products, "fp16" has half precision
    throughout."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = name == "tf32", True
    try:
        yield _half if name == "fp16" else lambda given: given
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _half(given: Any) -> Any:
    if isinstance(given, torch.Tensor) and not given.is_floating_point():
        return given
    return given.half()


def wait(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(run: Callable[[], object], device: torch.device, at_least_s: float) -> float:
    """Return the median time of a call on the device, after WARM_UPS calls that do not count.

    It is measured until MIN_REPEATS calls and `at_least_s` seconds are over."""
    for _ in range(WARM_UPS):
        run()
    wait(device)
    times: list[float] = []
    end = time.monotonic() + at_least_s
    while len(times) < MIN_REPEATS or time.monotonic() < end:
        began = time.perf_counter()
        run()
        wait(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def largest_difference(ours: Any, theirs: Any) -> float:
    """Return the largest absolute difference of two lists of tensors, by the largest value of the second."""
    pairs = [(one.double(), other.double()) for one, other in zip(ours, theirs, strict=True)]
    largest = max(float(other.abs().max()) for _, other in pairs)
    return max(float((one - other).abs().max()) for one, other in pairs) / max(largest, 1e-30)
