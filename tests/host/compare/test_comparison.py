"""Test where a front end differs from transformers: built-in candidates, functions, URLs and the emulated DPU."""

import http.server
import io
import json
import re
import threading
from contextlib import contextmanager
from pathlib import Path

import cv2
import front_ends
import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers.image_utils import load_image

import headrace
import headrace.host.workers.networks.models
from headrace.batching import UsageError
from headrace.host.compare import curated
from headrace.host.compare.comparison import compare
from headrace.host.compare.reference import Reference

CLIP = "transformers:clip-vit-base-patch32"
WHISPER = "transformers:whisper-tiny"


@pytest.fixture(autouse=True)
def where_the_front_ends_are(monkeypatch):
    """A function is found in the current folder."""
    monkeypatch.chdir(Path(__file__).parent)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a function that makes a folder with some of the curated inputs."""

    def made(*names):
        path = tmp_path_factory.mktemp("inputs")
        for name in names:
            (path / name).write_bytes((curated.IMAGES | curated.AUDIO)[name]())
        return path

    return made


@pytest.fixture(scope="module")
def photos(folder):
    return folder("jpeg-420.jpg", "rgb.png")


def by_file(found):
    return {each.file: each for each in found.files}


# ---- the reference ----


def test_the_reference_is_what_transformers_makes_of_a_file(tmp_path):
    data = curated.IMAGES["exif-6.jpg"]()
    expected = transformers.CLIPImageProcessor()(load_image(Image.open(io.BytesIO(data))), return_tensors="np")
    by_name = Reference(CLIP).tensors(data)
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "CLIPImageProcessor"}')
    by_folder = Reference(f"transformers:{tmp_path}").tensors(data)
    for found in (by_name, by_folder):
        assert np.array_equal(found["pixel_values"], expected["pixel_values"])


@pytest.mark.parametrize("name", ["voice-44k-stereo.wav", "voice-32k.flac", "voice-8bit.wav"])
def test_the_reference_reads_sounds_as_transformers_does(name, tmp_path):
    from transformers.audio_utils import load_audio

    (tmp_path / name).write_bytes(curated.AUDIO[name]())
    samples = load_audio(str(tmp_path / name), 16000, backend="soundfile")
    expected = transformers.WhisperFeatureExtractor()(samples, sampling_rate=16000, return_tensors="np")
    found = Reference(WHISPER).tensors((tmp_path / name).read_bytes())
    assert np.array_equal(found["input_features"], expected["input_features"])


@pytest.mark.parametrize(
    ("reference", "wording"),
    [
        ("clip", r"give transformers:NAME"),
        ("transformers:", r"give transformers:NAME"),
        ("transformers:./missing", "there is no such folder"),
        ("transformers:{empty}", "has no preprocessor_config.json; name the folder of a model"),
        ("transformers:{unknown}", "does not load it"),
    ],
)
def test_a_reference_that_cannot_be_loaded(reference, wording, tmp_path):
    for name in ("empty", "unknown"):
        (tmp_path / name).mkdir()
    (tmp_path / "unknown" / "preprocessor_config.json").write_text('{"image_processor_type": "NoSuchImageProcessor"}')
    with pytest.raises(UsageError, match=wording) as error:
        Reference(reference.format(empty=tmp_path / "empty", unknown=tmp_path / "unknown"))
    assert "\n" not in str(error.value)


# ---- built-in candidates ----


@pytest.mark.parametrize(
    "model", ["clip-vit-base-patch32", "qwen2-vl", "llama-4-scout", "siglip2-base-patch16-naflex", "llava-next"]
)
def test_headrace_is_equal_at_all_stages(model, folder):
    inputs = folder("jpeg-420-odd.jpg", "exif-5.jpg", "cmyk.jpg", "palette-16.png", "alpha-soft.png", "gray-16.png")
    found = compare(f"transformers:{model}", "headrace", inputs)
    assert found.equal and not found.first
    assert {name: stage["differ"] for name, stage in found.stages.items()} == dict.fromkeys(found.names, 0)


@pytest.mark.parametrize(
    "model", ["clip-vit-base-patch32", pytest.param("vit-base-patch16-224", marks=pytest.mark.slow)]
)
def test_all_curated_images_are_equal(model):
    """Two have a colour that is transparent. The first model's processor puts white there, the second's does not."""
    found = compare(f"transformers:{model}", "headrace")
    assert found.equal and found.count("equal") == 60


def test_a_nearest_chroma_is_found_at_decode_where_chroma_is_subsampled(folder):
    found = compare(CLIP, "dali-like", folder("jpeg-420.jpg", "jpeg-444.jpg", "jpeg-gray.jpg", "cmyk.jpg", "rgb.png"))
    assert {each.file: each.first for each in found.files if each.result != "equal"} == {"jpeg-420.jpg": "decode"}
    stage = by_file(found)["jpeg-420.jpg"].stages["decode"]
    assert stage.unit == "levels" and stage.max > 10 and 0.2 < stage.share < 0.9
    assert found.stages["resize"]["differ"] == 0  # which had the reference's input


def test_the_candidate_opencv_is_opencv(photos):
    """Its chain gives what OpenCV does when one writes it down."""
    found = by_file(compare(CLIP, "opencv", photos))["jpeg-420.jpg"]
    assert found.first == "resize"
    pixels = cv2.cvtColor(cv2.imread(str(photos / "jpeg-420.jpg")), cv2.COLOR_BGR2RGB)
    by_pillow = np.asarray(Image.open(photos / "jpeg-420.jpg"))
    assert np.array_equal(pixels, by_pillow)
    resized = cv2.resize(pixels, (298, 224), interpolation=cv2.INTER_CUBIC)
    expected = cv2.resize(by_pillow, (298, 224), interpolation=cv2.INTER_CUBIC).astype(int)
    theirs = transformers.CLIPImageProcessor(do_center_crop=False, do_rescale=False, do_normalize=False)
    reference = theirs(Image.open(photos / "jpeg-420.jpg"), return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
    assert np.array_equal(resized, expected)
    gaps = np.abs(expected - reference.astype(int))
    assert found.stages["resize"].max == gaps.max()
    assert found.stages["resize"].share == pytest.approx(np.count_nonzero(gaps) / gaps.size)


def test_torchvision_ignores_the_exif_orientation(folder):
    found = compare(CLIP, "torchvision", folder("exif-6.jpg", "jpeg-420.jpg"), tolerance=1e-5)
    assert {each.file: (each.result, each.first) for each in found.files} == {
        "exif-6.jpg": ("differs", "convert"),
        "jpeg-420.jpg": ("equal", None),  # but for the last bits
    }


def test_a_float_resize_is_found_at_resize_and_is_that_of_torchvision(photos):
    from torchvision.transforms.v2 import functional

    found = by_file(compare(CLIP, "torch-float", photos))["rgb.png"]
    assert found.first == "resize"
    pixels = torch.from_numpy(np.array(Image.open(photos / "rgb.png"))).permute(2, 0, 1)
    bicubic = functional.InterpolationMode.BICUBIC
    rounded, exact = (
        functional.resize(each, [224, 298], bicubic, antialias=True) for each in (pixels, pixels.to(torch.float32))
    )
    gaps = (exact.clamp(0, 255) - rounded).abs()
    assert found.stages["resize"].max == pytest.approx(gaps.max().item(), rel=1e-4)
    assert found.stages["decode"].share == found.stages["convert"].share == 0


def test_pillow_is_the_class_for_pillow(photos):
    data = (photos / "rgb.png").read_bytes()
    theirs = transformers.CLIPImageProcessorPil()(Image.open(io.BytesIO(data)), return_tensors="np")["pixel_values"]
    reference = Reference(CLIP).tensors(data)["pixel_values"]
    found = by_file(compare(CLIP, "pillow", photos))["rgb.png"]
    gaps = np.abs(theirs.astype(np.float64) - reference)
    assert found.tensors["pixel_values"].max == pytest.approx(gaps.max(), abs=1e-6)


def test_nvimagecodec_is_refused_by_name_where_it_is_not(photos):
    with pytest.raises(UsageError, match=r"nvimagecodec: .*; .*choose dali-like"):
        compare(CLIP, "nvimagecodec", photos)


def test_a_class_that_headrace_does_not_have_is_compared_by_its_tensors_alone(tmp_path, photos):
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "DINOv3ViTImageProcessor"}')
    reference = f"transformers:{tmp_path}"
    with pytest.raises(
        UsageError, match=r"DINOv3ViTImageProcessor has no counterpart here.*give module:function or a URL"
    ):
        compare(reference, "opencv", photos)
    found = compare(reference, Reference(reference).tensors, photos)
    assert found.equal and "DINOv3ViTImageProcessor" in found.note
    different = compare(reference, lambda data: np.zeros((1, 3, 224, 224), np.float32), photos)
    assert different.first == {"unknown": 2}


# ---- a candidate of which only the tensors are known ----


@pytest.mark.parametrize(
    ("function", "stage", "wording"),
    [
        ("without_exif", "convert", "the Exif orientation is ignored"),
        ("bgr", "convert", "red and blue are exchanged before normalize"),
        ("bilinear", "resize", "bilinear in place of bicubic"),
        ("by_opencv", "resize", "OpenCV's INTER_CUBIC"),
        ("imagenet", "normalize", "mean and deviation of ImageNet"),
        ("halves", "normalize", "values rounded to float16"),
        ("channels_last", "layout", "the channels come last"),
        ("without_batch", "layout", "the batch axis is missing"),
        ("noise", "unknown", "no single stage explains it"),
    ],
)
def test_the_stage_that_explains_the_tensors_is_named(function, stage, wording, folder):
    found = compare(CLIP, getattr(front_ends, function), folder("exif-6.jpg"))
    assert found.first == {stage: 1}
    assert found.files[0].why.startswith(wording)
    if stage != "unknown":
        assert found.files[0].why.endswith(("(exactly)", "(to rounding)"))


def test_rounding_alone_is_within_a_tolerance(photos):
    found = compare(CLIP, front_ends.same, photos)
    assert found.first == {"normalize": 2}
    assert all(each.why.startswith("nothing but the rounding") for each in found.files)
    assert compare(CLIP, "front_ends:by_names", photos, tolerance=1e-5).equal


def test_patches_in_another_order_are_a_layout(folder):
    def row_by_row(data):
        made = headrace.preprocess(data, "qwen2-vl")
        _, down, across = made["image_grid_thw"][0]
        squares = made["pixel_values"].reshape(down // 2, across // 2, 2, 2, -1)
        return {**made, "pixel_values": squares.transpose(0, 2, 1, 3, 4).reshape(down * across, -1)}

    found = compare("transformers:qwen2-vl", row_by_row, folder("jpeg-420.jpg"))
    assert found.first == {"layout": 1}
    assert found.files[0].why == "patches row by row, not in merged squares (exactly)"


def test_another_tensor_than_the_main_one_is_compared_too(photos):
    def with_another_grid(data):
        made = headrace.preprocess(data, "qwen2-vl")
        return {**made, "image_grid_thw": made["image_grid_thw"] + 1}

    found = compare("transformers:qwen2-vl", with_another_grid, photos)
    assert {each.why for each in found.files} == {"image_grid_thw differs, and pixel_values does not"}


@pytest.mark.parametrize(
    ("function", "wording"),
    [
        ("of_one_size", "pixel_values is 1x3x100x100 float32 in place of 1x3x224x224 float32; answer the shape of"),
        ("text", "it answers str, which is no tensor of numbers; answer an array"),
        ("another_name", "it answers pixels; answer pixel_values, or one tensor"),
        ("raises", "ValueError: no such pixel"),
        ("ends", "ended its process; run it alone on this file"),
        ("sleeps", "took more than 1 s; give --timeout-s a larger number"),
    ],
)
def test_a_function_that_fails_says_why_and_the_other_inputs_go_on(function, wording, photos):
    found = compare(CLIP, f"failing_front_ends:{function}", photos, timeout_s=1 if function == "sleeps" else 60)
    assert found.count("failed") == 2 and not found.equal
    assert all(wording in each.why and "\n" not in each.why for each in found.files)


def test_one_input_that_fails_ends_no_other(photos):
    found = compare(CLIP, "failing_front_ends:fails_for_png", photos)
    assert {each.file: each.result for each in found.files} == {"jpeg-420.jpg": "differs", "rgb.png": "failed"}


@pytest.mark.parametrize(
    ("candidate", "wording"),
    [
        ("opencw", "did you mean opencv"),
        ("headrace:hw", "choose from headrace:sw_emu and headrace:hw_emu"),
        ("failing_front_ends:missing", "module failing_front_ends has no missing"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("failing_front_ends:NOT_CALLABLE", "is int; name a function"),
    ],
)
def test_a_candidate_that_is_not_there(candidate, wording, photos):
    with pytest.raises(UsageError, match=re.escape(wording)):
        compare(CLIP, candidate, photos)


def test_the_prints_of_a_function_do_not_reach_stdout(photos, capfd):
    assert compare(CLIP, "failing_front_ends:zeros", photos).count("failed") == 0
    assert capfd.readouterr().out == ""


# ---- a URL ----


def npy(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def npz(values):
    file = io.BytesIO()
    np.savez(file, pixel_values=values)
    return file.getvalue()


def inference_protocol(values):
    output = {"name": "pixel_values", "datatype": "FP32", "shape": values.shape, "data": values.ravel().tolist()}
    return json.dumps({"model_name": "m", "outputs": [output]}).encode()


@contextmanager
def served(answer, status=200):
    """Serve what `answer` makes of a file's bytes, and yield the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/infer"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("form", [npy, npz, inference_protocol])
def test_a_url_answers_tensors(form, photos):
    reference = Reference(CLIP)
    with served(lambda data: form(reference.tensors(data)["pixel_values"])) as url:
        assert compare(CLIP, url, photos).equal


@pytest.mark.parametrize(
    ("answer", "status", "wording"),
    [
        (b"hello", 200, "its answer begins with b'hello'; answer a .npy file"),
        (b"\x93NUMPY\x01", 200, "its answer cannot be read"),
        (b'{"error": "busy"}', 200, "its answer cannot be read"),
        (b"out of work", 503, "answers 503 Service Unavailable: out of work"),
    ],
)
def test_a_url_that_answers_no_tensor(answer, status, wording, photos):
    with served(lambda data: answer, status) as url:
        found = compare(CLIP, url, photos)
    assert found.count("failed") == 2 and all(wording in each.why for each in found.files)


def test_a_url_where_nobody_listens(photos):
    with served(lambda data: b"") as url:
        pass
    found = compare(CLIP, url, photos)
    assert all("start the server, or name another URL" in each.why for each in found.files)


def test_a_url_that_is_late(photos):
    late = threading.Event()
    with served(lambda data: bytes(late.wait(20))) as url:
        found = compare(CLIP, url, photos, timeout_s=0.3)
        late.set()
    assert all("took more than 0.3 s; give --timeout-s a larger number" in each.why for each in found.files)


# ---- the emulated DPU ----


@pytest.mark.parametrize("target", ["sw_emu", pytest.param("hw_emu", marks=pytest.mark.slow)])
def test_the_emulated_dpu_is_equal_and_says_what_the_cpu_did(target, photos):
    found = by_file(compare(CLIP, f"headrace:{target}", photos))
    assert {each.result for each in found.values()} == {"equal"}
    assert found["jpeg-420.jpg"].note is None
    assert found["rgb.png"].note == "the CPU did it: the file is no JPEG file"


# ---- audio ----


def test_another_resampler_is_found_at_resample(folder):
    inputs = folder("voice-48k-24bit.wav", "voice-8bit.wav", "stereo-one-side.wav")
    found = compare(WHISPER, "headrace", inputs, tolerance=1e-3)
    results = {each.file: (each.result, each.first) for each in found.files}
    assert results == {
        "stereo-one-side.wav": ("equal", None),
        "voice-48k-24bit.wav": ("differs", "resample"),
        "voice-8bit.wav": ("equal", None),
    }


@pytest.mark.parametrize(
    ("change", "stage", "wording"),
    [
        (lambda samples, rate: (samples[:, 0], rate), "convert", "the first channel alone"),
        (lambda samples, rate: (32768 * samples.mean(1), rate), "decode", "16-bit integers"),
        (lambda samples, rate: (samples.mean(1), 16000), "resample", "the rate is ignored"),
    ],
)
def test_the_stage_of_audio_that_explains_the_features_is_named(change, stage, wording, folder):
    import soundfile
    import soxr

    extractor = transformers.WhisperFeatureExtractor()

    def features(data):
        samples, rate = change(*soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True))
        samples = samples if rate == 16000 else soxr.resample(samples, rate, 16000, "HQ")
        return extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"]

    found = compare(WHISPER, features, folder("voice-44k-stereo.wav"))
    assert found.first == {stage: 1} and found.files[0].why.startswith(wording)


def test_features_with_their_axes_exchanged_are_a_layout(folder):
    reference = Reference(WHISPER)
    found = compare(
        WHISPER, lambda data: reference.tensors(data)["input_features"].transpose(0, 2, 1), folder("voice-8bit.wav")
    )
    assert found.files[0].why == "bands and frames are exchanged (exactly)"


def test_a_candidate_for_images_is_refused_for_audio(folder):
    with pytest.raises(UsageError, match="opencv: it is for images, and WhisperFeatureExtractor takes audio"):
        compare(WHISPER, "opencv", folder("click.wav"))


# ---- inputs, the effect and the outcome ----


def test_what_transformers_refuses_is_counted_and_no_difference(folder):
    inputs = folder("jpeg-420.jpg")
    (inputs / "text.png").write_text("no image")
    found = compare(CLIP, "headrace", inputs)
    assert found.equal and found.count("refused") == 1
    assert by_file(found)["text.png"].why.startswith("CLIPImageProcessor: ")


@pytest.mark.parametrize(("name", "wording"), [("missing", "No such file or directory"), (".", "it holds no .jpg")])
def test_inputs_that_are_not_there(name, wording, tmp_path):
    with pytest.raises(UsageError, match=re.escape(wording)):
        compare(CLIP, "headrace", tmp_path / name)


def test_the_effect_on_a_network_is_its_first_class_and_its_logits(photos):
    found = compare(CLIP, front_ends.bgr, photos, model="front_ends:Net")
    reference = Reference(CLIP)
    for each in found.files:
        theirs = reference.tensors((photos / each.file).read_bytes())["pixel_values"].mean((0, 2, 3))
        ours = front_ends.bgr((photos / each.file).read_bytes()).mean((0, 2, 3))
        change = abs((ours[0] - ours[2]) - (theirs[0] - theirs[2]))
        assert each.effect.max == pytest.approx(change, rel=1e-3)
        assert each.effect.distance == pytest.approx(np.sqrt(2) * change, rel=1e-3)
        assert each.effect.flips == int((ours[0] > ours[2]) != (theirs[0] > theirs[2]))
    assert found.effect["files"] == 2


@pytest.mark.parametrize(
    ("model", "wording"),
    [("failing_front_ends:NOT_CALLABLE", "is int; name a torch module"), ("failing_front_ends:raises", "fails: ")],
)
def test_a_network_that_is_none(model, wording, photos):
    with pytest.raises(UsageError, match=wording):
        compare(CLIP, "headrace", photos, model=model)


def test_the_front_door_has_it(photos, tmp_path):
    found = headrace.compare(CLIP, "dali-like", photos)
    assert isinstance(found, headrace.Comparison) and found.first == {"decode": 1}
    found.write_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8").startswith("<!doctype html>")
