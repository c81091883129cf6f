"""The text of a program (`model.json` of a `.pt2`), checked before torch builds anything of it.

torch makes Python code of a program: it writes the names in it into a function's source, evaluates the expressions of
its sizes, and looks operators up by their names. So every text in it must be harmless: a name is an identifier, a size
is arithmetic, an operator is one of those allowed (`operators`), and the structure of inputs and outputs is made of
tuples, lists and dictionaries. Graphs within graphs, such as the branches of torch.cond, are held to the same."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.batching import UsageError
from headrace.host.workers.networks.foreign.operators import is_allowed

MAX_BYTES = 1 << 27  # of the text; that of a large network has some millions
LONGEST_NAME = 4096  # of a size's expression, in characters
# Arithmetic of numbers, names, quoted names and sympy's functions, whose names are of this form: it evaluates the text,
# and would call Python's functions too.
_EXPRESSION = re.compile(
    r"""(?:(?:[A-Z]\w*|ceiling|floor|sqrt)(?=\s*\()|[a-zA-Z]\w*\b(?!\s*\()|'\w*'|\d+(?:\.\d+)?|[\s+*/(),<>=&|~%-])*"""
)
_PATH = re.compile(r"[\w.:@/ +-]*")  # of a weight in its module, and other words: nothing that ends a quoted text
_STRUCTURES = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None)
_FREE = frozenset({"metadata", "as_string", "as_strings", "guards_code"})  # never part of code, or quoted in it
_OPERATOR = frozenset({"target", "as_operator"})
_STRUCTURE = frozenset({"in_spec", "out_spec"})
_NAME = frozenset({"name", "as_name", "forward_arg_names"})


class _Text(NamedTuple):
    """A text with the key that it stands at, which for the keys of a dictionary is empty."""

    key: str
    text: str


def check_program(where: str, data: bytes) -> None:
    """Check the program's text. Raises UsageError, which begins with `where`; ValueError if it is no JSON."""
    if len(data) > MAX_BYTES:
        raise UsageError(f"{where}: its program has {len(data)} bytes; at most {MAX_BYTES} are read")
    for key, text in _texts(json.loads(data)):
        if key in _OPERATOR:
            if not is_allowed(text):
                name = text.removeprefix("torch.ops.")[:100]
                raise UsageError(
                    f"{where}: it calls {name!r}, which is none of the operators that a program from a file may call; "
                    "export the network without it, or serve it from Python as module:function"
                )
        elif key == "expr_str":
            if len(text) > LONGEST_NAME or "__" in text or not _EXPRESSION.fullmatch(text):
                raise UsageError(f"{where}: a size is {text[:100]!r}, which is no arithmetic")
        elif key in _STRUCTURE:
            _check_structure(where, text)
        elif key == "class_fqn":
            raise UsageError(f"{where}: it holds a {text[:100]!r}, which is no tensor; export the network without it")
        elif (text and not text.isidentifier()) if key in _NAME else not _is_path(text):
            raise UsageError(f"{where}: {text[:100]!r} is no name; save the program anew with torch.export.save")


def check_names(where: str, data: bytes) -> dict[str, Any]:
    """Return the table in the configuration of weights or constants, whose texts are paths. Raises UsageError, which
    begins with `where`; ValueError and KeyError if it is none."""
    if len(data) > MAX_BYTES:
        raise UsageError(f"{where}: its table of weights has {len(data)} bytes; at most {MAX_BYTES} are read")
    config: dict[str, Any] = json.loads(data)["config"]
    for _, text in _texts(config):
        if not _is_path(text):
            raise UsageError(f"{where}: {text[:100]!r} is no name; save the program anew with torch.export.save")
    return config


def _texts(value: Any) -> Iterator[_Text]:
    """Yield every text that is not free, however deep."""
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        key, each = left.pop()
        match each:
            case str():
                yield _Text(key, each)
            case dict():
                for name, inner in each.items():
                    yield _Text("", name)
                    if name not in _FREE or not _holds_only_texts(inner):  # a tensor may be called "metadata"
                        left.append((name, inner))
            case list():
                left += [(key, inner) for inner in each]


def _holds_only_texts(value: Any) -> bool:
    each = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return all(isinstance(text, str) for text in each)


def _is_path(text: str) -> bool:
    """Return whether the text leads from a module to a weight, and not to what Python keeps of an object."""
    parts = text.split(".")
    return _PATH.fullmatch(text) is not None and not any(part[:2] == part[-2:] == "__" for part in parts)


def _check_structure(where: str, text: str) -> None:
    """Check the structure of inputs or outputs. torch imports what a structure of another kind names."""
    left = [json.loads(text)[1]]
    while left:
        node = left.pop()
        context = None if node["context"] is None else json.loads(node["context"])
        names = context if isinstance(context, list) else []
        if (
            node["type"] not in _STRUCTURES
            or (context is not None and not isinstance(context, list))
            or not all(isinstance(name, str) and _is_path(name) for name in names)
        ):
            raise UsageError(
                f"{where}: its inputs or outputs are a {str(node['type'])[:100]!r}; export it with tuples, lists and "
                "dictionaries of texts"
            )
        left += node["children_spec"]
