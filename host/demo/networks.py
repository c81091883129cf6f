"""The networks that the demo serves: their inputs must be photos, whatever else they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.batching import UsageError
from headrace.host.demo.options import DemoOptions
from headrace.host.dpu.image import ImageSpec
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.models import LoadedModel, load_model

RESIZE, CROP = 256, 224  # of ImageNet's transform: their ratio is kept where a network names no transform of its own


@dataclass(frozen=True, slots=True)
class Network:
    """`spec` is how a photo becomes its input; `weights` and `input_shape` are what `load_model` was given."""

    name: str
    loaded: LoadedModel
    spec: ImageSpec
    weights: str | None
    input_shape: str | None

    @property
    def is_random(self) -> bool:
        """Whether its weights are known to be random. A function of one's own may have loaded some."""
        return self.weights is None and ":" not in self.name


def load_networks(options: DemoOptions) -> list[Network]:
    """Raises UsageError for a network that cannot be loaded, or whose input is not one float32 image."""
    nothing: Sequence[str | None] = [None] * len(options.models)
    found = []
    for name, weights, shape in zip(
        options.models, options.weights or nothing, options.input_shapes or nothing, strict=True
    ):
        loaded = load_model(name, weights, shape)
        found.append(Network(name, loaded, _image_spec(loaded), weights, shape))
    return found


def _image_spec(loaded: LoadedModel) -> ImageSpec:
    inputs = loaded.inputs
    if len(inputs) != 1 or not _is_image(inputs[0]):
        taken = ", ".join(f"{spec.name} {spec.dtype}{spec.shape}" for spec in inputs)
        raise UsageError(
            f"model {loaded.name!r} takes {taken}; the demo sends photos, so give a network with one float32 input of "
            "3 x height x width"
        )
    if loaded.transform is not None:
        return loaded.transform
    _, height, width = inputs[0].shape
    return ImageSpec(round(max(height, width) * RESIZE / CROP), width, height)


def _is_image(spec: TensorSpec) -> bool:
    return spec.dtype == "float32" and spec.variable is None and len(spec.shape) == 3 and spec.shape[0] == 3
