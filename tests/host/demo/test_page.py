"""The demo's page is one file that loads nothing, and its picture can be read."""

import re
from html.parser import HTMLParser

import pytest
from pictures import faults, texts

from headrace.host.demo.report.page import NamedImage, Page
from headrace.host.demo.report.picture import TITLE, Bars, Strip, draw
from headrace.host.demo.report.tables import Table
from headrace.sim.plot_style import COLORS, DARK, LIGHT, themed

POLICIES = ("serial", "graph", "preba")


def bars(title: str, *values: float | None) -> Bars:
    named = dict(zip(POLICIES, values, strict=True))
    return Bars(title, named, {name: "none served" if each is None else f"{each:,.0f}" for name, each in named.items()})


STRIPS = (
    Strip(
        "This machine: mobilenet_v3_small and efficientnet_lite0, 123 photos/s, from the tensor on",
        (
            bars("mean latency, ms", 123456.0, 1.0, 0.0),
            bars("99th percentile, ms", 123456.0, None, 1.0),
            bars("late, over 12345 ms", 1.0, 0.0, 0.5),
        ),
        False,
    ),
    Strip("Simulated: the same", (bars("cores busy", 0.0, 0.0, 0.0), bars("p", 5.0, 4.0, 3.0)), True),
)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_picture_can_be_read(theme, count):
    with themed(theme):
        drawn = draw.__wrapped__(STRIPS[:count])
        assert faults(drawn) == []
        shown = [text.get_text() for text in texts(drawn)]
    assert shown.count(TITLE) == 1 and ("none served" in shown) == (count > 0)
    assert [panel.heading in shown for panel in STRIPS] == [count > 0, count > 1]


def test_a_policy_has_its_colour_in_every_strip_and_only_simulated_ones_have_a_band():
    with themed(LIGHT):
        drawn = draw.__wrapped__(STRIPS)
    for axes in drawn.axes:
        fills = [
            "#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in bar.get_facecolor()[:3]))
            for bar in axes.patches
        ]
        assert fills == [COLORS[name][0] for name in POLICIES]
    live, simulated = drawn.subfigs
    assert (live.get_facecolor() == simulated.get_facecolor()) is False


class Resources(HTMLParser):
    """Collects what a page loads, and its visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.loaded += [value for name, value in attrs if name in ("src", "srcset", "data", "poster")]
        self.loaded += [value for name, value in attrs if name == "href" and tag == "link"]
        assert tag not in ("script", "iframe", "object")

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("page")
    draw(folder / "demo.png", STRIPS)
    table = Table("A <table>", ("run", "ms"), [[("serial & co", "1.0")], [("preba", "2.0")]])
    made = Page(
        "a network <b>",
        ["Look at this first."],
        [NamedImage("cat.jpg", b"\xff\xd8", "Egyptian cat, 43%")],
        "a network",
        [table],
        [("late", "above the target")],
        ["Nothing was run."],
    )
    return made.html(folder / "demo.png", ["report.json"])


def test_the_page_is_one_file_that_loads_nothing(page):
    found = Resources()
    found.feed(page)
    assert len(found.loaded) == 3 and all(each.startswith("data:image/") for each in found.loaded)
    assert not re.search(r"@import|url\(", page)


def test_the_page_begins_with_what_to_look_at_and_says_what_is_simulated(page):
    order = ("What to look at", "Look at this first.", "data:image/png", "Egyptian cat, 43%", "All numbers")
    order += ("serial &amp; co", "How to read them", "What is simulated", "Nothing was run.", "report.json")
    places = [page.index(part) for part in order]
    assert places == sorted(places)
    assert "a network &lt;b&gt;" in page and "A &lt;table&gt;" in page and page.count("<tbody>") == 2
