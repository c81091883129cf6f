"""A front end for Whisper, a model that only transcribes: it makes the prompts of a sound, with ready features.

A sound that is longer than the model hears becomes several prompts. Each cut is at the quietest place of the last
second before the limit, where vLLM cuts, too. A prompt is as in vLLM: special tokens for language and task. If a
request names no language, the engine chooses one after the first piece.
"""

import asyncio
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import soundfile
from numpy.typing import NDArray

from headrace.batching import BadInput, HeadraceError, UsageError
from headrace.host.adapters.render.audio import Audio
from headrace.host.adapters.render.engine import Engine
from headrace.host.adapters.render.media import AUDIO, audio_as_vllm_reads
from headrace.host.adapters.render.medium import Maker, Rendered, files_of
from headrace.host.adapters.render.prompt import Prompts
from headrace.host.adapters.render.request import Prompt, Written, defaults_of, written
from headrace.host.adapters.render.transcription import Transcription
from headrace.host.dpu.reference import audio, audio_file
from headrace.host.dpu.specs import AudioSpec

QUIET: Final = 1600  # samples of a place that may be the quietest
SEARCHED_S: Final = 1.0  # before the limit
START: Final = "<|startoftranscript|>"
CODE: Final = re.compile(r"<\|([a-z]{2,3})\|>")
WITHOUT_SPACES: Final = ("ja", "zh")  # languages whose pieces are joined without a space
SAMPLE_LANGUAGE: Final = "en"


@dataclass(frozen=True, slots=True)
class Prompted:
    """The prompts of a sound.

    Attributes:
        prompts: Requests to the engine.
        seconds: The length of the sound.
        joint: What goes between the texts of two answers.
    """

    prompts: Sequence[Prompt]
    seconds: float
    joint: str


class Speech:
    """A front end for an engine whose model transcribes. Use it as an async context manager."""

    def __init__(
        self, engine: Engine, model: str, prompts: Prompts, rendered: Mapping[str, Any], maker: Maker, longest_s: float
    ) -> None:
        """Store the settings.

        Args:
            engine: The engine.
            model: The name of its model.
            prompts: The tokenizer of the model.
            rendered: What the engine renders of `first_sample`.
            maker: How features are made.
            longest_s: Longest sound, which may be cut into pieces.

        Raises UsageError: The model is not one that is known here.
        """
        self._engine = engine
        self._model = model
        self._prompts = prompts
        self._maker = maker
        self._longest_s = longest_s
        self._first = rendered
        self._stack = AsyncExitStack()
        self._languages = {
            match[1]: number for text, number in prompts.special() if (match := CODE.fullmatch(text)) is not None
        }
        if START not in dict(prompts.special()) or SAMPLE_LANGUAGE not in self._languages:
            raise UsageError(f"--model {maker.folder}: its tokenizer is not that of Whisper")

    async def __aenter__(self) -> "Speech":
        answers = [self._first]
        for content in Audio.samples()[1:]:
            answers.append(await self._engine.rendered_speech(self._model, SAMPLE_LANGUAGE, files_of(content)[0]))
        self._defaults = defaults_of(self._first)
        if self._tokens("", SAMPLE_LANGUAGE, "transcribe") != list(self._first["token_ids"]):
            raise UsageError(
                f"--model {self._maker.folder}: its tokenizer gives other tokens than the engine's; name the folder of "
                "the model that the engine serves"
            )
        async with AsyncExitStack() as stack:
            rendered = [Rendered.of(answer, AUDIO) for answer in answers]
            self.audio = await stack.enter_async_context(Audio(rendered, self._maker))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def prompted(self, wanted: Transcription) -> Prompted:
        """Return the prompts of a request.

        Raises BadInput, CorruptInput and other errors of an input, and EngineGone and EngineRefused."""
        if wanted.language is not None and wanted.language not in self._languages:
            raise BadInput(f"language is {wanted.language!r}; give one of {', '.join(sorted(self._languages))}")
        try:
            files, seconds = await asyncio.to_thread(self._pieces, wanted.data)
            items = [await self._written(data) for data in files]
        except HeadraceError as error:
            raise type(error)(f"file: {error}") from error
        language = wanted.language or await self._language(items[0])
        tokens = await asyncio.to_thread(self._tokens, wanted.prompt, language, wanted.task)
        settings = {**self._defaults, **wanted.sampling}
        prompts = [self._request(tokens, item, settings, wanted.stream) for item in items]
        return Prompted(prompts, seconds, "" if language in WITHOUT_SPACES else " ")

    def _pieces(self, data: bytes) -> tuple[list[bytes], float]:
        """Return the files of the pieces of a sound, and its length in seconds."""
        spec = self.audio.spec
        read = audio_as_vllm_reads(data, self._longest_s)
        frames, rate = audio_file.length(read, spec.rates)
        if not frames:
            raise BadInput("the audio has no samples; send at least one")
        if frames <= min(spec.longest_s, self._longest_s) * rate:
            return [read], frames / rate
        samples = audio.resample(*audio_file.decode(read, spec.rates, self._longest_s), spec)
        return [_file(each, spec) for each in cut(samples, round(spec.longest_s * spec.rate), spec.rate)], frames / rate

    async def _written(self, data: bytes) -> Written:
        ready = await self.audio.ready(data)
        return await asyncio.to_thread(written, ready, self.audio.forms)

    async def _language(self, item: Written) -> str:
        """Return the language that the engine finds in a sound."""
        settings = {"temperature": 0.0, "max_tokens": 1, "allowed_token_ids": sorted(self._languages.values())}
        request = self._request([self._prompts.number_of(START)], item, settings, stream=False)
        generated = await self._engine.generate(request)
        found = generated["choices"][0]["token_ids"][0]
        return next(language for language, number in self._languages.items() if number == found)

    def _tokens(self, prompt: str, language: str, task: str) -> list[int]:
        before = f"{START}<|prev|>{prompt}" if prompt else ""  # vLLM begins each prompt with START
        return self._prompts.tokens_of(f"{before}{START}<|{language}|><|{task}|><|notimestamps|>")

    def _request(self, tokens: Sequence[int], item: Written, settings: Mapping[str, Any], stream: bool) -> Prompt:
        body = {
            "model": self._model,
            "stream": stream,
            "output_mode": "text",
            "token_ids": tokens,
            "sampling_params": settings,
        }
        return Prompt.of(body, {AUDIO: [item]}, {AUDIO: [{"offset": 0, "length": item.length}]})


def cut(samples: NDArray[np.float32], limit: int, rate: int) -> list[NDArray[np.float32]]:
    """Return the pieces of samples, shape (n,), each of at most `limit` samples at `rate` Hz."""
    pieces = []
    searched = int(SEARCHED_S * rate)
    while len(samples) > limit:
        places = np.arange(limit - searched, limit - QUIET, QUIET)
        loudness = [np.square(samples[at : at + QUIET]).mean() for at in places]
        end = int(places[int(np.argmin(loudness))])
        pieces.append(samples[:end])
        samples = samples[end:]
    return [*pieces, samples]


def _file(samples: NDArray[np.float32], spec: AudioSpec) -> bytes:
    """Return a WAV file of samples, of 16 bits if they are such, which the DPU takes."""
    scaled = samples * np.float32(32768)
    of_16_bits = bool(((scaled == np.rint(scaled)) & (scaled >= -32768) & (scaled <= 32767)).all())
    file = io.BytesIO()
    values, kind = (scaled.astype(np.int16), "PCM_16") if of_16_bits else (samples, "FLOAT")
    soundfile.write(file, values, spec.rate, kind, format="WAV")
    return file.getvalue()
