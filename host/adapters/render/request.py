"""This module writes the requests to an engine: tokens, features, and settings, as JSON in pieces."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from headrace.host.adapters.render.items import Form, write_item
from headrace.host.adapters.render.medium import Ready

Ranges = Sequence[Mapping[str, int]]
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


def request_to_engine(
    body: Mapping[str, Any], items: Mapping[str, Sequence[Written]], ranges: Mapping[str, Ranges]
) -> list[bytes]:
    """Return a request, as JSON in pieces. The texts of items are not copied.

    Args:
        body: All but the features.
        items: The features by the kind of the items.
        ranges: The range of the tokens of each item, by the kind of the items.
    """
    items = {kind: of for kind, of in items.items() if of}
    if not items:
        return [_json(body)]
    features = {
        "mm_hashes": {kind: [each.digest for each in of] for kind, of in items.items()},
        "mm_placeholders": {kind: ranges[kind] for kind in items},
    }
    pieces = [_json(body)[:-1] + b',"features":' + _json(features)[:-1] + b',"kwargs_data":{']
    for number, (kind, of) in enumerate(items.items()):
        pieces.append(b'%s"%s":["' % (b"," if number else b"", kind.encode()))
        pieces += [piece for each in of for piece in (b'","', each.text)][1:]
        pieces.append(b'"]')
    return [*pieces, b"}}}"]


def _json(body: Mapping[str, Any]) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
