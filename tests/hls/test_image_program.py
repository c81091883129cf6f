"""image_cu x {C++, RTL} with a program, against the reference of image processors, which equals transformers."""

import io

import cu_rtlsim
import numpy as np
import pytest
import units
from PIL import Image

from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.hugging_face.names import config, names
from headrace.host.dpu.hugging_face.reading import CLASSES, from_hf
from headrace.host.dpu.processors import Engine, Size
from headrace.host.dpu.reference.processor import process
from headrace.host.dpu.reference.resampler import WITH_TAPS
from headrace.host.dpu.specs import Orientation
from headrace.host.dpu.units import program as programs
from headrace.host.dpu.units.jobs import program_of
from headrace.host.dpu.units.run_limits import processor_clocks
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import MemoryModel

RNG = np.random.default_rng(0)


def jpeg(width: int, height: int, quality: int = 90) -> bytes:
    """A picture of smooth shapes with some noise."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(columns / 9), np.cos(rows / 7), np.sin((rows + columns) / 13)], axis=-1)
    pixels = np.clip(128 + 100 * waves + RNG.normal(0, 8, waves.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def pixels_of(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


SMALL = {"size": {"height": 56, "width": 42}}
QWEN = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 12}
CLIP = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 40}}
BYTES = "qwen in bytes"  # which Pillow's classes of transformers do not give
SPECS = {
    "clip": CLIP | {"crop_size": {"height": 36, "width": 37}},
    "clip with zeros around": CLIP | {"crop_size": {"height": 60, "width": 61}},
    "siglip": {"image_processor_type": "SiglipImageProcessor"} | SMALL,
    "vit": {"image_processor_type": "ViTImageProcessor"} | SMALL,
    "bytes": {"image_processor_type": "ViTImageProcessor", "do_rescale": False, "do_normalize": False} | SMALL,
    "chameleon": {
        "image_processor_type": "ChameleonImageProcessor",
        "size": {"shortest_edge": 30},
        "crop_size": {"height": 30, "width": 30},
    },
    "qwen": QWEN,
    BYTES: QWEN | {"do_rescale": False, "do_normalize": False},
    "paddle": {"image_processor_type": "PaddleOCRVLImageProcessor", "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 9},
    "siglip2": {"image_processor_type": "Siglip2ImageProcessor", "max_num_patches": 20},
    "pixtral": {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 64}},
    "deepseek": {"image_processor_type": "DeepseekVLImageProcessor", "size": {"height": 48, "width": 48}},
}
TILE = {"height": 32, "width": 32}
TILED = {
    "llava-next": {
        "image_processor_type": "LlavaNextImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_size": TILE,
        "image_grid_pinpoints": [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]],
    },
    "internvl": {"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": True, "size": TILE},
    "llama 4": {"image_processor_type": "Llama4ImageProcessor", "size": TILE, "max_patches": 6},
    "mllama": {"image_processor_type": "MllamaImageProcessor", "size": TILE, "max_image_tiles": 4},
    "idefics3": {
        "image_processor_type": "Idefics3ImageProcessor",
        "size": {"longest_edge": 96},
        "max_image_size": {"longest_edge": 32},
    },
    "donut": {"image_processor_type": "DonutImageProcessor", "size": {"height": 60, "width": 48}},
}
SPECS |= TILED
OF_TORCHVISION = {BYTES, "llama 4"}  # classes that have no Pillow path
SIZES = [(90, 70), (64, 120), (33, 31)]


def run(rtl: bool, file: bytes, spec, *, source=None, used: int = 0, turn=Orientation.NONE, change=None, **more):
    made = programs.program(spec, source or Size(*reversed(pixels_of(file).shape[:2])), used, turn)
    code = made.data.copy()
    if change is not None:
        code = change(code)
    settings = {
        "stage": programs.STAGE,
        "format": made.format,
        "tables": spec.table().view(f"u{spec.table().dtype.itemsize}"),
        "program": code.tobytes(),
        "memory": -(-made.tensor_bytes // 16) * 16 + 64,
        "capacity": -(-made.tensor_bytes // 16) * 16,
        "workspace_bytes": max(1 << 20, made.workspace_bytes),
    }
    if rtl:
        return made, cu_rtlsim.image_cu(file, **{**settings, **more})
    more.pop("behind", None)
    return made, units.image_cu(file, **{**settings, **more})


def check(rtl: bool, file: bytes, spec, **more) -> None:
    made, done = run(rtl, file, spec, **more)
    assert done.status == Status.OK
    expected = process(pixels_of(file), spec)["pixel_values"]
    values = np.ascontiguousarray(expected).reshape(-1)
    assert not values[made.values :].any(), "the CU leaves out images of zeros alone"
    expected = values[: made.values]
    assert made.dtype == expected.dtype
    assert done.bytes == expected.nbytes
    assert done.src_size == made.plan.source
    assert done.out_size == tuple(made.plan.image)
    assert np.array_equal(done.memory[: expected.nbytes], expected.view(np.uint8))
    assert (done.memory[-(-expected.nbytes // 16) * 16 :] == 0xA5).all()
    if rtl and "behind" not in more:
        assert done.counters["cycles"] < processor_clocks(file, spec), "a run would look like a hang"


CASES = [(engine, size) for engine in WITH_TAPS for size in SIZES]


@pytest.mark.parametrize(
    ("engine", "size"),
    [pytest.param(*case, marks=() if number % 4 == 0 else pytest.mark.slow) for number, case in enumerate(CASES)],
)
@pytest.mark.parametrize("name", SPECS)
def test_cpp_gives_the_tensor_of_the_reference(name, engine, size):
    check(False, jpeg(*size), from_hf(SPECS[name], Engine.TORCHVISION if name in OF_TORCHVISION else engine))


@pytest.mark.quick(18)
@pytest.mark.parametrize("stalled", [False, True], ids=["free", "stalled"])
@pytest.mark.parametrize("name", SPECS)
def test_rtl_gives_the_tensor_of_the_reference(name, stalled):
    if not stalled:
        check(True, jpeg(90, 70), from_hf(SPECS[name], Engine.TORCHVISION))
        return
    other = Engine.TORCHVISION if name in OF_TORCHVISION else Engine.PILLOW13
    check(True, jpeg(64, 120), from_hf(SPECS[name], other), behind=MemoryModel(stall=0.3, seed=3))


@pytest.mark.parametrize("rtl", [False, True])
@pytest.mark.parametrize(
    ("name", "dtype", "channels_last"),
    [
        ("siglip", "float16", False),
        ("siglip", None, True),
        ("qwen", "bfloat16", False),
        ("llava-next", "float16", True),
        ("llama 4", "float32", True),
        ("bytes", "float16", True),
    ],
)
def test_values_may_have_another_type_and_their_channels_last(rtl, name, dtype, channels_last):
    check(rtl, jpeg(90, 70), from_hf(SPECS[name]).cast(dtype, channels_last))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CLASSES)
def test_rtl_gives_the_tensor_of_each_class_with_the_settings_of_a_model(name):
    known = [settings for settings in map(config, names()) if settings["image_processor_type"] == name]
    spec = from_hf(known[0] if known else {"image_processor_type": name})
    for photo in demo_images()[:2]:
        made, done = run(True, photo.jpeg, spec, max_cycles=80_000_000)
        assert done.status == Status.OK
        found = made.pixel_values(done.memory[: made.tensor_bytes])
        assert np.array_equal(found, process(pixels_of(photo.jpeg), spec)["pixel_values"])


@pytest.mark.quick(40)
@pytest.mark.parametrize("turn", Orientation)
@pytest.mark.parametrize("name", ["clip", "chameleon", "siglip", BYTES, "paddle", "siglip2", *TILED])
def test_a_turned_file_gives_the_tensor_of_the_upright_image(name, turn):
    """The CU makes the tensor of the stored image, with the lists of the upright one, and the host turns it."""
    stored = jpeg(61, 117)
    upright = turn.turned(pixels_of(stored), 0)
    for engine in WITH_TAPS if name not in OF_TORCHVISION else [Engine.TORCHVISION]:
        for channels_last in (False, True) if name == "siglip" else (False,):
            spec = from_hf(SPECS[name], engine).cast(channels_last=channels_last)
            made, done = run(False, stored, spec, source=Size(*reversed(upright.shape[:2])), turn=turn)
            assert done.status == Status.OK
            found = made.pixel_values(done.memory[: made.tensor_bytes])
            assert np.array_equal(found, process(upright, spec)["pixel_values"])


@pytest.mark.parametrize("rtl", [False, True])
def test_an_image_of_another_size_than_the_program_ends_in_a_status(rtl):
    spec = from_hf(SPECS["clip"])
    for size in (Size(89, 70), Size(90, 71), Size(10, 10)):
        assert run(rtl, jpeg(90, 70), spec, source=size)[1].status == Status.BAD_ARGUMENT
    check(rtl, jpeg(90, 70), spec)


@pytest.mark.parametrize("rtl", [False, True])
@pytest.mark.parametrize("name", ["clip", "qwen"])
def test_a_tensor_that_is_too_small_is_told_with_its_bytes(rtl, name):
    spec = from_hf(SPECS[name])
    made, done = run(rtl, jpeg(90, 70), spec, capacity=64)
    assert (done.status, done.bytes) == (Status.BUFFER_TOO_SMALL, made.tensor_bytes)
    assert (done.memory == 0xA5).all()


@pytest.mark.parametrize("name", ["tensor", "tables", "program", "workspace"])
def test_a_pointer_to_nowhere_ends_in_bus_error_and_the_next_run_is_right(name):
    spec, file = from_hf(SPECS["llava-next"]), jpeg(90, 70)
    done = run(True, file, spec, addresses={name: 0xDEAD_0000_0000})[1]
    assert done.status == Status.BUS_ERROR
    check(True, file, spec)


def test_an_image_that_cannot_be_read_ends_in_bus_error_and_the_next_run_is_right():
    """The second pass reads where the workspace has no memory any more."""
    spec, file, room = from_hf(SPECS["llava-next"]), jpeg(90, 70), 1 << 16
    second = 64 + len(programs.program(spec, Size(90, 70)).passes[0].table.packed())

    def elsewhere(code):
        code[second + 40 : second + 44] = np.array([1 << 19], "<u4").view(np.uint8)
        return code

    end = 5 * cu_rtlsim.BANK + (1 << 20)  # of the workspace, which is the fifth buffer
    done = run(True, file, spec, change=elsewhere, stagger=0, addresses={"workspace": end - room})[1]
    assert done.status == Status.BUS_ERROR
    assert cu_rtlsim.image_cu(file, stage=0).status == Status.OK
    check(True, file, spec)


# The last 4 KiB below 4 GiB, so that the addresses of each buffer in turn pass 4 GiB.
@pytest.mark.parametrize("place", [2, 5, 6])
def test_addresses_may_pass_4_gib(place):
    check(True, jpeg(90, 70), from_hf(SPECS["llava-next"]), high=0xFFFF_F000 - place * cu_rtlsim.BANK)


@pytest.mark.parametrize("rtl", [False, True])
@pytest.mark.parametrize("name", ["clip", "qwen", "llava-next"])
def test_a_damaged_file_ends_in_its_status(rtl, name):
    spec, file = from_hf(SPECS[name]), jpeg(90, 70)
    for data, status in ((file[: len(file) // 2], Status.TRUNCATED), (b"\x00" * 40, Status.NOT_JPEG)):
        assert run(rtl, data, spec, source=Size(90, 70))[1].status == status
    check(rtl, file, spec)


@pytest.mark.quick(4)
@pytest.mark.parametrize("rtl", [False, True])
@pytest.mark.parametrize("name", TILED)
def test_a_workspace_without_room_for_the_images_ends_in_a_status(rtl, name):
    spec, file = from_hf(SPECS[name]), jpeg(90, 70)
    made, done = run(rtl, file, spec)
    assert done.status == Status.OK and made.workspace_bytes > 0
    room = made.workspace_bytes
    assert run(rtl, file, spec, workspace_bytes=room)[1].status == Status.OK
    for bytes_ in (room - 16, 0):
        assert run(rtl, file, spec, workspace_bytes=bytes_)[1].status == Status.BAD_ARGUMENT
    check(rtl, file, spec)


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0", "4:1:1"])
@pytest.mark.parametrize("size", [(1, 1), (33, 31), (90, 70)])
def test_images_begin_behind_the_coefficients_that_a_file_can_have(size, sampling):
    file = io.BytesIO()
    Image.new("RGB", size, (40, 90, 200)).save(file, "JPEG", progressive=True, subsampling=sampling)
    needed = units.image_cu(file.getvalue(), stage=0, workspace_bytes=128)
    assert needed.status == Status.BUFFER_TOO_SMALL and needed.out_size == (0, 0)
    made = program_of(file.getvalue(), from_hf(SPECS["llava-next"]))
    assert made.passes[0].keeps and made.passes[0].place >= needed.bytes
    assert program_of(jpeg(*size), from_hf(SPECS["llava-next"])).passes[0].place == 0


def test_a_run_without_a_program_follows_one_of_several_passes():
    """The reader of the workspace stays at rest, also where the workspace has no memory behind it."""
    file = jpeg(90, 70)
    for _ in range(2):
        check(True, file, from_hf(SPECS["llava-next"]))
        done = cu_rtlsim.image_cu(file, stage=0, addresses={"workspace": 0xDEAD_0000_0000}, workspace_bytes=0)
        assert (done.status, done.bytes) == (Status.OK, 3 * 90 * 70)
        assert np.array_equal(done.memory[: done.bytes].reshape(70, 90, 3), pixels_of(file))


@pytest.mark.parametrize("rtl", [False, True])
@pytest.mark.parametrize("name", ["llava-next", "idefics3"])
def test_coefficients_and_images_share_the_workspace(rtl, name):
    file = io.BytesIO()
    Image.open(io.BytesIO(jpeg(90, 70))).save(file, "JPEG", progressive=True)
    check(rtl, file.getvalue(), from_hf(SPECS[name]), used=6 * 96 * 96)


@pytest.mark.parametrize("bytes_", [0, 16, 63, 64])
def test_a_program_that_is_too_short_ends_in_a_status(bytes_):
    for rtl in (False, True):
        done = run(rtl, jpeg(90, 70), from_hf(SPECS["qwen"]), change=lambda code: code[:bytes_])[1]
        assert done.status == Status.BAD_ARGUMENT


@pytest.mark.parametrize("count", [30, pytest.param(90, marks=pytest.mark.slow)])
def test_cpp_and_rtl_agree_on_damaged_programs(count):
    """Programs are bytes of memory. Whatever they say, the CU ends, and writes nothing beside its tensor."""
    rng = np.random.default_rng(5)
    file, seen = jpeg(40, 30), set()
    for number in range(count):
        spec = from_hf(SPECS[("qwen", "clip", "siglip2", "idefics3", "llava-next", "internvl")[number % 6]])

        passes = programs.program(spec, Size(40, 30)).passes
        last = sum(64 + len(each.table.packed()) for each in passes[:-1])

        def change(code, last=last):
            for _ in range(rng.integers(1, 4)):
                place = rng.integers(0, 64) if rng.random() < 0.7 else rng.integers(0, len(code))
                if rng.random() < 0.3:  # of the last pass
                    place = last + rng.integers(0, 64)
                code[place] ^= 1 << rng.integers(0, 8)
            if rng.random() < 0.2:
                code = code[: rng.integers(0, len(code))]
            return code

        state = rng.bit_generator.state
        expected = run(False, file, spec, change=change)[1]
        rng.bit_generator.state = state
        done = run(True, file, spec, change=change, max_cycles=4_000_000)[1]
        assert (done.status, done.out_size) == (expected.status, expected.out_size), number
        if done.status == Status.OK:
            assert done.bytes == expected.bytes
            assert np.array_equal(done.memory[: done.bytes], expected.memory[: done.bytes]), number
        assert (done.memory[-64:] == 0xA5).all()
        seen.add(done.status)
    assert {Status.OK, Status.BAD_ARGUMENT} <= seen
