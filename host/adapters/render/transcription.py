"""This module reads the requests of OpenAI's protocol for transcriptions and translations, and writes the answers.

A streamed answer has OpenAI's events: `transcript.text.delta` with each piece of text, and `transcript.text.done`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.batching import BadInput

TRANSCRIBE: Final = "transcribe"
TRANSLATE: Final = "translate"
FORMATS: Final = ("json", "text")
# Settings of the sampling that have the same name in vLLM, and their types.
SAMPLING: Final[Mapping[str, type]] = {
    **dict.fromkeys(("temperature", "top_p", "min_p", "frequency_penalty", "repetition_penalty"), float),
    **dict.fromkeys(("top_k", "seed"), int),
    "presence_penalty": float,
}
READ: Final = ("file", "model", "language", "prompt", "response_format", "stream", "max_completion_tokens")
# They change no token of an answer.
IGNORED: Final = ("user", "timestamp_granularities[]", "chunking_strategy", "include[]")


@dataclass(frozen=True, slots=True)
class Transcription:
    """A request.

    Attributes:
        data: The sound file.
        task: TRANSCRIBE or TRANSLATE.
        model: The name of the model that the client asks for, or None.
        language: The code of the language that is spoken, or None if the model is to find it.
        prompt: A text that goes before.
        response_format: One of FORMATS.
        sampling: Settings for vLLM's sampling that the client gave.
    """

    data: bytes
    task: str = TRANSCRIBE
    model: str | None = None
    language: str | None = None
    prompt: str = ""
    response_format: str = "json"
    stream: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)


def read_transcription(form: Mapping[str, str | bytes], task: str) -> Transcription:
    """Return the request in the fields of a form. Raises BadInput."""
    for key in form:
        if key not in READ and key not in SAMPLING and key not in IGNORED:
            raise BadInput(f"{key!r} is not possible here; leave it out, or ask the engine itself")
    data = form.get("file")
    if not isinstance(data, bytes):
        raise BadInput("file is no file; send a WAV, FLAC or MP3 file as multipart/form-data")
    texts = {key: value for key, value in form.items() if isinstance(value, str) and value}
    if (response_format := texts.get("response_format", "json")) not in FORMATS:
        raise BadInput(f"response_format is {response_format!r}; give {' or '.join(FORMATS)}")
    sampling: dict[str, Any] = {"temperature": 0.0}
    for key, kind in SAMPLING.items():
        if key in texts:
            sampling[key] = _number(key, texts[key], kind)
    if "max_completion_tokens" in texts:
        sampling["max_tokens"] = _number("max_completion_tokens", texts["max_completion_tokens"], int)
    return Transcription(
        data,
        task,
        model=texts.get("model"),
        language=texts.get("language"),
        prompt=texts.get("prompt", ""),
        response_format=response_format,
        stream=texts.get("stream", "false").lower() in ("true", "1"),
        sampling=sampling,
    )


def _number(key: str, text: str, kind: type) -> Any:
    try:
        value = kind(text)
        if math.isfinite(value):
            return value
    except ValueError:
        pass
    raise BadInput(f"{key} is {text!r}; give a number")


def answer_of(text: str, task: str, seconds: float) -> dict[str, Any]:
    """Return a whole answer. `seconds` is the length of the sound."""
    if task == TRANSLATE:
        return {"text": text}
    return {"text": text, "usage": {"type": "duration", "seconds": math.ceil(seconds)}}


def delta_of(text: str) -> dict[str, Any]:
    """Return the event for a piece of text."""
    return {"type": "transcript.text.delta", "delta": text}


def done_of(text: str) -> dict[str, Any]:
    """Return the event at the end, with the whole text."""
    return {"type": "transcript.text.done", "text": text}
