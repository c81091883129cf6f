"""Make the preprocessing stage of a run by a name, as `headrace simulate --preprocess` takes it."""

from collections.abc import Sequence

from headrace.batching.errors import UsageError
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.front_end import PreprocessStage
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.inputs import AudioWork
from headrace.sim.system.preprocessors import Host, parse
from headrace.sim.system.processors import inputs_of, work_of
from headrace.sim.workload.images import parse_sizes


def preprocess_stage(
    preprocess: str, *, processor: str, gpu: str = "h100", image_sizes: str | None = None, audio_s: float | None = None
) -> PreprocessStage:
    """Return the cores or compute units that make the tensors of images or sounds, for `simulate_decoding`.

    Args:
        preprocess: What does it, such as "cpu:8:torchvision", "cpu:8:pillow", "dpu:2" or "dpu:2:queue:p2p".
        processor: The image processor or feature extractor, such as "qwen2-vl" or "qwen2-audio".
        gpu: The GPU, to which the tensors go over PCIe.
        image_sizes: The sizes of images that come, such as "2048x2048,640x427". An item of a request is the image of
            them that has as many tokens.
        audio_s: The seconds of every sound, for a feature extractor.

    Raises:
        UsageError: A name is unknown, the time of a core was not measured, or sizes are missing.
    """
    work = work_of(processor)
    host_gpu = gpu_named(gpu)
    if isinstance(work, AudioWork):
        if audio_s is None or image_sizes is not None:
            raise UsageError(f"processor {processor} takes sounds; give audio_s, and no image_sizes")
        seconds = audio_s
        device = parse(preprocess, Host(inputs_of(processor, "audio", None, preprocess), host_gpu))
        return PreprocessStage(device, lambda request: [seconds] * len(request.items))
    if image_sizes is None or audio_s is not None:
        raise UsageError(f"processor {processor} takes images; give image_sizes, and no audio_s")
    sizes = parse_sizes(image_sizes)
    device = parse(preprocess, Host(inputs_of(processor, "image", sizes, preprocess), host_gpu))
    places: dict[int, int] = {}
    for place, (width, height) in enumerate(zip(sizes.width, sizes.height, strict=True)):
        tokens = work(int(width), int(height)).tokens
        if tokens is None:
            raise UsageError(f"the tokens of an image of processor {processor} are not known; choose qwen2-vl")
        places.setdefault(tokens, place)

    def of(request: StepRequest) -> Sequence[float]:
        try:
            return [places[tokens] for tokens in request.items]
        except KeyError:
            raise UsageError(
                f"request {request.id} has images of {', '.join(map(str, request.items))} tokens, and image_sizes "
                f"{image_sizes} have {', '.join(map(str, places))}; give the sizes of all images"
            ) from None

    return PreprocessStage(device, of)
