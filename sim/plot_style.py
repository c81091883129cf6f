"""One style for all pictures: colours, sizes, direct labels, and a light and a dark variant of each.

Rules:

- A policy has one colour in all pictures, and so has a kind of preprocessing. The colours of the policies that are
  drawn together differ for people with any of the three dichromacies, too (tests/sim/test_plot_style.py).
- A picture is WIDTH_IN wide and has at most three panels in a row. Shown 800 pixels wide, its smallest text is 11
  pixels high.
- Lines have their names at their ends (`label_ends`), and bars have their values (`bars`). A legend is for what has no
  end.

A function that draws returns a figure and is decorated with `picture`. It then takes the path of the file as its first
argument, and writes NAME.png for a light page and NAME-dark.png for a dark one. Matplotlib is an extra, so only modules
that draw may import this one.
"""

import functools
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, cast

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter
from PIL import Image

WIDTH_IN: Final = 8.0
SHOWN_PX: Final = 800
SCALE: Final = 2  # pixels of a file for each pixel shown, for screens with small pixels
FONT_PT: Final = 9.0
SMALL_PT: Final = 8.0
GAP: Final = 1.15  # distance of two labels, in heights of a line
NAME_PT: Final = 5.0  # from the end of a line to its name
FAINTEST: Final = 0.4  # of `tints`: the share of the colour, the rest is the background

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a picture for one kind of page. `band` sets parts of a picture apart, and `muted` is for what is
    less important than the data."""

    suffix: str
    background: str
    text: str
    muted: str
    grid: str
    band: str
    column: int  # of COLORS
    shades: tuple[float, float]  # the part of the colour map SHADES that contrasts with the background


LIGHT: Final = Theme("", "#ffffff", "#1f2328", "#656d76", "#d8dee4", "#f2f4f7", 0, (0.0, 0.78))
DARK: Final = Theme("-dark", "#14181e", "#e6edf3", "#9198a1", "#30363d", "#1e242c", 1, (0.3, 1.0))
SHADES: Final = "cividis"

# The colours on a light and on a dark page. The first part has the policies, the second the ways of preprocessing.
COLORS: Final[Mapping[str, tuple[str, str]]] = {
    "serial": ("#636363", "#8c8c8c"),
    "graph": ("#cf7500", "#f4a91d"),
    "static": ("#6b3a12", "#e0b070"),
    "work-conserving": ("#3a8ef0", "#71c7fe"),
    "bucketed-graph": ("#574000", "#f2ea60"),
    "dynamic-graph": ("#4a31c6", "#7f62e6"),
    "cellular": ("#b04a16", "#d2452a"),
    "lazy": ("#2f9e86", "#52d6b3"),
    "oracle": ("#1a1a1a", "#ffffff"),
    "preba": ("#063085", "#5a8cff"),
    "smdp": ("#a83abd", "#b066a6"),
    "preba-lazy": ("#2a7f70", "#b2fdfc"),
    "deferred": ("#6a1228", "#e0304c"),
    "earliest-deadline": ("#4f6223", "#f4f48c"),
    "ideal": ("#8a939c", "#8a939c"),
    "dpu": ("#b01540", "#ff4d7d"),
    "cpu": ("#22303d", "#e3ecf5"),
    "cpu, paper-implied": ("#cf7500", "#f4a91d"),
    "cpu, library": ("#3a8ef0", "#5cb0ff"),
    "nvjpg": ("#5c8a00", "#9be04a"),
}
# Colours for what is neither, such as networks, in this order.
OTHERS: Final[Sequence[tuple[str, str]]] = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8f4d"),
    ("#009e73", "#3ed3a6"),
    ("#a8559a", "#e3a0d3"),
    ("#8a6d00", "#f0d24a"),
    ("#5c5c5c", "#b0b0b0"),
    ("#7a2f12", "#d39a7f"),
)

_theme: ContextVar[Theme] = ContextVar("theme", default=LIGHT)


def theme() -> Theme:
    """Return the theme of the picture that is being drawn."""
    return _theme.get()


@contextmanager
def themed(chosen: Theme) -> Iterator[None]:
    """Draw with a theme until the end of the block."""
    reset = _theme.set(chosen)
    try:
        with mpl.rc_context(_settings(chosen)):
            yield
    finally:
        _theme.reset(reset)


def _settings(chosen: Theme) -> dict[Any, Any]:
    """Return Matplotlib's settings for a theme."""
    return {
        "font.family": "DejaVu Sans",  # Matplotlib brings it, so pictures are alike on all machines
        "font.size": FONT_PT,
        "axes.titlesize": FONT_PT,
        "axes.titlelocation": "left",
        "axes.titlecolor": chosen.text,
        "axes.labelsize": FONT_PT,
        "xtick.labelsize": SMALL_PT,
        "ytick.labelsize": SMALL_PT,
        "legend.fontsize": SMALL_PT,
        "figure.titlesize": 11.0,
        "figure.titleweight": "bold",
        "figure.facecolor": chosen.background,
        "savefig.facecolor": chosen.background,
        "axes.facecolor": chosen.background,
        "text.color": chosen.text,
        "axes.labelcolor": chosen.muted,
        "axes.edgecolor": chosen.muted,
        "xtick.color": chosen.muted,
        "ytick.color": chosen.muted,
        "grid.color": chosen.grid,
        "grid.linewidth": 0.7,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=[pair[chosen.column] for pair in OTHERS]),
        "lines.linewidth": 1.8,
        "lines.markersize": 3.5,
        "legend.frameon": False,
        "svg.fonttype": "path",
    }


class Picture(Figure):
    """A figure that Jupyter shows, although pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        """Return the picture as Jupyter asks for it."""
        written = io.BytesIO()
        self.savefig(written, format="png", dpi=SHOWN_PX / WIDTH_IN)
        return written.getvalue()


def figure(rows: int = 1, columns: int = 1, height_in: float = 3.0, **settings: Any) -> tuple[Picture, Any]:
    """Return a figure and its panels, an array of `rows` by `columns`. Each row is `height_in` high."""
    made = Picture(figsize=(WIDTH_IN, rows * height_in), layout="constrained")
    return made, made.subplots(rows, columns, squeeze=False, **settings)


def panels(
    names: Sequence[str], columns: int = 3, height_in: float = 2.4, **settings: Any
) -> tuple[Picture, list[Any]]:
    """Return a figure with a panel for each name, which is its title. Places without a name stay empty."""
    columns = min(columns, len(names))
    made, grid = figure(-(-len(names) // columns), columns, height_in, **settings)
    every = list(grid.flat)
    for axes, name in zip(every, names, strict=False):
        axes.set_title(name)
    for axes in every[len(names) :]:
        axes.remove()
    return made, every[: len(names)]


def headed(drawn: Figure, title: str) -> None:
    """Write one short title over all panels."""
    drawn.suptitle(title, x=0.01, ha="left", fontsize=FONT_PT)


def color(name: str) -> str:
    """Return the colour of a policy or of a way of preprocessing. Raises KeyError for another name."""
    return COLORS[name][theme().column]


def colors(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name. Names that COLORS does not have get those of OTHERS, in turn."""
    unknown = [name for name in names if name not in COLORS]
    spare = dict(zip(unknown, others(len(unknown)), strict=True))
    return {name: spare[name] if name in spare else color(name) for name in names}


def others(count: int) -> list[str]:
    """Return colours for things that have no order."""
    return [OTHERS[number % len(OTHERS)][theme().column] for number in range(count)]


def shades(count: int) -> list[Any]:
    """Return colours for the values of a quantity, in order."""
    low, high = theme().shades
    return [colormaps[SHADES](low + (high - low) * number / max(1, count - 1)) for number in range(count)]


def tints(name: str, count: int) -> list[Any]:
    """Return the colour of a policy for its variants, in order, from a faint one to the full colour."""
    full, back = (np.array(to_rgb(each)) for each in (color(name), theme().background))
    shares = np.linspace(FAINTEST, 1, count) if count > 1 else np.ones(1)
    return [tuple(share * full + (1 - share) * back) for share in shares.tolist()]


def plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers: 1, 2, 5, 10 ..."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ScalarFormatter())
    axis.set_minor_formatter(NullFormatter())


def bars(axes: Axes, values: Mapping[str, float], shown: Mapping[str, str], fill: Mapping[str, str]) -> None:
    """Draw a horizontal bar for each name, from the top, with the text `shown` at its end."""
    largest = max((value for value in values.values() if np.isfinite(value)), default=0.0) or 1.0
    for place, (name, value) in enumerate(values.items()):
        axes.barh(place, value, height=0.68, color=fill[name])
        axes.annotate(shown[name], (value, place), (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(values)), list(values))
    axes.set(ylim=(len(values) - 0.5, -0.5), xlim=(0, 1.32 * largest), xticks=[])
    axes.tick_params(axis="y", length=0, labelcolor=theme().text, labelsize=FONT_PT)
    axes.grid(visible=False)
    for side in ("bottom", "left"):
        axes.spines[side].set_visible(False)


def label_ends(*drawn_on: Axes) -> None:
    """Write the name of each line at its right end, in its colour. Names that would overlap move apart.

    Lines whose label begins with an underscore have no name. Call it last, with all panels whose lines get names, when
    their limits are final."""
    texts = [(axes, text) for axes in drawn_on for text in _names(axes)]
    if not texts:
        return
    drawn = drawn_on[0].get_figure(root=True)
    assert drawn is not None
    drawn.draw_without_rendering()  # it lays the figure out
    points_a_pixel = 72 / drawn.dpi
    placed: list[tuple[Axes, float, float, float]] = []  # left, right, middle
    boxes = {text: text.get_window_extent() for _, text in texts}
    for axes, text in sorted(texts, key=lambda each: boxes[each[1]].y0):
        box = boxes[text]
        middle, step = (box.y0 + box.y1) / 2, GAP * box.height
        for panel, left, right, other in sorted(placed, key=lambda each: each[3]):
            if panel is axes and left < box.x1 and box.x0 < right and abs(middle - other) < step:
                middle = other + step
        placed.append((axes, box.x0, box.x1, middle))
        text.set_position((NAME_PT, (middle - (box.y0 + box.y1) / 2) * points_a_pixel))


def _names(axes: Axes) -> list[Any]:
    """Write the names of lines at their ends."""
    texts = []
    for line in axes.get_lines():
        name, points = str(line.get_label()), _finite(line)
        if name.startswith("_") or not len(points):
            continue
        at = points[np.argmax(points[:, 0])]
        texts.append(
            axes.annotate(
                name,
                (at[0], at[1]),
                (NAME_PT, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL_PT,
                color=line.get_color(),
                annotation_clip=False,
            )
        )
    return texts


def _finite(line: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the points of a line that are drawn, as rows of x and y."""
    x, y = (np.asarray(values, np.float64) for values in (line.get_xdata(orig=False), line.get_ydata(orig=False)))
    points = np.stack([x, y], axis=1)
    return points[np.isfinite(points).all(axis=1)]


def legend(drawn: Figure, axes: Axes, columns: int = 4) -> None:
    """Write the names of lines and bars below a figure, where they have no ends."""
    handles, labels = axes.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def save(drawn: Figure, path: Path) -> None:
    """Write a figure as PNG, or as SVG if the path ends so. The same figure gives the same bytes."""
    if path.suffix == ".svg":
        with mpl.rc_context({"svg.hashsalt": "headrace"}):
            drawn.savefig(path, metadata={"Date": None, "Creator": None})
        return
    written = io.BytesIO()
    drawn.savefig(written, format="png", dpi=SCALE * SHOWN_PX / WIDTH_IN)
    # With a palette the file is less than half as large.
    Image.open(written).convert("RGB").quantize(256).save(path, format="PNG", optimize=True)


def themed_path(path: Path, chosen: Theme) -> Path:
    """Return the path of the variant of a picture."""
    return path.with_name(f"{path.stem}{chosen.suffix}{path.suffix}")


def picture(draw: Callable[Arguments, Figure]) -> Callable[Concatenate[Path, Arguments], None]:
    """Turn a function that returns a figure into one that writes it in both themes.

    The function itself is `__wrapped__`."""

    @functools.wraps(draw)
    def write(path: Path, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        for chosen in (LIGHT, DARK):
            with themed(chosen):
                save(draw(*args, **kwargs), themed_path(path, chosen))

    return cast("Callable[Concatenate[Path, Arguments], None]", write)
