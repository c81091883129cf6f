"""Pictures of sweeps. Matplotlib is an extra, so this module is imported by what draws, and only then."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.sim.plot_style import LIGHT, Picture, colors, label_ends, panels, themed


def draw_lines(
    lines: Mapping[tuple[Any, ...], Sequence[tuple[float, float]]], x: str, metric: str, others: Sequence[str]
) -> Picture:
    """Draw a number of the results over a setting. A line of one policy has the policy's colour.

    Args:
        lines: The points (x, y) of each line, by the values of the other settings.
        x: The setting along the horizontal axis.
        metric: What the vertical axis shows.
        others: The names of the other settings."""
    names = {values: ", ".join(map(str, values)) for values in lines}
    with themed(LIGHT):
        drawn, (axes,) = panels([", ".join(others)], height_in=4.4)
        fill = colors(list(names.values()))
        for values, points in lines.items():
            axes.plot(*zip(*points, strict=True), "o-", color=fill[names[values]], label=names[values] or "_")
        axes.set(xlabel=x, ylabel=metric, ylim=(0, None))
        label_ends(axes)
    return drawn
