"""Nodes as CUDA graphs: on a GPU a small node takes less time than its kernels take to launch one by one.

A graph runs on the tensors that it was captured with. So a node's tensors are those that the node before it left, and a
sub-batch that comes from elsewhere, or has waited, is copied in and out. Batches that were not captured, and sizes at
which graphs gained nothing, run operator by operator.

All graphs take their memory from one pool (torch, "CUDA semantics", Graph memory management). What a node leaves stays
allocated, as it is kept here, but the scratch of one graph may lie where a later one leaves its tensors. That is no
harm while nodes run in their order and one after the other; what waits meanwhile is in memory of its own (`keep`).
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.host.workers.networks.split import Live, SplitNetwork

LARGEST = 16  # above it kernels take longer than their launches
GAIN = 1.05
REPEATS = 5
WARM_UPS = 3  # as torch's documentation has it: libraries choose kernels and take workspaces in the first runs
AHEAD = 2  # nodes that may be queued at the GPU; an interrupted task waits for these


@dataclass(frozen=True, slots=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    before: Live
    behind: Live


class CapturedNodes:
    """Runs what `network` runs. `inputs` are tensors of any batch, for their shapes and device. To be made and used in
    inference mode."""

    def __init__(self, network: SplitNetwork, inputs: Sequence[Tensor], max_batch: int) -> None:
        self._network = network
        self._captures: dict[tuple[int, int], _Capture] = {}
        self._queued: deque[torch.cuda.Event] = deque()
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        batch = 1
        while batch <= min(max_batch, LARGEST):
            if not self._capture(batch, [torch.zeros(batch, *tensor.shape[1:]).to(tensor) for tensor in inputs]):
                break  # still larger ones gain less
            batch *= 2

    def _capture(self, batch: int, inputs: Sequence[Tensor]) -> bool:
        """Capture all nodes; False, and nothing is kept, if graphs gain nothing."""
        # On the stream that is captured: a workspace belongs to one, and must not come from the graphs' pool.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                self._network.whole(inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        captures = []
        live: Live = tuple(inputs)
        for node in range(len(self._network.nodes)):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                behind = tuple(map(_writable, self._network.run(node, batch, live)))
            captures.append(_Capture(graph, live, behind))
            live = behind

        def replayed() -> None:
            for capture in captures:
                capture.graph.replay()

        if _time(lambda: self._network.whole(inputs)) < GAIN * _time(replayed):
            return False
        for node, capture in enumerate(captures):
            self._captures[node, batch] = capture
        return True

    def run(self, node: int, batch: int, live: Live) -> Live:
        capture = self._captures.get((node, batch))
        if capture is None:
            behind = self._network.run(node, batch, live)
        else:
            for own, given in zip(capture.before, live, strict=True):
                if own is not given:
                    own.copy_(given)
            capture.graph.replay()
            behind = capture.behind
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._queued.append(event)
        if len(self._queued) > AHEAD:
            self._queued.popleft().synchronize()
        return behind

    def keep(self, live: Live) -> Live:
        """What may wait while other sub-batches run."""
        return tuple(tensor.clone() for tensor in live)


def _writable(tensor: Tensor) -> Tensor:
    """In memory where other sub-batches can be copied to, which an expanded tensor has not."""
    expanded = any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.contiguous() if expanded else tensor


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
