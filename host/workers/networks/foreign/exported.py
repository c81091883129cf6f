"""Programs that torch.export has saved (`.pt2`), loaded without code of their own being run.

torch unpickles whatever a file says is pickled, makes Python code of the names in it and calls any operator that it
names. So a file is checked before: its archive (`archives`), its text (`program_text`), that all weights and constants
are plain tensors, and that the sample inputs are what torch's restricted unpickler takes."""

import io
import re
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.export.pt2_archive._package import load_pt2

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.host.memory.layout import VARIABLE, TensorSpec
from headrace.host.workers.networks.description import MAX_BATCH
from headrace.host.workers.networks.foreign.archives import checked, is_archive, opened
from headrace.host.workers.networks.foreign.program_text import check_names, check_program
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.workers.networks.foreign.weights import check_finite


class Exported(NamedTuple):
    """A program as a module, its inputs without the batch, whether it takes them by their names, and the largest batch
    that it was exported for."""

    module: torch.nn.Module
    inputs: tuple[TensorSpec, ...]
    by_name: bool
    largest_batch: int


def load_exported(path: Path, rules: FileRules = ANY_FILE) -> Exported:
    """Return the program in a file, after all checks of what it holds. Raises UsageError."""
    where = f"--model {path}"
    with opened(where, path, rules.sha256) as file:
        if not is_archive(file):
            raise UsageError(f"{where}: it is no program of torch.export.save; save one with that")
        try:
            with checked(where, file) as archive:
                _check(where, archive)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # Not torch.export.load: where this fails, that looks for a program of an older form, which is pickled.
                program = load_pt2(file).exported_programs["model"]
        except (UsageError, MemoryError):
            raise
        except Exception as error:  # a damaged file raises much
            raise UsageError(
                f"{where}: it is no program of torch.export.save that this torch {torch.__version__} reads: "
                f"{one_line(error)}"
            ) from error
    if not rules.allow_nonfinite:
        check_finite(where, program.state_dict)
    arguments, keywords = program.call_spec.in_spec.children()
    if arguments.num_children and keywords.num_children:
        raise UsageError(f"{where}: export it with all inputs in order, or all by name, not with both")
    if arguments.num_leaves != arguments.num_children or keywords.num_leaves != keywords.num_children:
        raise UsageError(f"{where}: an input holds several tensors; export it with each as an input of its own")
    inputs = _inputs(where, program)
    by_name = keywords.num_children > 0
    if by_name:
        inputs = tuple(replace(spec, name=name) for spec, name in zip(inputs, keywords.context, strict=True))
    largest = min(_max_size(program, value.shape[0], MAX_BATCH) for value in _values(program))
    return Exported(_module(program), inputs, by_name, largest)


def _module(program: torch.export.ExportedProgram) -> torch.nn.Module:
    """Return the program as a module. Its guards are texts that torch would run as code; without them a hook of
    torch's compares the inputs' shapes."""
    return program.module(check_guards=False)


def _check(where: str, archive: zipfile.ZipFile) -> None:
    """Raise UsageError for what torch would run as it loads the program."""
    within = {name.partition("/")[2]: name for name in archive.namelist()}
    models = [name for name in within if name.startswith("models/")]
    if models != ["models/model.json"] or any(name.startswith("data/aotinductor/") for name in within):
        raise UsageError(f"{where}: it is no program of torch.export.save; save one with that")
    for kind in ("weights", "constants"):
        config = check_names(where, archive.read(within[f"data/{kind}/model_{kind}_config.json"]))
        for name, entry in config.items():
            if entry["use_pickle"] or not re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]):
                raise UsageError(f"{where}: {name!r} is pickled, and a pickle can run any code; make it a plain tensor")
        if f"data/{kind}/model.pt" in within:
            raise UsageError(f"{where}: its {kind} are pickled; save it anew with this torch")
    check_program(where, archive.read(within[models[0]]))
    if sample := archive.read(within["data/sample_inputs/model.pt"]):
        file = io.BytesIO(sample)
        try:
            with checked(where, file):
                pass
            torch.load(file, weights_only=True)  # as torch does, which where this fails takes any pickle
        except Exception:
            raise UsageError(
                f"{where}: its sample inputs are more than tensors; export it with tensors alone"
            ) from None


def _values(program: torch.export.ExportedProgram) -> list[Any]:
    """Return the example value of each input."""
    wanted = set(program.graph_signature.user_inputs)
    return [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted]


def _inputs(where: str, program: torch.export.ExportedProgram) -> tuple[TensorSpec, ...]:
    specs = []
    for name, value in zip(program.graph_signature.user_inputs, _values(program), strict=True):
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"{where}: input {name!r} is no tensor; export it with tensors alone")
        if not value.shape or not isinstance(value.shape[0], torch.SymInt):
            raise UsageError(
                f"{where}: the first dimension of input {name!r} is not a batch of any size; export it "
                'with dynamic_shapes=({0: torch.export.Dim("batch")},)'
            )
        shape, longest = [], 0
        for size in value.shape[1:]:
            if isinstance(size, torch.SymInt):
                longest = _max_size(program, size)
                shape.append(VARIABLE)
            else:
                shape.append(int(size))
        specs.append(TensorSpec(name, str(value.dtype).removeprefix("torch."), tuple(shape), longest))
    return tuple(specs)


def _max_size(program: torch.export.ExportedProgram, size: torch.SymInt, unbounded: int | None = None) -> int:
    bounds = program.range_constraints.get(size.node.expr)
    upper = None if bounds is None else bounds.upper
    if upper is not None and bool(upper < 1 << 31):  # else sympy's infinity
        return int(upper)
    if unbounded is None:
        raise UsageError(
            f"a dimension {size} may be of any length; export it with torch.export.Dim(..., max=) so that it has a room"
        )
    return unbounded
