"""The tensors beside `pixel_values`, by the plan of a source and the layout. They need no pixel."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.processors.layouts import Extra, Images, Layout, PaddedPatches
from headrace.host.dpu.processors.plan import Plan


def tensor(what: Extra, plan: Plan, layout: Layout) -> NDArray[Any]:
    """Return a tensor, which has the shape and the dtype that transformers gives it."""
    if isinstance(layout, Images):
        return _of_images(what, plan, layout.slots or plan.images)
    grid = [plan.image.height // layout.side, plan.image.width // layout.side]
    match what:
        case Extra.PATCH_GRID:
            return np.array([grid])
        case Extra.PATCH_GRID_OF_FRAMES:
            return np.array([[1, *grid]])
        case Extra.PATCH_MASK if isinstance(layout, PaddedPatches):
            return (np.arange(layout.rows) < grid[0] * grid[1]).astype(np.int32)[None]
        case Extra.PATCH_PLACES if isinstance(layout, PaddedPatches):
            places = np.full((1, layout.rows, 2), -1)
            places[0, : grid[0] * grid[1]] = np.indices(grid)[::-1].reshape(2, -1).T
            return places
        case Extra.TOKENS if isinstance(layout, PaddedPatches):
            return np.array([grid[0] * grid[1] // layout.merge**2])
    raise ValueError(f"{layout} has no tensor with {what.value}")


def _of_images(what: Extra, plan: Plan, slots: int) -> NDArray[Any]:
    canvas = plan.canvas
    assert canvas.placement is not None
    across, down = canvas.placement.grid
    match what:
        case Extra.SOURCE_SIZE:
            return np.array([[plan.source.height, plan.source.width]])
        case Extra.RESULT_SIZE:
            return np.array([[plan.image.height, plan.image.width]])
        case Extra.BATCH:
            return np.array([1])
        case Extra.IMAGES:
            return np.array([plan.images])
        case Extra.IMAGES_OF_BATCH:
            return np.array([[plan.images]])
        case Extra.NO_CROPS:
            return np.array([0])
        case Extra.CROPS:
            return np.array(1)
        case Extra.TILE_GRID:
            return np.array([[down, across]])
        case Extra.TILE_GRID_ID:
            grids = [(y, x) for y in range(1, slots + 1) for x in range(1, slots // y + 1)]
            return np.array([[grids.index((down, across)) + 1]])
        case Extra.TILE_MASK:
            return (np.arange(slots) < plan.images).astype(np.int64)[None, None]
        case Extra.PIXEL_MASK:
            mask = np.zeros((1, plan.image.height, plan.image.width), np.bool_)
            mask[0, : canvas.size.height, : canvas.size.width] = True
            return mask
        case Extra.PIXELS_OF_IMAGES:
            return np.ones((1, plan.images, plan.image.height, plan.image.width), np.int64)
    raise ValueError(f"a layout of images has no tensor with {what.value}")
