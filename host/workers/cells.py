"""The executor of recurrent cells, in a worker process: all cells of all networks on one device,
`python -m headrace.host.workers.cells FD SETTINGS`. States stay in the shared memory.
"""

import mmap
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from headrace.host.memory.states import StateLayout
from headrace.host.workers.cell_modules import load_cells
from headrace.host.workers.messages import CELLS
from headrace.host.workers.networks import GO, Network
from headrace.host.workers.program import CellSettings
from headrace.host.workers.serving import Interrupts, Ran, work


class CellExecutor:
    def __init__(self, settings: CellSettings, device: str, threads: int, at: Callable[[str], None]) -> None:
        torch.set_num_threads(threads)
        states, tokens = settings.layout.views(mmap.mmap(settings.memory_fd, settings.layout.size))
        self._tokens = torch.from_numpy(tokens)
        self._networks = settings.networks
        # A network smaller than the widest one uses the first columns of a row.
        self._states = [torch.from_numpy(states)[:, :, : network.hidden] for network in settings.networks]
        self._device = torch.device(device)
        self._cells = []
        for network in settings.networks:
            at(f"loading {network.name}")
            self._cells.append(load_cells(network).to(self._device))
        for number, network in enumerate(settings.networks):
            for cell, (shape, kind) in enumerate(zip(network.shapes, network.types, strict=True)):
                for batch in (1, kind.max_batch):  # the first run of a shape is slow and must not be a request's
                    at(f"running cell {shape.name} of {network.name} on a first batch of {batch}")
                    empty = torch.zeros(batch, shape.reads, 2, network.hidden)
                    self._forward(number, cell, torch.zeros(batch, dtype=torch.int64), empty)

    @torch.inference_mode()
    def _forward(
        self, network: int, cell: int, tokens: torch.Tensor, states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`states` (batch, reads, 2, hidden); returns the new ones, (batch, 2, hidden), and the tokens."""
        states = states.to(self._device)
        h, c, chosen = self._cells[network][cell](tokens.to(self._device), states[:, :, 0], states[:, :, 1])
        return torch.stack((h, c), 1).cpu(), chosen.cpu() if chosen is not None else None

    @torch.inference_mode()
    def run(self, message: memoryview, interrupts: Interrupts) -> Ran:
        network, cell, batch = CELLS.unpack_from(message)
        kind = self._networks[network].types[cell]
        if not 1 <= batch <= kind.max_batch:
            raise ValueError(f"a batch of {batch} was sent to cell {kind.name!r}, which takes 1 to {kind.max_batch}")
        # torch's indices are int64; a copy, as the message is read only
        numbers = torch.from_numpy(np.frombuffer(message, "<i4", offset=CELLS.size).astype(np.int64))
        tokens, writes, reads = numbers[:batch], numbers[batch : 2 * batch], numbers[2 * batch :]
        try:
            return self._run(network, cell, tokens, writes, reads)
        except Exception:
            # The next cells of these requests may wait in the socket, in batches with others. They will run for
            # nothing; a token that every network has keeps them from failing the others.
            self._tokens[writes] = GO
            raise

    def _run(self, network: int, cell: int, tokens: torch.Tensor, writes: torch.Tensor, reads: torch.Tensor) -> Ran:
        rows = self._states[network]
        per_entry = self._networks[network].shapes[cell].reads
        states = rows.index_select(0, reads).view(len(writes), per_entry, 2, rows.shape[2])
        tokens = torch.where(tokens < 0, self._tokens[writes], tokens)  # a chain writes the row that it reads
        gathered = time.monotonic()
        states, chosen = self._forward(network, cell, tokens, states)
        rows.index_copy_(0, writes, states)
        if chosen is None:
            return Ran(gathered)
        self._tokens.index_copy_(0, writes, chosen)
        return Ran(gathered, chosen.numpy().astype("<i4").tobytes())


def _executor(body: dict[str, Any], at: Callable[[str], None]) -> CellExecutor:
    networks = tuple(Network(**{**one, "max_batch": tuple(one["max_batch"])}) for one in body["networks"])
    settings = CellSettings(networks, body["memory_fd"], StateLayout(**body["layout"]))
    return CellExecutor(settings, body["device"], body["threads"], at)


if __name__ == "__main__":
    work(sys.argv[1:], _executor)
