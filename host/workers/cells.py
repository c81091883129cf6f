"""The main of a worker process for cells: all cells of all networks on one device,
`python -m headrace.host.workers.cells FD SETTINGS`.

Like headrace.host.workers.whole it talks in lines of JSON, numbers only; states stay in the shared memory. It answers

    {"task": 7, "network": 0, "cell": 1, "tokens": [5, -1], "reads": [3, 8], "writes": [3, 8]}
    with  {"task": 7, "gather_s": ..., "execute_s": ..., "tokens": [17, 1]}  or  {"task": 7, "error": ...}

in the order of the tasks, of which several may wait in the socket. `reads` has the rows of every entry's states, one
entry after the other. Token -1 is the one that the step before left in the row: the parent may send a decoder's next
step before it knows that token.
"""

import mmap
import sys
import time
from typing import Any

import torch

from headrace.host.memory.states import CellSettings, StateLayout
from headrace.host.workers.cell_modules import load_cells
from headrace.host.workers.networks import GO, Network
from headrace.host.workers.whole import work


class CellExecutor:
    def __init__(self, settings: CellSettings) -> None:
        torch.set_num_threads(settings.threads)
        states, tokens = settings.layout.views(mmap.mmap(settings.memory_fd, settings.layout.size))
        self._tokens = torch.from_numpy(tokens)
        self._networks = settings.networks
        # A network smaller than the widest one uses the first columns of a row.
        self._states = [torch.from_numpy(states)[:, :, : network.hidden] for network in settings.networks]
        self._device = torch.device(settings.device)
        self._cells = [load_cells(network).to(self._device) for network in settings.networks]
        for number, network in enumerate(settings.networks):
            for cell, (shape, kind) in enumerate(zip(network.shapes, network.types, strict=True)):
                for batch in (1, kind.max_batch):  # the first run of a shape is slow and must not be a request's
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

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._run(task)
        except Exception:
            # The next cells of these requests may wait in the socket, in batches with others. They will run for
            # nothing; a token that every network has keeps them from failing the others.
            self._tokens[torch.tensor(task["writes"])] = GO
            raise

    @torch.inference_mode()
    def _run(self, task: dict[str, Any]) -> dict[str, Any]:
        network, cell, batch = task["network"], task["cell"], len(task["writes"])
        kind = self._networks[network].types[cell]
        if not 1 <= batch <= kind.max_batch:
            raise ValueError(f"a batch of {batch} was sent to cell {kind.name!r}, which takes 1 to {kind.max_batch}")
        started = time.perf_counter()
        rows = self._states[network]
        reads, writes = torch.tensor(task["reads"], dtype=torch.int64), torch.tensor(task["writes"])
        per_entry = self._networks[network].shapes[cell].reads
        states = rows.index_select(0, reads).view(batch, per_entry, 2, rows.shape[2])
        tokens = torch.tensor(task["tokens"])
        tokens = torch.where(tokens < 0, self._tokens[writes], tokens)  # a chain writes the row that it reads
        gathered = time.perf_counter()
        states, chosen = self._forward(network, cell, tokens, states)
        rows.index_copy_(0, writes, states)
        answer: dict[str, Any] = {}
        if chosen is not None:
            self._tokens.index_copy_(0, writes, chosen)
            answer["tokens"] = chosen.tolist()
        return {"gather_s": gathered - started, "execute_s": time.perf_counter() - gathered, **answer}


def _executor(body: dict[str, Any]) -> CellExecutor:
    networks = tuple(Network(**{**one, "max_batch": tuple(one["max_batch"])}) for one in body.pop("networks"))
    return CellExecutor(CellSettings(networks=networks, layout=StateLayout(**body.pop("layout")), **body))


if __name__ == "__main__":
    work(sys.argv[1:], _executor)
