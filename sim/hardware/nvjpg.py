"""The GPU's own JPEG decoders (NVJPG) as preprocessing: they decode, and the slice's SMs do the rest.

With MIG an instance has the engines of its profile and can use no other's (mig.py): on an A100 the one engine belongs
to 7g.40gb or 1g.5gb+me, and all other instances have none, which is what PREBA argues from; on H100 and H200 each of
seven 1g instances has one. They take baseline files only, and no sound.

An A100's engine does some 5,000 photos of ImageNet a second (NVIDIA/DALI issue 5362: 100 % of the load on the hardware
decoder). That is of a whole pipeline; torchvision had 7,800 a second of 551x676 from an A100 in batches of 1,000
(pytorch/vision pull request 8496), so `engine_images_s` may be given. For Hopper's engines no such figure was found:
each is taken to be as fast as A100's one. Engines are charged in proportion to pixels.

Behind the engine a photo takes three kernels of the slice: YCbCr to RGB, resize, crop and normalize. They take the time
to launch them and to move their bytes through the slice's share of memory. Here they run beside the network, as if its
SMs were others, which flatters this way of preprocessing by what `kernels_s` tells, some 40 us a photo of a 1g slice.
"""

from collections.abc import Sequence
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu.mig import Gpu, Instance
from headrace.sim.hardware.inputs import IMAGE_TENSOR_BYTES, TYPICAL_PIXELS, Inputs, Photo, Values
from headrace.sim.hardware.pcie import gpu_link, to_device
from headrace.sim.preprocessing import Preprocessor, Step

ENGINE_IMAGES_S: Final = 5000.0
KERNELS: Final = 3
LAUNCH_S: Final = 10e-6  # of a kernel, from Python: as gpu_slice.py's PREBA
# Bytes of each source pixel: YCbCr 4:2:0 read, RGB written and read again.
SOURCE_BYTES: Final = 1.5 + 3 + 3
RESIZED_BYTES: Final = 256 * 341 * 3  # written, of a photo of 4:3; the window of it is read again
WINDOW_BYTES: Final = 224 * 224 * 3


def kernels_s(pixels: Values, bandwidth_bytes_s: float) -> Values:
    """Of a slice's SMs, for a photo."""
    moved = SOURCE_BYTES * pixels + RESIZED_BYTES + WINDOW_BYTES + IMAGE_TENSOR_BYTES
    return KERNELS * LAUNCH_S + moved / bandwidth_bytes_s


def nvjpg_preprocessor(
    kind: str,
    gpu: Gpu,
    instances: Sequence[Instance],
    *,
    engine_images_s: float = ENGINE_IMAGES_S,
    photos: tuple[Photo, ...] = (),
) -> Preprocessor:
    """`engine_images_s`: of TYPICAL_PIXELS each. Which of the instances a photo goes to is not followed: their engines
    have one queue. Raises UsageError, also for instances without an engine."""
    if kind == "sound":
        raise UsageError("nvjpg decodes JPEG, and nothing of sound: preprocess it with cpu or dpu")
    inputs = Inputs(kind, photos)
    if not instances:
        raise UsageError(f"nvjpg is a part of {gpu.name}'s instances: give some")
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
    # The slowest slice's, as which of them takes a photo is not followed.
    bandwidth = min(gpu.bandwidth_of(each.profile) for each in instances)

    def decode(sizes: Values) -> Values:
        return inputs.pixels(sizes) / (engine_images_s * TYPICAL_PIXELS)

    def resize(sizes: Values) -> Values:
        return kernels_s(inputs.pixels(sizes), bandwidth)

    return Preprocessor(
        "nvjpg",
        (
            to_device("host to gpu", gpu_link(gpu.name), inputs.file_bytes),
            Step("nvjpg", engines, decode),
            Step("resize", len(instances), resize),
        ),
    )
