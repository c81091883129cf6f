"""The cells as torch modules. Every cell maps a batch of

    tokens (batch,) int64, and of the states it reads h and c, each (batch, reads, hidden) float32
    to h and c, each (batch, hidden), and the tokens that it chose, (batch,) int64, or None.

A cell runs on whatever batch it is given; which request a row belongs to is nothing it knows.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headrace.batching import UsageError
from headrace.host.workers.models import load_weights
from headrace.host.workers.networks import EOS, GO, Network, Tree, plan, post_order

State = tuple[Tensor, Tensor]


class LstmCell(nn.Module):
    """Word embedding and an LSTM step."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.step = nn.LSTMCell(hidden, hidden)

    def forward(self, tokens: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        h, c = self.step(self.embedding(tokens), (h[:, 0], c[:, 0]))
        return h, c, None


class DecoderCell(nn.Module):
    """An LSTM step and a projection onto the vocabulary; the likeliest word is chosen (no attention, no beam)."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.step = nn.LSTMCell(hidden, hidden)
        self.projection = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        h, c = self.step(self.embedding(tokens), (h[:, 0], c[:, 0]))
        return h, c, self.projection(h).argmax(1)


class LeafCell(nn.Module):
    """A leaf of the TreeLSTM: Tai, Socher, Manning 2015, equations 9 to 14 without children."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.gates = nn.Linear(hidden, 3 * hidden)

    def forward(self, tokens: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        i, o, u = self.gates(self.embedding(tokens)).chunk(3, 1)
        c = i.sigmoid() * u.tanh()
        return o.sigmoid() * c.tanh(), c, None


class InnerCell(nn.Module):
    """An inner node of the binary TreeLSTM (N-ary with N = 2): the same equations without a word. Each child has its
    own forget gate, which sees both."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.gates = nn.Linear(2 * hidden, 5 * hidden)

    def forward(self, tokens: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        i, left, right, o, u = self.gates(h.flatten(1)).chunk(5, 1)
        c = i.sigmoid() * u.tanh() + left.sigmoid() * c[:, 0] + right.sigmoid() * c[:, 1]
        return o.sigmoid() * c.tanh(), c, None


CELLS: dict[str, tuple[type[nn.Module], ...]] = {
    "lstm": (LstmCell,),
    "seq2seq": (LstmCell, DecoderCell),
    "treelstm": (LeafCell, InnerCell),
}


def load_cells(network: Network) -> nn.ModuleList:
    """The network's cells by number, in float32 on the CPU. Raises UsageError."""
    torch.manual_seed(network.seed)
    if network.cells is None:
        made: Sequence[Any] = [cell(network.hidden, network.vocabulary) for cell in CELLS[network.kind]]
    else:
        made = _users_cells(network.cells, network)
    if len(made) != len(network.shapes) or not all(isinstance(cell, nn.Module) for cell in made):
        raise UsageError(f"{network.cells} must return the {len(network.shapes)} torch modules of a {network.kind}")
    cells = nn.ModuleList(made).eval()
    if network.weights is not None:
        load_weights(cells, Path(network.weights))
    return cells


def _users_cells(name: str, network: Network) -> Sequence[Any]:
    module_name, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return list(getattr(importlib.import_module(module_name), function)(network.hidden, network.vocabulary))
    except Exception as error:
        raise UsageError(f"cells {name!r}: calling it failed: {type(error).__name__}: {error}") from error


@torch.inference_mode()
def run_alone(network: Network, cells: nn.ModuleList, value: Any, max_steps: int = 50) -> Tensor | list[int]:
    """The output of one request, cell by cell and without any batch: what the runtime's must equal. The final h or the
    root's h, (hidden,), or the decoded tokens, with <eos> if it came. Raises BadInput."""
    plan(network, value, max_steps)  # for its checks
    if network.kind == "treelstm":
        return _run_tree(network, cells, value)
    state = (torch.zeros(1, network.hidden), torch.zeros(1, network.hidden))
    for token in value:
        *state, _ = _step(cells[0], token, [state])
    if network.kind == "lstm":
        return state[0][0]
    decoded: list[int] = []
    while len(decoded) < max_steps and EOS not in decoded:
        *state, chosen = _step(cells[1], decoded[-1] if decoded else GO, [state])
        decoded.append(int(chosen))
    return decoded


def _run_tree(network: Network, cells: nn.ModuleList, tree: Tree) -> Tensor:
    states: list[State] = []
    for token, children in post_order(tree):
        h, c, _ = _step(cells[1 if children else 0], token, [states[child] for child in children])
        states.append((h, c))
    return states[-1][0][0]


def _step(cell: nn.Module, token: int, states: Sequence[State]) -> tuple[Tensor, Tensor, Tensor | None]:
    """One cell of one request; h and c are (1, hidden)."""
    none = torch.empty(1, 0, 0)
    h, c = (torch.stack(part, 1) for part in zip(*states, strict=True)) if states else (none, none)
    return cell(torch.tensor([token]), h, c)
