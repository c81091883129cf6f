"""The front end: it makes the prompt of a chat, with ready features, and lets the engine generate.

When it opens, the engine renders a few pictures too. The front end learns from the answer how the engine wants
features. It opens only if its own tokens and features are then equal to the engine's, bit for bit. Some engines
normalize pixels themselves. They take floats as well, and then generate wrong tokens without an error.
"""

import asyncio
import base64
import hashlib
import io
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import numpy as np
import orjson
from PIL import Image

from headrace.batching import BadInput, HeadraceError, UsageError
from headrace.host.adapters.render.chat import Chat
from headrace.host.adapters.render.engine import Engine, EngineRefused
from headrace.host.adapters.render.items import Form, Item, read_item, write_item
from headrace.host.adapters.render.media import IMAGE, Source, as_vllm_reads, fetched
from headrace.host.adapters.render.prompt import Placeholder, Prompts, expanded, learned
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.hugging_face.names import processor
from headrace.host.dpu.preprocessor import PIXEL_VALUES, CpuPreprocessor, Preprocessed
from headrace.host.dpu.processors import ProcessorSpec

T = TypeVar("T")

FETCH_S: Final = 20.0  # longest time to fetch a file
MAX_TOKENS: Final = 1 << 20  # of a prompt, for an engine that tells no limit
UNSET: Final = ("max_tokens", "output_kind", "skip_clone", "skip_reading_prefix_cache")  # not for the client's prompts


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a request.

    Attributes:
        max_items: Images and sounds.
        max_megapixels: Of an image.
        max_file_bytes: Of a file that is fetched.
        fetch: Whether files are fetched from other servers at all.
    """

    max_items: int = 256
    max_megapixels: int = 100
    max_file_bytes: int = 64 << 20
    fetch: bool = False


@dataclass(frozen=True, slots=True)
class Features:
    """How the engine wants the features of images.

    Attributes:
        forms: The form of each tensor.
        placeholder: The tokens that stand for an image.
    """

    forms: Mapping[str, Form]
    placeholder: Placeholder


class Front:
    """A front end for one engine. Use it as an async context manager.

    Attributes:
        model: The name of the engine's model.
        made: How many images each unit has made, by the kind of the unit.
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
        self.made: Counter[str] = Counter()
        self._engine = engine
        self._folder = folder
        self._xclbin = xclbin
        self._limits = limits
        self._stack = AsyncExitStack()
        self._features: Features | None = None
        self._preprocessor: CpuPreprocessor[ProcessorSpec] | Dpu[ProcessorSpec] | None = None

    async def __aenter__(self) -> "Front":
        async with AsyncExitStack() as stack:
            timeout = aiohttp.ClientTimeout(total=FETCH_S)
            self._session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._preprocessor = None  # an emulated device ends with its last user, and aiohttp keeps its handlers

    # ---- Opening ----

    async def _open(self, stack: AsyncExitStack) -> None:
        self._prompts = await asyncio.to_thread(Prompts, self._folder)
        models = await self._engine.models()
        if not models:
            raise UsageError(f"the engine at {self._engine.url} serves no model")
        self.model = str(models[0]["id"])
        self._max_tokens = int(models[0].get("max_model_len") or MAX_TOKENS)
        rendered = await self._rendered(["a"])
        self._defaults = {
            key: value for key, value in rendered["sampling_params"].items() if value is not None and key not in UNSET
        }
        self._check_tokens(await self._tokens(_chat(["a"])), rendered["token_ids"])
        try:
            rendered = await self._rendered([SAMPLES[0], "a", SAMPLES[1], SAMPLES[2]])
        except EngineRefused as error:
            if error.status == 400:  # a model without images
                return
            raise
        await self._learn(rendered, stack)

    async def _rendered(self, content: Sequence[bytes | str]) -> dict[str, Any]:
        """Return what the engine renders of a message of texts and of image files. Raises UsageError."""
        parts = [
            {"type": "text", "text": each}
            if isinstance(each, str)
            else {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64," + base64.b64encode(each).decode("ascii")},
            }
            for each in content
        ]
        try:
            return await self._engine.rendered({"model": self.model, "messages": [{"role": "user", "content": parts}]})
        except EngineRefused as error:
            if error.status == 404:
                raise UsageError(
                    f"the engine at {self._engine.url} takes no features; start vLLM with --enable-scale-out"
                ) from error
            raise

    async def _learn(self, rendered: Mapping[str, Any], stack: AsyncExitStack) -> None:
        """Learn the forms of features, open the preprocessor, and check it. Raises UsageError."""
        given = rendered["features"]
        theirs = [read_item(text) for text in given["kwargs_data"][IMAGE]]
        ranges = given["mm_placeholders"][IMAGE]
        forms = theirs[0][1]
        spec = _in_form(self._spec(), forms)
        token = int(rendered["token_ids"][ranges[0]["offset"]])
        samples = [(item, int(place["length"])) for (item, _), place in zip(theirs, ranges, strict=True)]
        self._features = Features(forms, learned(samples, forms, token))
        if self._xclbin is None:
            made: CpuPreprocessor[ProcessorSpec] | Dpu[ProcessorSpec]
            made = CpuPreprocessor(spec, max_megapixels=self._limits.max_megapixels)
        else:
            made = Dpu(self._xclbin, spec, max_megapixels=self._limits.max_megapixels)
        self._preprocessor = await stack.enter_async_context(made)
        chat = _chat([SAMPLES[0], "a", SAMPLES[1], SAMPLES[2]])
        ours = await _together([self._item(source) for source in chat.sources])
        for mine, (item, _) in zip(ours, theirs, strict=True):
            _check_item(mine, item)
        lengths = [self._features.placeholder.length(item) for item in ours]
        tokens, _ = self._expanded(await self._tokens(chat), lengths)
        self._check_tokens(tokens, rendered["token_ids"])

    def _spec(self) -> ProcessorSpec:
        found = processor(self._folder)
        if not isinstance(found, ProcessorSpec):
            raise UsageError(
                f"--model {self._folder}: it has a feature extractor for audio, and the engine takes images"
            )
        return found

    def _check_tokens(self, ours: Sequence[int], theirs: Sequence[int]) -> None:
        if list(ours) != list(theirs):
            raise UsageError(
                f"--model {self._folder}: its chat template gives other tokens than the engine's; "
                "name the folder of the model that the engine serves"
            )

    # ---- Requests ----

    async def prompt(self, chat: Chat) -> list[bytes]:
        """Return a request to the engine, as JSON in pieces: tokens, features, and the settings of the sampling.

        Raises BadInput, CorruptInput and other errors of an input, with its place in the chat."""
        if len(chat.sources) > self._limits.max_items:
            raise BadInput(f"the chat has {len(chat.sources)} images; send at most {self._limits.max_items}")
        if chat.sources and self._features is None:
            raise BadInput(f"{chat.sources[0].place}: the model {self.model} takes no images")
        if other := [source for source in chat.sources if source.kind != IMAGE]:
            raise BadInput(f"{other[0].place}: the model {self.model} takes no {other[0].kind} here; send images")
        tokens = await self._tokens(chat)
        room = Room(self._max_tokens - len(tokens))
        written = await _together([self._written(source, room) for source in chat.sources])
        ranges: list[dict[str, int]] = []
        if self._features is not None:
            tokens, ranges = self._expanded(tokens, [each.length for each in written])
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
        if not written:
            return [_json(body)]
        features = {"mm_hashes": {IMAGE: [each.digest for each in written]}, "mm_placeholders": {IMAGE: ranges}}
        head = _json(body)[:-1] + b',"features":' + _json(features)[:-1] + b',"kwargs_data":{"image":["'
        texts = [piece for each in written for piece in (b'","', each.text)]
        return [head, *texts[1:], b'"]}}}']

    async def _written(self, source: Source, room: "Room") -> "Written":
        """Return the features of an image as text. Raises BadInput if its tokens do not fit into the room."""
        item = await self._item(source)
        assert self._features is not None
        length = self._features.placeholder.length(item)
        room.take(length, self._max_tokens)
        text, digest = await asyncio.to_thread(_text_of, item, self._features.forms)
        return Written(length, text, digest)

    def _expanded(self, tokens: Sequence[int], lengths: Sequence[int]) -> tuple[list[int], list[dict[str, int]]]:
        assert self._features is not None
        token = self._features.placeholder.token
        return expanded(tokens, lengths, token, self._prompts.text_of(token))

    async def _tokens(self, chat: Chat) -> list[int]:
        return await asyncio.to_thread(self._prompts.tokens, chat.messages, chat.template)

    async def _item(self, source: Source) -> Item:
        if source.url is not None and not self._limits.fetch:
            raise BadInput(f"{source.place}: files are not fetched here; give a data URL, or start with --fetch-urls")
        assert self._preprocessor is not None and self._features is not None
        data = await fetched(source, self._session, self._limits.max_file_bytes)
        try:
            read = await asyncio.to_thread(as_vllm_reads, data, self._limits.max_megapixels)
            done = await self._preprocessor.process(read)
        except HeadraceError as error:
            raise type(error)(f"{source.place}: {error}") from error
        self._count(done)
        forms = self._features.forms
        if missing := forms.keys() - done.tensors.keys():
            raise UsageError(f"the engine wants a tensor {min(missing)!r}, which Headrace does not make for this model")
        return {name: form.of_one(done.tensors[name]) for name, form in forms.items()}

    def _count(self, done: Preprocessed) -> None:
        self.made["cpu" if done.unit == "cpu" else "dpu"] += 1


@dataclass(frozen=True, slots=True)
class Written:
    """The features of an image as text, their hash, and the number of tokens that stand for them."""

    length: int
    text: bytes
    digest: str


class Room:
    """The tokens that a prompt may still have."""

    def __init__(self, tokens: int) -> None:
        self._left = tokens

    def take(self, tokens: int, limit: int) -> None:
        """Take tokens. Raises BadInput if there are not so many left."""
        self._left -= tokens
        if self._left < 0:
            raise BadInput(f"the prompt has more than the {limit} tokens that the engine takes; send fewer images")


async def _together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all work. The first error ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _text_of(item: Item, forms: Mapping[str, Form]) -> tuple[bytes, str]:
    text = write_item(item, forms)
    return text, hashlib.blake2b(text, digest_size=32).hexdigest()


def _json(body: Mapping[str, Any]) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)


def _in_form(spec: ProcessorSpec, forms: Mapping[str, Form]) -> ProcessorSpec:
    """Return the spec with values as the engine wants them. An engine that takes bytes normalizes them itself."""
    if PIXEL_VALUES not in forms:
        raise UsageError(f"the engine wants {', '.join(forms)} of an image, and Headrace makes {PIXEL_VALUES}")
    dtype = forms[PIXEL_VALUES].dtype
    if dtype == "uint8":
        return replace(spec, rescale=None, mean=None, std=None, bfloat16=False, dtype=None)
    return spec.cast(dtype) if dtype != "float32" else spec


def _check_item(ours: Item, theirs: Item) -> None:
    for name, expected in theirs.items():
        found = ours[name]
        if (found.dtype, found.shape) != (expected.dtype, expected.shape):
            raise UsageError(
                f"{name} is {found.dtype} {found.shape} here, and {expected.dtype} {expected.shape} in the engine; "
                "name the folder of the model that the engine serves"
            )
        if not np.array_equal(found, expected):
            share = float((found != expected).mean())
            raise UsageError(
                f"{share:.1%} of {name} differ from the engine's; name the folder of the model that the engine "
                "serves, and start the engine without settings of its own for the processor"
            )


def _chat(content: Sequence[bytes | str]) -> Chat:
    """Return a message of texts and of image files as a chat."""
    parts = [{"type": "text", "text": each} if isinstance(each, str) else {"type": IMAGE} for each in content]
    sources = [Source(IMAGE, "a sample", data=each) for each in content if isinstance(each, bytes)]
    template = {"add_generation_prompt": True, "continue_final_message": False}
    return Chat([{"role": "user", "content": parts}], sources, template=template)


def _sample(width: int, height: int, kind: str, mode: str = "RGB") -> bytes:
    """Return a picture with colours and edges."""
    y, x = np.mgrid[:height, :width]
    planes = [(x * 5 + y * 3) % 256, (x * y) % 256, ((x // 9 + y // 7) % 2) * 200, (x + y) * 255 // (width + height)]
    pixels = np.stack(planes[: len(mode)], axis=-1).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels, mode).save(file, kind)
    return file.getvalue()


SAMPLES: Final = (_sample(203, 124, "JPEG"), _sample(96, 140, "PNG"), _sample(120, 80, "PNG", "RGBA"))
