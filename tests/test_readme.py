"""What the README says of the repository itself is so."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Every folder below these with an __init__.py is a package.
PACKAGES = {
    str(file.parent.relative_to(ROOT))
    for folder in ("headrace", "hls", "bitstreams", "host", "batching", "sim")
    for file in (ROOT / folder).rglob("__init__.py")
}


def test_the_layout_names_every_package_folder_and_none_that_is_not_there():
    layout = (ROOT / "README.md").read_text().partition("\n## Layout\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| \[?([\w/]+)/[\] ]", layout, re.MULTILINE)
    assert len(named) == len(set(named))
    assert sorted(PACKAGES - set(named)) == []
    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []


def test_every_package_folder_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = {name.removeprefix("headrace.").replace(".", "/") for name in project["tool"]["setuptools"]["packages"]}
    assert installed == PACKAGES
