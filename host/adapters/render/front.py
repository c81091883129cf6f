"""The front end: it makes the prompt of a chat, with ready features, and lets the engine generate.

When it opens, the engine renders a few samples, too. The front end learns from the answers how the engine wants
features. It opens only if its own tokens and features are then those of the engine.
"""

import asyncio
import base64
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from headrace.batching import BadInput, HeadraceError, UsageError
from headrace.host.adapters.render.audio import Audio
from headrace.host.adapters.render.chat import Chat
from headrace.host.adapters.render.engine import Engine, EngineRefused
from headrace.host.adapters.render.images import Images
from headrace.host.adapters.render.media import AUDIO, IMAGE, NOUNS, Source, fetched
from headrace.host.adapters.render.medium import Content, Maker, Medium, Rendered, files_of
from headrace.host.adapters.render.prompt import Places, Prompts, expanded
from headrace.host.adapters.render.request import MeasuredPrompts, Prompt, Written, defaults_of, written
from headrace.host.adapters.render.speech import SAMPLE_LANGUAGE, Prompted, Speech
from headrace.host.adapters.render.transcription import Transcription

T = TypeVar("T")

FETCH_S: Final = 20.0  # longest time to fetch a file
MAX_TOKENS: Final = 1 << 20  # of a prompt, for an engine that tells no limit
# Images and sounds of one chat that are worked on at a time. Units go to requests in the order in which they ask, so an
# image of another chat waits behind so many at most, and not behind all of a chat with 250.
AT_ONCE: Final = 8
MEDIA: Final = (Images, Audio)
MEASURED: Final = "The quick brown fox jumps over the lazy dog."  # of prompts by which the engine is measured

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a request.

    Attributes:
        max_items: Images and sounds.
        max_megapixels: Of an image.
        max_file_bytes: Of a file that is fetched.
        max_audio_s: Of a sound that is transcribed, in seconds.
        fetch: Whether files are fetched from other servers at all.
    """

    max_items: int = 256
    max_megapixels: int = 100
    max_file_bytes: int = 64 << 20
    max_audio_s: float = 600.0
    fetch: bool = False


class Front:
    """A front end for one engine. Use it as an async context manager.

    Attributes:
        model: The name of the engine's model.
        media: The media that the model takes, by their kind.
        speech: What makes the prompts of transcriptions, for a model that only transcribes. Others have None.
    """

    def __init__(self, engine: Engine, folder: Path, xclbin: Path | None, limits: Limits) -> None:
        """Store the settings.

        Args:
            engine: The engine, which is open.
            folder: The folder of the model that the engine serves.
            xclbin: The DPU's container. None makes all features on the CPU.
            limits: The limits of a request.
        """
        self.model = ""
        self.media: dict[str, Medium[Any]] = {}
        self.speech: Speech | None = None
        self._engine = engine
        self._folder = folder
        self._maker = Maker(folder, xclbin, limits.max_megapixels)
        self._limits = limits
        self._stack = AsyncExitStack()
        self._not_here: dict[str, str] = {}  # reasons why a medium of the engine is not made here

    async def __aenter__(self) -> "Front":
        async with AsyncExitStack() as stack:
            timeout = aiohttp.ClientTimeout(total=FETCH_S)
            self._session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # ---- Opening ----

    async def _open(self, stack: AsyncExitStack) -> None:
        self._prompts = await asyncio.to_thread(Prompts, self._folder)
        models = await self._engine.models()
        if not models:
            raise UsageError(f"the engine at {self._engine.url} serves no model")
        self.model = str(models[0]["id"])
        self._max_tokens = int(models[0].get("max_model_len") or MAX_TOKENS)
        try:
            rendered = await self._rendered(["a"])
        except EngineRefused as error:
            if error.status not in (403, 404):
                raise
            await self._open_speech(stack)
            return
        self._prompts.check_template()
        self._defaults = defaults_of(rendered)
        self._check_tokens(await self._tokens(_chat(["a"])), rendered["token_ids"])
        for medium in MEDIA:
            await self._open_medium(medium, stack)
        if self._not_here and not self.media:
            raise UsageError(next(iter(self._not_here.values())))
        for kind, why in self._not_here.items():
            _log.warning("%s are refused: %s", NOUNS[kind], why)

    async def _open_speech(self, stack: AsyncExitStack) -> None:
        """Learn from the engine how it wants the features of a sound that it transcribes. Raises UsageError."""
        (sample,) = files_of(Audio.samples()[0])
        try:
            rendered = await self._engine.rendered_speech(self.model, SAMPLE_LANGUAGE, sample)
        except EngineRefused as error:
            if error.status not in (403, 404, 405):
                raise
            raise UsageError(
                f"the engine at {self._engine.url} takes no features; start vLLM with --enable-scale-out, and for a "
                "model that only transcribes with the plugin of Headrace and VLLM_PLUGINS=headrace"
            ) from error
        made = Speech(self._engine, self.model, self._prompts, rendered, self._maker, self._limits.max_audio_s)
        self.speech = await stack.enter_async_context(made)
        self.media[AUDIO] = made.audio

    async def _open_medium(self, medium: type[Images] | type[Audio], stack: AsyncExitStack) -> None:
        """Learn from the engine how it wants the features of a medium, if its model takes such. Raises UsageError."""
        samples = await asyncio.to_thread(medium.samples)
        try:
            answers = await together([self._rendered(content) for content in samples])
        except EngineRefused as error:
            if error.status == 400:  # the model does not take them
                return
            raise
        rendered = [Rendered.of(answer, medium.kind) for answer in answers]
        try:
            made = medium(rendered, self._maker)
        except UsageError as error:
            self._not_here[medium.kind] = str(error)
            return
        self.media[medium.kind] = await stack.enter_async_context(made)
        for content, theirs in zip(samples, rendered, strict=True):
            tokens, _ = self._expanded(await self._tokens(_chat(content)), {medium.kind: theirs.lengths})
            self._check_tokens(tokens, theirs.tokens)

    async def _rendered(self, content: Content) -> dict[str, Any]:
        """Return what the engine renders of a message. Raises EngineRefused."""
        message = {"role": "user", "content": [_part(each) for each in content]}
        return await self._engine.rendered({"model": self.model, "messages": [message]})

    def _check_tokens(self, ours: Sequence[int], theirs: Sequence[int]) -> None:
        if list(ours) != list(theirs):
            raise UsageError(
                f"--model {self._folder}: its chat template gives other tokens than the engine's; "
                "name the folder of the model that the engine serves"
            )

    # ---- Requests ----

    def measured_prompts(self) -> MeasuredPrompts:
        """Return prompts of text, by which an engine is measured. Raises UsageError if it only transcribes."""
        if self.speech is not None:
            raise UsageError(f"--policy is for models that chat, and {self.model} only transcribes; leave it out")
        return MeasuredPrompts(self.model, self._prompts.tokens_of(MEASURED), self._defaults, self._max_tokens)

    async def prompt(self, chat: Chat) -> Prompt:
        """Return a request to the engine: tokens, features, and the settings of the sampling.

        Raises BadInput, CorruptInput and other errors of an input, with its place in the chat."""
        if self.speech is not None:
            raise BadInput(f"the model {self.model} takes no chats; ask /v1/audio/transcriptions")
        if len(chat.sources) > self._limits.max_items:
            raise BadInput(f"the chat has {len(chat.sources)} images and sounds; send at most {self._limits.max_items}")
        for source in chat.sources:
            if source.kind not in self.media:
                why = self._not_here.get(source.kind, f"the model {self.model} takes no {NOUNS[source.kind]}")
                raise BadInput(f"{source.place}: {why}")
        tokens = await self._tokens(chat)
        room = Room(self._max_tokens - len(tokens))
        turns = asyncio.Semaphore(AT_ONCE)
        items = await together([_in_turn(turns, self._written(source, room)) for source in chat.sources])
        by_kind = {
            kind: [each for source, each in zip(chat.sources, items, strict=True) if source.kind == kind]
            for kind in self.media
        }
        tokens, ranges = self._expanded(tokens, {kind: [each.length for each in of] for kind, of in by_kind.items()})
        body: dict[str, Any] = {
            "model": self.model,
            "stream": chat.stream,
            "output_mode": "text",
            "token_ids": tokens,
            "sampling_params": {**self._defaults, **chat.sampling},
            **chat.more,
        }
        if chat.stream:
            body["stream_options"] = {"include_usage": chat.include_usage}
        return Prompt.of(body, by_kind, ranges)

    async def transcription(self, wanted: Transcription) -> Prompted:
        """Return the prompts of a transcription.

        Raises BadInput, CorruptInput and other errors of an input, and EngineGone and EngineRefused."""
        if self.speech is None:
            raise BadInput(f"the model {self.model} takes chats; ask /v1/chat/completions")
        return await self.speech.prompted(wanted)

    async def _written(self, source: Source, room: "Room") -> Written:
        """Return the features of an image or a sound as text. Raises BadInput if its tokens do not fit into the room.

        Raises the errors of an input, with its place in the chat."""
        if source.url is not None and not self._limits.fetch:
            raise BadInput(f"{source.place}: files are not fetched here; give a data URL, or start with --fetch-urls")
        medium = self.media[source.kind]
        data = await fetched(source, self._session, self._limits.max_file_bytes)
        try:
            ready = await medium.ready(data)
        except HeadraceError as error:
            raise type(error)(f"{source.place}: {error}") from error
        room.take(ready.length, self._max_tokens)
        return await asyncio.to_thread(written, ready, medium.forms)

    def _expanded(
        self, tokens: Sequence[int], lengths: Mapping[str, Sequence[int]]
    ) -> tuple[list[int], dict[str, list[dict[str, int]]]]:
        """Return tokens with a placeholder as often as each item needs it, and the ranges of items by their kind.

        `lengths` are the numbers of tokens of the items by their kind."""
        places = [
            Places(
                medium.placeholder.token, self._prompts.text_of(medium.placeholder.token), NOUNS[kind], lengths[kind]
            )
            for kind, medium in self.media.items()
            if kind in lengths
        ]
        made, ranges = expanded(tokens, places)
        return made, dict(zip([kind for kind in self.media if kind in lengths], ranges, strict=True))

    async def _tokens(self, chat: Chat) -> list[int]:
        return await asyncio.to_thread(self._prompts.tokens, chat.messages, chat.template)


class Room:
    """The tokens that a prompt may still have."""

    def __init__(self, tokens: int) -> None:
        self._left = tokens

    def take(self, tokens: int, limit: int) -> None:
        """Take tokens. Raises BadInput if there are not so many left."""
        self._left -= tokens
        if self._left < 0:
            raise BadInput(
                f"the prompt has more than the {limit} tokens that the engine takes; send fewer images and sounds"
            )


async def _in_turn(turns: asyncio.Semaphore, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work, which begins when it is its turn."""
    try:
        async with turns:
            return await work
    finally:
        work.close()  # it may end before its turn


async def together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all work. The first error ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _part(content: Source | str) -> dict[str, Any]:
    """Return a text, an image or a sound as a part of a message to the engine."""
    if isinstance(content, str):
        return {"type": "text", "text": content}
    assert content.data is not None
    data = base64.b64encode(content.data).decode("ascii")
    if content.kind == IMAGE:
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def _chat(content: Content) -> Chat:
    """Return a message of texts, images and sounds as a chat."""
    parts = [{"type": "text", "text": each} if isinstance(each, str) else {"type": each.kind} for each in content]
    sources = [each for each in content if isinstance(each, Source)]
    template = {"add_generation_prompt": True, "continue_final_message": False}
    return Chat([{"role": "user", "content": parts}], sources, template=template)
