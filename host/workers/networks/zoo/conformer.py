"""Conformer encoders with a CTC head: Gulati et al. 2020, with the details of NeMo's `conformer_ctc_bpe.yaml`.

The requests of a batch are padded to the longest. Padding is 0 wherever a convolution reads it, and attention ignores
it. Batch norm uses its learned statistics. So a request's output is the same in a batch as alone, up to rounding.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import glu, log_softmax, pad, scaled_dot_product_attention, silu

from headrace.host.dpu.specs import AudioSpec

SUBSAMPLING = 4  # two convolutions of stride 2


class Encoded(NamedTuple):
    """Log-probabilities (batch, steps, classes), CTC's blank last, and the number of valid steps of each request,
    (batch,).

    The other steps are padding."""

    log_probs: Tensor
    lengths: Tensor


def inputs_of(spec: AudioSpec) -> str:
    """Return a speech network's `input_shape`: features, and their number of frames."""
    longest = spec.frames(int(spec.longest_s * spec.rate))
    return f"features={spec.n_mels}x1..{longest},lengths=scalar:int64"


def counted(features: Tensor, lengths: Tensor) -> Tensor:
    """Return `lengths` within 1 and the number of frames. Without a frame there is no mean, and nothing to attend
    to."""
    return lengths.clamp(1, features.shape[2])


def subsampled(lengths: Tensor, stride: int = 2) -> Tensor:
    """Return the number of steps after a convolution with an odd kernel and half as much padding."""
    return (lengths + stride - 1) // stride


def valid_steps(lengths: Tensor, steps: int) -> Tensor:
    """Return which steps are not padding, (batch, steps) bool."""
    return torch.arange(steps, device=lengths.device) < lengths[:, None]


class Subsampling(nn.Module):
    """Turn (batch, n_mels, T) into a quarter of the frames, with `hidden` numbers each."""

    def __init__(self, n_mels: int, hidden: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, hidden, 3, stride=2, padding=1) for channels in (1, hidden)
        )
        self.out = nn.Linear(hidden * -(-n_mels // SUBSAMPLING), hidden)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = x.transpose(1, 2)[:, None]  # (batch, channels, T, n_mels)
        for convolution in self.convolutions:
            x = x.masked_fill(~valid_steps(lengths, x.shape[2])[:, None, :, None], 0.0)
            x = convolution(x).relu()
            lengths = subsampled(lengths)
        return self.out(x.transpose(1, 2).flatten(2)), lengths


def relative_positions(steps: int, hidden: int, device: torch.device) -> Tensor:
    """Return sines and cosines, in turn, of the distances steps - 1 to 1 - steps, (2 * steps - 1, hidden) float32.

    Source: Dai et al. 2019, Section 3.3.
    """
    distances = torch.arange(steps - 1, -steps, -1, device=device)[:, None]
    angles = distances * torch.exp(torch.arange(0, hidden, 2, device=device) * (-math.log(10_000.0) / hidden))
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :hidden]


class RelativeAttention(nn.Module):
    """Self-attention with relative positions (Dai et al. 2019, Section 3.3).

    Query i scores key j by (q_i + u) k_j + (q_i + v) p_(i - j), divided by the root of a head's width."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(hidden, 3 * hidden)
        self.positions = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden)
        self.u = nn.Parameter(torch.zeros(heads, 1, hidden // heads))
        self.v = nn.Parameter(torch.zeros(heads, 1, hidden // heads))

    def forward(self, x: Tensor, positions: Tensor, valid: Tensor) -> Tensor:
        """Attend. `x` is (batch, steps, hidden), `positions` (2 * steps - 1, hidden), `valid` (batch, steps)."""
        parts = self.queries_keys_values(x).chunk(3, 2)
        queries, keys, values = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        places = self.positions(positions).unflatten(1, (self.heads, -1)).permute(1, 2, 0)
        by_place = _by_distance((queries + self.v) @ places) / math.sqrt(queries.shape[3])
        scores = by_place.masked_fill(~valid[:, None, None], -math.inf)
        attended = scaled_dot_product_attention(queries + self.u, keys, values, scores)
        return self.out(attended.transpose(1, 2).flatten(2))


def _by_distance(scores: Tensor) -> Tensor:
    """Turn scores (..., steps, 2 * steps - 1), in the order of `relative_positions`, into (..., steps, steps).

    Element i, j of the result has distance i - j. So row i must begin steps - 1 - i later. To read the rows as one
    element longer than they are has this effect."""
    steps = scores.shape[-2]
    longer = pad(scores, (1, 0)).flatten(-2)
    return longer[..., steps:].unflatten(-1, (steps, 2 * steps - 1))[..., :steps]


class ConvolutionModule(nn.Module):
    """Pointwise, gated, depthwise and pointwise convolution (Gulati et al. 2020, Figure 2)."""

    def __init__(self, hidden: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.gated = nn.Linear(hidden, 2 * hidden)
        self.depthwise = nn.Conv1d(hidden, hidden, kernel, padding=kernel // 2, groups=hidden)
        self.batch_norm = nn.BatchNorm1d(hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        x = glu(self.gated(self.norm(x)), 2).masked_fill(~valid[:, :, None], 0.0)
        x = silu(self.batch_norm(self.depthwise(x.transpose(1, 2))))
        out: Tensor = self.out(x.transpose(1, 2))
        return out


def feed_forward(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 4 * hidden), nn.SiLU(), nn.Linear(4 * hidden, hidden))


class Block(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward (Gulati et al. 2020, Figure 1)."""

    def __init__(self, hidden: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.before, self.after = feed_forward(hidden), feed_forward(hidden)
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = RelativeAttention(hidden, heads)
        self.convolution = ConvolutionModule(hidden, kernel)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor, positions: Tensor, valid: Tensor) -> Tensor:
        x = x + self.before(x) / 2
        x = x + self.attention(self.attention_norm(x), positions, valid)
        x = x + self.convolution(x, valid)
        x = x + self.after(x) / 2
        normed: Tensor = self.norm(x)
        return normed


class Conformer(nn.Module):
    """The network. `heads` must divide `hidden`. `vocabulary` does not count CTC's blank, which is the last class."""

    def __init__(
        self, layers: int, hidden: int, heads: int, n_mels: int = 80, vocabulary: int = 128, kernel: int = 31
    ) -> None:
        super().__init__()
        self.transform = AudioSpec(n_mels=n_mels)
        self.input_shape = inputs_of(self.transform)
        self.hidden = hidden
        self.subsampling = Subsampling(n_mels, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, kernel) for _ in range(layers))
        self.classes = nn.Linear(hidden, vocabulary + 1)

    def forward(self, features: Tensor, lengths: Tensor) -> Encoded:
        """Return log-probabilities.

        Args:
            features: (batch, n_mels, T), with any values in the padding.
            lengths: (batch,) int64, the frames of each request, 1 or more.
        """
        x, lengths = self.subsampling(features, counted(features, lengths))
        x = x * math.sqrt(self.hidden)
        valid = valid_steps(lengths, x.shape[1])
        positions = relative_positions(x.shape[1], self.hidden, x.device).to(x.dtype)
        for block in self.blocks:
            x = block(x, positions, valid)
        return Encoded(log_softmax(self.classes(x), 2), lengths)


SIZES = {  # layers, hidden, heads
    "conformer_ctc_large": (17, 512, 8),  # Gulati et al. 2020, Table 1: L; NeMo has one layer more
    "conformer_ctc_small": (16, 176, 4),  # from NeMo
}


def conformer_ctc_small() -> Conformer:
    return conformer_ctc("conformer_ctc_small")


def conformer_ctc(name: str = "conformer_ctc_large", seed: int = 0) -> Conformer:
    """Return one of SIZES in eval mode, with random weights that `seed` fixes."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return Conformer(*SIZES[name]).eval()
