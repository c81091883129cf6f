"""Step models for tests, as a user would write them."""

import torch
from torch import nn

from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.steps import Step

WORDS = 20


class Model:
    def __init__(self, states, steps):
        self.states, self.vocabulary, self.steps = states, WORDS, steps


class Stray(nn.Module):
    """A step that adds up the padding after the input in a batch."""

    def forward(self, tokens, state, lengths):
        behind = torch.arange(tokens.shape[1]) >= lengths["tokens"][:, None]
        return {"stray": tokens.where(behind, torch.tensor(0)).sum(1, keepdim=True)}, None


def stray():
    return Model([TensorSpec("stray", "int64", (1,))], [Step("stray", NodeKind.STATIC, Stray(), max_batch=4)])


class Read(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)

    def forward(self, tokens, state, lengths):
        return {"sum": (0.5 * state["sum"] + self.embedding(tokens)).tanh()}, None


class Pool(Read):
    def forward(self, tokens, state, lengths):
        there = torch.arange(tokens.shape[1]) < lengths["tokens"][:, None]
        return {"sum": state["sum"] + (self.embedding(tokens) * there[..., None]).sum(1)}, None


class Write(Read):
    def __init__(self):
        super().__init__()
        self.output = nn.Linear(8, WORDS)

    def forward(self, tokens, state, lengths):
        new = (state["sum"] + self.embedding(tokens)).tanh()
        return {"sum": new}, self.output(new).argmax(1)


def sections():
    """Static steps before and after the encoder."""
    steps = [
        Step("before", NodeKind.STATIC, Pool(), max_batch=4),
        Step("read", NodeKind.ENCODER, Read(), max_batch=5),
        Step("between", NodeKind.STATIC, Pool(), max_batch=4),
        Step("write", NodeKind.DECODER, Write(), max_batch=6, priority=1),
    ]
    return Model([TensorSpec("sum", "float32", (8,))], steps)
