"""What must hold of every picture: its texts do not lie on each other, lie within it, and are large enough to read."""

from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.text import Text

from headrace.sim.plot_style import SHOWN_PX, WIDTH_IN

ROOM_PX = 1.0  # texts may touch


def texts(drawn: Figure) -> list[Text]:
    """Return the texts that are seen in a figure, with their places settled."""
    drawn.set_dpi(SHOWN_PX / WIDTH_IN)
    drawn.draw_without_rendering()
    outside = {
        label
        for axes in drawn.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not _within(tick.get_loc(), axis.get_view_interval())
    }
    return [
        text
        for text in drawn.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in outside and _shown(text)
    ]


def _within(place: float, ends: tuple[float, float]) -> bool:
    low, high = sorted(ends)
    room = 1e-9 * (high - low)
    return low - room <= place <= high + room


def _shown(text: Text) -> bool:
    return text.axes is None or text.axes.axison


def faults(drawn: Figure) -> list[str]:
    """Return what is wrong with the texts of a figure, in words. There should be nothing."""
    found = []
    boxes = [(text, text.get_window_extent()) for text in texts(drawn)]
    width, height = drawn.bbox.width, drawn.bbox.height
    for text, box in boxes:
        name = text.get_text()
        if box.x0 < -ROOM_PX or box.y0 < -ROOM_PX or box.x1 > width + ROOM_PX or box.y1 > height + ROOM_PX:
            found.append(f"{name!r} leaves the picture")
        if text.get_fontsize() < 8:
            found.append(f"{name!r} is small: {text.get_fontsize():g} points")
    for (one, box), (other, its) in combinations(boxes, 2):
        across = min(box.x1, its.x1) - max(box.x0, its.x0)
        along = min(box.y1, its.y1) - max(box.y0, its.y0)
        if across > ROOM_PX and along > ROOM_PX:
            found.append(f"{one.get_text()!r} lies on {other.get_text()!r}")
    if abs(drawn.get_size_inches()[0] - WIDTH_IN) > 1e-9:
        found.append(f"the picture is {drawn.get_size_inches()[0]:g} inches wide")
    return found
