"""The site builds without a warning, loads nothing from elsewhere, and every page is reachable and has a title."""

import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docs_runner import ROOT

DOCS = ROOT / "docs"
NO_PAGES = {"genindex.html", "search.html", "py-modindex.html"}  # Sphinx makes them
LOADS = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "object": ("data",),
}
LOADS |= {"video": ("src", "poster"), "audio": ("src",), "embed": ("src",), "link": ("href",)}

# A tree of a page has many nodes that refer to each other, and little of it is garbage. Searching it again and again
# takes a quarter of the time.
SPHINX = "import gc, sys; gc.set_threshold(200_000, 20, 100); from sphinx.cmd.build import main; sys.exit(main())"


class Parsed(HTMLParser):
    """What a page has: its titles, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.titles = 0
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = {name: value or "" for name, value in attributes}
        self.titles += tag == "h1"
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") in ("canonical", "next", "prev", "index", "search", "author"):
            return
        for name in LOADS.get(tag, ()):
            if name in values:
                self.loads += [each.split()[0] for each in values[name].split(",") if each.strip()]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    build = ["-c", SPHINX, "-b", "html", "-W", "--keep-going", "-n", "-q", "-d", folder / "doctrees", DOCS]
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, *build, folder / "html"], capture_output=True, text=True, timeout=280, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder / "html"


@pytest.fixture(scope="module")
def parsed(site) -> dict[str, Parsed]:
    """The pages of the site by their paths."""
    paths = [path for path in site.rglob("*.html") if path.relative_to(site).parts[0] not in ("_static", "_downloads")]
    return {path.relative_to(site).as_posix(): Parsed(path.read_text()) for path in paths}


def target(page: str, link: str) -> str | None:
    """Return the path of the file to which a page's link leads, or None if it leads to another host."""
    split = urlsplit(link)
    if split.scheme or split.netloc:
        return None
    return os.path.normpath(Path(page).parent / unquote(split.path)) if split.path else page


def test_every_page_has_one_title(parsed):
    assert {name: page.titles for name, page in parsed.items() if name not in NO_PAGES and page.titles != 1} == {}


def test_every_page_is_reachable_from_the_first(parsed):
    reached, todo = {"index.html"}, ["index.html"]
    for page in todo:
        for link in parsed[page].links:
            path = target(page, link)
            if path in parsed and path not in reached:
                reached.add(path)
                todo.append(path)
    assert sorted(parsed.keys() - reached - NO_PAGES) == []


def test_no_page_loads_anything_from_another_host(parsed):
    foreign = {(name, each) for name, page in parsed.items() for each in page.loads if target(name, each) is None}
    assert {(name, each) for name, each in foreign if not each.startswith("data:")} == set()


def test_no_style_and_no_program_loads_anything_from_another_host(site):
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text()), path
    for path in (DOCS / "_static").glob("*.js"):
        assert "//" not in re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE), path


def test_what_a_page_loads_is_there(site, parsed):
    for name, page in parsed.items():
        for each in page.loads:
            path = target(name, each)
            assert path is None or (site / path).exists(), f"{name} loads {each}"


def test_every_page_of_a_section_is_a_page_of_the_site(parsed):
    names = [path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.glob("*/**/*.md")]
    assert [name for name in names if name not in parsed and not name.startswith(("notes/", "measured/"))] == []


def test_the_search_finds_pages_without_a_server(site):
    index = (site / "searchindex.js").read_text()
    assert index.startswith("Search.setIndex(") and "tutorials/index" in index


def test_the_lists_of_pages_are_those_of_the_folders():
    index = runpy.run_path(str(ROOT / "scripts" / "docs_index.py"))
    for section in index["ORDER"]:
        file = DOCS / section / "index.md"
        assert index["rewritten"](file) == file.read_text(), f"run scripts/docs_index.py: {file}"


@pytest.mark.parametrize(
    "text, found",
    [
        ("# Send an image\n\nThis page sends. It ends.", ("Send an image", "This page sends.")),
        (
            "<!-- a note -->\n# A\n\n<!-- b -->\n\nIt has `x.y` and v1.2\nof [this](b.md). More.",
            ("A", "It has `x.y` and v1.2 of this."),
        ),
        ("# A\n\n| a | b |\n| - | - |\n\nOne sentence", ("A", "One sentence")),
        ("# A\n\nIt lists: a, b and c.\n", ("A", "It lists: a, b and c.")),
    ],
)
def test_a_line_of_the_list_has_the_title_and_the_first_sentence(text, found):
    assert runpy.run_path(str(ROOT / "scripts" / "docs_index.py"))["title_and_opening"](text) == found


@pytest.mark.parametrize("text", ["No title.\n", "## Not this\n\nText.\n", "# Alone\n", "# A\n\n```text\nx\n```\n"])
def test_a_page_without_a_title_or_an_opening_is_refused(text):
    with pytest.raises(ValueError, match="the page has no"):
        runpy.run_path(str(ROOT / "scripts" / "docs_index.py"))["title_and_opening"](text)


def test_the_drawing_of_the_architecture_is_what_the_script_draws():
    script = runpy.run_path(str(ROOT / "scripts" / "draw_architecture.py"))
    for name, theme in (("light", script["LIGHT"]), ("dark", script["DARK"])):
        assert (DOCS / "images" / f"architecture-{name}.svg").read_text() == script["drawing"](theme)
