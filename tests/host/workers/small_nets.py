"""A user's own networks, small and quick to load, which do on command what networks may do, and fixtures for them."""

import sys
from collections.abc import Sequence

import numpy as np
import pytest

from headrace.batching import ModelGraph
from headrace.host.live.tasks.whole import WholeTasks
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import WholeModel

NET = "smallnet:net"
OTHER = "smallnet:other"
SHAPE = (3, 4, 4)

SOURCE = """
import os, signal, time, torch

class Small(torch.nn.Module):
    input_shape = (3, 4, 4)

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3, 5)

    def forward(self, x):
        for first in x[:, 0, 0, 0].tolist():
            if first == 666:
                raise ValueError("unlucky number")
            if first == 13:
                os.kill(os.getpid(), signal.SIGKILL)
            if first > 1000:
                time.sleep(first - 1000)
        return self.head(x.mean((2, 3)))

class Other(torch.nn.Module):
    input_shape = (2,)

    def forward(self, x):
        if x[0, 0] == 7:
            return torch.zeros(len(x), 1)  # not the shape that it said, and one that would broadcast
        return torch.cat((x, x.sum(1, keepdim=True)), 1)

def net():
    torch.manual_seed(5)
    return Small()

def other():
    return Other()

def broken():
    raise RuntimeError("no such weights")
"""


@pytest.fixture
def small(tmp_path, monkeypatch) -> str:
    """Write two networks. In `net` a first element of 666 raises, 13 kills the process, and 1000 + s sleeps s seconds.

    `other` gives its two numbers and their sum. A first element of 7 makes it give a wrong shape."""
    (tmp_path / "smallnet.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "smallnet", raising=False)
    return NET


def models(sources: Sequence[str] = (NET,), max_batch: int = 8) -> list[WholeModel]:
    found = []
    for source in sources:
        loaded = load_model(source)
        found.append(WholeModel(source, source, loaded.inputs, loaded.outputs, max_batch))
    return found


def tasks(slots: int = 16, sources: Sequence[str] = (NET,), max_batch: int = 8) -> WholeTasks:
    return WholeTasks(models(sources, max_batch), slots)


def graphs(sources: Sequence[str] = (NET,)) -> list[ModelGraph]:
    return [ModelGraph.opaque(source) for source in sources]


def tensor(first: float = 0.0, seed: int = 0) -> np.ndarray:
    value = np.random.default_rng(seed).standard_normal(SHAPE, np.float32)
    value[0, 0, 0] = first
    return value
