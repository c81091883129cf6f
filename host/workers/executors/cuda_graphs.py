"""Run nodes as CUDA graphs: on a GPU a small node takes less time than the launches of its kernels one by one.

A graph runs on the tensors with which it was captured. So the inputs of a node are the tensors that the node before it
left. A sub-batch that comes from elsewhere, or has waited, is copied in and out. A batch whose size has no capture runs
in the next larger one, whose last rows then compute what nobody reads. Sizes at which graphs are not faster, and larger
ones, run operator by operator.

All graphs take their memory from one pool (torch, "CUDA semantics", Graph memory management). The outputs of a node
stay allocated, as this module keeps them. The scratch memory of one graph may lie where a later graph leaves its
outputs. That does no harm while nodes run in their order, one after the other. A sub-batch that waits meanwhile is in
other memory (`keep`).
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.host.workers.networks.split.network import SplitNetwork
from headrace.host.workers.networks.split.operators import Live

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)  # captured batches; in larger ones kernels take longer than their launches
GAIN = 1.05
REPEATS = 5
WARM_UPS = 3  # as in torch's documentation: libraries choose kernels and take workspaces in the first runs
# Nodes that may be queued at the GPU. An interrupted task waits for them. On an H100, 4 to 1,000 were no faster.
AHEAD = 2


@dataclass(frozen=True, slots=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    before: Live
    after: Live


class CapturedNodes:
    """Runs the nodes of `network`, as graphs where these are faster.

    `inputs` are tensors of any batch, for their shapes and device. Make and use it in inference mode."""

    def __init__(self, network: SplitNetwork, inputs: Sequence[Tensor], max_batch: int) -> None:
        self._network = network
        self._captures: dict[int, list[_Capture]] = {}  # by batch size, one for each node
        self._left: Live = ()  # the outputs of the last node, and the batch size of its capture
        self._left_by = 0
        self._queued: deque[torch.cuda.Event] = deque()
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        for batch in (size for size in SIZES if size <= max_batch):
            if not self._capture(batch, [torch.zeros(batch, *tensor.shape[1:]).to(tensor) for tensor in inputs]):
                break  # larger batches gain less

    def _capture(self, batch: int, inputs: Sequence[Tensor]) -> bool:
        """Capture all nodes for a batch. Returns False, and keeps nothing, if graphs are not faster."""
        # On the stream that is captured, as each stream has a workspace. It must not come from the graphs' pool.
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
                after = tuple(map(_writable, self._network.run(node, batch, live)))
            captures.append(_Capture(graph, live, after))
            live = after

        def replayed() -> None:
            for capture in captures:
                capture.graph.replay()

        if _time(lambda: self._network.whole(inputs)) < GAIN * _time(replayed):
            return False
        self._captures[batch] = captures
        return True

    @property
    def batches(self) -> list[int]:
        """Return the batch sizes that run as graphs."""
        return sorted(self._captures)

    def run(self, node: int, batch: int, live: Live) -> Live:
        size = next((size for size in self._captures if size >= batch), None)
        if size is None:
            after = self._network.run(node, batch, live)
        else:
            capture = self._captures[size][node]
            if live is not self._left or size != self._left_by:
                for own, given in zip(self._network.take(node, capture.before, 0, batch), live, strict=True):
                    own.copy_(given)
            capture.graph.replay()
            after = self._network.take(node + 1, capture.after, 0, batch)
            self._left, self._left_by = after, size
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._queued.append(event)
        if len(self._queued) > AHEAD:
            self._queued.popleft().synchronize()
        return after

    def keep(self, live: Live) -> Live:
        """Return copies of tensors that wait while other sub-batches run."""
        return tuple(tensor.clone() for tensor in live)


def _writable(tensor: Tensor) -> Tensor:
    """Return the tensor in memory that other sub-batches can be copied to. An expanded tensor is copied for that."""
    expanded = any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.contiguous() if expanded else tensor


def _time(run: Callable[[], object]) -> float:
    """Return the median time of a run, in seconds."""
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        began = time.monotonic()
        run()
        torch.cuda.synchronize()
        times.append(time.monotonic() - began)
    return statistics.median(times)
