"""Nodes as CUDA graphs: on a GPU a small node takes less time than its kernels take to launch one by one.

A graph runs on the tensors that it was captured with. So a node's tensors are those that the node before it left, and a
sub-batch that comes from elsewhere, or has waited, is copied in and out. Batches that were not captured, and sizes at
which graphs gained nothing, run operator by operator.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.host.workers.split import Live, SplitNetwork

LARGEST = 16  # above it kernels take longer than their launches
GAIN = 1.05
REPEATS = 5
AHEAD = 2  # nodes that may be queued at the GPU; an interrupted task waits for these


@dataclass(frozen=True, slots=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    before: Live
    behind: Live


class CapturedNodes:
    """Runs what `network` runs. `inputs` are tensors of any batch, for their shapes and device."""

    def __init__(self, network: SplitNetwork, inputs: Sequence[Tensor], max_batch: int) -> None:
        self._network = network
        self._captures: dict[tuple[int, int], _Capture] = {}
        self._queued: deque[torch.cuda.Event] = deque()
        self._pool = torch.cuda.graph_pool_handle()
        batch = 1
        while batch <= min(max_batch, LARGEST):
            self._capture(batch, [torch.zeros(batch, *tensor.shape[1:]).to(tensor) for tensor in inputs])
            batch *= 2

    def _capture(self, batch: int, inputs: Sequence[Tensor]) -> None:
        nodes = range(len(self._network.nodes))
        live: Live = tuple(inputs)
        torch.cuda.synchronize()
        for node in nodes:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                behind = self._network.run(node, batch, live)
            self._captures[node, batch] = _Capture(graph, live, behind)
            live = behind

        def replayed() -> None:
            for node in nodes:
                self._captures[node, batch].graph.replay()

        if _time(lambda: self._network.whole(inputs)) < GAIN * _time(replayed):
            for node in nodes:
                del self._captures[node, batch]

    def run(self, node: int, batch: int, live: Live) -> Live:
        capture = self._captures.get((node, batch))
        if capture is None:
            behind = self._network.run(node, batch, live)
        else:
            for own, given in zip(capture.before, live, strict=True):
                if own.data_ptr() != given.data_ptr():
                    own.copy_(given)
            capture.graph.replay()
            behind = capture.behind
        event = torch.cuda.Event()
        event.record()
        self._queued.append(event)
        if len(self._queued) > AHEAD:
            self._queued.popleft().synchronize()
        return behind

    def keep(self, live: Live) -> Live:
        """What may wait while other sub-batches run."""
        return tuple(tensor.clone() for tensor in live)


def _time(run: Callable[[], object]) -> float:
    """Median time of a run (s)."""
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        began = time.monotonic()
        run()
        torch.cuda.synchronize()
        times.append(time.monotonic() - began)
    return statistics.median(times)
