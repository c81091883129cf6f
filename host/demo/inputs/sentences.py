"""Sentences of random tokens, with the lengths of real translations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.workers.networks.steps import Signature
from headrace.sim.workload.lengths import TRANSLATION


@dataclass(frozen=True, slots=True)
class Sentences:
    """A `Source` (runs/serving.py) whose request i sends sentence i and asks for as many tokens as its translation
    has."""

    tokens: Sequence[Sequence[int]]
    output_lengths: Sequence[int]

    def name(self, number: int) -> str:
        return f"{len(self.tokens[number])} tokens in, {self.output_lengths[number]} out"

    async def value(self, number: int) -> tuple[Any, Preprocessed | None]:
        return self.tokens[number], None

    def options(self, number: int) -> Mapping[str, Any]:
        return {"output_len": self.output_lengths[number]}

    def compare(self, number: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        raise AssertionError("no sentence is preprocessed")


def random_lengths(network: Signature, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Draw the lengths of inputs and outputs from those of translations.

    Lengths for which the network has no room are halved. The output length is 1 if the network does not decode."""
    lengths = []
    for inputs, outputs in zip(*(drawn.tolist() for drawn in TRANSLATION.sample(count, rng)), strict=True):
        while not network.fits(inputs, outputs) and max(inputs, outputs) > 1:
            inputs, outputs = max(1, inputs // 2), max(1, outputs // 2)
        lengths.append((inputs, outputs if network.decodes else 1))
    return lengths


def random_sentences(network: Signature, count: int, rng: np.random.Generator) -> Sentences:
    """Draw `count` sentences with lengths as in `random_lengths`."""
    lengths = random_lengths(network, count, rng)
    first_word = min(2, network.vocabulary - 1)  # tokens 0 and 1 may be marks
    tokens = [rng.integers(first_word, network.vocabulary, length).tolist() for length, _ in lengths]
    return Sentences(tokens, [length for _, length in lengths])
