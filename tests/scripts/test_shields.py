"""scripts/shields.py: a shield says what the checks of one commit found, or there is none."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PARALLEL = """<testsuites><testsuite>
<testcase classname="tests.hls.test_resize" name="one"/>
<testcase classname="tests.hls.test_resize" name="two"><skipped/></testcase>
<testcase classname="tests.sim.test_engine" name="three"/>
</testsuite></testsuites>"""
TIMED = '<testsuites><testsuite><testcase classname="tests.host.test_clock" name="four"/></testsuite></testsuites>'


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("shields")


@pytest.fixture
def build(tmp_path):
    """A build folder with the results of `make test` and `make release-check` on one commit."""
    results = tmp_path / "results" / "test"
    results.mkdir(parents=True)
    (results / "commit").write_text(f"{COMMIT}\n")
    (results / "parallel.xml").write_text(PARALLEL)
    (results / "timed.xml").write_text(TIMED)
    (tmp_path / "release_check").mkdir()
    report = {"version": "0.2.0", "commit": COMMIT, "python": "3.11.7"}
    (tmp_path / "release_check" / "report.json").write_text(json.dumps(report))
    return tmp_path


def test_shields_have_the_numbers_of_the_results(script, build, tmp_path):
    checked = script.collect(build, "test")
    assert (checked["passed"], checked["skipped"], checked["units_passed"]) == (3, 1, 1)
    files = list(script.write(checked, tmp_path / "checked.json", tmp_path / "shields"))
    assert json.loads(files[0].read_text()) == checked
    shown = {path.stem: ElementTree.parse(path).getroot() for path in files[1:]}
    texts = {
        name: [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")] for name, root in shown.items()
    }
    assert texts == {
        "tests": ["make test", "3 tests passed"],
        "units": ["hardware units, C++ and RTL", "1 tests passed"],
        "packages": ["wheel and sdist", "installed with Python 3.11"],
    }
    assert all(COMMIT[:12] in root.get("aria-label") for root in shown.values())


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("results/test/commit", f"{COMMIT}-dirty", "not committed"),
        ("results/test/commit", "f" * 40, "and make release-check on 0123"),
        (
            "results/test/timed.xml",
            TIMED.replace("/></testsuite>", "><failure/></testcase></testsuite>"),
            "1 tests failed",
        ),
        (
            "results/test/timed.xml",
            TIMED.replace("/></testsuite>", "><error/></testcase></testsuite>"),
            "1 tests failed",
        ),
        ("release_check/report.json", None, "report.json does not exist; run make test and make release-check"),
    ],
)
def test_results_that_prove_nothing_are_refused(script, build, file, text, words):
    if text is None:
        (build / file).unlink()
    else:
        (build / file).write_text(text)
    with pytest.raises(script.Refused, match=words):
        script.collect(build, "test")


def test_the_shields_of_the_repository_agree_with_the_file_behind_them(script):
    """Without shields there is nothing to compare: none may stand there without the file."""
    there = {path.stem: path.read_text() for path in script.FOLDER.glob("*.svg")}
    assert there == (script.shields(json.loads(script.CHECKED.read_text())) if script.CHECKED.exists() else {})
