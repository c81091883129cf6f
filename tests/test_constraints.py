"""constraints.txt, by which every machine gets the versions that were tested."""

import importlib.util
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
INSTALLED = ("demo", "dev")  # the extras that scripts/setup installs


def pinned() -> dict[str, Version]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert len(pins) == len(lines)
    return {canonicalize_name(name): Version(text) for name, text in pins.items()}


def required(extras) -> list[Requirement]:
    """All that the package with these extras asks for, through extras that name others too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, todo = [Requirement(text) for text in project["dependencies"]], list(extras)
    for extra in todo:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if requirement.name == project["name"]:
                todo += requirement.extras - set(todo)
            else:
                found.append(requirement)
    return found


def test_every_requirement_has_a_version_that_it_allows():
    pins = pinned()
    wanted = required(INSTALLED)
    assert {"numpy", "torch", "ray", "librosa", "pytest"} <= {each.name for each in wanted}
    for requirement in wanted:
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_these_versions_are_the_ones_that_are_tested():
    installed = {name: Version(Version(version(name)).public) for name in pinned()}
    assert installed == pinned()


def test_versions_are_public_ones():
    assert not [name for name, pin in pinned().items() if pin.local]


@pytest.fixture
def pins():
    spec = importlib.util.spec_from_file_location("lock_versions", ROOT / "scripts" / "lock_versions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pins


def test_a_build_is_not_locked_but_its_version_is(pins):
    assert pins(["torch==2.13.0+cpu\n", "Brotli==1.2.1", "ast_serialize==0.13.1"]) == [
        "ast_serialize==0.13.1",
        "Brotli==1.2.1",
        "torch==2.13.0",
    ]


@pytest.mark.parametrize("line", ["torch @ file:///tmp/torch.whl", "-e git+https://example.org/x#egg=x", "numpy"])
def test_what_came_from_no_index_cannot_be_locked(pins, line):
    with pytest.raises(ValueError, match="from an index"):
        pins(["numpy==2.4.6", line])
