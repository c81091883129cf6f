"""Image processors on the CUs of an emulated device: equal tensors, other inputs on the CPU, and both launches."""

import asyncio
import io
import math

import numpy as np
import pytest
from like_transformers import tensors, theirs
from PIL import Image

from headrace.batching import CorruptInput, UnsupportedInput, UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.hugging_face.names import config, names
from headrace.host.dpu.hugging_face.reading import CLASSES, from_hf
from headrace.host.dpu.preprocessor import Fallback, Launch
from headrace.host.dpu.processors import Engine, ProcessorSpec
from headrace.host.dpu.reference import pillow_file
from headrace.host.dpu.reference.processor import process
from headrace.host.dpu.specs import MAX_MEGAPIXELS, Damaged
from headrace.host.dpu.units.status import Status

PHOTOS = [image.jpeg for image in demo_images()[:6]]  # of several sizes
EIGHT = [image.jpeg for image in demo_images()[:8]]
QWEN = from_hf({"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 28 * 28 * 60})
CLIP = from_hf({"image_processor_type": "CLIPImageProcessor"})
INTERNVL = {"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": True}
TILES = from_hf(INTERNVL | {"size": {"height": 64, "width": 64}})
ODD_TILES = from_hf(INTERNVL | {"size": {"height": 27, "width": 27}})
MLLAMA = from_hf(
    {
        "image_processor_type": "MllamaImageProcessor",
        "size": {"height": 64, "width": 64},
        "max_image_tiles": 4,
    }
)


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "dpu.xclbin"
    build_sw_emu(path, image_cus=2)
    return path


def with_dpu(xclbin, spec: ProcessorSpec, body, **settings):
    async def run():
        async with Dpu(xclbin, spec, probe_after_s=math.inf, **settings) as dpu:
            return await body(dpu)

    return asyncio.run(run())


def expected(data: bytes, spec: ProcessorSpec, damaged: Damaged = Damaged.STRICT):
    return process(pillow_file.read(data, MAX_MEGAPIXELS, damaged)[0], spec)


def assert_equal(found, wanted) -> None:
    assert set(found) == set(wanted)
    for name, each in wanted.items():
        assert found[name].dtype == each.dtype and np.array_equal(found[name], each), name


@pytest.mark.quick(4)
@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("spec", [QWEN, CLIP, TILES, MLLAMA], ids=lambda spec: spec.name)
def test_images_of_many_sizes_at_once_get_the_tensors_of_the_cpu(xclbin, spec, launch):
    files = PHOTOS * 2

    async def body(dpu):
        done = await asyncio.gather(*(dpu.process(data) for data in files))
        assert dpu.counters.done == len(files) and dpu.counters.on_cpu == 0
        return done

    for data, done in zip(files, with_dpu(xclbin, spec, body, launch=launch), strict=True):
        assert done.unit.startswith("image_cu_") and done.dpu_status == Status.OK.name
        assert_equal(done.tensors, expected(data, spec))
        assert done.tensor is done.tensors["pixel_values"]


def test_the_queue_grows_with_files_and_programs_and_tensors(xclbin):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (1200, 1500, 3), np.uint8))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=95)
    spec = from_hf({"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 28 * 28 * 2000})

    async def body(dpu):
        small = [dpu.process(data) for data in PHOTOS]
        return await asyncio.gather(*small, dpu.process(file.getvalue()), *(dpu.process(data) for data in PHOTOS))

    found = with_dpu(xclbin, spec, body, launch=Launch.QUEUE)
    for data, done in zip([*PHOTOS, file.getvalue(), *PHOTOS], found, strict=True):
        assert done.unit.startswith("image_cu_")
        assert_equal(done.tensors, expected(data, spec))


@pytest.mark.quick(1)
@pytest.mark.parametrize("launch", Launch)
def test_a_progressive_file_keeps_its_coefficients_beside_the_images(xclbin, launch):
    file = io.BytesIO()
    Image.open(io.BytesIO(PHOTOS[0])).resize((1700, 1300)).save(file, "JPEG", progressive=True)

    async def body(dpu):
        return await dpu.process(file.getvalue())

    done = with_dpu(xclbin, TILES, body, launch=launch)
    assert done.unit.startswith("image_cu_")
    assert_equal(done.tensors, expected(file.getvalue(), TILES))


@pytest.mark.parametrize("launch", Launch)
def test_a_header_that_only_claims_a_large_image_gets_no_memory(xclbin, launch):
    data = bytearray(PHOTOS[0])
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = (65_000).to_bytes(2, "big") + (4000).to_bytes(2, "big")

    async def body(dpu):
        with pytest.raises(UnsupportedInput, match="the header claims 4000x65000, above 100 megapixels"):
            await dpu.process(bytes(data))
        assert dpu.counters.refused == 1
        assert_equal((await dpu.process(PHOTOS[1])).tensors, expected(PHOTOS[1], TILES))

    with_dpu(xclbin, TILES, body, launch=launch, fallback=Fallback.RAISE)
    with pytest.raises(CorruptInput, match="4000x65000 pixels, by its header, are more than"):
        with_dpu(xclbin, TILES, lambda dpu: dpu.process(bytes(data)), launch=launch)


@pytest.mark.parametrize("launch", Launch)
def test_a_tensor_larger_than_its_bank_costs_no_unit(xclbin, launch):
    """A bank of the emulated card has 512 MiB, and the tensor would have 546 MB."""
    width, height = 2800, 28 * 290
    large = io.BytesIO()
    Image.new("RGB", (width, height), (40, 90, 200)).save(large, "JPEG")
    spec = from_hf({"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": width * height})

    async def body(dpu):
        for photo in PHOTOS[:2]:
            with pytest.raises(UnsupportedInput, match="TOO_LARGE"):
                await dpu.process(large.getvalue())
            assert_equal((await dpu.process(photo)).tensors, expected(photo, spec))
        assert dpu.counters.unsupported == {Status.TOO_LARGE: 2} and dpu.counters.done == 2
        assert not dpu.out_of_service and dpu.counters.retried == 0

    with_dpu(xclbin, spec, body, launch=launch, fallback=Fallback.RAISE)


def png(data: bytes) -> bytes:
    file = io.BytesIO()
    Image.open(io.BytesIO(data)).save(file, "PNG")
    return file.getvalue()


def turned(data: bytes) -> bytes:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.open(io.BytesIO(data)).save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("spec", [QWEN, TILES], ids=lambda spec: spec.name)
def test_a_file_with_an_exif_orientation_is_turned(xclbin, spec, launch):
    data = turned(PHOTOS[0])
    done = with_dpu(xclbin, spec, lambda dpu: dpu.process(data), launch=launch)
    assert done.unit.startswith("image_cu_") and done.orientation == 6
    assert_equal(done.tensors, expected(data, spec))


@pytest.mark.parametrize(
    ("data", "spec", "reason"),
    [
        (png(PHOTOS[0]), CLIP, "the file is no JPEG file"),
        (PHOTOS[0], ODD_TILES, "27x27 in float32 do not begin with a word"),
    ],
)
def test_what_no_cu_does_goes_to_the_cpu_and_is_counted(xclbin, data, spec, reason):
    async def body(dpu):
        done = await dpu.process(data)
        assert (dpu.counters.refused, dpu.counters.on_cpu, dpu.counters.done) == (1, 1, 0)
        return done

    done = with_dpu(xclbin, spec, body)
    assert done.unit == "cpu" and done.dpu_status is None and reason in done.refused
    assert_equal(done.tensors, expected(data, spec))
    with pytest.raises(UnsupportedInput, match=reason):
        with_dpu(xclbin, spec, lambda dpu: dpu.process(data), fallback=Fallback.RAISE)


def test_a_damaged_file_is_refused_by_both_and_the_next_one_is_served(xclbin):
    async def body(dpu):
        for data, reason in ((PHOTOS[0][:2000], "TRUNCATED"), (b"no image", "no image file"), (b"", "empty")):
            with pytest.raises(CorruptInput, match=reason):
                await dpu.process(data)
        assert_equal((await dpu.process(PHOTOS[1])).tensors, expected(PHOTOS[1], CLIP))

    with_dpu(xclbin, CLIP, body)


def test_a_lenient_driver_takes_what_pillow_makes_of_a_damaged_file(xclbin):
    data = PHOTOS[0][:-2000] + b"\xff\xd9"
    done = with_dpu(xclbin, CLIP, lambda dpu: dpu.process(data), damaged=Damaged.LENIENT)
    assert done.unit == "cpu" and done.damage is not None
    assert_equal(done.tensors, expected(data, CLIP, Damaged.LENIENT))


def test_a_size_that_the_processor_refuses_is_the_callers_error(xclbin):
    file = io.BytesIO()
    Image.new("RGB", (2, 500)).save(file, "JPEG")
    with pytest.raises(UsageError, match="too long for this processor"):
        with_dpu(xclbin, QWEN, lambda dpu: dpu.process(file.getvalue()))


OF_NAMED = {str(config(name)["image_processor_type"]) for name in names()}
DEFAULTS = sorted(set(CLASSES) - OF_NAMED)  # with the settings of a class where no known model has it


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*names(), *DEFAULTS])
def test_each_known_model_and_class_gets_the_tensors_of_transformers(xclbin, name):
    settings = dict(config(name)) if name in names() else {"image_processor_type": name}
    spec = from_hf(settings)
    expected_of = theirs(settings.pop("image_processor_type"), settings, Engine.TORCHVISION)

    async def body(dpu):
        done = await asyncio.gather(*(dpu.process(data) for data in EIGHT))
        assert dpu.counters.done == len(EIGHT)
        return done

    for data, done in zip(EIGHT, with_dpu(xclbin, spec, body), strict=True):
        assert_equal(done.tensors, tensors(expected_of, pillow_file.read(data, MAX_MEGAPIXELS, Damaged.STRICT)[0]))
