"""The GPU's own JPEG decoders (NVJPG) as preprocessing: they decode, and the slice's SMs do the rest.

With MIG an instance has the engines of its profile and can use no others (mig.py). On an A100 the one engine belongs to
7g.40gb or 1g.5gb+me, and all other instances have none; PREBA argues from that. On H100 and H200 each of seven 1g
instances has one engine. The engines take baseline files only, and no audio.

An A100's engine decodes some 5,000 images of ImageNet a second (NVIDIA/DALI issue 5362: 100 % of the load on the
hardware decoder). That number is of a whole pipeline. torchvision had 7,800 images a second of 551x676 from an A100 in
batches of 1,000 (pytorch/vision pull request 8496), so `engine_images_s` is a parameter. No such number was found for
Hopper's engines: each is taken to be as fast as the A100's. The time of an engine is proportional to the pixels.

After the engine an image takes three kernels of the slice: YCbCr to RGB, resize, crop and normalize. They take the time
to launch them and to move their bytes through the slice's share of memory. The model lets them run at the same time as
the network, as if they had SMs of their own. That favours this way of preprocessing by `kernels_s`, some 40 us an image
on a 1g slice.
"""

from collections.abc import Sequence
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu.mig import Gpu, Instance
from headrace.sim.hardware.inputs import IMAGE_TENSOR_BYTES, TYPICAL_PIXELS, Inputs, Values
from headrace.sim.hardware.pcie import gpu_link, to_device
from headrace.sim.preprocessing import Preprocessor, Step

ENGINE_IMAGES_S: Final = 5000.0
KERNELS: Final = 3
LAUNCH_S: Final = 10e-6  # the launch of a kernel from Python, as PREBA of gpu/slice.py
# The bytes of each source pixel: YCbCr 4:2:0 is read, RGB is written and read again.
SOURCE_BYTES: Final = 1.5 + 3 + 3
RESIZED_BYTES: Final = 256 * 341 * 3  # written for an image of 4:3, whose window is read again
WINDOW_BYTES: Final = 224 * 224 * 3


def kernels_s(pixels: Values, bandwidth_bytes_s: float) -> Values:
    """Return the seconds of a slice's SMs for each image."""
    moved = SOURCE_BYTES * pixels + RESIZED_BYTES + WINDOW_BYTES + IMAGE_TENSOR_BYTES
    return KERNELS * LAUNCH_S + moved / bandwidth_bytes_s


def nvjpg_preprocessor(
    inputs: Inputs,
    gpu: Gpu,
    instances: Sequence[Instance],
    *,
    engine_images_s: float = ENGINE_IMAGES_S,
) -> Preprocessor:
    """Return a preprocessor of the JPEG engines of the given instances.

    The engines share one queue: the model does not follow which instance takes an image.

    Args:
        inputs: Images; the engines take nothing else.
        gpu: The GPU.
        instances: Its instances, each with an engine.
        engine_images_s: What an engine decodes a second of images of TYPICAL_PIXELS.

    Raises:
        UsageError: An instance has no engine, or the inputs are audio.
    """
    if inputs.kind == "audio":
        raise UsageError("nvjpg decodes JPEG and no audio: preprocess with cpu or dpu")
    if not instances:
        raise UsageError(f"nvjpg needs instances of {gpu.name}: give one or more")
    without = sorted({each.profile.name for each in instances if not each.profile.jpeg_engines})
    if without:
        having = ", ".join(name for name, profile in gpu.profiles.items() if profile.jpeg_engines)
        raise UsageError(
            f"instances of {', '.join(without)} of {gpu.name} have no JPEG engine: choose among {having} only, or "
            "preprocess with cpu or dpu"
        )
    if not 1 <= engine_images_s <= 1e6:
        raise UsageError(f"{engine_images_s:g} images/s an engine; give 1 to 1e6")
    engines = sum(each.profile.jpeg_engines for each in instances)
    # The bandwidth of the slowest slice, because the model does not follow which slice takes an image.
    bandwidth = min(gpu.bandwidth_of(each.profile) for each in instances)

    def decode(sizes: Values) -> Values:
        return inputs.amount(sizes) / (engine_images_s * TYPICAL_PIXELS)

    def resize(sizes: Values) -> Values:
        return kernels_s(inputs.amount(sizes), bandwidth)

    return Preprocessor(
        "nvjpg",
        (
            to_device("host to gpu", gpu_link(gpu.name), inputs.file_bytes),
            Step("nvjpg", engines, decode),
            Step("resize", len(instances), resize),
        ),
    )
