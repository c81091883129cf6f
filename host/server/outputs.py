"""The request path of outputs: from the slots of a request's rows to the answer.

A worker writes an output of a fixed shape to its region of shared memory, if it can use files (`places`). All other
outputs are read while they lie in their row's slot. One for a region is written there, if its place in the region is
known: the row's size is fixed, or the request has one row. The rest are kept, large ones without a copy. When all rows
have ended, `joined` joins them and `placed` writes them to their regions.

Example: a request of 2 rows asks for `probabilities` in a region of 8,000 bytes, and for `classes` in the answer. The
4,000 bytes of `probabilities` of row 1 are written at offset 4,000. Its `classes` are kept and joined with those of row
0."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput
from headrace.host.live.tasks.interface import Keep, Read, Written
from headrace.host.memory.files import FilePlace
from headrace.host.memory.layout import TensorSpec
from headrace.host.server.protocol.messages import (
    BYTES,
    DATATYPE_OF,
    Output,
    RequestedOutput,
    classification,
    to_raw,
)

Row = Mapping[str, NDArray[Any] | Written]  # the requested outputs of one row, by name


class Outputs:
    """Read, join and place the outputs of one request.

    Args:
        specs: the outputs of the model, by name.
        requested: the outputs that the request asks for.
        rows: the number of rows of the request.
        pads: whether rows of different lengths are padded; if not, they are an error.
        categories: labels of the model's classes, if it has any."""

    def __init__(
        self,
        specs: Mapping[str, TensorSpec],
        requested: Sequence[RequestedOutput],
        rows: int,
        *,
        pads: bool = False,
        categories: Sequence[str] | None = None,
    ) -> None:
        self._specs = specs
        self._requested = requested
        self._rows = rows
        self._pads = pads
        self._categories = categories

    def places(self, row: int) -> dict[str, FilePlace]:
        """Return where a worker may write outputs of this row, by name. Raises BadInput for one that does not fit."""
        found = {}
        for each in self._requested:
            spec, window = self._specs[each.name], each.window
            if window is not None and not each.classes and spec.variable is None:
                window.check_fits(spec.nbytes * self._rows)
                place = window.place(row * spec.nbytes)
                if place is not None:
                    found[each.name] = place
        return found

    def reader(self, row: int) -> Read:
        """Return the function that reads the outputs of this row (see `Runtime.answer`). It raises BadInput."""

        def read(outputs: Mapping[str, NDArray[Any] | Written], keep: Keep) -> Row:
            return {each.name: self._read(each, outputs, keep, row) for each in self._requested}

        return read

    def _read(
        self, requested: RequestedOutput, outputs: Mapping[str, NDArray[Any] | Written], keep: Keep, row: int
    ) -> NDArray[Any] | Written:
        window = requested.window
        is_known = self._rows == 1 or self._specs[requested.name].variable is None
        if window is None or requested.classes or not is_known:
            return keep(requested.name)
        output = outputs[requested.name]
        if isinstance(output, Written):
            window.check_registered()
            return output
        window.check_fits(output.nbytes * self._rows)
        window.write(output, row * output.nbytes)
        return Written(output.shape, output.nbytes)

    def joined(self, rows: Sequence[Row]) -> list[Output]:
        """Return the outputs of all rows. Raises BadInput for rows that do not fit together."""
        return [self._joined(each, [outputs[each.name] for outputs in rows]) for each in self._requested]

    def _joined(self, requested: RequestedOutput, rows: Sequence[NDArray[Any] | Written]) -> Output:
        spec = self._specs[requested.name]
        if isinstance(rows[0], Written):
            shape = rows[0].shape if spec.joined else (len(rows), *rows[0].shape)
            return Output(requested, DATATYPE_OF[spec.dtype], shape, written=len(rows) * rows[0].nbytes)
        arrays: Sequence[NDArray[Any]] = rows  # type: ignore[assignment]  # all rows of an output are read in one way
        if not spec.joined and len(arrays) > 1 and len({array.shape for array in arrays}) > 1:
            if not self._pads:
                raise BadInput(
                    f"output {requested.name!r} has another length for each row; send rows of one length together"
                )
            arrays = _padded(arrays)
        if spec.joined:
            array = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
        else:
            array = np.stack(arrays) if len(arrays) > 1 else arrays[0][None]
        if requested.classes:
            array = classification(array, requested.classes, self._categories)
            return Output(requested, BYTES, array.shape, array)
        return Output(requested, DATATYPE_OF[spec.dtype], array.shape, array)


def placed(output: Output) -> Output:
    """Write an output to its region, if it has one and is not there yet. Raises BadInput.

    Only the event loop may call it, because the loop could unregister the region meanwhile."""
    window = output.requested.window
    if window is None or output.array is None:
        return output
    raw = to_raw(output.array)
    window.check_fits(len(raw))
    window.write(raw)
    return output._replace(array=None, written=len(raw))


def _padded(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the arrays padded with zeros at their ends to the largest size of each dimension."""
    shape = np.max([array.shape for array in arrays], 0)
    return [
        np.pad(array, [(0, longest - size) for longest, size in zip(shape, array.shape, strict=True)])
        for array in arrays
    ]
