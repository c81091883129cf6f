"""The adapters of image processors on an emulated DPU: the tensors of the library, and no thread that stays behind."""

import gc
import io
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import containers
import numpy as np
import pytest
import transformers
from equal import assert_same, model, outcome
from like_transformers import picture
from PIL import Image

import headrace
from headrace.bitstreams.build import build_sw_emu
from headrace.host.adapters.device import THREAD
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.hugging_face.names import config
from headrace.host.xrt import emulation
from headrace.host.xrt.faults import Fault, FaultKind

PHOTOS = [image.jpeg for image in demo_images()[:3]]  # of several sizes
ORIENTATION = 0x0112


def jpeg(image, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def opened(data):
    return Image.open(io.BytesIO(data))


def turned(data, orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return jpeg(opened(data), exif=exif, quality=90)


SMALL = Image.fromarray(picture(90, 60))
FILES = {
    "photos": PHOTOS,
    "turned by Exif": [turned(PHOTOS[0], orientation) for orientation in (3, 6)],
    "grey": [jpeg(SMALL.convert("L"))],
    "progressive": [jpeg(SMALL, progressive=True)],
}


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "dpu.xclbin"
    build_sw_emu(path, image_cus=2)
    return path


@pytest.fixture
def adapter(xclbin):
    with headrace.HeadraceImageProcessor.from_pretrained("clip-vit-base-patch32", target=xclbin) as made:
        yield made


@pytest.fixture
def clip(tmp_path):
    return transformers.AutoImageProcessor.from_pretrained(model(tmp_path, config("clip-vit-base-patch32")))


def threads():
    return [each.name for each in threading.enumerate() if each.name.startswith(THREAD)]


@pytest.mark.quick(5)
@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("name", ["qwen2-vl", "clip-vit-base-patch32", "internvl3", "llava-next", "llama-3.2-vision"])
def test_jpeg_files_get_the_tensors_of_the_library_on_the_dpu(name, files, xclbin, tmp_path):
    library = transformers.AutoImageProcessor.from_pretrained(model(tmp_path, config(name)))
    with headrace.HeadraceImageProcessor.from_pretrained(name, target=xclbin) as adapter:
        for form in ("pt", None):
            images = [opened(data) for data in FILES[files]]
            found = adapter(images, return_tensors=form)
            assert all(image.tile for image in images), "the pixels were decoded here, too"
            assert_same(found, library(images, return_tensors=form))
        assert adapter.counts == {"dpu": 2 * len(FILES[files]), "cpu": 0, "library": 0} and adapter.reasons == {}


def test_the_name_of_an_emulated_target_builds_a_container_for_images_and_audio(clip):
    make_extractor = headrace.HeadraceFeatureExtractor.from_pretrained
    settings = {"target": "sw_emu", "chunk_length": 1}
    with (
        headrace.HeadraceImageProcessor.from_pretrained("clip-vit-base-patch32", target="sw_emu") as adapter,
        make_extractor("whisper-tiny", **settings) as extractor,
    ):
        found = adapter(opened(PHOTOS[0]), return_tensors="pt")
        assert_same(found, clip(opened(PHOTOS[0]), return_tensors="pt"))
        extractor(np.zeros(16000, np.float32), sampling_rate=16000, return_tensors="pt")
        assert adapter.counts == extractor.counts == {"dpu": 1, "cpu": 0, "library": 0}


def test_on_hw_emu_it_is_the_same(clip, tmp_path):
    containers.hw_emu(tmp_path / "hw.xclbin", image_cus=1)
    with headrace.HeadraceImageProcessor.from_pretrained(
        "clip-vit-base-patch32", target=tmp_path / "hw.xclbin", size=32, crop_size=24
    ) as adapter:
        small = jpeg(Image.fromarray(picture(40, 33)))
        expected = clip(opened(small), size={"shortest_edge": 32}, crop_size=24, return_tensors="pt")
        assert_same(adapter(opened(small), return_tensors="pt"), expected)
        assert adapter.counts == {"dpu": 1, "cpu": 0, "library": 0}


DECODED = opened(PHOTOS[0]).convert("RGB")


def _loaded(data):
    image = opened(data)
    image.load()
    return image


OF_CPU = {
    "decoded": (DECODED, "the pixels were given, and the DPU takes JPEG files"),
    "loaded": (_loaded(PHOTOS[0]), "the pixels were given"),
    "array": (np.array(DECODED), "the pixels were given"),
    "CMYK": (opened(jpeg(SMALL.convert("CMYK"))), "the pixels were given"),
}


@pytest.mark.parametrize("case", ["decoded", "loaded", "array", "CMYK"])
def test_pixels_go_to_the_cpu_with_the_reason(case, adapter, clip):
    image, reason = OF_CPU[case]
    assert_same(
        adapter([image, opened(PHOTOS[1])], return_tensors="pt"), clip([image, opened(PHOTOS[1])], return_tensors="pt")
    )
    assert adapter.counts == {"dpu": 1, "cpu": 1, "library": 0} and reason in adapter.reasons["cpu"]


def test_a_damaged_file_raises_what_the_library_raises(adapter, clip):
    cut = PHOTOS[0][: len(PHOTOS[0]) // 2]
    expected = outcome(lambda: clip(opened(cut), return_tensors="pt"))
    assert expected[0] is OSError
    assert outcome(lambda: adapter(opened(cut), return_tensors="pt")) == expected
    assert adapter(opened(PHOTOS[0]), return_tensors="pt") and adapter.counts == {"dpu": 1, "cpu": 0, "library": 0}


def test_a_path_is_read_upright_on_the_dpu(adapter, clip, tmp_path):
    """The library turns the image of a path, but not an image of Pillow."""
    paths = [tmp_path / "turned.jpg", tmp_path / "grey.jpg"]
    paths[0].write_bytes(turned(PHOTOS[0], 6))
    paths[1].write_bytes(FILES["grey"][0])
    upright = [opened(paths[0].read_bytes()).transpose(Image.Transpose.ROTATE_270), opened(paths[1].read_bytes())]
    found = adapter([str(path) for path in paths], return_tensors="pt")
    assert_same(found, clip(upright, return_tensors="pt"))
    assert adapter.counts == {"dpu": 2, "cpu": 0, "library": 0}


def test_settings_of_a_call_go_to_the_cpu_and_those_that_headrace_has_not_to_the_library(adapter, clip):
    for settings in ({}, {"size": {"shortest_edge": 90}, "crop_size": 80}, {"resample": 0}):
        image = opened(PHOTOS[0])
        assert_same(adapter(image, return_tensors="pt", **settings), clip(image, return_tensors="pt", **settings))
    assert adapter.counts == {"dpu": 1, "cpu": 1, "library": 1}
    assert adapter.reasons["cpu"] == "the device is open with other settings than those of this call"


def test_threads_share_the_device(adapter, clip):
    expected = [clip(opened(data), return_tensors="pt") for data in PHOTOS]

    def work(number):
        found = adapter(opened(PHOTOS[number % 3]), return_tensors="pt")
        assert_same(found, expected[number % 3])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(18)))
    assert adapter.counts == {"dpu": 18, "cpu": 0, "library": 0}


def test_after_close_the_cpu_does_the_work_and_no_thread_is_left(adapter, clip):
    found = [adapter(opened(PHOTOS[0]), return_tensors="pt")]
    assert len(threads()) == 1
    adapter.close()
    adapter.close()
    assert threads() == []
    found.append(adapter(opened(PHOTOS[0]), return_tensors="pt"))
    for each in found:
        assert_same(each, clip(opened(PHOTOS[0]), return_tensors="pt"))
    assert adapter.counts == {"dpu": 1, "cpu": 1, "library": 0} and adapter.reasons["cpu"] == "the device is closed"


def test_units_that_fail_leave_the_work_to_the_cpu(adapter, clip):
    adapter(opened(PHOTOS[0]), return_tensors="pt")
    emulation.inject(emulation.device(0), Fault(FaultKind.ERROR, times=100))
    found = adapter([opened(data) for data in PHOTOS], return_tensors="pt")
    assert_same(found, clip([opened(data) for data in PHOTOS], return_tensors="pt"))
    assert adapter.counts == {"dpu": 1, "cpu": 3, "library": 0} and "no CU is in service" in adapter.reasons["cpu"]


def test_a_close_ends_a_call_that_waits_for_a_unit_that_hangs(adapter, clip):
    adapter(opened(PHOTOS[0]), return_tensors="pt")
    emulation.inject(emulation.device(0), Fault(FaultKind.HANG, times=100))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(adapter, opened(PHOTOS[1]), return_tensors="pt")
        cus = adapter._work.device._running._dpu._opened
        while not call.done() and not any(cu.hangs() for cu in cus):
            threading.Event().wait(0.01)
        assert not call.done()
        adapter.close()
        assert_same(call.result(timeout=60), clip(opened(PHOTOS[1]), return_tensors="pt"))
    assert adapter.counts == {"dpu": 1, "cpu": 1, "library": 0} and "closed" in adapter.reasons["cpu"]
    assert threads() == []


def test_an_adapter_that_nobody_has_any_more_closes_its_device(xclbin):
    adapter = headrace.HeadraceImageProcessor.from_pretrained("clip-vit-base-patch32", target=xclbin)
    adapter(opened(PHOTOS[0]), return_tensors="pt")
    assert len(threads()) == 1
    del adapter
    gc.collect()
    assert threads() == []


def test_a_container_without_image_units_leaves_the_work_to_the_cpu(tmp_path):
    build_sw_emu(tmp_path / "audio.xclbin", image_cus=0, mel_cus=1, norm_cus=1)
    adapter = headrace.HeadraceImageProcessor.from_pretrained("clip-vit-base-patch32", target=tmp_path / "audio.xclbin")
    for _ in range(2):
        adapter(opened(PHOTOS[0]), return_tensors="pt")
    assert (
        adapter.counts == {"dpu": 0, "cpu": 2, "library": 0} and "no image_cu compute units" in adapter.reasons["cpu"]
    )
    assert threads() == []


def test_a_forked_process_computes_on_the_cpu(adapter, clip):
    expected = clip(opened(PHOTOS[0]), return_tensors="np")["pixel_values"]
    adapter(opened(PHOTOS[0]), return_tensors="np")
    child = os.fork()
    if child == 0:
        found = adapter(opened(PHOTOS[0]), return_tensors="np")["pixel_values"]
        right = np.array_equal(found, expected) and adapter.counts["cpu"] == 1
        adapter.close()
        os._exit(0 if right and "forked" in adapter.reasons["cpu"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    adapter(opened(PHOTOS[0]), return_tensors="np")
    assert adapter.counts == {"dpu": 2, "cpu": 0, "library": 0}


PROGRAM = """
import sys, headrace
from PIL import Image
adapter = headrace.HeadraceImageProcessor.from_pretrained("clip-vit-base-patch32", target=sys.argv[1])
adapter(Image.open(sys.argv[2]), return_tensors="np")
print(adapter.counts["dpu"])
"""
HANGING = """
import threading
from headrace.host.xrt import emulation
from headrace.host.xrt.faults import Fault, FaultKind
emulation.inject(emulation.device(0), Fault(FaultKind.HANG, times=100))
call = threading.Thread(target=adapter, args=[Image.open(sys.argv[2])], daemon=True)
call.start()
call.join(1)
print(call.is_alive())
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize("more, printed", [("", "1\n"), (HANGING, "1\nTrue\n")], ids=["idle", "hanging"])
def test_a_program_that_never_closes_its_adapter_ends(more, printed, xclbin, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(PHOTOS[0])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + more, xclbin, tmp_path / "photo.jpg"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
