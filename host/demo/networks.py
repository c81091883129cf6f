"""Load the networks that the demo serves, and check that they take images, audio or sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.batching import UsageError
from headrace.host.demo.options import DemoOptions
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.live.hardware import Network
from headrace.host.workers.inspection.parent import describe, is_step_model
from headrace.host.workers.networks.description import NetworkDescription
from headrace.host.workers.networks.sequence_networks import KINDS
from headrace.host.workers.networks.sequence_networks import Network as StepNetwork

# Headrace's own speech networks, with random weights: the smaller ones, for a CPU.
AUDIO_NETWORKS = {
    "conformer": "headrace.host.workers.networks.zoo.conformer:conformer_ctc_small",
    "citrinet": "headrace.host.workers.networks.zoo.citrinet:citrinet_256",
}
# Headrace's own step models: small enough for a CPU, and large enough for a step to take longer than its message.
HIDDEN, HEADS, VOCABULARY = 256, 4, 8000


@dataclass(frozen=True, slots=True)
class ImageNetwork(Network):
    """A network that takes images. `spec` says how an image becomes its input."""

    spec: ImageSpec

    @property
    def categories(self) -> Sequence[str] | None:
        """The names of the classes. None if there are none, or if they mean nothing because the weights are random."""
        return None if self.is_random else self.description.categories


@dataclass(frozen=True, slots=True)
class AudioNetwork(Network):
    """A network that takes audio. `spec` says how a clip becomes its input."""

    spec: AudioSpec


def load_image_networks(options: DemoOptions) -> list[ImageNetwork]:
    """Return the networks of the image demo.

    Raises UsageError for a network that cannot be loaded, or whose input is not one float32 image."""
    none: Sequence[str | None] = [None] * len(options.models)
    given = dict(
        zip(options.models, zip(options.weights or none, options.input_shapes or none, strict=True), strict=True)
    )
    networks = []
    for name in options.used_models:
        weights, shape = given.get(name, (None, None))
        description = describe(name, weights, shape, options.rules)
        spec = _image_spec(description)
        networks.append(ImageNetwork(name, name, description, weights, shape, spec, rules=options.rules))
    return networks


def _image_spec(network: NetworkDescription) -> ImageSpec:
    spec = network.image_spec
    if spec is None:
        inputs = ", ".join(f"{spec.name} {spec.dtype}{spec.shape}" for spec in network.inputs)
        raise UsageError(
            f"model {network.name!r} takes {inputs}; the demo sends photos, so give a network with one float32 input "
            "of 3 x height x width"
        )
    return spec


def load_audio_networks(options: DemoOptions) -> list[AudioNetwork]:
    """Return the networks of the audio demo.

    Raises UsageError for a network that cannot be loaded, or that does not take audio."""
    if options.npus or options.input_shapes:
        raise UsageError(
            "--audio: speech networks run on worker processes and know their inputs; leave out npu:N and --input-shape"
        )
    networks = []
    none: Sequence[str | None] = [None] * len(options.models)
    for name, weights in zip(options.models, options.weights or none, strict=True):
        source = AUDIO_NETWORKS.get(name, name)
        if name not in AUDIO_NETWORKS and ":" not in name:
            raise UsageError(
                f"--model {name}: with --audio, give {', '.join(AUDIO_NETWORKS)}, or module:function of a network "
                "that has an AudioSpec as its `transform`"
            )
        description = describe(source, weights, rules=options.rules)
        spec = description.audio_spec
        if spec is None:
            raise UsageError(
                f"--model {name} takes no sounds; leave out --audio, or see host/workers/networks/zoo/conformer.py"
            )
        networks.append(AudioNetwork(name, source, description, weights, None, spec, rules=options.rules))
    return networks


def step_network(options: DemoOptions) -> StepNetwork | None:
    """Return the step model that the options name, or None if they name networks that take images.

    Raises UsageError for options that a step model cannot have."""
    step_models = [name for name in options.models if is_step_model(name)]
    if not step_models:
        return None
    if options.api is not None:
        raise UsageError(f"--xrt: {step_models[0]} takes sentences, which no DPU preprocesses; leave it out")
    if len(options.models) > 1 or options.npus or options.input_shapes or options.profiles:
        raise UsageError(
            f"{step_models[0]} takes sentences: give it alone, on worker processes, without --input-shape and --profile"
        )
    (name,) = step_models
    weights = options.weights[0] if options.weights else None
    if name in KINDS:
        return StepNetwork(name, name, HIDDEN, VOCABULARY, weights, heads=HEADS, rules=options.rules)
    return StepNetwork(name, name, weights=weights, rules=options.rules)
