"""What is known of a network that takes tensors, without the network. No torch here."""

from dataclasses import dataclass

from headrace.batching import UsageError
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.memory.layout import TensorSpec

MAX_BATCH = 1 << 16  # the largest batch where a network has no bound of its own
RESIZE, CROP = 256, 224  # of ImageNet's transform: their ratio is kept where a network names no transform of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDescription:
    """What one request gives to a network and gets from it.

    `transform` is how its images become its input, None where that is not known or no ImageSpec. `categories` are the
    labels of its classes. Batches may have up to `largest_batch` requests.

    torchvision resizes with an antialiasing filter, the CU as OpenCV's INTER_LINEAR_EXACT. On the demo's photos at 256
    and 224 pixels a pixel value then differs by 1.4 of 255 on average (root mean square 2.7) where torchvision's filter
    is bilinear, and by 1.0 (1.9) where it is bicubic; a photo that is not made smaller differs least."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    transform: ImageSpec | AudioSpec | None = None
    categories: tuple[str, ...] | None = None
    largest_batch: int = MAX_BATCH

    @property
    def image_spec(self) -> ImageSpec | None:
        """How a photo becomes its input: its transform, or a plain one of its size. None if it does not take one
        float32 image."""
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
        """How a sound becomes its inputs, features and how many frames they are; None if it does not take sounds."""
        return self.transform if isinstance(self.transform, AudioSpec) else None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of a network with one input of a fixed shape. Raises UsageError for any other."""
        if len(self.inputs) != 1 or self.inputs[0].variable is not None:
            raise UsageError(f"model {self.name!r} has no single input of one shape; use its `inputs`")
        return self.inputs[0].shape

    @property
    def classes(self) -> int:
        """Of a network that maps its input to (batch, classes). Raises UsageError for any other."""
        if len(self.outputs) != 1 or len(self.outputs[0].shape) != 1 or self.outputs[0].variable is not None:
            raise UsageError(f"model {self.name!r} does not return (batch, classes); use its `outputs`")
        return self.outputs[0].shape[0]
