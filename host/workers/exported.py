"""Programs that torch.export has saved (`.pt2`), loaded without a pickle being run.

torch.export.load itself unpickles whatever a file says is pickled, and evaluates the expressions of its sizes. So a
file is looked through before: all weights and constants are plain tensors, the sample inputs are what torch's
restricted unpickler takes, and a size is arithmetic."""

import io
import json
import re
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.host.memory.layout import VARIABLE, TensorSpec
from headrace.host.workers.description import MAX_BATCH

LONGEST_NAME = 4096  # of a size's expression, in characters
# Arithmetic of numbers, names, quoted names and sympy's functions, whose names are of this form: it evaluates the text,
# and would call Python's functions too.
_EXPRESSION = re.compile(
    r"""(?:(?:[A-Z]\w*|ceiling|floor|sqrt)(?=\s*\()|[a-zA-Z]\w*\b(?!\s*\()|'\w*'|\d+(?:\.\d+)?|[\s+*/(),<>=&|~%-])*"""
)


class Exported(NamedTuple):
    """A program as a module, its inputs without the batch, whether it takes them by their names, and the largest batch
    that it was exported for."""

    module: torch.nn.Module
    inputs: tuple[TensorSpec, ...]
    by_name: bool
    largest_batch: int


def load_exported(path: Path) -> Exported:
    """Raises UsageError."""
    try:
        _check(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
    except OSError as error:
        raise UsageError(f"--model {path}: {error.strerror or error}; name a file that can be read") from None
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # a damaged file raises much
        raise UsageError(
            f"--model {path}: it is no program of torch.export.save that this torch {torch.__version__} reads: "
            f"{one_line(error)}"
        ) from error
    arguments, keywords = program.call_spec.in_spec.children()
    if arguments.num_children and keywords.num_children:
        raise UsageError(f"--model {path}: export it with all inputs in order, or all by name, not with both")
    if arguments.num_leaves != arguments.num_children or keywords.num_leaves != keywords.num_children:
        raise UsageError(f"--model {path}: an input holds several tensors; export it with each as an input of its own")
    inputs = _inputs(path, program)
    by_name = keywords.num_children > 0
    if by_name:
        inputs = tuple(replace(spec, name=name) for spec, name in zip(inputs, keywords.context, strict=True))
    largest = min(_most(program, value.shape[0], MAX_BATCH) for value in _values(program))
    return Exported(program.module(), inputs, by_name, largest)


def _check(path: Path) -> None:
    """Raises UsageError for what torch would run as it loads it."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise UsageError(f"--model {path}: it has two files of one name; save it anew with torch.export.save")
        within = {name.partition("/")[2]: name for name in names}
        models = [name for name in within if name.startswith("models/")]
        if models != ["models/model.json"] or any(name.startswith("data/aotinductor/") for name in within):
            raise UsageError(f"--model {path}: it is no program of torch.export.save; save one with that")
        for kind in ("weights", "constants"):
            config = json.loads(archive.read(within[f"data/{kind}/model_{kind}_config.json"]))["config"]
            for name, entry in config.items():
                if entry["use_pickle"] or not re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]):
                    raise UsageError(
                        f"--model {path}: {name!r} is pickled, and a pickle can run any code; make it a plain tensor"
                    )
            if f"data/{kind}/model.pt" in within:
                raise UsageError(f"--model {path}: its {kind} are pickled; save it anew with this torch")
        sample = archive.read(within["data/sample_inputs/model.pt"])
        if sample:
            try:
                torch.load(io.BytesIO(sample), map_location="cpu", weights_only=True)
            except Exception:
                raise UsageError(
                    f"--model {path}: its sample inputs are more than tensors; export it with tensors alone"
                ) from None
        for text in _expressions(json.loads(archive.read(within[models[0]]))):
            if len(text) > LONGEST_NAME or "__" in text or not _EXPRESSION.fullmatch(text):
                raise UsageError(f"--model {path}: a size is {text[:100]!r}, which is no arithmetic")


def _expressions(value: Any) -> Iterator[str]:
    """Every `expr_str` in what JSON gives, and nothing deeper than Python's stack takes."""
    left = [value]
    while left:
        match left.pop():
            case dict() as entries:
                for key, each in entries.items():
                    if key == "expr_str" and isinstance(each, str):
                        yield each
                    left.append(each)
            case list() as each:
                left += each


def _values(program: torch.export.ExportedProgram) -> list[Any]:
    """What is known of each input."""
    wanted = set(program.graph_signature.user_inputs)
    return [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted]


def _inputs(path: Path, program: torch.export.ExportedProgram) -> tuple[TensorSpec, ...]:
    found = []
    for name, value in zip(program.graph_signature.user_inputs, _values(program), strict=True):
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"--model {path}: input {name!r} is no tensor; export it with tensors alone")
        if not value.shape or not isinstance(value.shape[0], torch.SymInt):
            raise UsageError(
                f"--model {path}: the first dimension of input {name!r} is not a batch of any size; export it "
                'with dynamic_shapes=({0: torch.export.Dim("batch")},)'
            )
        shape, longest = [], 0
        for size in value.shape[1:]:
            if isinstance(size, torch.SymInt):
                longest = _most(program, size)
                shape.append(VARIABLE)
            else:
                shape.append(int(size))
        found.append(TensorSpec(name, str(value.dtype).removeprefix("torch."), tuple(shape), longest))
    return tuple(found)


def _most(program: torch.export.ExportedProgram, size: torch.SymInt, unbounded: int | None = None) -> int:
    bounds = program.range_constraints.get(size.node.expr)
    upper = None if bounds is None else bounds.upper
    if upper is not None and bool(upper < 1 << 31):  # else sympy's infinity
        return int(upper)
    if unbounded is None:
        raise UsageError(
            f"a dimension {size} may be of any length; export it with torch.export.Dim(..., max=) so that it has a room"
        )
    return unbounded
