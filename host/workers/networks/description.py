"""Describe a network that takes tensors, without the network. This module does not import torch."""

from dataclasses import dataclass

from headrace.batching import UsageError
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.memory.layout import TensorSpec

# The largest batch where a network has no bound of its own. cuDNN's batch norm takes no larger one, and torch.export
# refuses a network on a GPU that could not run every batch that it was told of.
MAX_BATCH = (1 << 16) - 1
RESIZE, CROP = 256, 224  # ImageNet's transform; a network without a transform of its own gets their ratio
TENSORS = "tensors"  # the network that returns its inputs, by their names
# Headrace's own networks that have published weights: a name, and the function that returns the network.
WITH_WEIGHTS = {"efficientnet_lite0": "headrace.host.workers.networks.zoo.efficientnet_lite0:efficientnet_lite0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDescription:
    """The inputs and outputs of one request to a network.

    Args:
        inputs, outputs: Tensors without the batch dimension.
        transform: Preprocessing that makes the input. None if it is not known or no spec can express it.
        categories: Labels of the network's classes.
        largest_batch: Most requests in a batch.

    torchvision resizes with an antialiasing filter, the CU as OpenCV's INTER_LINEAR_EXACT. So their pixel values
    differ. On the demo's images at 256 and 224 pixels the mean difference is 1.4 of 255 (root mean square 2.7) where
    torchvision's filter is bilinear. It is 1.0 (1.9) where that filter is bicubic. An image that is not made smaller
    differs least.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    transform: ImageSpec | AudioSpec | None = None
    categories: tuple[str, ...] | None = None
    largest_batch: int = MAX_BATCH

    @property
    def image_spec(self) -> ImageSpec | None:
        """The spec that makes the input from an image: the transform, or a plain one of the input's size.

        None if the network does not take one float32 image."""
        spec = self.inputs[0]
        is_image = spec.dtype == "float32" and spec.variable is None and len(spec.shape) == 3 and spec.shape[0] == 3
        if len(self.inputs) != 1 or not is_image:
            return None
        if isinstance(self.transform, ImageSpec):
            return self.transform
        _, height, width = spec.shape
        return ImageSpec(round(max(height, width) * RESIZE / CROP), width, height)

    @property
    def audio_spec(self) -> AudioSpec | None:
        """The spec that makes the inputs, features and their number of frames, from audio. None if it does not take
        audio."""
        return self.transform if isinstance(self.transform, AudioSpec) else None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the only input. Raises UsageError unless there is one input of a fixed shape."""
        if len(self.inputs) != 1 or self.inputs[0].variable is not None:
            raise UsageError(f"model {self.name!r} has no single input of one shape; use its `inputs`")
        return self.inputs[0].shape

    @property
    def classes(self) -> int:
        """The number of classes. Raises UsageError unless the network maps its input to (batch, classes)."""
        if len(self.outputs) != 1 or len(self.outputs[0].shape) != 1 or self.outputs[0].variable is not None:
            raise UsageError(f"model {self.name!r} does not return (batch, classes); use its `outputs`")
        return self.outputs[0].shape[0]
