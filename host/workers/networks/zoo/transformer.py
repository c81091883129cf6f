"""An encoder-decoder Transformer (Vaswani et al. 2017) that decodes greedily with cached keys and values.

Two states grow. Each of their steps is (decoder layers, 2, hidden) float32, keys and then values. `memory` holds the
encoder's output for cross-attention, with an entry for each input token. `cache` is for self-attention, with an entry
for each output token. Layers, positions and the norms after the last layers are those of torch.nn.Transformer. One
thing differs: the cross-attention weights that make keys and values belong to the encoder, which computes them once.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.steps import Step

States = dict[str, Tensor]


def sinusoidal_positions(length: int, hidden: int) -> Tensor:
    """Return the positions, (length, hidden) float32: Vaswani et al. 2017, Section 3.5."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, hidden, 2) * (-math.log(10_000.0) / hidden))
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :hidden]


class Embedding(nn.Module):
    """Words, scaled by sqrt(hidden), plus their positions."""

    positions: Tensor

    def __init__(self, hidden: int, vocabulary: int, longest: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.register_buffer("positions", sinusoidal_positions(longest, hidden), persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        words: Tensor = self.words(tokens)
        return words * math.sqrt(self.positions.shape[1]) + self.positions[positions]


class EncoderStep(nn.Module):
    """Run the whole input through all encoder layers, and compute the keys and values of every decoder layer's
    cross-attention."""

    def __init__(self, hidden: int, vocabulary: int, heads: int, layers: int, longest: int, norm_first: bool) -> None:
        super().__init__()
        self.embedding = Embedding(hidden, vocabulary, longest)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, 0.0, batch_first=True, norm_first=norm_first)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.memory = nn.ModuleList(nn.Linear(hidden, 2 * hidden) for _ in range(layers))

    def forward(self, tokens: Tensor, state: States, lengths: States) -> tuple[States, Tensor | None]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        padding = places >= lengths["tokens"][:, None]
        x = self.embedding(tokens, places)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        x = self.norm(x)
        return {"memory": torch.stack([of_layer(x).unflatten(2, (2, -1)) for of_layer in self.memory], 2)}, None


class DecoderLayer(nn.Module):
    """torch.nn.TransformerDecoderLayer for one new token of each request, with cached keys and values of the earlier
    ones.

    `self_in` is that layer's self_attn.in_proj, and `cross_query` is the first third of its multihead_attn.in_proj."""

    def __init__(self, hidden: int, heads: int, norm_first: bool) -> None:
        super().__init__()
        self.self_in = nn.Linear(hidden, 3 * hidden)
        self.self_out = nn.Linear(hidden, hidden)
        self.cross_query = nn.Linear(hidden, hidden)
        self.cross_out = nn.Linear(hidden, hidden)
        self.linear1 = nn.Linear(hidden, 4 * hidden)
        self.linear2 = nn.Linear(4 * hidden, hidden)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(hidden), nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.heads, self.norm_first = heads, norm_first

    def forward(self, x: Tensor, cache: Tensor, cached: Tensor, memory: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new x and this token's keys and values, (batch, 2, hidden).

        Args:
            x: (batch, hidden).
            cache, memory: (batch, steps, 2, hidden).
            cached, there: (batch, steps) bool, the valid steps of `cache` and of `memory`.
        """
        query, keys_values = self.self_in(self.norm1(x) if self.norm_first else x).tensor_split((x.shape[1],), 1)
        new = keys_values.unflatten(1, (2, -1))
        cached = nn.functional.pad(cached, (0, 1), value=True)
        x = x + self.self_out(self._attention(query, torch.cat((cache, new[:, None]), 1), cached))
        x = x if self.norm_first else self.norm1(x)
        query = self.cross_query(self.norm2(x) if self.norm_first else x)
        x = x + self.cross_out(self._attention(query, memory, there))
        x = x if self.norm_first else self.norm2(x)
        x = x + self.linear2(self.linear1(self.norm3(x) if self.norm_first else x).relu())
        return x if self.norm_first else self.norm3(x), new

    def _attention(self, query: Tensor, keys_values: Tensor, counts: Tensor) -> Tensor:
        """Attend with one query for each request. Returns (batch, hidden)."""
        keys, values = (part.view(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in keys_values.unbind(2))
        heads = query.view(len(query), self.heads, 1, -1)
        return scaled_dot_product_attention(heads, keys, values, counts[:, None, None]).flatten(1)


class DecoderStep(nn.Module):
    """Run the next token through all decoder layers, and choose the likeliest word."""

    def __init__(self, hidden: int, vocabulary: int, heads: int, layers: int, longest: int, norm_first: bool) -> None:
        super().__init__()
        self.embedding = Embedding(
            hidden, vocabulary, longest + 1
        )  # a step after the end may run, and its result is ignored
        self.layers = nn.ModuleList(DecoderLayer(hidden, heads, norm_first) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.projection = nn.Linear(hidden, vocabulary)

    def logits(self, tokens: Tensor, state: States, lengths: States) -> tuple[Tensor, Tensor]:
        """Return logits (batch, vocabulary), and the new cache entries, (batch, 1, layers, 2, hidden)."""
        cache, memory = state["cache"], state["memory"]
        cached, there = (
            torch.arange(state[name].shape[1], device=tokens.device) < lengths[name][:, None]
            for name in ("cache", "memory")
        )
        x = self.embedding(tokens, lengths["cache"])
        new = []
        for number, layer in enumerate(self.layers):
            x, keys_values = layer(x, cache[:, :, number], cached, memory[:, :, number], there)
            new.append(keys_values)
        return self.projection(self.norm(x)), torch.stack(new, 1)[:, None]

    def forward(self, tokens: Tensor, state: States, lengths: States) -> tuple[States, Tensor | None]:
        logits, new = self.logits(tokens, state, lengths)
        return {"cache": new}, logits.argmax(1)


class Transformer:
    """The step model. `heads` must divide `hidden`. `longest_input` and `longest_output` are in tokens."""

    def __init__(
        self,
        hidden: int,
        vocabulary: int,
        heads: int,
        layers: int,
        norm_first: bool,
        longest_input: int,
        longest_output: int,
    ) -> None:
        self.states = (
            TensorSpec("memory", "float32", (-1, layers, 2, hidden), longest_input),
            TensorSpec("cache", "float32", (-1, layers, 2, hidden), longest_output),
        )
        self.vocabulary = vocabulary
        sizes = (hidden, vocabulary, heads, layers)
        encoder = EncoderStep(*sizes, longest_input, norm_first)
        decoder = DecoderStep(*sizes, longest_output, norm_first)
        self.steps = (
            Step("transformer-encoder", NodeKind.STATIC, encoder, max_batch=32, appends=("memory",)),
            Step("transformer-decoder", NodeKind.DECODER, decoder, priority=1, appends=("cache",)),
        )
