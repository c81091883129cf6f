"""What a command's help loads: nothing that takes long, for that is loaded where it is used."""

import importlib.util
import json
import subprocess
import sys

import pytest

from headrace.host.cli.main import COMMANDS
from headrace.host.workers.networks.program import READING, TORCHVISION, TRACING, preloads

# Each takes a twentieth of a second or more to load, and some are in extras that a machine may go without.
HEAVY = (
    "cv2",
    "google.protobuf",
    "grpc",
    "h5py",
    "librosa",
    "matplotlib",
    "numba",
    "perfetto",
    "pyarrow",
    "pydantic",  # Typer imports it to check texts that a command gets
    "ray",
    "scipy",
    "simplejpeg",
    "skimage",
    "sklearn",
    "soundfile",
    "soxr",
    "torch",
    "torchvision",
    "tritonclient",
    "uvloop",
)
PROGRAM = """
import json, os, sys
from headrace.host.cli.main import app
with open(os.devnull, "w") as nothing:
    results, sys.stdout = sys.stdout, nothing
    app(sys.argv[1:], prog_name="headrace", standalone_mode=False)
json.dump(sorted(sys.modules), results)
"""


def loaded_by(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.quick(7)
@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_nothing_heavy(command):
    loaded = loaded_by(command, "--help")
    assert f"headrace.host.cli.{command.replace('-', '_')}" in loaded
    assert loaded.isdisjoint(HEAVY)
    if command == "simulate":
        assert loaded.isdisjoint({"headrace.sim.run", "headrace.sim.decoding.run", "headrace.sim.sweeps.grid"})


def test_help_of_all_commands_loads_none_of_them():
    loaded = loaded_by("--help")
    assert not {name for name in COMMANDS if f"headrace.host.cli.{name.replace('-', '_')}" in loaded}
    assert loaded.isdisjoint({*HEAVY, "numpy"})


def test_a_simulated_run_loads_nothing_that_only_traces_files_and_plans_need():
    loaded = loaded_by("simulate", "--requests", "10", "--json")
    assert "headrace.sim.simulation" in loaded
    assert loaded.isdisjoint({*HEAVY} - {"pydantic"})


def test_the_fork_server_of_a_whole_network_leaves_out_what_only_exported_and_cut_networks_need():
    """torch.export takes as long to import as torch itself."""
    line = "import importlib, json, sys; from headrace.host.workers.networks.program import EXECUTORS, preloads; "
    line += "[importlib.import_module(name) for name in (*EXECUTORS, *preloads(['mynets:small']))]; "
    line += "json.dump(sorted(sys.modules), sys.stdout)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, timeout=100, check=True)
    loaded = set(json.loads(done.stdout))
    assert "torch" in loaded
    assert loaded.isdisjoint({"torch._dynamo", "sympy", "torchvision"})


def test_a_server_loads_scipy_only_for_feature_extractors_that_need_it():
    line = """import json, sys
import headrace.host.server.serve
before = sorted(sys.modules)
from headrace.host.dpu.reference import audio
from headrace.host.dpu.specs import AudioSpec
audio.prepare(AudioSpec(rates=(16000,)))
json.dump([before, sorted(sys.modules)], sys.stdout)"""
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, timeout=100, check=True)
    before, after = map(set, json.loads(done.stdout))
    assert "scipy" not in before
    assert {"scipy.fft", "scipy.sparse"} <= after


def test_networks_preload_what_they_need():
    assert preloads(["resnet18"]) == (TORCHVISION,)
    assert preloads(["net.pt2", "mynets:small"]) == (READING,)
    assert preloads(["resnet18", "mynets:small"], cut=True) == tuple(sorted((TORCHVISION, TRACING)))
    assert preloads([], cut=True) == ()
    assert all(importlib.util.find_spec(name) for name in (TORCHVISION, READING, TRACING))
