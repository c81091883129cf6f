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
    "The best batch for every queue length",
    "Cellular batching",
    "A step model of your own",
)
SLOW = ("demo", "profile", "reproduce", "build --target hw_emu", "build --report")  # half a minute to many minutes


def commands() -> list[str]:
    found = []
    for part in (ROOT / "README.md").read_text().split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        lines = (
            re.findall(r"^    (\S*(?:headrace|python) .*?)(?:\s+#.*)?$", body, re.MULTILINE)
            if title in SECTIONS
            else []
        )
        assert lines or title not in SECTIONS, f"{title}: no commands"
        found += lines
    return found


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
    assert "warning" not in done.stderr


@pytest.mark.parametrize("line", cases())
def test_a_command_of_the_readme(line, root):
    run(line, root)


def test_every_example_is_named_by_a_command():
    used = " ".join(commands())
    files = {path.name for path in (ROOT / "examples").iterdir()} - {"README.md"}
    assert files and all(f"examples/{name}" in used or f"examples/*{Path(name).suffix}" in used for name in files)
