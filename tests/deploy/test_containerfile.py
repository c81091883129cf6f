"""deploy/Containerfile: it copies all that the package is made of, and starts a command that there is."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import typer

from headrace.host.cli.main import app

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "EXPOSE", "ENTRYPOINT"}


@pytest.fixture
def lines() -> list[tuple[str, str]]:
    """Instruction and what it is given, by line."""
    text = (ROOT / "deploy" / "Containerfile").read_text()
    told = [line for line in text.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in told]


@pytest.fixture
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_instructions_are_known_and_begin_with_an_image(lines):
    assert {instruction for instruction, _ in lines} <= INSTRUCTIONS
    assert lines[0][0] == "FROM"


def test_it_copies_all_sources_of_the_package_and_nothing_that_is_missing(lines, project):
    copied = {source for name, rest in lines if name == "COPY" and "--from" not in rest for source in rest.split()[:-1]}
    assert [source for source in copied if not (ROOT / source).exists()] == []
    folders = set(project["tool"]["setuptools"]["package-dir"].values())
    assert (
        folders | {"constraints.txt", "pyproject.toml", "setup.py", project["project"]["readme"], "LICENSE"} == copied
    )


def test_it_installs_extras_that_there_are(lines, project):
    [install] = [rest for name, rest in lines if name == "RUN" and "pip install" in rest]
    extras = install.split(".[")[1].split("]")[0].split(",")
    assert "server" in extras
    assert set(extras) <= set(project["project"]["optional-dependencies"])


def test_the_version_is_given_as_setuptools_scm_reads_it(lines, project):
    name = project["project"]["name"].upper()
    [install] = [rest for name, rest in lines if name == "RUN" and "pip install" in rest]
    assert ("ARG", "VERSION") in lines and f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}=$VERSION " in install


def test_image_and_changelog_have_the_same_version():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    version = re.search(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)[1]
    for file in ("deploy/Containerfile", "deploy/kserve/serving-runtime.yaml"):
        assert set(re.findall(r"headrace:(\d[\w.]*)", (ROOT / file).read_text())) == {version}, file


def test_it_starts_serve_as_an_ordinary_user(lines):
    given = dict(lines)
    program, command = json.loads(given["ENTRYPOINT"])
    assert program == "headrace"
    assert typer.main.get_command(app).get_command(None, command) is not None
    assert given["USER"] != "root"


def test_ports_are_those_of_serve(lines):
    serve = typer.main.get_command(app).get_command(None, "serve")
    defaults = {option.name: option.default for option in serve.params}
    ports = [defaults[name].rpartition(":")[2] for name in ("http", "grpc", "metrics")]
    assert dict(lines)["EXPOSE"].split() == ports
