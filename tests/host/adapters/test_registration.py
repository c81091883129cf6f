"""With register_processors, the Auto classes of transformers make adapters, and existing code gets the same tensors."""

import json

import numpy as np
import pytest
import transformers
from equal import assert_same, model
from like_transformers import picture
from PIL import Image
from speech_front_ends import SOUNDS
from tokenizers import Tokenizer, models, pre_tokenizers

import headrace
from headrace.host.dpu.hugging_face.names import config

WORDS = ["<unk>", "<pad>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "what", "is", "this"]
TEXT = "what is <|vision_start|><|image_pad|><|vision_end|> this"
IMAGE = Image.fromarray(picture(300, 200))
DONE = {"dpu": 0, "cpu": 1, "library": 0}


@pytest.fixture
def registered():
    headrace.register_processors()
    yield
    headrace.unregister_processors()


def tokenizer():
    """Return a tokenizer of a few words, which needs no file."""
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", additional_special_tokens=WORDS[2:6]
    )


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """Return the folder of a processor of Qwen2-VL."""
    folder = tmp_path_factory.mktemp("qwen")
    images = transformers.Qwen2VLImageProcessor.from_dict(dict(config("qwen2-vl")))
    videos = transformers.Qwen2VLVideoProcessor()
    transformers.Qwen2VLProcessor(
        image_processor=images, tokenizer=tokenizer(), video_processor=videos
    ).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_vl"}))
    return folder


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """Return the folder of a processor of Whisper."""
    folder = tmp_path_factory.mktemp("whisper")
    extractor = transformers.WhisperFeatureExtractor()
    transformers.WhisperProcessor(feature_extractor=extractor, tokenizer=tokenizer()).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "whisper"}))
    return folder


def test_the_processor_of_qwen2_vl_gives_the_same_before_and_after(qwen, tmp_path):
    def called(processor):
        return processor(text=[TEXT], images=[IMAGE], return_tensors="pt")

    library = transformers.AutoProcessor.from_pretrained(qwen)
    expected = called(library)
    headrace.register_processors()
    try:
        processor = transformers.AutoProcessor.from_pretrained(qwen)
    finally:
        headrace.unregister_processors()
    assert isinstance(processor.image_processor, headrace.HeadraceImageProcessor)
    assert_same(called(processor), expected)
    assert processor.image_processor.counts == DONE
    assert str(processor) == str(library)
    processor.save_pretrained(tmp_path)
    assert (tmp_path / "processor_config.json").read_text() == (qwen / "processor_config.json").read_text()
    again = transformers.AutoProcessor.from_pretrained(qwen)
    assert type(again.image_processor) is transformers.Qwen2VLImageProcessor


def test_the_processor_of_whisper_gives_the_same_before_and_after(whisper):
    def called(processor):
        return processor(SOUNDS["voice"], sampling_rate=16000, return_tensors="np")

    expected = called(transformers.AutoProcessor.from_pretrained(whisper))
    headrace.register_processors()
    try:
        processor = transformers.AutoProcessor.from_pretrained(whisper)
    finally:
        headrace.unregister_processors()
    assert isinstance(processor.feature_extractor, headrace.HeadraceFeatureExtractor)
    assert_same(called(processor), expected, bound=1e-4)
    assert processor.feature_extractor.counts == DONE


def test_existing_code_gets_adapters(registered, tmp_path):
    made = transformers.AutoImageProcessor.from_pretrained(model(tmp_path, config("siglip-base-patch16-224")))
    assert isinstance(made, headrace.HeadraceImageProcessor) and isinstance(made, transformers.SiglipImageProcessor)
    made(IMAGE, return_tensors="pt")
    assert made.counts == DONE
    settings = {"feature_extractor_type": "WhisperFeatureExtractor"}
    extractor = transformers.AutoFeatureExtractor.from_pretrained(model(tmp_path / "audio", settings))
    assert isinstance(extractor, headrace.HeadraceFeatureExtractor)
    extractor(np.zeros(16000, np.float32), sampling_rate=16000)
    assert extractor.counts == DONE
    found, unused = transformers.AutoImageProcessor.from_pretrained(tmp_path, return_unused_kwargs=True, of_nobody=1)
    assert isinstance(found, headrace.HeadraceImageProcessor) and unused == {"of_nobody": 1}


def test_an_adapter_of_ones_own_has_its_own_target_and_counts(registered):
    made = headrace.HeadraceImageProcessor.from_pretrained("siglip-base-patch16-224")
    library = transformers.SiglipImageProcessor.from_dict(dict(config("siglip-base-patch16-224")))
    assert_same(made(IMAGE, return_tensors="pt"), library(IMAGE, return_tensors="pt"))
    assert made.counts == DONE and type(made).__mro__.count(headrace.HeadraceImageProcessor) == 1


def test_other_classes_stay_as_they_are(registered, tmp_path):
    made = transformers.AutoImageProcessor.from_pretrained(
        model(tmp_path, {"image_processor_type": "DPTImageProcessor"})
    )
    assert type(made) is transformers.DPTImageProcessor
    with pytest.raises(OSError, match="no-such-model"):
        transformers.AutoImageProcessor.from_pretrained("no-such-model", local_files_only=True)


def test_unregister_gives_the_methods_back(tmp_path):
    autos = (transformers.AutoImageProcessor, transformers.AutoFeatureExtractor)
    before = [auto.__dict__["from_pretrained"] for auto in autos]
    headrace.unregister_processors()
    for _ in range(2):
        headrace.register_processors()
    assert all(auto.__dict__["from_pretrained"] is not own for auto, own in zip(autos, before, strict=True))
    for _ in range(2):
        headrace.unregister_processors()
    assert [auto.__dict__["from_pretrained"] for auto in autos] == before


def test_a_bad_target_changes_nothing(tmp_path):
    with pytest.raises(headrace.UsageError, match="target is 'gpu'"):
        headrace.register_processors("gpu")
    made = transformers.AutoImageProcessor.from_pretrained(model(tmp_path, config("qwen2-vl")))
    assert type(made) is transformers.Qwen2VLImageProcessor


def test_the_target_holds_for_each_object(tmp_path):
    headrace.register_processors("sw_emu")
    try:
        made = transformers.AutoImageProcessor.from_pretrained(model(tmp_path, config("qwen2-vl")))
    finally:
        headrace.unregister_processors()
    IMAGE.save(tmp_path / "photo.jpg")
    with made, Image.open(tmp_path / "photo.jpg") as photo:
        made(photo, return_tensors="pt")
        assert made.counts == {"dpu": 1, "cpu": 0, "library": 0}
