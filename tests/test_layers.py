"""`make lint` refuses an import that the design does not allow; its contracts stand in pyproject.toml."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Contract; the file, an import in it that breaks the contract, and how the check names that.
BREAKS = {
    "folders": (
        "sim/engine.py",
        "headrace.host.dpu.units.status",
        "headrace.sim.engine -> headrace.host.dpu.units.status",
    ),
    "bitstreams": (
        "bitstreams/kernel.py",
        "headrace.batching.registry",
        "headrace.bitstreams.kernel -> headrace.batching.registry",
    ),
    "batching": (
        "batching/request.py",
        "headrace.batching.policies.serial",
        "headrace.batching.request -> headrace.batching.policies.serial",
    ),
    "sim": ("sim/simulation.py", "headrace.sim.scenario", "headrace.sim.simulation -> headrace.sim.scenario"),
    "host": ("host/memory/slots.py", "headrace.host.live.runtime", "headrace.host.memory.slots -> headrace.host.live"),
    "torch": ("sim/zoo/cnn.py", "torch", "headrace.sim.zoo.cnn -> torch"),
    "torch_graph": (
        "sim/zoo/cnn.py",
        "headrace.batching.graphs.torch_graph",
        "headrace.sim.zoo.cnn -> headrace.batching.graphs.torch_graph",
    ),
    "acyclic": (
        "bitstreams/sources.py",
        "headrace.bitstreams.verilate",
        "No cycles are allowed in headrace.bitstreams.",
    ),
}


def check_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """`make imports`, as `make lint` runs it, less the set-up."""
    command = ["make", "--old-file=setup", "imports"]
    environment = {**os.environ, "COLUMNS": "300"}  # no line is broken
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of what the check reads."""
    for folder in ("batching", "bitstreams", "headrace", "host", "sim"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def test_the_imports_are_as_designed(tree):
    done = check_imports(tree)
    assert done.returncode == 0, done.stdout


@pytest.mark.quick(3)
@pytest.mark.parametrize("contract", BREAKS)
def test_an_import_against_the_design_is_refused(contract, tree):
    file, module, complaint = BREAKS[contract]
    with (tree / file).open("a") as source:
        source.write(f"\nimport {module}\n")
    done = check_imports(tree)
    assert done.returncode != 0 and complaint in done.stdout, done.stdout


def test_a_module_without_a_place_among_the_layers_is_refused(tree):
    (tree / "sim" / "elsewhere.py").write_text("")
    done = check_imports(tree)
    assert done.returncode != 0 and "headrace.sim.elsewhere" in done.stdout, done.stdout
