"""Test `headrace preprocess image --processor`: the tensors of transformers in files, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import transformers
from command import headrace_here
from PIL import Image
from sounds import int16, speechlike, wav

import headrace.host.workers.networks.models  # noqa: F401 (defines operators that torchvision needs)
from headrace.host.dpu.hugging_face.names import audio_names, config, names

CHELSEA = Path(__file__).parents[3] / "examples" / "chelsea.jpg"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with a photo, the same one on its side, and a file that is no image."""
    monkeypatch.chdir(tmp_path)
    image = Image.open(CHELSEA)
    exif = Image.Exif()
    exif[0x0112] = 8
    image.save("cat.png")
    image.save("turned.jpg", exif=exif)
    Path("text.jpg").write_text("no image")
    return tmp_path


def loaded(path: str) -> Image.Image:
    from transformers.image_utils import load_image  # here, because it imports torch and torchvision

    return load_image(path)


def preprocess(*arguments, status: int = 0):
    done = headrace_here("preprocess", "image", *arguments, "--out", "tensors")
    assert done.returncode == status, done.stderr
    return done


def test_a_file_of_tensors_is_what_transformers_makes():
    done = preprocess("cat.png", "turned.jpg", "--processor", "pixtral-12b")
    theirs = transformers.PixtralImageProcessor()
    for name in ("cat.png", "turned.jpg"):
        expected = theirs(loaded(name), return_tensors="np")
        found = np.load(f"tensors/{Path(name).stem}.npz")
        assert set(found) == {"pixel_values", "image_sizes"}
        assert all(np.array_equal(found[key], expected[key]) for key in found)
    on_cpu, on_dpu = done.stdout.splitlines()
    assert on_cpu == (
        "cat.png: tensors/cat.npz pixel_values 1x3x304x464 float32, image_sizes 1x2 int64 by cpu "
        "(not for the DPU: the file is no JPEG file)"
    )
    assert re.fullmatch(
        "turned.jpg: tensors/turned.npz pixel_values 1x3x464x304 float32, image_sizes 1x2 int64 by image_cu_., "
        "turned by Exif orientation 8",
        on_dpu,
    )


def test_the_engine_chooses_the_library():
    preprocess("cat.png", "--processor", "siglip-base-patch16-224")
    of_torchvision = np.load("tensors/cat.npz")["pixel_values"]
    preprocess("cat.png", "--processor", "siglip-base-patch16-224", "--engine", "pillow12")
    of_pillow = np.load("tensors/cat.npz")["pixel_values"]
    assert not np.array_equal(of_torchvision, of_pillow) and np.abs(of_torchvision - of_pillow).max() < 0.02


def test_the_type_and_the_order_of_the_values_can_be_chosen():
    preprocess(str(CHELSEA), "--processor", "siglip-base-patch16-224", "--dtype", "float16", "--channels-last")
    theirs = transformers.SiglipImageProcessor()(loaded(str(CHELSEA)), return_tensors="np")["pixel_values"]
    found = np.load("tensors/chelsea.npz")["pixel_values"]
    assert found.dtype == np.float16
    assert np.array_equal(found, np.moveaxis(theirs, 1, -1).astype(np.float16))
    preprocess(str(CHELSEA), "--processor", "siglip-base-patch16-224", "--dtype", "bfloat16")
    assert np.load("tensors/chelsea.npz")["pixel_values"].shape == (1, 3, 224, 224)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processor", "qwen2-vl", "--channels-last"], "makes patches, whose channels have their place"),
        (["--processor", "vit-base-patch16-224", "--dtype", "int8"], "there is no dtype 'int8'"),
        (["--dtype", "bfloat16"], "tensor type 'bfloat16' is not one of"),
        (["--channels-last"], "give --processor too"),
    ],
)
def test_types_and_orders_that_are_none_are_refused(options, message):
    assert message in preprocess("cat.png", *options, status=2).stderr


def test_a_processor_may_be_a_file_or_the_folder_of_a_model():
    Path("model").mkdir()
    Path("model/preprocessor_config.json").write_text(json.dumps(config("vit-base-patch16-224")))
    preprocess("cat.png", "--processor", "vit-base-patch16-224")
    expected = np.load("tensors/cat.npz")["pixel_values"]
    for path in ("model", "model/preprocessor_config.json"):
        preprocess("cat.png", "--processor", path)
        assert np.array_equal(np.load("tensors/cat.npz")["pixel_values"], expected)


@pytest.mark.parametrize("launch", ["single", "queue"])
def test_json_lists_the_tensors_and_the_unit(launch):
    done = preprocess("cat.png", str(CHELSEA), "turned.jpg", "--processor", "qwen2-vl", "--json", "--launch", launch)
    found = json.loads(done.stdout)
    outcome, on_dpu, turned = found.pop("files")
    for each, orientation in ((on_dpu, 1), (turned, 8)):
        assert each["unit"].startswith("image_cu_") and each["dpu_status"] == "OK"
        assert each["orientation"] == orientation
    expected = transformers.Qwen2VLImageProcessor()(loaded(str(CHELSEA)), return_tensors="np")
    of_dpu = np.load(on_dpu["output"])
    assert all(np.array_equal(of_dpu[key], expected[key]) for key in ("pixel_values", "image_grid_thw"))
    assert found == {"processor": "qwen2-vl", "class": "Qwen2VLImageProcessor", "engine": "torchvision"}
    assert outcome == {
        "file": "cat.png",
        "output": "tensors/cat.npz",
        "tensors": {
            "pixel_values": {"shape": [704, 1176], "dtype": "float32"},
            "image_grid_thw": {"shape": [1, 3], "dtype": "int64"},
        },
        "unit": "cpu",
        "dpu_status": None,
        "refused": "the file is no JPEG file",
        "out_of_service": None,
        "damage": None,
        "orientation": 1,
        "error": None,
    }
    assert np.load("tensors/turned.npz")["image_grid_thw"].tolist() == [[1, 32, 22]]


def test_a_bad_file_fails_alone():
    Path("cut.jpg").write_bytes(CHELSEA.read_bytes()[:9000])
    Image.new("L", (1, 400)).save("line.png")
    files = ("cat.png", "text.jpg", "cut.jpg", "line.png", "missing.jpg", "turned.jpg")
    done = preprocess(*files, "--processor", "qwen2-vl", status=1)
    assert sorted(path.name for path in Path("tensors").iterdir()) == ["cat.npz", "turned.npz"]
    for file, reason in {
        "text.jpg": "it is no image file of a known format; give one of JPEG, ",
        "cut.jpg": "TRUNCATED: the file ends before the image or the audio does; it is damaged: Premature end of JPEG",
        "line.png": "an image of 1x400 is too long for this processor",
        "missing.jpg": "No such file or directory",
    }.items():
        assert f"{file}: FAILED: {reason}" in done.stdout
    errors = [each["error"] for each in json.loads(preprocess(*files, *JSON, status=1).stdout)["files"]]
    assert [error is None for error in errors] == [True, False, False, False, False, True]


JSON = ("--processor", "qwen2-vl", "--json")


def test_damage_and_size_have_the_limits_of_the_options():
    photo = bytearray(CHELSEA.read_bytes())
    photo[9000:9060] = b"\xff\0" * 30
    Path("damaged.jpg").write_bytes(photo)
    assert "it is damaged: " in preprocess("damaged.jpg", "--processor", "qwen2-vl", status=1).stdout
    done = preprocess("damaged.jpg", "--processor", "qwen2-vl", "--damaged", "lenient")
    assert re.search(r" by cpu \(DPU: \w+\), damaged: Corrupt JPEG data", done.stdout)
    Image.new("1", (1500, 1000)).save("large.png")
    done = preprocess("large.png", "--processor", "qwen2-vl", "--max-megapixels", "1", status=1)
    assert "1500x1000 pixels, by its header, are more than --max-megapixels 1" in done.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--stage", "normalize"), "--stage: --processor says what is computed; leave out one of the two"),
        (("--resize-short", "256"), "--resize-short: --processor says what is computed"),
        (("--crop", "224", "224"), "--crop: --processor says what is computed"),
        (("--orient",), "--orient: --processor says what is computed"),
        (("--wave", "wave.vcd"), "--wave: sw_emu has no signals to show; use --target hw_emu"),
        (("--processor", "qwen2vl"), "there is no processor 'qwen2vl'; did you mean qwen2-vl"),
        (("--processor", "list"), "known are aria, clip-vit-base-patch32, "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_option_that_contradicts_the_processor_is_refused_by_name(options, told):
    done = preprocess("cat.png", "--processor", "qwen2-vl", *options, status=2)
    assert done.stderr.startswith("headrace: ") and told in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == "" and not Path("tensors").exists()


def test_without_the_cpu_what_no_unit_does_fails_alone():
    done = preprocess("cat.png", str(CHELSEA), "--processor", "clip-vit-base-patch32", "--fallback", "raise", status=1)
    assert "cat.png: FAILED: the file is no JPEG file" in done.stdout
    assert "pixel_values 1x3x224x224 float32 by image_cu_" in done.stdout


def test_an_engine_is_for_processors():
    done = preprocess("cat.png", "--engine", "pillow13", status=2)
    assert "--engine: it says how an image processor computes; give --processor too" in done.stderr


def test_no_file_that_can_be_read_is_bad_usage():
    done = preprocess("missing.jpg", "--processor", "qwen2-vl", status=2)
    assert "FILES missing.jpg: No such file or directory" in done.stderr


def test_the_list_has_every_known_model():
    done = headrace_here("preprocess", "processors")
    of_images, of_audio = done.stdout.split("\n\n")
    rows = dict(line.split(maxsplit=1) for line in of_images.splitlines() if not line.startswith(" "))
    assert done.returncode == 0 and set(rows) == {"name", *names()}
    assert rows["name"].split() == ["class", "size", "pixel_values", "of", "2048x1536"]
    tiles = ["GotOcr2", "1 to 12 tiles of 448x448", "13x3x448x448 float32"]
    assert re.split(r"  +", rows["internvl3"].strip()) == tiles
    found = json.loads(headrace_here("preprocess", "processors", "--json").stdout)
    assert found["image"] == {"width": 2048, "height": 1536}
    assert [row["name"] for row in found["processors"]] == list(names())
    qwen = next(row for row in found["processors"] if row["name"] == "qwen2-vl")
    assert qwen["tensors"]["pixel_values"] == {"shape": [110 * 146, 1176], "dtype": "float32"}
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in of_audio.splitlines()}
    assert set(lines) == {"name", *audio_names()} and lines["name"].split() == [
        "class",
        "tensors",
        "of",
        "10",
        "s",
        "of",
        "audio",
    ]
    assert re.split(r"  +", lines["whisper-tiny"].strip()) == ["Whisper", "input_features 1x80x3000 float32"]
    assert found["audio"] == {"seconds": 10} and found["feature_extractors"][0]["class"] == "ASTFeatureExtractor"


@pytest.fixture
def voice():
    """Return the features of transformers for a file, and the name of the file."""
    samples = int16(speechlike(1.3, 16000))
    Path("voice.wav").write_bytes(wav(samples, 16000))
    extractor = transformers.WhisperFeatureExtractor()
    made = extractor(samples.astype(np.float32) / 32768, sampling_rate=16000, return_tensors="np")
    return made["input_features"], "voice.wav"


def test_a_file_of_audio_has_the_features_of_transformers(voice):
    expected, file = voice
    done = headrace_here("preprocess", "audio", file, "--processor", "whisper-tiny", "--out", "tensors")
    units = "audio_mel_cu_1, audio_norm_cu_1"
    assert done.stdout == f"voice.wav: tensors/voice.npz input_features 1x80x3000 float32 by {units}\n"
    found = np.load("tensors/voice.npz")
    assert list(found) == ["input_features"] and np.abs(found["input_features"] - expected).max() < 1e-4
    options = ("--processor", "whisper-tiny", "--dtype", "float16", "--json")
    done = headrace_here("preprocess", "audio", file, *options, "--out", "tensors")
    report = json.loads(done.stdout)
    assert report["processor"] == "whisper-tiny" and report["class"] == "WhisperFeatureExtractor"
    (outcome,) = report["files"]
    assert outcome["tensors"] == {"input_features": {"shape": [1, 80, 3000], "dtype": "float16"}}
    assert outcome["samples"] == 20800 and outcome["refused"] is None and outcome["unit"] == units
    assert np.abs(np.load("tensors/voice.npz")["input_features"] - expected).max() < 1e-3


def test_what_the_units_cannot_do_of_audio_is_told_in_a_sentence(voice):
    done = headrace_here("preprocess", "audio", voice[1], "--processor", "wav2vec2-base-960h", "--out", "tensors")
    refused = "(not for the DPU: Wav2Vec2FeatureExtractor: mel is False; the DPU takes True only)"
    assert done.stdout == f"voice.wav: tensors/voice.npz input_values 1x20800 float32 by cpu {refused}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processor", "whisper-tiny", "--mels", "80"], "--mels: --processor says what is computed; leave out one"),
        (["--processor", "whisper-tiny", "--stage", "mel"], "--stage: --processor says what is computed"),
        (["--processor", "whisper-tiny", "--preemphasis", "0"], "--preemphasis: --processor says what is computed"),
        (["--processor", "whisper-tiny", "--normalize-over", "all"], "--normalize-over: --processor says"),
        (["--processor", "qwen2-vl"], "qwen2-vl is for images, and audio is given; name a model that takes audio"),
        (["--processor", "wisper"], "there is no processor 'wisper'; did you mean whisper-tiny, whisper-small?"),
        (["--processor", "missing.json"], "missing.json: No such file or directory"),
    ],
)
def test_what_cannot_be_done_with_audio_is_one_line(options, message, voice):
    done = headrace_here("preprocess", "audio", voice[1], *options, "--out", "tensors")
    assert done.returncode == 2 and done.stderr.startswith(f"headrace: {message}") and done.stderr.count("\n") == 1


def test_a_model_of_audio_takes_no_images():
    done = preprocess("cat.png", "--processor", "whisper-tiny", status=2)
    assert done.stderr == (
        "headrace: whisper-tiny is for audio, and images are given; name a model that takes images\n"
    )
