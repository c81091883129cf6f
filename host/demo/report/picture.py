"""Draw the demo's picture: strips of bars, one below the other. A band lies behind the strips that are simulated.

The emulated DPU's time is drawn nowhere, because it is not a card's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.figure import Figure

from headrace.sim.plot_style import FONT_PT, WIDTH_IN, Picture, bars, colors, picture, theme

TITLE: Final = "Batching at equal load, and a DPU in place of CPU cores"
TITLE_IN, HEADING_IN, BAR_IN = 0.36, 0.62, 0.24


@dataclass(frozen=True, slots=True)
class Bars:
    """A panel with a bar for each name. None stands for a value that does not exist. `shown` has the texts."""

    title: str
    values: Mapping[str, float | None]
    shown: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Strip:
    """Panels side by side, with the same names."""

    heading: str
    panels: Sequence[Bars]
    simulated: bool


@picture
def draw(strips: Sequence[Strip]) -> Figure:
    """Draw the strips. Each name has one colour in all of them."""
    heights = [HEADING_IN + BAR_IN * len(strip.panels[0].values) for strip in strips]
    drawn = Picture(figsize=(WIDTH_IN, TITLE_IN + sum(heights)), layout="constrained")
    drawn.get_layout_engine().set(w_pad=0.06, h_pad=0.04)  # type: ignore[union-attr]
    drawn.suptitle(TITLE, x=0.01, ha="left")
    if not strips:
        return drawn
    fill = colors(list(dict.fromkeys(name for strip in strips for name in strip.panels[0].values)))
    parts = drawn.subfigures(len(strips), 1, height_ratios=heights, squeeze=False)
    for part, strip in zip(parts[:, 0], strips, strict=True):
        part.set_facecolor(theme().band if strip.simulated else theme().background)
        part.suptitle(strip.heading, x=0.01, ha="left", fontsize=FONT_PT, weight="bold")
        for axes, panel in zip(part.subplots(1, len(strip.panels), sharey=True), strip.panels, strict=True):
            axes.set_facecolor("none")
            values = {name: 0.0 if value is None else value for name, value in panel.values.items()}
            bars(axes, values, panel.shown, fill)
            axes.set_title(panel.title, color=theme().muted)
    return drawn
