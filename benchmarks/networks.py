"""The networks that benchmarks serve in real worker processes, beyond torchvision's.

- `timed` keeps its core busy for as long as a GPU takes that the SMDP paper measured.
- `paced` sleeps 20 ms + 2.5 ms for each request of its batch.
- `empty_small` and `empty_image` take no time, `echo` and `means` next to none.
- `bert_base` is BERT-base (Devlin et al., NAACL 2019, Section 3) with random weights, from token ids to the states of
  all tokens; `bert_large` is BERT-large.

Triton's environment imports this module, too, and has no Headrace.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

ALPHA_S, TAU0_S = 0.3051e-3, 1.052e-3  # tau(b) = ALPHA b + TAU0: SMDP (ICC 2023), Section V, GoogLeNet on a P4


class Timed(nn.Module):
    input_shape = (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        end = time.monotonic() + ALPHA_S * len(x) + TAU0_S
        while time.monotonic() < end:
            pass
        return x


class Paced(nn.Module):
    """A network that sleeps for its time, so that its core can do other work."""

    input_shape = (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(20e-3 + 2.5e-3 * len(x))
        return x


class Empty(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.input_shape = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :1]


class Echo(nn.Module):
    input_shape = (3, 224, 224)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Means(nn.Module):
    """A classifier that costs next to nothing: the brightest colour of a photo."""

    input_shape = (3, 224, 224)
    categories = ("red", "green", "blue")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, ::8, ::8].mean((2, 3))


class BertLayer(nn.Module):
    """Self-attention and a feed-forward network, each added to its input and then normalised."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the next states. `x` and the result have the shape (batch, tokens, width)."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.attention_norm(x + self.out(attended))
        normed: torch.Tensor = self.norm(x + self.down(F.gelu(self.up(x))))
        return normed


class Bert(nn.Module):
    input_shape = "128:int64"

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        tokens, positions = 30522, 512
        self.words, self.positions = nn.Embedding(tokens, width), nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.Sequential(*(BertLayer(width, heads, 4 * width) for _ in range(layers)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.positions.weight[: ids.shape[1]] + self.segments.weight[0]
        states: torch.Tensor = self.layers(self.norm(x))
        return states


def timed() -> nn.Module:
    return Timed()


def paced() -> nn.Module:
    return Paced()


def empty_small() -> nn.Module:
    return Empty((1,))


def empty_image() -> nn.Module:
    return Empty((3, 224, 224))


def echo() -> nn.Module:
    return Echo()


def means() -> nn.Module:
    return Means()


def bert_base() -> nn.Module:
    torch.manual_seed(0)
    return Bert(12, 768, 12)


def bert_large() -> nn.Module:
    return Bert(24, 1024, 16)
