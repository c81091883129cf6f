"""CitriNet (Majumdar et al. 2021): 1D time-channel separable convolutions with squeeze-and-excitation and a CTC head.

The requests of a batch are padded to the longest. Padding is 0 wherever a convolution reads it, and does not count in
the mean that squeeze-and-excitation takes. Batch norm uses its learned statistics. So a request's output is the same in
a batch as alone, up to rounding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from headrace.host.dpu.specs import AudioSpec
from headrace.host.workers.networks.zoo.conformer import Encoded, counted, inputs_of, subsampled, valid_steps

# NeMo's citrinet_512.yaml: kernels of each mega-block. The first block of a mega-block halves the steps.
MEGA_BLOCKS = (
    (11, 13, 15, 17, 19, 21),
    (13, 15, 17, 19, 21, 23, 25),
    (25, 27, 29, 31, 33, 35, 37, 39),
)
PROLOG_KERNEL, EPILOG_KERNEL = 5, 41
REPEATS = 5
REDUCTION = 8  # of channels, in squeeze-and-excitation


def _without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    return x.masked_fill(~valid_steps(lengths, x.shape[2])[:, None], 0.0)


class Separable(nn.Module):
    """Depthwise and pointwise convolution and batch norm on (batch, channels, steps)."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.depthwise = nn.Conv1d(channels, channels, kernel, stride, padding=kernel // 2, groups=channels, bias=False)
        self.pointwise = nn.Conv1d(channels, out, 1, bias=False)
        self.norm = nn.BatchNorm1d(out, eps=1e-3)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = self.depthwise(_without_padding(x, lengths))
        return self.norm(self.pointwise(x)), subsampled(lengths, self.stride)


class SqueezeExcitation(nn.Module):
    """Scale each channel by a function of the means of all channels over a whole request."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.Linear(channels, channels // REDUCTION, bias=False),
            nn.ReLU(),
            nn.Linear(channels // REDUCTION, channels, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        means = _without_padding(x, lengths).sum(2) / lengths[:, None]
        scaled: Tensor = x * self.gate(means)[:, :, None]
        return scaled


class Block(nn.Module):
    """`repeats` separable convolutions and squeeze-and-excitation. A `residual` block adds its input to its output.

    The last convolution has the stride."""

    def __init__(
        self, channels: int, out: int, kernel: int, stride: int = 1, repeats: int = REPEATS, residual: bool = True
    ) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            Separable(out if repeat else channels, out, kernel, stride if repeat == repeats - 1 else 1)
            for repeat in range(repeats)
        )
        self.excitation = SqueezeExcitation(out)
        self.residual = (
            nn.Sequential(nn.Conv1d(channels, out, 1, stride, bias=False), nn.BatchNorm1d(out, eps=1e-3))
            if residual
            else None
        )

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        y, steps = x, lengths
        for number, convolution in enumerate(self.convolutions):
            y, steps = convolution(y.relu() if number else y, steps)
        y = self.excitation(y, steps)
        return (y if self.residual is None else y + self.residual(x)).relu(), steps


def _keep_variance(module: nn.Module) -> None:
    """Initialise convolutions so that the signal passes a hundred random ones in a row, as batch norm has learned
    nothing."""
    if isinstance(module, nn.Conv1d):
        depthwise = module.groups > 1  # a linear layer follows it
        nn.init.kaiming_normal_(module.weight, nonlinearity="linear" if depthwise else "relu")


class Citrinet(nn.Module):
    """The network. `vocabulary` does not count CTC's blank, which is the last class. `last` is the channels of the last
    block."""

    def __init__(
        self,
        channels: int,
        last: int = 640,
        mega_blocks: Sequence[Sequence[int]] = MEGA_BLOCKS,
        n_mels: int = 80,
        vocabulary: int = 1024,
    ) -> None:
        super().__init__()
        self.transform = AudioSpec(n_mels=n_mels)
        self.input_shape = inputs_of(self.transform)
        blocks = [Block(n_mels, channels, PROLOG_KERNEL, repeats=1, residual=False)]
        for kernels in mega_blocks:
            blocks += [Block(channels, channels, kernel, 1 if place else 2) for place, kernel in enumerate(kernels)]
        blocks.append(Block(channels, last, EPILOG_KERNEL, repeats=1, residual=False))
        self.blocks = nn.ModuleList(blocks)
        self.apply(_keep_variance)
        self.classes = nn.Conv1d(last, vocabulary + 1, 1)

    def forward(self, features: Tensor, lengths: Tensor) -> Encoded:
        """Return log-probabilities.

        Args:
            features: (batch, n_mels, T), with any values in the padding.
            lengths: (batch,) int64, the frames of each request, 1 or more.
        """
        x, lengths = features, counted(features, lengths)
        for block in self.blocks:
            x, lengths = block(x, lengths)
        return Encoded(log_softmax(self.classes(x).transpose(1, 2), 2), lengths)


def citrinet(channels: int = 512, seed: int = 0) -> Citrinet:
    """Return the network in eval mode, with random weights that `seed` fixes. The paper has 256 to 1024 channels."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return Citrinet(channels).eval()


def citrinet_256() -> Citrinet:
    return citrinet(256)
