"""What the README and the page for contributors say of the repository is so."""

import re
import runpy
import tomllib

from docs_runner import ROOT, docs_blocks

README = (ROOT / "README.md").read_text()
CONTRIBUTING = ROOT / "docs" / "project" / "contributing.md"
# Every folder below these with an __init__.py is a package.
PACKAGES = {
    str(file.parent.relative_to(ROOT))
    for folder in ("headrace", "hls", "bitstreams", "host", "batching", "sim")
    for file in (ROOT / folder).rglob("__init__.py")
}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_its_starts_have_at_most_five_lines():
    starts = [block.text.splitlines() for block in docs_blocks.read_blocks(README, "README.md") if block.runs]
    assert len(starts) == 4
    assert [lines for lines in starts if len([line for line in lines if line]) > 5] == []


def test_a_new_machine_tries_its_two_commands():
    commands = re.findall(r"^(make \w+) +#", README, re.MULTILINE)
    assert tuple(commands) == runpy.run_path(str(ROOT / "scripts" / "fresh_machine"))["COMMANDS"]


def test_it_names_extras_that_exist_and_all_that_users_need():
    rows = re.findall(r"^\| (`.*?) \|", README.partition("| extra |")[2].partition("\n\n")[0], re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    extras = set(project()["project"]["optional-dependencies"])
    assert named <= extras
    assert extras - named <= {"libraries", "pynq", "bench"}  # of single commands, which name them


def test_every_package_folder_is_installed():
    packages = project()["tool"]["setuptools"]["packages"]
    assert {name.removeprefix("headrace.").replace(".", "/") for name in packages} == PACKAGES


def test_the_layout_names_every_package_folder_and_none_that_is_not_there():
    layout = CONTRIBUTING.read_text().partition("\n## Layout\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| \[?`?([\w/]+)/`?[\] ]", layout, re.MULTILINE)
    assert len(named) == len(set(named))
    assert sorted(PACKAGES - set(named)) == []
    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []
