"""The executor of cells, in a worker process: all steps of all networks on one device.

States stay in the shared memory.
"""

import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.memory.states import StateViews, state_views
from headrace.host.workers.executors.serving import Interrupts, TaskRecord, work
from headrace.host.workers.messages import CELLS
from headrace.host.workers.networks.program import CellSettings, read_network
from headrace.host.workers.networks.step_models import LoadedSteps, load_steps
from headrace.host.workers.networks.step_rows import StepRows
from headrace.host.workers.networks.steps import GO


class _Network:
    def __init__(self, loaded: LoadedSteps, views: StateViews, device: torch.device) -> None:
        self.signature = loaded.signature
        self.rows = StepRows(self.signature, loaded.modules.to(device), views, device)
        self._tokens = torch.from_numpy(views.tokens)
        self._input = torch.from_numpy(views.input)

    def run(self, number: int, tokens: torch.Tensor, writes: torch.Tensor, reads: torch.Tensor) -> TaskRecord:
        try:
            counts = None
            if self.signature.steps[number].kind is NodeKind.STATIC:
                counts = tokens
                tokens = self._input[:, : int(counts.max())].index_select(0, writes)
            else:
                tokens = torch.where(tokens < 0, self._tokens[writes], tokens)  # a chain reads and writes the same row
            gathered, chosen = self.rows.run(number, tokens, reads, writes, counts)
        except Exception:
            # The next cells of these requests may wait in the socket, in batches with others. Their results do not
            # matter any more. A token that every network has keeps them from failing the others.
            self._tokens[writes] = GO
            raise
        if chosen is None:
            return TaskRecord(gathered)
        self._tokens.index_copy_(0, writes, chosen)
        return TaskRecord(gathered, chosen.numpy().astype("<i4").tobytes())


class CellExecutor:
    def __init__(self, settings: CellSettings, device: str, threads: int, at: Callable[[str], None]) -> None:
        torch.set_num_threads(threads)
        loaded: dict[str, LoadedSteps] = {}
        for network in settings.networks:
            at(f"loading {network.name}")
            loaded[network.name] = load_steps(network)
        memory = mmap.mmap(settings.memory_fd, os.fstat(settings.memory_fd).st_size)
        views = state_views({name: one.signature.row for name, one in loaded.items()}, settings.rows, memory)
        self._networks = [_Network(one, views[name], torch.device(device)) for name, one in loaded.items()]
        for made in self._networks:
            for number, step in enumerate(made.signature.steps):
                for batch in sorted({1, step.max_batch}):
                    at(f"running cell {step.name} of {made.signature.name} on a first batch of {batch}")
                    made.rows.warm_up(number, batch)

    def run(self, message: memoryview, interrupts: Interrupts) -> TaskRecord:
        number, cell, batch = CELLS.unpack_from(message)
        network: _Network = self._networks[number]
        step = network.signature.steps[cell]
        if not 1 <= batch <= step.max_batch:
            raise ValueError(f"a batch of {batch} was sent to cell {step.name!r}, which takes 1 to {step.max_batch}")
        # torch's indices are int64; this is a copy, as the message is read-only
        numbers = torch.from_numpy(np.frombuffer(message, "<i4", offset=CELLS.size).astype(np.int64))
        return network.run(cell, numbers[:batch], numbers[batch : 2 * batch], numbers[2 * batch :])


def _executor(body: dict[str, Any], at: Callable[[str], None]) -> CellExecutor:
    networks = tuple(map(read_network, body["networks"]))
    settings = CellSettings(networks, body["memory_fd"], body["rows"])
    return CellExecutor(settings, body["device"], body["threads"], at)


def main(arguments: Sequence[str]) -> None:
    work(arguments, _executor)
