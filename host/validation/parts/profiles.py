"""Latency of networks by batch and precision, on the whole device, with the slice model's prediction.

A step is what the model's host does: it copies the input from pageable memory, launches the network, and waits."""

import time
from collections.abc import Iterator
from functools import partial

import torch

from headrace.host.validation.parts.torch_runs import inputs_of, load, precision, seconds_of
from headrace.host.validation.plan import Check, Row, failed
from headrace.host.validation.prediction import model_of, predicted_s
from headrace.host.workers.networks.models import LoadedModel


def rows(check: Check) -> Iterator[Row]:
    names = check.sizes.networks
    for number, name in enumerate(names):
        # Each network may take its share of the time that is left, so that the last ones are measured, too.
        until = time.monotonic() + check.left_s() / (len(names) - number)
        try:
            yield from _network(check, name, until)
        except Exception as error:
            yield failed(name, "latency", "ms", error)


def _network(check: Check, name: str, until: float) -> Iterator[Row]:
    device, gpu = torch.device(check.device), model_of(check.gpu)
    share = (until - time.monotonic()) / len(check.sizes.precisions)
    for number, format_ in enumerate(check.sizes.precisions):
        loaded = load(name)
        end = until - (len(check.sizes.precisions) - 1 - number) * share
        with torch.inference_mode(), precision(format_) as formatted:
            formatted(loaded.module.to(device))
            for batch in check.sizes.batches:
                case = f"{name}, {format_}, batch {batch}"
                expected = None if gpu is None else predicted_s(gpu, name, format_, batch)
                if time.monotonic() > end:
                    yield Row(case, "latency", "ms", expected and 1e3 * expected, None, "no time was left")
                    break
                try:
                    given = [formatted(tensor) for tensor in inputs_of(loaded, batch)]
                    there = [tensor.to(device) for tensor in given]
                    with_copy = seconds_of(partial(_step, loaded, given, device), device, check.sizes.point_s)
                    without = seconds_of(partial(loaded.call, there), device, check.sizes.point_s)
                except torch.cuda.OutOfMemoryError:
                    yield Row(
                        case, "latency", "ms", expected and 1e3 * expected, None, "the device has no memory for it"
                    )
                    break
                yield Row(
                    case,
                    "latency",
                    "ms",
                    expected and 1e3 * expected,
                    1e3 * with_copy,
                    f"{batch / with_copy:.0f} inputs/s",
                    {"network": name, "precision": format_, "batch": batch, "without_copy_ms": 1e3 * without},
                )
        del loaded
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _step(loaded: LoadedModel, given: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Copy a batch to the device and run the network on it."""
    return loaded.call([tensor.to(device) for tensor in given])
