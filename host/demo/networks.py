"""The networks that the demo serves: their inputs must be photos, whatever else they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.batching import UsageError
from headrace.host.demo.options import DemoOptions
from headrace.host.dpu.specs import ImageSpec
from headrace.host.live.hardware import Network
from headrace.host.workers.inspection.parent import describe
from headrace.host.workers.networks.description import NetworkDescription


@dataclass(frozen=True, slots=True)
class ImageNetwork(Network):
    """`spec` is how a photo becomes its input."""

    spec: ImageSpec


def load_networks(options: DemoOptions) -> list[ImageNetwork]:
    """Raises UsageError for a network that cannot be loaded, or whose input is not one float32 image."""
    nothing: Sequence[str | None] = [None] * len(options.models)
    found = []
    for name, weights, shape in zip(
        options.models, options.weights or nothing, options.input_shapes or nothing, strict=True
    ):
        network = describe(name, weights, shape, options.rules)
        spec = _image_spec(network)
        found.append(ImageNetwork(name, name, network, weights, shape, spec, rules=options.rules))
    return found


def _image_spec(network: NetworkDescription) -> ImageSpec:
    spec = network.image_spec
    if spec is None:
        taken = ", ".join(f"{spec.name} {spec.dtype}{spec.shape}" for spec in network.inputs)
        raise UsageError(
            f"model {network.name!r} takes {taken}; the demo sends photos, so give a network with one float32 input of "
            "3 x height x width"
        )
    return spec
