"""Convert values to JSON and back, between processes that do not trust each other, without a pickle.

Of classes, only those in `CLASSES` pass. Their constructors build them and check the values.
"""

import dataclasses
import json
from enum import Enum
from typing import Any

from headrace.batching import HeadraceError
from headrace.batching.graphs.model_graph import Kernel, Length, MatMul, ModelGraph, Node, NodeKind
from headrace.host.dpu.specs import (
    AudioSpec,
    Damaged,
    Ends,
    Floor,
    ImageSpec,
    Lengths,
    Mask,
    MelScale,
    Rescale,
    Statistics,
    Tensors,
    Tokens,
    Window,
)
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.description import NetworkDescription
from headrace.host.workers.networks.foreign.rules import FileRules
from headrace.host.workers.networks.program import NodeModel, StepNodes
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.steps import Signature, Step

_KEY = "class"
CLASSES: dict[str, type[Any]] = {
    each.__name__: each
    for each in (
        NetworkDescription,
        TensorSpec,
        ImageSpec,
        Damaged,
        AudioSpec,
        Ends,
        Window,
        MelScale,
        Floor,
        Statistics,
        Rescale,
        Lengths,
        Tensors,
        Mask,
        Tokens,
        ModelGraph,
        Node,
        NodeKind,
        Length,
        MatMul,
        FileRules,
        Kernel,
        NodeModel,
        StepNodes,
        Network,
        Signature,
        Step,
    )
}


class NotPlain(HeadraceError):
    """A value that cannot be converted."""


def to_plain(value: Any) -> bytes:
    """Convert numbers, texts, booleans, None, sequences, mappings with texts as keys, and CLASSES. Raises NotPlain."""
    return json.dumps(_plain(value)).encode()


def from_plain(data: bytes) -> Any:
    """Return the value of JSON text. Sequences come back as tuples. Raises NotPlain."""
    try:
        return _value(json.loads(data))
    except HeadraceError as error:
        raise NotPlain(f"the data hold an invalid value: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NotPlain(f"the data are damaged: {type(error).__name__}: {str(error)[:200]}") from error


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Enum):  # checked before numbers, as some enumerations are numbers too
        return {_KEY: _name(value), "value": value.value}
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise NotPlain("a key is not a text")
        return {_KEY: "dict", "value": {key: _plain(each) for key, each in value.items()}}
    if dataclasses.is_dataclass(value):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {_KEY: _name(value), "value": fields}
    if hasattr(value, "item"):  # a numpy number
        return _plain(value.item())
    raise NotPlain(f"a value of type {type(value).__name__}")


def _name(value: Any) -> str:
    if CLASSES.get(name := type(value).__name__) is not type(value):
        raise NotPlain(f"a value of type {name}")
    return name


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(_value(each) for each in plain)
    if not isinstance(plain, dict):
        return plain
    name, value = plain[_KEY], plain["value"]
    if name == "dict":
        return {key: _value(each) for key, each in value.items()}
    of = CLASSES[name]
    if issubclass(of, Enum):
        return of(value)
    return of(**{key: _value(each) for key, each in value.items()})
