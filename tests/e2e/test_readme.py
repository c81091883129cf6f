"""The README's commands run as they are written, from the repository's root."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = (
    "Commands",
    "Simulation",
    "Planning a server",
    "The best batch for every queue length",
    "Cellular batching",
    "A step model of your own",
)
SLOW = (
    "demo",
    "profile",
    "reproduce",
    "build --target hw_emu",
    "build --report",
    "plan --model resnet50",
    "plan --tune",
    "plan --model vgg16",
)  # five seconds to many minutes; `plan` has its quick forms in tests/host/cli


def section(title: str) -> str:
    _, found, rest = (ROOT / "README.md").read_text().partition(f"\n## {title}\n")
    assert found, f"no section {title}"
    return rest.partition("\n## ")[0]


def commands_of(title: str) -> list[str]:
    found = re.findall(r"^    (\S*(?:headrace|python) .*?)(?:\s+#.*)?$", section(title), re.MULTILINE)
    assert found, f"{title}: no commands"
    return found


def commands() -> list[str]:
    return [line for title in SECTIONS for line in commands_of(title)]


def cases() -> list:
    slow = [pytest.mark.slow, pytest.mark.timeout(3600)]
    is_slow = re.compile("headrace (" + "|".join(SLOW) + ")").search
    return [pytest.param(line, id=line[:70], marks=slow if is_slow(line) else []) for line in commands()]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Looks like the repository's root with the virtual environment in it, and takes what the commands write."""
    folder = tmp_path_factory.mktemp("root")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    run(commands()[0], folder)  # later ones read what it writes
    return folder


def run(line: str, folder: Path) -> None:
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stderr
    busy = ("in different rounds", "is still starting after")  # what is told of the machine and not of the line
    told = [told for told in done.stderr.splitlines() if not any(words in told for words in busy)]
    assert "warning" not in "".join(told)


@pytest.mark.parametrize("line", cases())
def test_a_command_of_the_readme(line, root):
    run(line, root)


def test_a_network_of_ones_own_is_profiled_simulated_and_served_node_by_node(tmp_path):
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    title = "Node-level scheduling on your own network"
    for name, text in re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    commands = [line for line in commands_of(title) if "/headrace " in line]
    for line in (*commands, ".venv/bin/python serve.py"):
        run(line, tmp_path)


def serve_commands() -> list:
    return [line for line in commands_of("Server") if "/headrace serve " in line]


@pytest.mark.slow  # they measure profiles
@pytest.mark.timeout(900)
@pytest.mark.parametrize("line", serve_commands())
def test_a_server_of_the_readme_becomes_ready_and_ends(line, root):
    ports = " ".join(f"--{port} 127.0.0.1:0" for port in ("http", "grpc", "metrics"))
    process = subprocess.Popen(
        ["bash", "-c", f"exec {line} --json {ports}"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ready = process.stdout.readline()
        assert ready, process.stderr.read()
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_every_example_is_named_by_a_command_or_runs_as_an_example():
    used = " ".join([*commands(), *commands_of("Server")])
    files = {path.name for path in (ROOT / "examples").iterdir()} - {"README.md", "__pycache__"}
    programs = {path.name for path in (ROOT / "examples").glob("[0-9][0-9]_*")}  # tests/examples runs them
    text = " ".join((ROOT / "examples" / name).read_text() for name in programs)
    files = {name for name in files - programs if f"{Path(name).stem}:" not in text}
    assert files and all(f"examples/{name}" in used or f"examples/*{Path(name).suffix}" in used for name in files)
