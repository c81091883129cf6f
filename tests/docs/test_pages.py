"""Every block of the documentation runs, and its pages name all examples."""

import re
import shutil

import pytest
from docs_runner import ROOT, docs_blocks, run

PAGES = {str(path.relative_to(ROOT)): path for path in docs_blocks.pages()}
COMMAND = re.compile(r"^\s+(?:\$ )?(?:\.venv/bin/)?(?:headrace|python|pip|curl|make) \S")


def blocks(name: str) -> list:
    return docs_blocks.read_blocks(PAGES[name].read_text(), name)


def cases() -> list[str]:
    """Return the pages with blocks that run."""
    chosen = []
    for name in PAGES:
        try:
            runs = any(block.runs for block in blocks(name))
        except docs_blocks.PageError:  # the page's own test tells what is wrong
            runs = True
        if runs:
            chosen.append(name)
    return chosen


def check(*arguments: object, limit_s: float, forked: bool = False) -> None:
    done = run(*arguments, limit_s=limit_s, forked=forked)
    if done.returncode == docs_blocks.CANNOT_RUN:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("name", cases())
def test_the_blocks_of_a_page_run(name):
    check(PAGES[name], limit_s=900, forked=True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", cases())
def test_the_blocks_of_a_page_run_in_full(name):
    """As new processes, which also have to import what they need."""
    check("--slow", PAGES[name], limit_s=7000)


def outside_of_blocks(name: str) -> list[str]:
    lines = PAGES[name].read_text().splitlines()
    for block in reversed(blocks(name)):
        del lines[block.line - 1 : block.end]
    return lines


@pytest.mark.parametrize("name", PAGES)
def test_no_command_stands_in_an_indented_block_which_nobody_runs(name):
    assert [line for line in outside_of_blocks(name) if COMMAND.match(line)] == []


def test_every_example_is_used_by_a_page_or_by_another_example():
    files = {path.name for path in (ROOT / "examples").iterdir() if path.is_file()} - {"README.md"}
    programs = {name for name in files if re.match(r"\d\d_", name)}  # tests/examples runs them
    text = " ".join((ROOT / "examples" / name).read_text() for name in programs)
    of_pages = [block.text for name in PAGES for block in blocks(name) if block.runs]
    used = " ".join(of_pages)
    for name in files - programs:
        stem, _, suffix = name.partition(".")
        by_page = f"examples/{name}" in used or f"examples/*.{suffix}" in used or f"examples.{stem}" in used
        assert by_page or f"{stem}:" in text, f"no page and no example uses examples/{name}"


def test_the_tools_of_the_pages_are_here():
    assert all(shutil.which(tool) for tool in ("bash", "curl"))
