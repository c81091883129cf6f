"""The cycle model of image processors against the RTL: filters, layouts, places on a canvas, and orders of the passes.

Goals are about clocks, which do not depend on the machine. The model must hold 0.5 %. It must hold 2 % where an image
shrinks along rows and grows along columns, because the pass along rows then pauses within each row. The estimate from
size and bytes of a file at 4:2:0 must hold 5 %."""

import io

import cu_rtlsim
import pytest
from PIL import Image

from headrace.host.demo.inputs.images import bundled_images
from headrace.host.dpu.hugging_face.reading import from_hf
from headrace.host.dpu.processor_work import scaler_passes
from headrace.host.dpu.processors import Engine, Size
from headrace.host.dpu.units import program as programs
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import MemoryModel
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work
from headrace.sim.hardware.dpu.processor import DecodeEstimate, processor_cycles
from headrace.sim.hardware.inputs import decode_clocks

MODEL, MIXED, ESTIMATE = 0.005, 0.02, 0.05
BYTES = {"do_rescale": False, "do_normalize": False}
QWEN = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 28 * 28}
CLIP = {"image_processor_type": "CLIPImageProcessor"}
SIGLIP2 = {"image_processor_type": "Siglip2ImageProcessor"}
LANCZOS = {"resample": 1}


def to(width: int, height: int, **more) -> dict:
    return {"image_processor_type": "ViTImageProcessor", "size": {"height": height, "width": width}, **more}


CASES = {  # the processor, the source's size, the engine
    "bicubic, merged patches": (QWEN | {"max_pixels": 28 * 28 * 100}, (500, 375)),
    "the reads of patches limit": (QWEN | {"min_pixels": 28 * 28 * 300}, (320, 240)),
    "the reads of patches limit, small": (QWEN | {"min_pixels": 28 * 28 * 80}, (160, 120)),
    "patches of bytes": (QWEN | BYTES | {"max_pixels": 28 * 28 * 400}, (500, 375)),
    "one band of patches in the memory": (QWEN | {"max_pixels": 28 * 28 * 1500}, (2200, 60)),
    "channels last, zeros after it": (SIGLIP2 | {"max_num_patches": 300}, (100, 500)),
    "channels last, bytes": (SIGLIP2 | BYTES, (500, 375)),
    "planes": (CLIP, (500, 375)),
    "planes, zeros around": (
        CLIP | {"size": {"shortest_edge": 150}, "crop_size": {"height": 300, "width": 300}},
        (400, 300),
    ),
    "Lanczos, zeros at its sides": (
        CLIP | LANCZOS | {"size": {"height": 103, "width": 164}, "crop_size": {"height": 103, "width": 225}},
        (164, 103),
    ),
    "zeros at its sides, after rows that become shorter": (
        CLIP | {"size": {"height": 200, "width": 220}, "crop_size": {"height": 200, "width": 400}},
        (300, 200),
    ),
    "columns first, zeros around": (
        CLIP | LANCZOS | {"size": {"height": 103, "width": 120}, "crop_size": {"height": 123, "width": 250}},
        (140, 200),
        Engine.PILLOW13,
    ),
    "the pairs between the lists limit": (to(180, 268), (224, 328)),
    "a last pixel without a partner": (to(203, 128), (320, 201)),
    "a square with bands above and below": (
        {"image_processor_type": "DeepseekVLImageProcessor", "size": {"height": 256, "width": 256}},
        (500, 200),
    ),
    "Lanczos": (to(224, 224, **LANCZOS), (400, 300)),
    "Lanczos, small": (to(112, 112, **LANCZOS), (200, 150)),
    "Lanczos, growing": (to(500, 400, **LANCZOS), (200, 150)),
    "growing": (to(600, 600), (300, 200)),
    "growing along rows only": (to(600, 64), (300, 200)),
    "growing along columns only": (to(64, 600), (300, 200)),
    "Lanczos, growing along columns only": (to(100, 360, **LANCZOS), (400, 120)),
    "odd sizes": (to(223, 225), (401, 277)),
    "rows shorter than a turn of the memory": (to(16, 16), (400, 300)),
    "columns first": (to(100, 200), (200, 1200), Engine.PILLOW13),
    "tiles": (
        {
            "image_processor_type": "LlavaNextImageProcessor",
            "size": {"shortest_edge": 224},
            "crop_size": {"height": 224, "width": 224},
            "image_grid_pinpoints": [[224, 448], [448, 224], [448, 448]],
        },
        (500, 375),
    ),
    "small tiles, of which memory's latency limits the reads": (
        {
            "image_processor_type": "LlavaNextImageProcessor",
            "size": {"shortest_edge": 56},
            "crop_size": {"height": 56, "width": 56},
            "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]],
        },
        (120, 90),
    ),
    "small tiles of a resized image": (
        {
            "image_processor_type": "Idefics3ImageProcessor",
            "size": {"longest_edge": 160},
            "max_image_size": {"longest_edge": 80},
        },
        (160, 120),
    ),
    "tiles of a resized image": (
        {
            "image_processor_type": "Idefics3ImageProcessor",
            "size": {"longest_edge": 400},
            "max_image_size": {"longest_edge": 200},
        },
        (320, 240),
    ),
    "resized twice, zeros at its sides": (
        {"image_processor_type": "DonutImageProcessor", "size": {"height": 103, "width": 225}, **LANCZOS},
        (282, 177),
    ),
    "resized twice": (
        {"image_processor_type": "DonutImageProcessor", "size": {"height": 320, "width": 240}},
        (500, 375),
    ),
    "channels last of images": (to(224, 224), (400, 300)),
    "columns first, Lanczos": (to(200, 60, **LANCZOS), (200, 450), Engine.PILLOW13),
}
BOTH_WAYS = {"growing along columns only", "Lanczos, growing along columns only"}
# The test of latencies has Lanczos.
QUICK = {
    "the reads of patches limit, small",
    "one band of patches in the memory",
    "channels last, zeros after it",
    "planes, zeros around",
    "Lanczos, zeros at its sides",
    "growing along columns only",
    "columns first",
    "small tiles, of which memory's latency limits the reads",
}
SLOW_LATENCIES = ("Lanczos", "one band of patches in the memory", "small tiles of a resized image")
JPEGS = {"4:2:0": {"quality": 90, "subsampling": 2}, "4:4:4": {"quality": 95, "subsampling": 0}}


def jpeg(width: int, height: int, **how) -> bytes:
    file = io.BytesIO()
    with Image.open(bundled_images()[0]) as image:
        image.convert("RGB").resize((width, height)).save(file, "JPEG", **how)
    return file.getvalue()


def check(name: str, latency: int = 120, **how) -> None:
    config, size, *engine = CASES[name]
    spec, file = from_hf(config, *(engine or [Engine.TORCHVISION])), jpeg(*size, **how)
    spec = spec.cast(channels_last=name == "channels last of images")
    made, passes = programs.program(spec, Size(*size)), scaler_passes(spec, Size(*size))
    room = -(-made.tensor_bytes // 16) * 16
    done = cu_rtlsim.image_cu(
        file,
        stage=programs.STAGE,
        format=made.format,
        tables=spec.table(),
        program=made.data.tobytes(),
        memory=room + 64,
        capacity=room,
        stagger=0,
        behind=MemoryModel(latency=latency),
        workspace_bytes=16 << 20,
    )
    assert done.status == Status.OK
    clocks, work = done.counters["cycles"], read_jpeg_work(file)
    assert processor_cycles(work, passes, latency) == pytest.approx(clocks, rel=MIXED if name in BOTH_WAYS else MODEL)
    if how == JPEGS["4:2:0"]:
        estimate = DecodeEstimate(*size, decode_clocks(size[0] * size[1], len(file)))
        assert processor_cycles(estimate, passes, latency) == pytest.approx(clocks, rel=ESTIMATE)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
@pytest.mark.parametrize("sampling", ["4:2:0", pytest.param("4:4:4", marks=pytest.mark.slow)])
def test_clocks_follow_the_model(name, sampling):
    check(name, **JPEGS[sampling])


@pytest.mark.parametrize("latency", [20, 300])
@pytest.mark.parametrize(
    "name",
    [
        "Lanczos, small",
        *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_LATENCIES),
    ],
)
def test_clocks_follow_the_latency_of_memory(name, latency):
    check(name, latency, **JPEGS["4:2:0"])


@pytest.mark.slow
def test_clocks_of_a_progressive_file_follow_the_model():
    check("planes", progressive=True, **JPEGS["4:2:0"])
