"""Describe models that decode and have an encoder of images or audio: their sizes, and the time of the encoder.

The encoder is a transformer without a causal mask. Its latency is a sum of measured operators, as that of the decoder
(latency.py):

- Products of all layers, of the stem before them, and of the projector after them, by the positions of all items. A
  convolution of the stem counts as the product that it equals.
- Attention of each item by its positions. Items that run together have the attention of as many equal ones, divided by
  their number.
- Norms, activations, rotary positions and residuals by the bytes that they move.

Weights and activations are bf16, as servers run encoders.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from headrace.batching.errors import UsageError
from headrace.sim.decoding.architecture import WEIGHT_BYTES, DecoderArchitecture
from headrace.sim.decoding.operators import Curve, NoMeasurement, Operators, total
from headrace.sim.hardware.inputs import SAMPLE_RATE

_KEPT: Final = 4096  # results of items that are kept
_BF16: Final = "bf16"
Product = tuple[float, int, int]  # rows for a position of the encoder, values of a row, columns


@dataclass(frozen=True, slots=True)
class EncoderArchitecture:
    """The sizes of an encoder. Sizes are in elements.

    Attributes:
        layers: The layers.
        hidden: The elements of a position between layers.
        heads: The heads of attention.
        intermediate: The hidden units of a feed-forward layer, which has two products.
        outside: The products of the stem and the projector.
        merged: How many positions become a token of the prompt.
        padded: The positions of every item, whatever its tokens; None for `merged` times its tokens.
        rotary: Whether queries and keys are rotated.
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int
    outside: tuple[Product, ...]
    merged: int
    padded: int | None = None
    rotary: bool = False

    @property
    def parameters(self) -> int:
        """Return the weights of all products. Norms, biases and embeddings of positions are left out."""
        layer = 4 * self.hidden**2 + 2 * self.hidden * self.intermediate
        return self.layers * layer + sum(k * n for _, k, n in self.outside)

    @property
    def weight_bytes(self) -> float:
        """Return the bytes of all weights."""
        return self.parameters * WEIGHT_BYTES[_BF16]

    def positions(self, tokens: int) -> int:
        """Return the positions of an item that becomes so many tokens."""
        return tokens * self.merged if self.padded is None else self.padded


class EncoderLatency:
    """The seconds of an encoder on one GPU, an `EncoderLatencyModel`.

    Args:
        architecture: The encoder.
        gpu, backend, version: As in `Operators`.

    Raises NoMeasurement if the tables do not cover it."""

    def __init__(
        self, architecture: EncoderArchitecture, gpu: str, backend: str, *, version: str | None = None
    ) -> None:
        operators = Operators(gpu, backend, version)
        self.architecture = architecture
        hidden, layers, inner = architecture.hidden, architecture.layers, architecture.intermediate
        shapes = ((3 * hidden, hidden), (hidden, hidden), (inner, hidden), (hidden, inner))
        curves = [(float(layers), operators.products(_BF16, n, k)) for n, k in shapes]
        for rows, k, n in architecture.outside:
            found = operators.products(_BF16, n, k)
            curves.append((1.0, Curve(found.sizes / rows, found.seconds)))
        # Two norms that read and write the residual too, the activation, and the rotation of queries and keys.
        moved = 2 * 4 * hidden + 2 * inner + (4 * hidden if architecture.rotary else 0)
        kernels = 4 if architecture.rotary else 3
        curves.append((1.0, operators.moved(layers * WEIGHT_BYTES[_BF16] * moved, layers * kernels)))
        self._products = total(curves)
        self._attention = operators.encoder(hidden // architecture.heads)
        self._found: dict[tuple[int, ...], float] = {}

    def seconds(self, items: Sequence[int]) -> float:
        """Return the seconds of encoding items together. `items` are the tokens of each. Raises NoMeasurement."""
        key = tuple(items)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _KEPT:
                self._found.clear()
            found = self._found[key] = self._seconds(key)
        return found

    def _seconds(self, items: tuple[int, ...]) -> float:
        model = self.architecture
        positions = [model.positions(tokens) for tokens in items]
        found = float(self._products.at(np.array([sum(positions)], np.float64))[0])
        heads = np.array([float(model.heads * len(items))])
        for each in positions:
            if not self._attention.covers(each):
                raise NoMeasurement(
                    f"attention over {each} positions of an encoder was not measured; give smaller images"
                )
            found += model.layers * float(self._attention.seconds(heads, each)[0]) / len(items)
        return found


@dataclass(frozen=True, slots=True)
class MultimodalArchitecture:
    """A model that takes images or audio beside text.

    Attributes:
        decoder: The decoder; its name is the model's.
        encoder: The encoder.
        kind: "image" or "audio".
        processor: The name of the processor that makes its tensors, as `headrace preprocess` takes it.
    """

    decoder: DecoderArchitecture
    encoder: EncoderArchitecture
    kind: Literal["image", "audio"]
    processor: str

    @property
    def name(self) -> str:
        return self.decoder.name


# Config.json and code of Qwen2-VL-7B and Qwen2-Audio-7B in transformers. A patch of Qwen2-VL has 2 frames of 14 x 14
# pixels of 3 channels, and 2 x 2 patches make a token. Qwen2-Audio pads a sound to 30 s: 3,000 frames of 128 bands, of
# which the second convolution leaves 1,500 positions.
_QWEN2_VL: Final = MultimodalArchitecture(
    DecoderArchitecture("qwen2-vl-7b", 28, 3584, 28, 4, 128, 18944, 152064),
    EncoderArchitecture(
        32, 1280, 16, 5120, ((1, 3 * 2 * 14 * 14, 1280), (1 / 4, 5120, 5120), (1 / 4, 5120, 3584)), 4, rotary=True
    ),
    "image",
    "qwen2-vl",
)
_QWEN2_AUDIO: Final = MultimodalArchitecture(
    DecoderArchitecture("qwen2-audio-7b", 32, 4096, 32, 32, 128, 11008, 156032),
    EncoderArchitecture(
        32, 1280, 20, 5120, ((2, 3 * 128, 1280), (1, 3 * 1280, 1280), (1 / 2, 1280, 4096)), 2, padded=1500
    ),
    "audio",
    "qwen2-audio",
)
MULTIMODAL: Final = {each.name: each for each in (_QWEN2_VL, _QWEN2_AUDIO)}
CROSS_ATTENTION: Final = ("whisper-tiny", "whisper-small", "whisper-large-v3", "whisper-large-v3-turbo")


def multimodal(name: str) -> MultimodalArchitecture:
    """Return the model of this name, one of MULTIMODAL. Raises UsageError."""
    if name in CROSS_ATTENTION:
        raise UsageError(
            f"{name}: each layer of its decoder also attends to the encoder's output. Steps with such cross-attention "
            "are not modelled, and the tables lack the attention of large decoders (one query, 20 heads of keys with "
            f"64 elements); choose from {', '.join(MULTIMODAL)}"
        )
    if name not in MULTIMODAL:
        raise UsageError(f"there is no model {name!r} of images or audio; choose from {', '.join(MULTIMODAL)}")
    return MULTIMODAL[name]


def audio_tokens(seconds: float) -> int:
    """Return the tokens of a sound of Qwen2-Audio, at least 1.

    A frame has 10 ms. The second convolution halves the frames, rounded up, and the pool halves those, rounded down."""
    frames = round(seconds * SAMPLE_RATE) // 160
    return max(1, -(-frames // 2) // 2)
