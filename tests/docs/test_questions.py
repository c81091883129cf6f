"""docs/notes/questions.md: each question of a new user is answered within two clicks from README."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTIONS = Path("docs/notes/questions.md")
ROW = re.compile(
    r"^\| (?P<question>.+\?) \| \[(?P<title>.+)\]\((?P<target>\S+?)(#(?P<anchor>\S+))?\) \| (?P<phrase>.+) \|$"
)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+\.md)(#[^)\s]*)?\)")
FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1", re.MULTILINE | re.DOTALL)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Question:
    text: str
    title: str
    page: Path
    anchor: str | None
    phrase: str


def normal(path: Path) -> Path:
    """Return the path without `..`."""
    return Path(os.path.normpath(path))


def read(root: Path, path: Path) -> str:
    return (root / path).read_text()


def questions(text: str) -> Iterator[Question]:
    for line in text.splitlines():
        if row := ROW.match(line):
            page = normal(QUESTIONS.parent / row["target"])
            yield Question(row["question"], row["title"], page, row["anchor"], row["phrase"].strip("`"))


def anchors(text: str) -> set[str]:
    """Return the anchors of headings, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        numbered = (f"{slug}-{number}" for number in range(1, 100))
        found.add(slug if slug not in found else next(each for each in numbered if each not in found))
    return found


def links(root: Path, page: Path) -> set[Path]:
    """Return the pages to which a page links, also by a list of contents."""
    text = read(root, page)
    targets = [match[0] for match in LINK.findall(FENCE.sub("", text))]
    for contents in TOCTREE.findall(text):
        entries = [line for line in contents.splitlines() if line and not line.startswith(":")]
        targets += [f"{entry.rpartition('<')[2].rstrip('>')}.md" for entry in entries]  # "page" or "Title <page>"
    return {normal(page.parent / target) for target in targets}


def reachable(root: Path) -> set[Path]:
    """Return the pages within two clicks: from README, and from an index to which README links."""
    first = links(root, Path("README.md"))
    indices = [page for page in first if page.name == "index.md" and (root / page).is_file()]
    return first.union(*(links(root, page) for page in indices))


def problem(root: Path, question: Question, there: set[Path]) -> str | None:
    if not (root / question.page).is_file():
        return f"{question.page} does not exist"
    text = read(root, question.page)
    if question.anchor is not None and question.anchor not in anchors(text):
        return f"{question.page} has no anchor #{question.anchor}"
    if question.page not in there:
        return f"{question.page} is more than two clicks from README.md"
    if question.phrase.lower() not in re.sub(r"\s+", " ", text).lower():
        return f"{question.page} does not have the phrase {question.phrase!r}"
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    if title is None or not title[1].startswith(question.title):
        return f"{question.page} does not have the title {question.title!r}"
    return None


ALL = list(questions(read(ROOT, QUESTIONS)))


def test_three_users_have_ten_questions_each():
    users = read(ROOT, QUESTIONS).split("\n## ")[1:]
    assert [len(list(questions(user))) for user in users] == [10, 10, 10]
    assert len({question.text for question in ALL}) == 30


@pytest.mark.parametrize("question", ALL, ids=[question.text for question in ALL])
def test_a_question_is_answered_within_two_clicks(question):
    assert problem(ROOT, question, reachable(ROOT)) is None


PAGES = {
    "README.md": "[How-to](docs/how_to/index.md), [limits](docs/limits.md#a)\n\n```text\n[no link](docs/far.md)\n```\n",
    "docs/how_to/index.md": "# How-to\n\n- [Send](send.md)\n\n```{toctree}\n:hidden:\n\nother\nNamed <named>\n```\n",
    "docs/how_to/send.md": "# Send an image\n\n## With `curl`: one\n\nUse curl\n--data.\n\n[far](../far.md)\n",
    "docs/how_to/other.md": "# Other\n",
    "docs/how_to/named.md": "# Named\n",
    "docs/limits.md": "# Limits\n\n## A\n",
    "docs/far.md": "# Far\n",
}


@pytest.fixture
def pages(tmp_path):
    for name, text in PAGES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_two_clicks_lead_through_an_index(pages):
    names = ("docs/how_to/index", "docs/how_to/send", "docs/how_to/other", "docs/how_to/named", "docs/limits")
    assert reachable(pages) == {Path(f"{name}.md") for name in names}


@pytest.mark.parametrize(
    ("page", "anchor", "phrase", "title", "words"),
    [
        ("docs/how_to/send.md", "with-curl-one", "curl --data", "Send an image", None),
        ("docs/how_to/send.md", None, "curl --data", "Send", None),
        ("docs/how_to/send.md", "with-curl", "curl", "Send", "no anchor #with-curl"),
        ("docs/how_to/send.md", None, "wget", "Send", "phrase 'wget'"),
        ("docs/how_to/send.md", None, "curl", "Ask", "title 'Ask'"),
        ("docs/far.md", None, "far", "Far", "more than two clicks"),
        ("docs/none.md", None, "none", "None", "does not exist"),
    ],
)
def test_a_page_that_does_not_answer_is_named(pages, page, anchor, phrase, title, words):
    found = problem(pages, Question("?", title, Path(page), anchor, phrase), reachable(pages))
    assert found is None if words is None else words in found
