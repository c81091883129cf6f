"""The front end before Whisper in vLLM gives it the tokens and features of transcriptions that it would make."""

import asyncio
import io
import json

import aiohttp
import numpy as np
import pytest
import soundfile
from chats import MODEL, SOUNDS, chat, voice
from engine_double import WORDS, WhisperDouble, digest
from fronts import assert_same_features, counts, front_of, openais_client, refused, with_front
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from tiny_qwen2_vl import qwen2_vl
from tiny_whisper import whisper

from headrace.batching import BadInput, UsageError
from headrace.host.adapters.render.front import Limits
from headrace.host.adapters.render.speech import QUIET, cut
from headrace.host.adapters.render.transcription import read_transcription


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return whisper(tmp_path_factory.mktemp("model"))


async def transcribed(post, data, task="transcriptions", **fields):
    """Send a request, and return the status and the answer."""
    form = aiohttp.FormData({"model": MODEL, **fields})
    if data is not None:
        form.add_field("file", data, filename="a.wav")
    async with post.session.post(f"/v1/audio/{task}", data=form) as response:
        return response.status, await response.text()


ASKED = {
    "a language": ({"language": "de"}, ("de", "transcribe", "")),
    "a text before": ({"language": "en", "prompt": "It was"}, ("en", "transcribe", "It was")),
    "a language to be found": ({}, ("cy", "transcribe", "")),
    "a translation": ({"task": "translations", "language": "ja"}, ("ja", "translate", "")),
}


def test_the_engine_gets_the_tokens_and_features_that_it_would_make(folder):
    async def body(post, double):
        for data in (SOUNDS["WAV"], SOUNDS["FLAC"], SOUNDS["WAV of two channels"]):
            for fields, expected in ASKED.values():
                status, text = await transcribed(post, data, **fields)
                assert status == 200 and json.loads(text)["text"].startswith("".join(WORDS))
                assert_same_features(double.requests[-1], double.rendered(data, *expected))
        assert (await counts(post.session, "sounds"))["cpu"] >= 12

    with_front(folder, body, WhisperDouble(folder))


@pytest.mark.filterwarnings("ignore:deprecated")  # by the client's own code
def test_openais_client_gets_transcriptions_whole_and_streamed(folder):
    async def run():
        double = WhisperDouble(folder)
        async with (
            front_of(folder, double) as url,
            openais_client(url) as client,
        ):
            asked = {"model": MODEL, "file": ("a.wav", SOUNDS["WAV"]), "language": "en"}
            whole = await client.audio.transcriptions.create(**asked)
            assert whole.text == "".join(WORDS) + digest(double.requests[-1]) and whole.usage.seconds == 2
            assert await client.audio.transcriptions.create(**asked, response_format="text") == whole.text
            events = [each async for each in await client.audio.transcriptions.create(**asked, stream=True)]
            assert {each.type for each in events[:-1]} == {"transcript.text.delta"}
            assert "".join(each.delta for each in events[:-1]) == events[-1].text == whole.text
            assert events[-1].type == "transcript.text.done"
            asked.pop("language")
            found = await client.audio.translations.create(**asked, temperature=0.5)
            assert found.text.startswith("".join(WORDS))
            assert double.requests[-1]["sampling_params"] == {"top_k": 0, "temperature": 0.5}

    asyncio.run(run())


def test_a_long_sound_becomes_several_prompts_whose_texts_are_joined(folder):
    file = io.BytesIO()
    samples = np.random.default_rng(1).integers(-9000, 9000, 70 * 16000).astype(np.int16)
    samples[470400:472000] = 0  # 29.4 s
    soundfile.write(file, samples, 16000, format="WAV")

    async def body(post, double):
        double.requests.clear()
        status, text = await transcribed(post, file.getvalue(), language="en")
        assert status == 200
        assert json.loads(text)["text"] == " ".join("".join(WORDS) + digest(each) for each in double.requests)
        assert json.loads(text)["usage"] == {"type": "duration", "seconds": 70}
        assert len(double.requests) == 3
        first = io.BytesIO()
        soundfile.write(first, samples[:470400], 16000, format="WAV")
        assert_same_features(double.requests[0], double.rendered(first.getvalue(), "en"))
        status, text = await transcribed(post, file.getvalue(), language="zh", stream="true")
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        assert events[-1]["text"] == "".join("".join(WORDS) + digest(each) for each in double.requests[3:])

    with_front(folder, body, WhisperDouble(folder))


@given(st.integers(1, 400_000), st.integers(0, 9))
@examples(30, 300)
def test_a_cut_loses_no_sample_and_is_at_a_quiet_place(count, seed):
    rate, limit = 16000, 48000
    samples = np.random.default_rng(seed).normal(size=count).astype(np.float32)
    pieces = cut(samples, limit, rate)
    assert np.array_equal(np.concatenate(pieces), samples)
    assert all(len(each) <= limit for each in pieces)
    assert all(limit - rate <= len(each) <= limit - QUIET for each in pieces[:-1])


# ---- Bad input

BAD = {
    "no file": (None, {}, "file is no file; send a WAV, FLAC or MP3 file"),
    "no sound": (b"text", {}, "file: neither a WAV nor a FLAC file"),
    "an empty file": (b"", {}, "file: it is empty"),
    "no samples": (voice(0), {}, "file: the audio has no samples"),
    "a damaged file": (SOUNDS["FLAC"][:300], {}, "file: libsndfile cannot decode it"),
    "a longer sound": (voice(3.1), {}, "file: the audio is 3.1 s long; cut it into pieces of at most 3 s"),
    "a language": (SOUNDS["WAV"], {"language": "xx"}, "language is 'xx'; give one of af, "),
    "a form of the answer": (SOUNDS["WAV"], {"response_format": "srt"}, "response_format is 'srt'; give json or text"),
    "no number": (SOUNDS["WAV"], {"temperature": "warm"}, "temperature is 'warm'; give a number"),
    "another field": (SOUNDS["WAV"], {"hotwords": "a"}, "'hotwords' is not possible here"),
    "what the engine refuses": (SOUNDS["WAV"], {"temperature": "-1"}, "temperature must be non-negative"),
}


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_bad_request_has_one_clear_error_and_the_rest_is_served(folder, stream):
    async def body(post, double):
        for data, fields, text in BAD.values():
            refused(await transcribed(post, data, stream=stream, **{"language": "en", **fields}), 400, text)
            assert (await transcribed(post, voice(1 / 16000), language="en"))[0] == 200
        refused(await transcribed(post, SOUNDS["WAV"], model="other"), 404, "there is no model 'other'")
        refused(await post(b"{}"), 400, "messages is no list")
        refused(await post(chat("a")), 400, "takes no chats; ask /v1/audio/transcriptions")
        async with post.session.post("/v1/audio/transcriptions", data=b"{") as response:
            refused((response.status, await response.text()), 400, "file is no file")

    with_front(folder, body, WhisperDouble(folder), limits=Limits(max_audio_s=3))


def test_a_model_that_chats_takes_no_transcriptions(tmp_path):
    async def body(post, double):
        refused(await transcribed(post, SOUNDS["WAV"]), 400, "the model tiny takes chats; ask /v1/chat/completions")

    with_front(qwen2_vl(tmp_path), body)


def test_an_engine_without_the_plugin_is_refused(folder):
    with pytest.raises(UsageError, match="with the plugin of Headrace and VLLM_PLUGINS=headrace"):
        with_front(folder, None, WhisperDouble(folder, scale_out=False))


def test_a_folder_of_another_model_is_refused(folder, tmp_path):
    with pytest.raises(UsageError, match="its tokenizer is not that of Whisper"):
        with_front(qwen2_vl(tmp_path), None, WhisperDouble(folder))
    double = WhisperDouble(folder)
    double.processor.feature_extractor.mel_filters *= 1.5
    with pytest.raises(UsageError, match="of input_features differ from the engine's"):
        with_front(folder, None, double)


def test_an_engine_that_leaves_is_told(folder):
    async def body(post, double):
        double.fault = "gone"
        status, text = await transcribed(post, SOUNDS["WAV"], language="en", stream="true")
        events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
        assert status == 200 and events[-1]["error"]["code"] == 503
        assert [each["delta"] for each in events[:-1]] == WORDS[:3]

    with_front(folder, body, WhisperDouble(folder))


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_client_that_leaves_ends_the_engines_work(folder, stream):
    async def body(post, double):
        double.fault = "slow"
        request = asyncio.create_task(transcribed(post, SOUNDS["WAV"], language="en", stream=stream))
        while not double.requests:
            await asyncio.sleep(0.01)
        request.cancel()
        await double.cancelled.wait()

    with_front(folder, body, WhisperDouble(folder))


@given(
    st.dictionaries(st.sampled_from(["file", "language", "stream", "seed", "temperature", "x"]), st.text(max_size=5))
)
@examples(100, 1000)
def test_any_form_is_read_or_bad(form):
    with pytest.raises(BadInput):
        read_transcription(form, "transcribe")
    try:
        read_transcription({**form, "file": b"a"}, "transcribe")
    except BadInput as error:
        assert str(error)
