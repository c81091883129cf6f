"""Convolutional networks. Every convolution or fully connected layer is a STATIC node.

The node includes the batch norm, activation and pooling that follow the layer. Images are 3 x 224 x 224, outputs 1000
classes.
"""

from headrace.batching.graphs.model_graph import MatMul, ModelGraph, Node


class _Layers:
    """A builder that adds layers in order and keeps the size of the square image, so that a layer needs no more than
    the papers' tables say."""

    def __init__(self, image: int = 224, channels: int = 3) -> None:
        self.nodes: list[Node] = []
        self.image = image
        self.channels = channels

    def conv(
        self,
        name: str,
        out: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        bias: bool = False,
        norm: bool = True,
        into: int | None = None,
    ) -> None:
        """Add a square convolution of `into` channels (of the layer before, if None), padded to keep the size if
        `padding` is None."""
        into = self.channels if into is None else into
        padding = kernel // 2 if padding is None else padding
        size = (self.image + 2 * padding - kernel) // stride + 1
        product = MatMul(
            m=size * size,
            k=into // groups * kernel * kernel,
            n=out // groups,
            groups=groups,
            input_elements=into * self.image * self.image,
        )
        parameters = into // groups * kernel * kernel * out + out * bias + 2 * out * norm
        self.nodes.append(Node(name, operators=(product,), parameters=parameters))
        self.image, self.channels = size, out

    def pool(self, kernel: int, stride: int, *, padding: int = 0, up: bool = False) -> None:
        """Add a pooling layer. With `up`, a last window that is cut off counts (ceil mode)."""
        reach = self.image + 2 * padding - kernel
        self.image = (-(-reach // stride) if up else reach // stride) + 1

    def linear(self, name: str, out: int) -> None:
        into = self.channels * self.image * self.image
        self.nodes.append(Node(name, operators=(MatMul(1, into, out),), parameters=(into + 1) * out))
        self.image, self.channels = 1, out

    def graph(self, name: str) -> ModelGraph:
        return ModelGraph(name, tuple(self.nodes))


def resnet50() -> ModelGraph:
    """Return ResNet-50 (He et al. 2016, Table 1), with the stride in the 3 x 3 convolution as torchvision and MLPerf
    have it."""
    net = _Layers()
    net.conv("conv1", 64, 7, stride=2)
    net.pool(3, 2, padding=1)
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 2):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 2 else 1
            image, channels = net.image, net.channels
            name = f"conv{stage}_{block + 1}"
            net.conv(f"{name}.1", width, 1)
            net.conv(f"{name}.2", width, 3, stride=stride)
            net.conv(f"{name}.3", 4 * width, 1)
            if block == 0:
                net.image = image
                net.conv(f"{name}.shortcut", 4 * width, 1, stride=stride, padding=0, into=channels)
    net.image = 1  # global average pooling
    net.linear("fc", 1000)
    return net.graph("resnet50")


def vgg16() -> ModelGraph:
    """Return VGG-16 (Simonyan and Zisserman 2015, Table 1, column D)."""
    net = _Layers()
    for stage, (convolutions, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for number in range(convolutions):
            net.conv(f"conv{stage}_{number + 1}", width, 3, bias=True, norm=False)
        net.pool(2, 2)
    for name, out in (("fc6", 4096), ("fc7", 4096), ("fc8", 1000)):
        net.linear(name, out)
    return net.graph("vgg16")


def mobilenet_v1() -> ModelGraph:
    """Return MobileNet (Howard et al. 2017, Table 1, width 1.0). Depthwise and pointwise convolutions are nodes of
    their own."""
    net = _Layers()
    net.conv("conv1", 32, 3, stride=2)
    layers = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for number, (out, stride) in enumerate(layers, 2):
        net.conv(f"conv{number}.dw", net.channels, 3, stride=stride, groups=net.channels)
        net.conv(f"conv{number}.pw", out, 1)
    net.image = 1
    net.linear("fc", 1000)
    return net.graph("mobilenet_v1")


def googlenet() -> ModelGraph:
    """Return GoogLeNet (Szegedy et al. 2015, Table 1), without the auxiliary classifiers.

    It has batch norm instead of biases, and 3 x 3 in place of the 5 x 5 convolutions, as torchvision has it."""
    net = _Layers()
    net.conv("conv1", 64, 7, stride=2)
    net.pool(3, 2, up=True)
    net.conv("conv2.reduce", 64, 1)
    net.conv("conv2", 192, 3)
    net.pool(3, 2, up=True)
    # name, then the channels of: 1 x 1; reduce, 3 x 3; reduce, second 3 x 3; the projection after pooling
    blocks = (
        ("3a", 64, 96, 128, 16, 32, 32),
        ("3b", 128, 128, 192, 32, 96, 64),
        ("4a", 192, 96, 208, 16, 48, 64),
        ("4b", 160, 112, 224, 24, 64, 64),
        ("4c", 128, 128, 256, 24, 64, 64),
        ("4d", 112, 144, 288, 32, 64, 64),
        ("4e", 256, 160, 320, 32, 128, 128),
        ("5a", 256, 160, 320, 32, 128, 128),
        ("5b", 384, 192, 384, 48, 128, 128),
    )
    for name, one, reduce3, three, reduce5, five, pooled in blocks:
        into = net.channels
        net.conv(f"{name}.1x1", one, 1, into=into)
        net.conv(f"{name}.3x3.reduce", reduce3, 1, into=into)
        net.conv(f"{name}.3x3", three, 3)
        net.conv(f"{name}.5x5.reduce", reduce5, 1, into=into)
        net.conv(f"{name}.5x5", five, 3)
        net.conv(f"{name}.pool", pooled, 1, into=into)
        net.channels = one + three + five + pooled
        if name in ("3b", "4e"):
            net.pool(*((3, 2) if name == "3b" else (2, 2)), up=True)
    net.image = 1
    net.linear("fc", 1000)
    return net.graph("googlenet")
