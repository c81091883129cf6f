"""A step model of one's own, as small as one can be, and requests to it: run this file.

The next word follows from the mean of all words so far. `Encode` takes the whole input at once (STATIC), `Decode` a
token at a time (DECODER). In between a request keeps two states: `words`, which grows by an entry for each token read
or written, and `bias`, of one size. The protocol stands in host/workers/networks/steps.py.
"""

import asyncio
import os
from pathlib import Path

import torch
from torch import Tensor, nn

from headrace.batching.graphs.model_graph import NodeKind
from headrace.batching.policies.cellular import CellularBatching
from headrace.host.live.runtime import Runtime
from headrace.host.live.tasks.cells import CellTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.steps import Step
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes

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


async def main() -> None:
    tasks = CellTasks([Network("own", "moving_average:Model")], workers=1)
    policy = CellularBatching(tasks.models, 1)
    workers = processes(tasks.program(), worker_devices(1))
    async with WorkerPool(workers) as pool, Runtime(policy, pool, tasks) as runtime:
        inputs = ([17, 4, 23], [8], list(range(2, 40)))
        for done in await asyncio.gather(*(runtime.infer("own", tokens, max_steps=9) for tokens in inputs)):
            print(f"in a batch of {done.served.batch}: {done.output}")
    tasks.close()


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)  # where the workers find this module
    asyncio.run(main())
