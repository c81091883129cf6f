"""Recurrent step models: LSTM, Seq2Seq and the binary TreeLSTM, with states h and c, each (hidden,) float32."""

from torch import Tensor, nn

from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.steps import Step

States = dict[str, Tensor]


class LstmStep(nn.Module):
    """Word embedding and an LSTM step."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.step = nn.LSTMCell(hidden, hidden)

    def forward(self, tokens: Tensor, state: States, lengths: States) -> tuple[States, Tensor | None]:
        h, c = self.step(self.embedding(tokens), (state["h"], state["c"]))
        return {"h": h, "c": c}, None


class DecoderStep(nn.Module):
    """An LSTM step and a projection onto the vocabulary. It chooses the likeliest word (no attention, no beam)."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.step = nn.LSTMCell(hidden, hidden)
        self.projection = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor, state: States, lengths: States) -> tuple[States, Tensor | None]:
        h, c = self.step(self.embedding(tokens), (state["h"], state["c"]))
        return {"h": h, "c": c}, self.projection(h).argmax(1)


class LeafStep(nn.Module):
    """A leaf of the TreeLSTM: Tai, Socher, Manning 2015, equations 9 to 14 without children."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.gates = nn.Linear(hidden, 3 * hidden)

    def forward(self, tokens: Tensor, state: States, lengths: States) -> tuple[States, Tensor | None]:
        i, o, u = self.gates(self.embedding(tokens)).chunk(3, 1)
        c = i.sigmoid() * u.tanh()
        return {"h": o.sigmoid() * c.tanh(), "c": c}, None


class InnerStep(nn.Module):
    """An inner node of the binary TreeLSTM (N-ary with N = 2): the same equations without a word.

    Each child has its own forget gate, which sees both children."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(2 * hidden, 5 * hidden)

    def forward(self, tokens: Tensor, state: States, lengths: States) -> tuple[States, Tensor | None]:
        i, left, right, o, u = self.gates(state["h"].flatten(1)).chunk(5, 1)
        c = i.sigmoid() * u.tanh() + left.sigmoid() * state["c"][:, 0] + right.sigmoid() * state["c"][:, 1]
        return {"h": o.sigmoid() * c.tanh(), "c": c}, None


class _Recurrent:
    def __init__(self, hidden: int, vocabulary: int, steps: tuple[Step, ...]) -> None:
        self.states = (TensorSpec("h", "float32", (hidden,)), TensorSpec("c", "float32", (hidden,)))
        self.vocabulary = vocabulary
        self.steps = steps


# Batch limits of LSTM and Seq2Seq: BatchMaker, Section 7. Decoding has priority, as it ends requests. Inner nodes of a
# tree have priority for the same reason.


def lstm(hidden: int, vocabulary: int) -> _Recurrent:
    step = Step("lstm", NodeKind.ENCODER, LstmStep(hidden, vocabulary), max_batch=512)
    return _Recurrent(hidden, vocabulary, (step,))


def seq2seq(hidden: int, vocabulary: int) -> _Recurrent:
    encoder = Step("encoder", NodeKind.ENCODER, LstmStep(hidden, vocabulary), max_batch=512)
    decoder = Step("decoder", NodeKind.DECODER, DecoderStep(hidden, vocabulary), max_batch=256, priority=1)
    return _Recurrent(hidden, vocabulary, (encoder, decoder))


def treelstm(hidden: int, vocabulary: int) -> _Recurrent:
    leaf = Step("leaf", NodeKind.ENCODER, LeafStep(hidden, vocabulary), reads=0)
    inner = Step("inner", NodeKind.ENCODER, InnerStep(hidden), reads=2, priority=1)
    return _Recurrent(hidden, vocabulary, (leaf, inner))
