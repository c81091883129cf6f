"""scripts/setup on a machine that lacks something. scripts/fresh_machine tries it on whole machines."""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
TOOLS = ("bash", "basename", "cat", "curl", "dirname", "grep", "id", "make", "perl", "sha256sum", "tclsh", "tr")
PYTHON = Path(sys.base_prefix) / "bin" / "python3"
COMPILERS = ("g++", "ccache")
# A Python without its headers: whatever asks for them fails.
WITHOUT_HEADERS = '#!/bin/sh\ncase "$*" in *Python.h*) exit 1; esac\nexec {} "$@"\n'


@pytest.fixture
def setup(tmp_path):
    """setup(*tools, python=...) runs it in a copy, on a PATH of these tools. Without apt, nothing is installed."""
    for folder in ("batching", "sim", "host/server/transport/grpc/native"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for file in ("pyproject.toml", "setup.py", "constraints.txt", "scripts/setup"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)

    def run(*tools, python="python3"):
        bin = tmp_path / "bin"
        bin.mkdir()
        for tool in tools:
            (bin / Path(tool).name).symlink_to(shutil.which(tool))
        (bin / "python3.11").write_text(WITHOUT_HEADERS.format(PYTHON))
        (bin / "python3.11").chmod(0o755)
        environment = {"PATH": str(bin), "PYTHON": python}
        command = [tmp_path / "scripts" / "setup"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    return run


def test_missing_compilers_are_named_with_the_line_that_installs_them(setup):
    done = setup(*TOOLS, PYTHON)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "setup: as root: apt-get update && apt-get install --no-install-recommends g++ ccache libnghttp2-dev libssl-dev"
    )


def test_missing_headers_are_those_of_the_python_that_is_used(setup):
    done = setup(*TOOLS, *COMPILERS, python="python3.11")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("--no-install-recommends python3.11-dev")


def test_a_machine_without_python_is_told_all_that_it_needs(setup):
    done = setup(*TOOLS, *COMPILERS)
    assert done.stderr.splitlines()[-1].endswith("--no-install-recommends python3 python3-venv python3-dev")


def test_a_new_tag_on_the_commit_makes_set_up_install_again_and_another_commit_does_not(setup, tmp_path):
    """The tag is the version of the package."""
    script = (tmp_path / "scripts" / "setup").read_text()
    want = script[script.index("\ncompiled=") : script.index("sha256sum)") + len("sha256sum)")]
    write = f'{want}\nmkdir -p .venv\necho "$want" >.venv/.headrace-setup'

    def git(*arguments):
        identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, timeout=60)

    def up_to_date() -> bool:
        check = [tmp_path / "scripts" / "setup", "--check"]
        return subprocess.run(check, capture_output=True, timeout=60).returncode == 0

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "one")
    subprocess.run(["bash", "-c", write], cwd=tmp_path, check=True, timeout=60)
    assert up_to_date()
    git("commit", "--quiet", "--allow-empty", "--message", "two")
    assert up_to_date()
    git("tag", "v0.9.0")
    assert not up_to_date()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "line",
    [
        "import torchvision",
        "import headrace.host.workers.networks.models, torchvision",
        *(
            pytest.param(line, marks=pytest.mark.slow)
            for line in (
                "import torch, torchvision.ops",
                "import torchvision.transforms.v2, torch",
                "from torchvision.models import resnet18; resnet18(weights=None)",
                "import torchvision, headrace.host.workers.networks.models",
            )
        ),
    ],
)
def test_torchvision_is_imported_in_any_order(line):
    """In what scripts/setup makes. Its wheel alone fails beside a torch without CUDA."""
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_to_look_for_torchvision_is_not_to_import_torch():
    line = "import sys, importlib.util as i; sys.exit(not i.find_spec('torchvision') or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", line], timeout=120, check=False).returncode == 0


def test_every_version_that_setup_installs_runs_on_the_earliest_python():
    """The Python of a Debian may be an earlier 3.11 than the one of these tests."""
    pins = [line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    needs = {name: importlib.metadata.metadata(name).get("Requires-Python") or "" for name in pins}
    assert len(needs) > 100
    assert {name: need for name, need in needs.items() if "3.11.0" not in SpecifierSet(need)} == {}


def test_every_version_that_setup_installs_is_the_one_that_is_tested():
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    found = {pin.name: importlib.metadata.version(pin.name).partition("+")[0] for pin in pins}
    assert {pin.name: found[pin.name] for pin in pins if found[pin.name] not in pin.specifier} == {}
