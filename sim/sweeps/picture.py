"""Pictures of sweeps. Matplotlib is an extra, so this module is imported by what draws, and only then."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that Jupyter shows, although pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        """Return the picture as Jupyter asks for it."""
        written = BytesIO()
        self.savefig(written, format="png", dpi=100)
        return written.getvalue()


def draw_lines(
    lines: Mapping[tuple[Any, ...], Sequence[tuple[float, float]]], x: str, metric: str, others: Sequence[str]
) -> Picture:
    """Draw a number of the results over a setting.

    Args:
        lines: The points (x, y) of each line, by the values of the other settings.
        x: The setting along the horizontal axis.
        metric: What the vertical axis shows.
        others: The names of the other settings."""
    picture = Picture(figsize=(6.4, 4.0), layout="constrained")
    axes = picture.subplots()
    for values, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=", ".join(map(str, values)))
    axes.set_xlabel(x)
    axes.set_ylabel(metric)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if others:
        axes.legend(title=", ".join(others))
    return picture
