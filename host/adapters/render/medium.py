"""A medium is a kind of input beside text: images or sounds. This module has what both have in common.

The front end learns from an engine how it wants the features of a medium. It lets the engine render samples, and reads
the forms of the tensors and the number of tokens. Then it makes the features of the same samples and compares them.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self

from headrace.batching import BadInput, UsageError
from headrace.host.adapters.render.items import Form, Item, read_item
from headrace.host.adapters.render.media import Source
from headrace.host.adapters.render.prompt import Placeholder
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CpuPreprocessor, Preprocessed, Spec

Content = Sequence[Source | str]  # of a message: texts, images and sounds
WRONG_FOLDER: Final = "name the folder of the model that the engine serves"


@dataclass(frozen=True, slots=True)
class Rendered:
    """The engine's rendering of a message whose items are of one medium.

    Attributes:
        tokens: The tokens of the prompt.
        items: The tensors of each item.
        forms: The forms of the tensors.
        token: The token that stands for an item.
        lengths: The number of tokens of each item.
    """

    tokens: Sequence[int]
    items: Sequence[Item]
    forms: Mapping[str, Form]
    token: int
    lengths: Sequence[int]

    @classmethod
    def of(cls, answer: Mapping[str, Any], kind: str) -> "Rendered":
        """Read the engine's answer. Raises BadItem."""
        features = answer["features"]
        read = [read_item(text) for text in features["kwargs_data"][kind]]
        ranges = features["mm_placeholders"][kind]
        return cls(
            answer["token_ids"],
            [item for item, _ in read],
            read[0][1],
            int(answer["token_ids"][ranges[0]["offset"]]),
            [int(each["length"]) for each in ranges],
        )


@dataclass(frozen=True, slots=True)
class Maker:
    """How features are made.

    Attributes:
        folder: Folder of the model.
        xclbin: The DPU's container, or None for the CPU.
        max_megapixels: Largest image.
    """

    folder: Path
    xclbin: Path | None
    max_megapixels: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The features of an image or a sound, and the number of tokens that stand for it."""

    item: Item
    length: int


class Medium(ABC, Generic[Spec]):
    """Makes the features of one medium, as an engine wants them. Use it as an async context manager.

    When it opens, it makes the features of the samples, and compares them with the engine's.

    Attributes:
        kind: IMAGE or AUDIO.
        forms: The form of each tensor.
        placeholder: The tokens that stand for an item.
        made: How many items each kind of unit has made: "dpu" or "cpu".
        spec: How features are made.
    """

    kind: ClassVar[str]
    forms: Mapping[str, Form]
    placeholder: Placeholder

    def __init__(self, spec: Spec, rendered: Sequence[Rendered], maker: Maker) -> None:
        """Store the settings.

        Args:
            spec: How features are made.
            rendered: What the engine makes of `samples`.
            maker: Where features are made.
        """
        self.made: Counter[str] = Counter()
        self.spec = spec
        self._rendered = rendered
        self._maker = maker
        self._stack = AsyncExitStack()
        self._preprocessor: CpuPreprocessor[Spec] | Dpu[Spec] | None = None

    @staticmethod
    @abstractmethod
    def samples() -> Sequence[Content]:
        """Return the messages that the engine is to render. All their items are of this medium."""

    @abstractmethod
    async def check(self, rendered: Sequence[Rendered]) -> None:
        """Learn what the engine wants, and compare features with those of the engine. Raises UsageError."""

    @abstractmethod
    def _as_vllm_reads(self, data: bytes) -> bytes:
        """Return a file with what vLLM sees or hears in `data`. Raises CorruptInput and BadInput."""

    @abstractmethod
    def _ready(self, done: Preprocessed) -> Ready:
        """Return features in the forms of the engine."""

    async def __aenter__(self) -> Self:
        made: CpuPreprocessor[Spec] | Dpu[Spec]
        limit = self._maker.max_megapixels
        if self._maker.xclbin is None:
            made = CpuPreprocessor(self.spec, max_megapixels=limit)
        else:
            made = Dpu(self._maker.xclbin, self.spec, max_megapixels=limit)
        async with AsyncExitStack() as stack:
            self._preprocessor = await stack.enter_async_context(made)
            await self.check(self._rendered)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._preprocessor = None  # an emulated device ends with its last user, and aiohttp keeps its handlers

    async def ready(self, data: bytes) -> Ready:
        """Return the features of a file. Raises CorruptInput, BadInput, and other errors of an input."""
        made = self._ready(await self._process(data))
        if made.length <= 0:
            raise BadInput("it is so short that no token stands for it; send a longer one")
        return made

    async def _process(self, data: bytes) -> Preprocessed:
        assert self._preprocessor is not None
        read = await asyncio.to_thread(self._as_vllm_reads, data)
        done = await self._preprocessor.process(read)
        self.made["cpu" if done.unit == "cpu" else "dpu"] += 1
        return done


def files_of(content: Content) -> list[bytes]:
    """Return the files of a message of samples."""
    return [each.data for each in content if isinstance(each, Source) and each.data is not None]


def differs(name: str, share: float) -> UsageError:
    """Return the error for a tensor of which a share of the values is not the engine's."""
    return UsageError(
        f"{share:.1%} of {name} differ from the engine's; {WRONG_FOLDER}, and start the engine without settings of its "
        "own for the processor"
    )
