"""Links between the Markdown files of the repository lead to files and headings that exist, as GitHub shows them.

The build of the site checks the links between its own pages. These tests also cover all other files and links.
"""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from docs_runner import ROOT, docs_blocks

OTHERS = ("CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md", "sim/experiments/*/results/*.md", "docs/notes/*.md")
FILES = sorted({*docs_blocks.pages(), *(path for pattern in OTHERS for path in ROOT.glob(pattern))})
LINK = re.compile(r"\]\(<?([^()<>\s]+(?:\([^()\s]*\))?)>?(?:\s+\"[^\"]*\")?\)|\b(?:src|href|srcset)=\"([^\"\s]+)")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)


@cache
def prose(path: Path) -> str:
    """Return a file's text without its code."""
    lines = path.read_text().splitlines()
    for block in reversed(docs_blocks.read_blocks(path.read_text(), path.name)):
        del lines[block.line - 1 : block.end]
    return "\n".join(lines)


def links(path: Path) -> list[str]:
    found = [link or address for link, address in LINK.findall(CODE.sub("", prose(path)))]
    return [each for each in found if not re.match(r"[a-z]+:", each)]


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a file's headings, by GitHub's rules."""
    names: list[str] = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", prose(path))
    for title in re.findall(r"^#{1,6} (.+?)(?: #+)?$", prose(path), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        same = sum(1 for name in names if name == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", name))
        names.append(f"{slug}-{same}" if same else slug)
    return set(names)


def problem(path: Path, link: str) -> str | None:
    """Return what is wrong with a link, or None."""
    name, _, anchor = unquote(link).partition("#")
    target = (path.parent / name).resolve() if name else path
    if not target.exists():
        return f"{link}: there is no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: there is no such heading"
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_what_exists(path):
    assert [wrong for link in links(path) if (wrong := problem(path, link))] == []


def test_a_broken_link_is_found(tmp_path):
    page, other = tmp_path / "a.md", tmp_path / "b.md"
    other.write_text("# Two words, a `name`\n\n## Same\n\n## Same\n\n```text\n# No heading\n```\n")
    page.write_text(
        '# A\n\n[1](b.md) [2](b.md#two-words-a-name) [3](#a) [4](b.md#same-1) [5](https://x.org/y) <img src="c.png">\n'
        "[6](c.md) [7](b.md#three) [8](b.md#no-heading) `[9](d.md)`\n\n```text\n[10](e.md)\n```\n"
    )
    wrong = [link.partition(":")[0] for each in links(page) if (link := problem(page, each) or "")]
    assert wrong == ["c.png", "c.md", "b.md#three", "b.md#no-heading"]
