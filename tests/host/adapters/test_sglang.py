"""Inputs of SGLang: the form that its processors take, with the tensors and the tokens of transformers.

The names of the form, inclusive offsets, and that an item of one image keeps its hash come from SGLang 0.5.23.
test_sglang_processors.py gives such inputs to SGLang's own processors."""

import pytest
import torch
import transformers
from prompts import LARGE, ONE_IMAGE, ONE_SOUND, SMALL, SOUND, TWO_IMAGES, qwen2_5_omni, qwen2_audio, qwen2_vl
from tiny_qwen2_vl import qwen2_vl as tiny_qwen2_vl
from tiny_qwen2_vl import tokenizer

import headrace
from headrace.batching import UsageError
from headrace.host.adapters.sglang import identity, item, runs, sglang_inputs

IMAGE_PAD = qwen2_vl().tokenizer.convert_tokens_to_ids("<|image_pad|>")
COMMON = {"format", "modality", "input_ids", "offsets"}
PIXELS = torch.arange(12, dtype=torch.float32).reshape(3, 4)


@pytest.mark.parametrize("text, images", [(ONE_IMAGE, [LARGE]), (TWO_IMAGES, [SMALL, LARGE])])
def test_an_item_has_the_tensors_of_transformers_and_where_each_image_is(text, images):
    theirs = qwen2_vl()(text=[text], images=images, return_tensors="pt")
    found = sglang_inputs(qwen2_vl(), text, images)
    assert set(found) == {"input_ids", "image_data"} and found["input_ids"] == theirs["input_ids"][0].tolist()
    (made,) = found["image_data"]
    assert made["format"] == "processor_output" and made["modality"] == "IMAGE"
    assert set(made) - {"hash"} == COMMON | {"pixel_values", "image_grid_thw"}
    assert made["input_ids"] == found["input_ids"]
    assert all(torch.equal(made[name], theirs[name]) for name in ("pixel_values", "image_grid_thw"))
    # A run has a place for each four patches of its image, and both of its ends belong to it.
    assert [last - first + 1 for first, last in made["offsets"]] == (made["image_grid_thw"].prod(1) // 4).tolist()
    held = [place for first, last in made["offsets"] for place in range(first, last + 1)]
    assert held == [place for place, token in enumerate(found["input_ids"]) if token == IMAGE_PAD]


def test_only_an_item_of_one_image_has_a_hash():
    (one,) = sglang_inputs(qwen2_vl(), ONE_IMAGE, [SMALL])["image_data"]
    (other,) = sglang_inputs(qwen2_vl(), ONE_IMAGE, [LARGE])["image_data"]
    (two,) = sglang_inputs(qwen2_vl(), TWO_IMAGES, [SMALL, LARGE])["image_data"]
    assert 0 <= one["hash"] < 1 << 64 and one["hash"] != other["hash"] and "hash" not in two


def test_sounds_have_an_item_of_their_own():
    theirs = qwen2_audio()(text=[ONE_SOUND], audio=[SOUND], return_tensors="pt", sampling_rate=16_000)
    found = sglang_inputs(qwen2_audio(), ONE_SOUND, audio=[SOUND], sampling_rate=16_000)
    (made,) = found["audio_data"]
    assert set(found) == {"input_ids", "audio_data"} and made["modality"] == "AUDIO"
    assert all(torch.equal(made[name], theirs[name]) for name in ("input_features", "feature_attention_mask"))
    ((first, last),) = made["offsets"]
    assert last - first + 1 == 25  # a second has 100 frames, and the encoder joins four


def test_images_and_sounds_of_one_prompt_keep_their_tensors_apart():
    found = sglang_inputs(qwen2_5_omni(), ONE_IMAGE + ONE_SOUND, [SMALL], [SOUND])
    (image,), (audio,) = found["image_data"], found["audio_data"]
    assert set(image) - COMMON - {"hash"} == {"pixel_values", "image_grid_thw"}
    assert set(audio) - COMMON - {"hash"} == {"input_features", "feature_attention_mask"}
    assert image["offsets"][0][1] < audio["offsets"][0][0]


def test_text_alone_has_no_items():
    assert set(sglang_inputs(qwen2_vl(), "hello")) == {"input_ids"}


def test_the_tensors_are_those_of_headrace_where_it_is_registered(tmp_path):
    folder = tiny_qwen2_vl(tmp_path / "tiny")
    expected = sglang_inputs(qwen2_vl(), ONE_IMAGE, [LARGE])
    headrace.register_processors()
    try:
        processor = transformers.AutoProcessor.from_pretrained(folder)
        found = sglang_inputs(processor, ONE_IMAGE, [LARGE])
    finally:
        headrace.unregister_processors()
    assert processor.image_processor.counts == {"dpu": 0, "cpu": 1, "library": 0}
    assert found["image_data"][0]["hash"] == expected["image_data"][0]["hash"]


@pytest.mark.parametrize(
    "other",
    [
        {"pixels": PIXELS},
        {"pixel_values": PIXELS.reshape(4, 3)},
        {"pixel_values": PIXELS.to(torch.float64)},
        {"pixel_values": PIXELS.to(torch.bfloat16)},
        {"pixel_values": PIXELS + (PIXELS == 7)},
        {"pixel_values": PIXELS, "image_grid_thw": torch.tensor([[1, 3, 4]])},
        {"pixel_values": [PIXELS, PIXELS]},
    ],
)
def test_another_tensor_has_another_identity(other):
    assert identity(other) != identity({"pixel_values": PIXELS})
    assert identity(other) == identity(dict(reversed(other.items())))


def test_the_identity_is_that_of_values_and_not_of_memory():
    assert identity({"a": PIXELS.T.contiguous().T}) == identity({"a": PIXELS})
    assert identity({"a": [PIXELS]}) == identity({"a": PIXELS}) and identity({"a": torch.tensor(1.0)}) >= 0


@pytest.mark.parametrize(
    "tokens, expected", [([], []), ([1], []), ([2], [(0, 0)]), ([1, 2, 2, 3, 2], [(1, 2), (4, 4)]), ([2, 2], [(0, 1)])]
)
def test_runs_have_both_ends(tokens, expected):
    assert runs(tokens, 2) == expected


def test_an_item_without_a_place_is_refused():
    with pytest.raises(UsageError, match="the text has no placeholder for the image; write it by apply_chat_template"):
        item("image", {"pixel_values": PIXELS}, [1, 2, 3], [])


def test_what_transformers_refuses_raises_its_own_error():
    with pytest.raises(ValueError, match="should be the same as the number of images"):
        sglang_inputs(qwen2_vl(), "hello", [SMALL])


def test_a_processor_without_a_placeholder_is_refused():
    processor = transformers.CLIPProcessor(transformers.CLIPImageProcessor(), tokenizer())
    with pytest.raises(UsageError, match="CLIPProcessor names no placeholder for the image; give a model that has one"):
        sglang_inputs(processor, "hello", [SMALL])
