"""Latency of networks by batch and precision, on the whole device, with the slice model's prediction.

A step is what the model's host does: it copies the input from pageable memory, launches the network, and waits. The
same network as one CUDA graph shows the device's own time, without a host that may be slow or busy."""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from headrace.batching.errors import one_line
from headrace.host.validation.parts.torch_runs import inputs_of, load, precision, seconds_of
from headrace.host.validation.plan import CAPTURED, LAUNCHED, NO_GRAPHS, Check, Row, failed
from headrace.host.validation.prediction import expected_ms
from headrace.host.workers.networks.models import LoadedModel


def rows(check: Check) -> Iterator[Row]:
    names = check.sizes.networks
    for number, name in enumerate(names):
        # Each network may take its share of the time that is left, so that the last ones are measured, too.
        until = time.monotonic() + check.left_s() / (len(names) - number)
        try:
            yield from _network(check, name, until)
        except Exception as error:
            yield failed(name, LAUNCHED, "ms", error)


def _network(check: Check, name: str, until: float) -> Iterator[Row]:
    device = torch.device(check.device)
    share = (until - time.monotonic()) / len(check.sizes.precisions)
    for number, format_ in enumerate(check.sizes.precisions):
        loaded = load(name)
        end = until - (len(check.sizes.precisions) - 1 - number) * share
        with torch.inference_mode(), precision(format_) as formatted:
            formatted(loaded.module.to(device))
            for batch in check.sizes.batches:
                case = f"{name}, {format_}, batch {batch}"
                expected = expected_ms(check.gpu, name, format_, batch, captured=False)
                if time.monotonic() > end:
                    yield Row(case, LAUNCHED, "ms", expected, None, "no time was left")
                    break
                try:
                    given = [formatted(tensor) for tensor in inputs_of(loaded, batch)]
                    took = seconds_of(partial(_step, loaded, given, device), device, check.sizes.point_s)
                    details = {"network": name, "precision": format_, "batch": batch}
                    yield Row(case, LAUNCHED, "ms", expected, 1e3 * took, f"{batch / took:.0f} inputs/s", details)
                    yield _captured(check, loaded, [tensor.to(device) for tensor in given], case, details)
                except torch.cuda.OutOfMemoryError:
                    yield Row(case, LAUNCHED, "ms", expected, None, "the device has no memory for it")
                    break
        del loaded
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _step(loaded: LoadedModel, given: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Copy a batch to the device and run the network on it."""
    return loaded.call([tensor.to(device) for tensor in given])


def _captured(
    check: Check, loaded: LoadedModel, there: list[torch.Tensor], case: str, details: Mapping[str, Any]
) -> Row:
    """Measure the network as one CUDA graph, which shows the time of the device without that of the host's launches."""
    expected = expected_ms(check.gpu, details["network"], details["precision"], details["batch"], captured=True)
    if check.device != "cuda":
        return Row(case, CAPTURED, "ms", expected, None, NO_GRAPHS, details)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):  # the runs before were the warm-up
            loaded.call(there)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:  # the network waits for the device, as for a length that it computes there
        torch.cuda.synchronize()
        return Row(case, CAPTURED, "ms", expected, None, f"it cannot be captured: {one_line(error)}", details)
    took = seconds_of(graph.replay, torch.device("cuda"), check.sizes.point_s)
    return Row(case, CAPTURED, "ms", expected, 1e3 * took, "", details)
