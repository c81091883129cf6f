"""This module writes the requests to an engine: tokens, features, and settings, as JSON in pieces."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import orjson

from headrace.host.adapters.render.items import Form, write_item
from headrace.host.adapters.render.medium import Ready

Ranges = Sequence[Mapping[str, int]]
DIGITS: Final = 8  # tokens that tell prompts apart
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
UNSET: Final = ("max_tokens", "output_kind", "skip_clone", "skip_reading_prefix_cache")  # not for the client's prompts


@dataclass(frozen=True, slots=True)
class Written:
    """The features of an item as text, their hash, and the number of tokens that stand for them."""

    length: int
    text: bytes
    digest: str


def written(ready: Ready, forms: Mapping[str, Form]) -> Written:
    """Return features as text."""
    text = write_item(ready.item, forms)
    return Written(ready.length, text, hashlib.blake2b(text, digest_size=32).hexdigest())


def defaults_of(rendered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the sampling that the engine has for a request without any."""
    return {key: value for key, value in rendered["sampling_params"].items() if value is not None and key not in UNSET}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to an engine, as JSON in pieces, and the number of its tokens."""

    pieces: Sequence[bytes]
    tokens: int

    @classmethod
    def of(
        cls,
        body: Mapping[str, Any],
        items: Mapping[str, Sequence[Written]] = NOTHING,
        ranges: Mapping[str, Ranges] = NOTHING,
    ) -> "Prompt":
        """Return a request. The texts of items are not copied.

        Args:
            body: All but the features.
            items: The features by the kind of the items.
            ranges: The range of the tokens of each item, by the kind of the items.
        """
        tokens = len(body["token_ids"])
        items = {kind: of for kind, of in items.items() if of}
        if not items:
            return cls([_json(body)], tokens)
        features = {
            "mm_hashes": {kind: [each.digest for each in of] for kind, of in items.items()},
            "mm_placeholders": {kind: ranges[kind] for kind in items},
        }
        pieces = [_json(body)[:-1] + b',"features":' + _json(features)[:-1] + b',"kwargs_data":{']
        for number, (kind, of) in enumerate(items.items()):
            pieces.append(b'%s"%s":["' % (b"," if number else b"", kind.encode()))
            pieces += [piece for each in of for piece in (b'","', each.text)][1:]
            pieces.append(b'"]')
        return cls([*pieces, b"}}}"], tokens)


class MeasuredPrompts:
    """Makes prompts of text that ask for one token. No two are the same, so that the engine keeps nothing of them."""

    def __init__(self, model: str, tokens: Sequence[int], defaults: Mapping[str, Any], max_tokens: int) -> None:
        """Store the tokens of a text, from which prompts are made, and the engine's limit."""
        self.max_tokens = max_tokens - 1
        self._model = model
        self._tokens = list(dict.fromkeys(tokens))  # each once, so that other digits give other prompts
        self._defaults = defaults
        self._count = 0

    def of(self, length: int) -> Prompt:
        """Return a prompt of so many tokens."""
        self._count += 1
        base = len(self._tokens)
        number = [self._tokens[self._count // base**power % base] for power in range(DIGITS)]  # the count, in tokens
        tokens = (number + self._tokens * (length // base + 1))[:length]
        settings = {**self._defaults, "max_tokens": 1}
        body = {"model": self._model, "stream": False, "output_mode": "text", "token_ids": tokens}
        return Prompt.of({**body, "sampling_params": settings})


def _json(body: Mapping[str, Any]) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
