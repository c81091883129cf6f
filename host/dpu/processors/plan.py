"""The passes that make the images of a processor from one source, with all sizes worked out.

A pass is what the hardware does at once: it reads an image, resizes it along both axes, and writes it or a part of it
on a canvas. The table of values and the layout are the same for all passes.
"""

from dataclasses import dataclass

from headrace.host.dpu.processors.sizes import Size


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a resized image lies on a canvas, and the tiles into which the canvas is cut, row by row.

    Args:
        canvas: Size of the canvas, a multiple of the tile.
        tile: Size of a tile. With the size of the canvas there is one tile.
        left, top: Place of the upper left corner. The canvas crops an image that goes beyond it on any side.
        colour: RGB values of the canvas elsewhere.
    """

    canvas: Size
    tile: Size
    left: int = 0
    top: int = 0
    colour: tuple[int, int, int] = (0, 0, 0)

    @property
    def grid(self) -> Size:
        """Return the tiles on the width and on the height."""
        return Size(self.canvas.width // self.tile.width, self.canvas.height // self.tile.height)


@dataclass(frozen=True, slots=True)
class Pass:
    """A resize of the source or of the resized image of an earlier pass.

    Args:
        of: Number of the earlier pass. None is the source.
        size: Size of the resized image.
        placement: Where it lies. None writes nothing, because later passes alone read the image.
    """

    of: int | None
    size: Size
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The passes of a source, in the order of the images that they write."""

    source: Size
    passes: tuple[Pass, ...]

    @property
    def canvas(self) -> Pass:
        """Return the pass with the most tiles, which is the only one with several."""
        return max(self.written, key=lambda each: _placed(each).grid.width * _placed(each).grid.height)

    @property
    def written(self) -> list[Pass]:
        return [each for each in self.passes if each.placement is not None]

    @property
    def image(self) -> Size:
        """Return the size of each image."""
        return _placed(self.canvas).tile

    @property
    def images(self) -> int:
        """Return the number of images."""
        return sum(_placed(each).grid.width * _placed(each).grid.height for each in self.written)


def _placed(by: Pass) -> Placement:
    assert by.placement is not None
    return by.placement
