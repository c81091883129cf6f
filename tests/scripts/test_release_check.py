"""scripts/release_check, which builds and tries the packages of a release, and what it compares."""

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version
from setuptools import Distribution

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "release_check"
RELEASED = ["# Changelog", "## [0.2.0] - 2026-11-26", "## [0.1.0] - 2026-11-25"]
UNRELEASED = ["# Changelog", "## [Unreleased]", "## [0.2.0] - 2026-11-26"]


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("release_check", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look their module up
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.mark.parametrize(
    ("version", "tags", "changelog", "fallback"),
    [
        ("0.2.0.dev970", [], RELEASED, "0.2.0.dev0"),  # before the tag, in a clone without tags
        ("0.2.0", ["v0.2.0"], RELEASED, "0.2.0.dev0"),
        ("0.2.0", ["measured", "v0.2.0"], RELEASED, "0.2.0.dev0"),
        ("0.2.1.dev3", [], UNRELEASED, "0.3.0.dev0"),
    ],
)
def test_version_tag_and_changelog_agree(script, version, tags, changelog, fallback):
    assert script.version_problem(version, tags, changelog, fallback) is None


@pytest.mark.parametrize(
    ("version", "tags", "changelog", "fallback", "words"),
    [
        ("0.2.1.dev0", ["v0.2.0"], RELEASED, "0.2.0.dev0", "tag v0.2.0, but the package the version 0.2.1.dev0"),
        ("0.2.0", ["v0.2.0"], UNRELEASED, "0.3.0.dev0", "begins with '## [Unreleased]'"),
        ("0.3.0", ["v0.3.0"], RELEASED, "0.2.0.dev0", "is the release 0.3.0, but CHANGELOG.md begins with '## [0.2.0]"),
        ("0.2.0", [], RELEASED, "0.2.0.dev0", "no development version"),
        ("0.2.1.dev3", [], UNRELEASED, "0.2.0.dev0", "fallback_version 0.2.0.dev0 is not"),
        ("0.2.1.dev3", [], RELEASED, "0.2.0.dev0", "fallback_version 0.2.0.dev0 is not"),
        ("0.2.0.dev970", [], RELEASED, "0.2.0", "fallback_version 0.2.0 is not"),
        ("0.2.0.dev970", [], ["## Unreleased", "## [0.1.0] - 2026-11-25"], "0.2.0.dev0", "a heading is neither"),
        ("0.2.0.dev970", [], ["## [0.2.0]"], "0.2.0.dev0", "a heading is neither"),
    ],
)
def test_a_disagreement_is_named(script, version, tags, changelog, fallback, words):
    assert words in script.version_problem(version, tags, changelog, fallback)


def test_the_changelog_and_the_fallback_version_of_this_commit_agree(script):
    fallback = script.fallback_version(ROOT)
    dev = f"{fallback.removesuffix('.dev0')}.dev1"
    assert script.version_problem(dev, [], (ROOT / "CHANGELOG.md").read_text().splitlines(), fallback) is None


def test_the_installed_package_has_a_version_that_comes_from_git(script):
    installed = Version(version("headrace"))
    assert installed.release >= script.number("0.2.0") and installed.local is None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"] and "version" not in project


PACKAGES = {"headrace": "headrace", "headrace.hls": "hls"}
TRACKED = ("headrace/py.typed", "hls/unit.sv", "hls/README.md", "hls/rtl/results/table.csv", "tests/test_unit.py")
INSTALLED = (
    "headrace/py.typed",
    "headrace/hls/unit.sv",
    "headrace/hls/unit.cpython-311.so",
    "headrace-0.2.0.dist-info/RECORD",
)


def test_a_complete_wheel_has_no_problem(script):
    assert list(script.wheel_problems(TRACKED, PACKAGES, INSTALLED)) == []


def test_a_file_that_the_wheel_lacks_and_one_that_no_clone_has_are_named(script):
    lacking = [name for name in INSTALLED if not name.endswith(".sv")]
    [problem] = script.wheel_problems(TRACKED, PACKAGES, lacking)
    assert problem.startswith("hls/unit.sv is not in the wheel")
    [problem] = script.wheel_problems(TRACKED, PACKAGES, [*INSTALLED, "headrace/hls/old.py"])
    assert problem == "headrace/hls/old.py is in the wheel, but not in the clone"


def test_a_file_that_the_source_distribution_lacks_is_named(script):
    [problem] = script.sdist_problems(TRACKED, [*TRACKED[1:], "PKG-INFO"])
    assert problem == "headrace/py.typed is not in the source distribution"


def test_every_file_of_the_packages_is_installed_or_left_out_by_name(script, monkeypatch):
    """What setuptools would put into a wheel, without building one."""
    monkeypatch.chdir(ROOT)
    distribution = Distribution({"script_name": "setup.py"})
    distribution.parse_config_files()
    build_py = distribution.get_command_obj("build_py")
    build_py.ensure_finalized()
    prefix = f"{build_py.build_lib}/"
    installed = [name.removeprefix(prefix) for name in build_py.get_outputs(include_bytecode=False)]
    # Files that are not committed yet count, too.
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    there = [name for name in tracked.splitlines() if Path(name).is_file()]
    assert list(script.wheel_problems(there, distribution.package_dir, installed)) == []


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_both_packages_of_the_last_commit_are_built_and_work():
    done = subprocess.run([SCRIPT], capture_output=True, text=True, timeout=5300)
    assert done.returncode == 0, done.stderr
    folder = ROOT / "build" / "release_check"
    report = json.loads((folder / "report.json").read_text())
    assert list(report["seconds"]) == ["version", "build", "metadata", "contents", "wheel", "sdist"]
    assert Version(report["version"]) >= Version("0.2.0.dev0")
    [wheel] = (folder / "dist").glob(f"headrace-{report['version']}-*.whl")
    [sdist] = (folder / "dist").glob(f"headrace-{report['version']}.tar.gz")
    assert set(report["files"]) == {wheel.name, sdist.name}
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith(".so") for name in archive.namelist())
    with tarfile.open(sdist) as archive:
        assert not any(name.endswith(".so") for name in archive.getnames())
