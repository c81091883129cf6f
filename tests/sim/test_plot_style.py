"""The style of pictures: colours that anybody can tell apart, labels that do not overlap, and two variants."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from pictures import faults
from PIL import Image

from headrace.batching import POLICIES
from headrace.sim import plot_style
from headrace.sim.plot_style import COLORS, DARK, LIGHT, OTHERS, Theme, themed

# Policies and ways of preprocessing that one picture shows together.
TOGETHER = (
    ("serial", "graph", "preba", "lazy"),
    ("serial", "graph", "oracle", "lazy"),
    ("cellular", "bucketed-graph", "graph", "dynamic-graph", "lazy"),
    ("graph", "preba", "smdp", "lazy", "earliest-deadline", "deferred"),
    ("graph", "lazy", "smdp", "preba", "preba-lazy"),
    ("work-conserving", "static", "smdp"),
    ("ideal", "dpu", "cpu", "cpu, paper-implied", "cpu, library"),
    ("ideal", "dpu", "cpu", "nvjpg"),
)
# Machado, Oliveira and Fernandes, IEEE TVCG 2009, Table 1, at full severity: how dichromats see linear RGB.
EYES = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
APART = 0.07  # in Oklab, where 0.02 is a difference that one sees side by side


def linear(color: str) -> np.ndarray:
    value = np.array(mpl.colors.to_rgb(color))
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Return a colour in Ottosson's space, in which distances are those that one sees."""
    cones = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
    axes = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
    return axes @ np.cbrt(cones @ np.clip(rgb, 0, 1))


def contrast(one: str, other: str) -> float:
    """Return the contrast of WCAG."""
    low, high = sorted(float(np.dot([0.2126, 0.7152, 0.0722], linear(color))) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", EYES)
def test_colours_of_one_picture_differ_for_everybody(theme: Theme, eyes: str):
    for names in TOGETHER:
        seen = {name: oklab(np.array(EYES[eyes]) @ linear(COLORS[name][theme.column])) for name in names}
        for one, other in combinations(names, 2):
            assert np.linalg.norm(seen[one] - seen[other]) > APART, f"{one} and {other} look alike"


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_stands_out_from_the_page(theme: Theme):
    for pair in (*COLORS.values(), *OTHERS):
        assert contrast(pair[theme.column], theme.background) >= 3
    with themed(theme):
        for shade in plot_style.shades(6):
            assert contrast(mpl.colors.to_hex(shade), theme.background) >= 3
    for text in (theme.text, theme.muted):
        assert contrast(text, theme.background) >= 4.5 and contrast(text, theme.band) >= 4.5


def test_every_policy_has_a_colour():
    assert set(POLICIES) <= set(COLORS)


def test_a_policy_keeps_its_colour_and_unknown_ones_get_the_spare_ones():
    chosen = plot_style.colors(["mine:One", "preba", "mine:Two"])
    assert chosen == {"mine:One": OTHERS[0][0], "preba": COLORS["preba"][0], "mine:Two": OTHERS[1][0]}
    with themed(DARK):
        assert plot_style.color("preba") == COLORS["preba"][1]
    with pytest.raises(KeyError):
        plot_style.color("mine:One")


def lines(ends):
    """Return a figure with a line to each of the heights `ends`, and a panel beside it."""
    drawn, panels = plot_style.panels(["one", "two"])
    for number, end in enumerate(ends):
        panels[0].plot([1, 2], [number, end], label=f"line {number}")
    panels[0].plot([1, 2], [0, 0], label="_without a name")
    plot_style.label_ends(panels[0])
    return drawn, panels[0]


@pytest.mark.parametrize("ends", [[1, 1, 1, 1], [0, 0.01, 0.02, 5], [5, 3, 1], [2, np.nan]])
def test_names_stand_at_the_ends_of_their_lines_and_not_on_each_other(ends):
    with themed(LIGHT):
        drawn, axes = lines(ends)
        assert faults(drawn) == []
        named = [text for text in axes.texts if text.get_text().startswith("line")]
    assert [text.get_text() for text in named] == [f"line {number}" for number in range(len(ends))]
    assert [text.get_color() for text in named] == [pair[0] for pair in OTHERS[: len(ends)]]
    # The order of the names is that of the ends.
    heights = [text.get_window_extent().y0 for text in named]
    assert all(heights[i] <= heights[j] for i, j in combinations(range(len(ends)), 2) if ends[i] < ends[j])


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1, 20, [1, 2, 5, 10, 20]),
        (1, 200, [1, 3, 10, 30, 100]),
        (0.02, 3e3, [0.1, 1, 10, 100, 1000]),
        (3, 4, [3, 3.2, 3.4, 3.6, 3.8, 4]),
    ],
)
def test_a_logarithmic_axis_has_few_plain_numbers(low, high, ticks):
    assert plot_style.PlainTicks().tick_values(low, high) == pytest.approx(ticks)


def test_faults_of_a_picture_are_found():
    with themed(LIGHT):
        drawn, panels = plot_style.panels(["one"])
        assert faults(drawn) == []
        panels[0].text(0.5, 0.5, "first")
        panels[0].text(0.5, 0.5, "second")
        panels[0].text(0.2, 0.2, "tiny", fontsize=5)
        panels[0].text(
            0.9, 0.2, "a text that goes far beyond the edge of the picture, where nobody reads it", in_layout=False
        )
        found = faults(drawn)
    assert "'first' lies on 'second'" in found and "'tiny' is small: 5 points" in found
    assert any("leaves the picture" in fault for fault in found) and len(found) == 3


def test_a_picture_is_written_in_both_variants_and_twice_the_same(tmp_path):
    @plot_style.picture
    def drawing(height: float):
        drawn, panels = plot_style.panels(["a title"])
        panels[0].plot([0, 1], [0, height], label="line")
        plot_style.label_ends(panels[0])
        return drawn

    drawing(tmp_path / "a.png", 2.0)
    light, dark = Image.open(tmp_path / "a.png"), Image.open(tmp_path / "a-dark.png")
    assert light.width == dark.width == 1600 and light.size == dark.size
    corners = ["#{:02x}{:02x}{:02x}".format(*each.convert("RGB").getpixel((0, 0))) for each in (light, dark)]
    assert corners == [LIGHT.background, DARK.background]
    for suffix in (".png", ".svg"):
        for name in ("a", "b"):
            drawing((tmp_path / name).with_suffix(suffix), 2.0)
        assert (tmp_path / "a").with_suffix(suffix).read_bytes() == (tmp_path / "b").with_suffix(suffix).read_bytes()
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert mpl.rcParams["axes.grid"] is False  # the style ends with the picture
