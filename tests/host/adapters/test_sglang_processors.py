"""SGLang's own processors take ready inputs, and make of them what they make of images and sounds.

`make test-sglang` makes the environment and runs these tests in it. No engine and no model runs in them.
"""

import asyncio
import io
import os
import subprocess
import sys
import types

import pytest
import soundfile
import torch
import transformers
from PIL import Image
from prompts import LARGE, ONE_IMAGE, ONE_SOUND, SMALL, SOUND, TWO_IMAGES, qwen2_audio, qwen2_vl
from tiny_qwen2_vl import qwen2_vl as tiny_qwen2_vl

import headrace
from headrace.host.adapters.sglang import sglang_inputs

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(600)]
REQUEST = types.SimpleNamespace(video_data=None, audio_data=None, rid="one", mm_content_hashes=None)


@pytest.fixture(scope="module")
def settings():
    """Provide the settings of a server, which SGLang's processors read from its process."""
    context = pytest.importorskip("sglang.srt.runtime_context", reason="make test-sglang has SGLang, and runs this")
    override = context.get_context().override_server_args(mm_process_config={})
    yield override.install()
    override.restore()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_qwen2_vl(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def vision(settings, folder):
    from sglang.srt.multimodal.processors.qwen_vl import QwenVLImageProcessor

    return QwenVLImageProcessor(transformers.AutoConfig.from_pretrained(folder), settings, qwen2_vl(), "default")


@pytest.fixture(scope="module")
def speech(settings):
    from sglang.srt.multimodal.processors.qwen_audio import Qwen2AudioMultimodalProcessor

    config = transformers.Qwen2AudioConfig()
    return Qwen2AudioMultimodalProcessor(config, settings, qwen2_audio(), "default")


def processed(processor, prompt, images=None, audio=None):
    """Return what a processor of SGLang hands to its scheduler, for raw inputs or for ready ones."""
    request = types.SimpleNamespace(**{**vars(REQUEST), "audio_data": audio})
    return asyncio.run(
        processor.process_mm_data_async(image_data=images, audio_data=audio, input_text=prompt, request_obj=request)
    )


def assert_same_items(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours.feature, theirs.feature)
        assert (ours.modality, ours.offsets) == (theirs.modality, theirs.offsets)
        assert ours.model_specific_data.keys() == theirs.model_specific_data.keys()
        for name, value in theirs.model_specific_data.items():
            assert torch.equal(torch.as_tensor(ours.model_specific_data[name]), torch.as_tensor(value))


@pytest.mark.parametrize("text, images", [(ONE_IMAGE, [LARGE]), (TWO_IMAGES, [SMALL, LARGE])])
def test_ready_images_become_what_sglang_makes_of_images(vision, text, images):
    expected = processed(vision, text, images)
    inputs = sglang_inputs(qwen2_vl(), text, images)
    found = processed(vision, inputs["input_ids"], inputs["image_data"])
    assert found.input_ids == expected.input_ids
    assert torch.equal(found.mrope_positions, expected.mrope_positions)
    assert torch.equal(found.mrope_position_delta, expected.mrope_position_delta)
    assert_same_items(found.mm_items, expected.mm_items)
    # The places of images, and no others, have numbers that are no tokens.
    places = {place for each in found.mm_items for first, last in each.offsets for place in range(first, last + 1)}
    for place, (padded, token) in enumerate(zip(found.padded_input_ids, found.input_ids, strict=True)):
        assert padded >= 1_000_000 if place in places else padded == token


def test_sglang_takes_the_hash_of_one_image(vision):
    inputs = sglang_inputs(qwen2_vl(), ONE_IMAGE, [SMALL])
    (found,) = processed(vision, inputs["input_ids"], inputs["image_data"]).mm_items
    assert found.hash == inputs["image_data"][0]["hash"]
    again = sglang_inputs(qwen2_vl(), "other text " + ONE_IMAGE, [SMALL])
    (same,) = processed(vision, again["input_ids"], again["image_data"]).mm_items
    other = sglang_inputs(qwen2_vl(), ONE_IMAGE, [LARGE])
    (different,) = processed(vision, other["input_ids"], other["image_data"]).mm_items
    assert same.pad_values == found.pad_values != different.pad_values


def test_sglang_tells_several_images_apart_itself(vision):
    inputs = sglang_inputs(qwen2_vl(), TWO_IMAGES, [SMALL, LARGE])
    first, second = processed(vision, inputs["input_ids"], inputs["image_data"]).mm_items
    inputs = sglang_inputs(qwen2_vl(), TWO_IMAGES, [SMALL, SMALL])
    third, fourth = processed(vision, inputs["input_ids"], inputs["image_data"]).mm_items
    assert first.pad_values != second.pad_values and first.pad_values == third.pad_values == fourth.pad_values


def test_ready_sounds_become_what_sglang_makes_of_sounds(speech, monkeypatch):
    # SGLang imports torchaudio when it reads a file, and needs it for other rates than that of the model.
    monkeypatch.setitem(sys.modules, "torchaudio", types.ModuleType("torchaudio"))
    held = io.BytesIO()
    soundfile.write(held, SOUND, 16_000, "FLOAT", format="WAV")
    expected = processed(speech, ONE_SOUND, audio=[held.getvalue()])
    inputs = sglang_inputs(qwen2_audio(), ONE_SOUND, audio=[SOUND], sampling_rate=16_000)
    found = processed(speech, inputs["input_ids"], audio=inputs["audio_data"])
    assert found.input_ids == expected.input_ids
    assert_same_items(found.mm_items, expected.mm_items)
    assert found.mm_items[0].hash == inputs["audio_data"][0]["hash"]


@pytest.mark.parametrize("target", ["cpu", "sw_emu"])
def test_images_of_the_dpu_become_what_sglang_makes_of_files(vision, folder, target):
    held = io.BytesIO()
    LARGE.save(held, "JPEG")
    headrace.register_processors(target)
    try:
        processor = transformers.AutoProcessor.from_pretrained(folder)
    finally:
        headrace.unregister_processors()
    with processor.image_processor:
        inputs = sglang_inputs(processor, ONE_IMAGE, [Image.open(io.BytesIO(held.getvalue()))])
        assert processor.image_processor.counts == {"dpu": 0, "cpu": 0, "library": 0} | {
            "dpu" if target == "sw_emu" else "cpu": 1
        }
    found = processed(vision, inputs["input_ids"], inputs["image_data"])
    expected = processed(vision, ONE_IMAGE, [held.getvalue()])
    assert found.input_ids == expected.input_ids
    assert_same_items(found.mm_items, expected.mm_items)


LOADED = """
import sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.utils.hf_transformers_utils import get_processor
from PIL import Image
processor = get_processor(sys.argv[1]).image_processor
processor(Image.new("RGB", (90, 70)), return_tensors="pt")
print(getattr(processor, "counts", None))
"""


def test_the_plugin_is_loaded_where_a_target_is_set(settings, folder):
    def counts(**more):
        command = [sys.executable, "-c", LOADED, folder]
        done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.splitlines()[-1]

    assert counts() == "None"
    assert counts(HEADRACE_TARGET="cpu") == "{'dpu': 0, 'cpu': 1, 'library': 0}"
