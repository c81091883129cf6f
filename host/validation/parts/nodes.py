"""A network node by node, operator by operator and as CUDA graphs, against the same network in one piece."""

import time
from collections.abc import Iterator
from functools import partial

import torch

from headrace.host.validation.parts.torch_runs import inputs_of, largest_difference, load, seconds_of, wait
from headrace.host.validation.plan import NO_GRAPHS, Check, Row, failed
from headrace.host.workers.executors.cuda_graphs import CapturedNodes
from headrace.host.workers.networks.split.network import split, split_at
from headrace.host.workers.networks.split.operators import Live


def rows(check: Check) -> Iterator[Row]:
    for name in check.sizes.split:
        try:
            yield from _network(check, name)
        except Exception as error:
            yield failed(name, "node by node", "ms", error)


def _network(check: Check, name: str) -> Iterator[Row]:
    device = torch.device(check.device)
    if check.left_s() <= 0:
        yield Row(name, "node by node", "ms", None, None, "no time was left")
        return
    on_cpu, _ = split(load(name))
    network = split_at(load(name), on_cpu.nodes, device)
    whole = load(name)
    whole.module.to(device)
    with torch.inference_mode():
        captured, captured_in = None, 0.0
        if device.type == "cuda":
            began = time.monotonic()
            given = [tensor.to(device) for tensor in inputs_of(whole, 1)]
            captured = CapturedNodes(network, given, max(check.sizes.few_batches))
            wait(device)
            captured_in = time.monotonic() - began
        for batch in check.sizes.few_batches:
            case = f"{name}, batch {batch}"
            if check.left_s() <= 0:
                yield Row(case, "node by node", "ms", None, None, "no time was left")
                return
            given = [tensor.to(device) for tensor in inputs_of(whole, batch)]
            expected = whole.call(given)
            reference = 1e3 * seconds_of(partial(whole.call, given), device, check.sizes.point_s)
            difference = largest_difference(network.whole(given), expected)
            took = seconds_of(partial(network.whole, given), device, check.sizes.point_s)
            details = {"network": name, "batch": batch, "nodes": len(network.nodes), "difference": difference}
            yield Row(case, "node by node", "ms", reference, 1e3 * took, f"differs by {difference:.1e}", details)
            if captured is None:
                yield Row(case, "as CUDA graphs", "ms", reference, None, NO_GRAPHS, details)
                continue
            # As a worker runs them: the inputs are new tensors, and the outputs are read before the next run.
            difference = largest_difference(_through(captured, network.nodes, batch, given), expected)
            took = seconds_of(
                partial(_through, captured, network.nodes, batch, given),
                device,
                check.sizes.point_s,
            )
            note = f"captured in {captured_in:.1f} s; differs by {difference:.1e}"
            if batch > max(captured.batches, default=0):
                note = "graphs are not faster here, and are not used"
            yield Row(case, "as CUDA graphs", "ms", reference, 1e3 * took, note, {**details, "difference": difference})


def _through(captured: CapturedNodes, nodes: tuple[str, ...], batch: int, given: list[torch.Tensor]) -> Live:
    live: Live = tuple(given)
    for node in range(len(nodes)):
        live = captured.run(node, batch, live)
    return live
