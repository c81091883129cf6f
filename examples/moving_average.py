"""A step model of one's own, as small as one can be: it predicts the word that was near the last ones most often.

    Network("own", "moving_average:model")

serves it where this file is importable. `encode` takes the whole input at once (STATIC), `decode` one token at a time
(DECODER). Between them a request keeps two states: `words`, which grows by an entry for each token read or written, and
`bias`, which does not. The protocol is in headrace/host/workers/steps.py.
"""

import torch
from torch import Tensor, nn

from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.steps import Step

VOCABULARY, SIZE, LONGEST = 50, 16, 64
States = dict[str, Tensor]


class Encode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, SIZE)

    def forward(self, tokens: Tensor, state: States, lengths: States) -> tuple[States, Tensor | None]:
        words = self.embedding(tokens)  # (batch, longest, SIZE)
        there = torch.arange(tokens.shape[1], device=tokens.device) < lengths["tokens"][:, None]
        return {"words": words, "bias": (words * there[..., None]).sum(1)}, None


class Decode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, SIZE)
        self.output = nn.Linear(SIZE, VOCABULARY)

    def forward(self, tokens: Tensor, state: States, lengths: States) -> tuple[States, Tensor | None]:
        new = self.embedding(tokens)[:, None]  # (batch, 1, SIZE)
        mean = state["words"].sum(1) / lengths["words"][:, None]  # behind its length a state is zero
        return {"words": new}, self.output(mean + new[:, 0] + 0.1 * state["bias"]).argmax(1)


class Model:
    def __init__(self) -> None:
        self.states = [TensorSpec("words", "float32", (-1, SIZE), LONGEST), TensorSpec("bias", "float32", (SIZE,))]
        self.vocabulary = VOCABULARY
        self.steps = [
            Step("encode", NodeKind.STATIC, Encode(), appends=("words",)),
            Step("decode", NodeKind.DECODER, Decode(), priority=1, appends=("words",)),
        ]


def model() -> Model:
    return Model()
