"""What batching/ and sim/ may import: arrows run downwards, and none runs in a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# From the bottom up; a folder stands for all that is in it.
LAYERS = {
    "batching": (
        {"errors"}, {"request", "policy", "accounting", "results"}, {"graphs"}, {"policies"}, {"smdp"}, {"catalog"},
    ),
    "sim": ({"engine"}, {"load", "hardware", "zoo"}, {"simulation", "trace"}, {"scenario"}, {"experiments"}),
}  # fmt: skip
ALLOWED = {"batching": {"batching"}, "sim": {"batching", "sim"}}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_of(path): path
    for folder in LAYERS
    for path in sorted((ROOT / folder).rglob("*.py*"))
    if path.suffix in (".py", ".pyx")
}


def imported(path):
    """Modules of Headrace, as folder.module, and others by their full name; those imported within functions, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("headrace.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write the whole name of what is imported"
            name = node.module.removeprefix("headrace.")
            inner = [f"{name}.{alias.name}" for alias in node.names if f"{name}.{alias.name}" in MODULES]
            yield from inner
            if len(inner) < len(node.names):
                yield name


IMPORTS = {
    module: set(imported(path)) - {module} if path.suffix == ".py" else set() for module, path in MODULES.items()
}


def layer(module):
    """(top folder, number from below); None for the package itself, which offers all that is in it."""
    top, *rest = module.split(".")
    if not rest:
        return None
    (number,) = [number for number, rooms in enumerate(LAYERS[top]) if rest[0] in rooms]
    return number


def folder(module):
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


@pytest.mark.parametrize("module", MODULES)
def test_arrows_run_downwards(module):
    top = module.split(".")[0]
    for other in IMPORTS[module]:
        if other.split(".")[0] in ("batching", "sim", "host", "bitstreams"):
            assert other.split(".")[0] in ALLOWED[top], f"{module} imports {other}"
        if other in MODULES and other.split(".")[0] == top and layer(module) is not None:
            assert layer(other) is not None, f"{module} imports all of {other}"
            assert layer(other) <= layer(module), f"{module} imports {other}, which lies above it"


def test_no_module_and_no_folder_imports_itself_in_a_circle():
    modules = {module: others & MODULES.keys() for module, others in IMPORTS.items()}
    list(TopologicalSorter(modules).static_order())  # raises CycleError with the circle
    folders = {}
    for module, others in modules.items():
        if layer(module) is not None and "." in folder(module):
            reached = {folder(other) for other in others if layer(other) is not None and "." in folder(other)}
            folders.setdefault(folder(module), set()).update(reached - {folder(module)})
    list(TopologicalSorter(folders).static_order())


def test_torch_is_for_its_one_module_which_nothing_imports_back():
    assert {module for module, others in IMPORTS.items() if any(o.split(".")[0] == "torch" for o in others)} == {
        "batching.graphs.torch_graph"
    }
    assert not any("batching.graphs.torch_graph" in others for others in IMPORTS.values())
