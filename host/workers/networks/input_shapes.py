"""Parse texts that describe a network's inputs, such as --input-shape. This module does not import torch."""

import re

from headrace.batching import UsageError
from headrace.host.memory.layout import VARIABLE, TensorSpec

DTYPES = ("float32", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")


def parse_input_shape(text: str, origin: str = "--input-shape") -> tuple[TensorSpec, ...]:
    """Parse one or more inputs, without the batch: `[NAME=]SIZES[:TYPE]`, separated by commas.

    SIZES are numbers with an x between them. One of them may be variable, written 1..LONGEST. `scalar` has no sizes.
    1..LONGEST+ as the first size says that a batch joins the rows of its requests, without padding and without a
    dimension of its own. TYPE is float32 unless it is given. Examples are 3x299x299, image=3x299x299,
    ids=1..128:int64,mask=1..128:bool, step=scalar:int64, and pixel_values=1..4096+x1176,image_grid_thw=3:int64. All
    inputs have a name or none has. If all names are parameters of the network's `forward`, it is called by these names.
    Inputs without a name come back with the name "".

    Raises UsageError, whose text names `origin`."""
    specs = tuple(_parse_input(part.strip(), f"{origin} {text}") for part in text.split(","))
    names = [spec.name for spec in specs]
    if any(names) and not all(names):
        raise UsageError(f"{origin} {text}: name every input or none")
    if any(names) and len(set(names)) < len(names):
        raise UsageError(f"{origin} {text}: two inputs have one name; give each its own")
    joined = {spec.longest for spec in specs if spec.joined}
    if len(joined) > 1 or (joined and any(spec.variable is not None and not spec.joined for spec in specs)):
        raise UsageError(
            f"{origin}: if one variable size has a +, each must have it and the same longest size, because all have a "
            "row for each token"
        )
    return specs


def _parse_input(text: str, origin: str) -> TensorSpec:
    name, named, sizes_and_type = text.rpartition("=")
    sizes, typed, dtype = sizes_and_type.partition(":")
    if named and not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
        raise UsageError(f"{origin}: {name!r} is no name for an input; use letters, digits, _, . and -")
    if typed and dtype not in DTYPES:
        raise UsageError(f"{origin}: {dtype!r} is no type of tensors; give {', '.join(DTYPES)}")
    shape, longest, joined = [], [], False
    for place, size in enumerate(sizes.split("x") if sizes != "scalar" else ()):
        if re.fullmatch(r"[1-9][0-9]*", size):
            shape.append(int(size))
        elif match := re.fullmatch(r"1\.\.([0-9]+)(\+?)", size):
            shape.append(VARIABLE)
            longest.append(int(match[1]))
            joined = bool(match[2])
            if joined and place:
                raise UsageError(f"{origin}: {size!r} must be the first size, along which a batch joins its requests")
        else:
            raise UsageError(
                f"{origin}: {size!r} is no size; write 3x299x299, or 1..128 for a variable size, or scalar for none"
            )
    if len(longest) > 1:
        raise UsageError(f"{origin}: one dimension of an input may be variable; fix the others")
    if longest and longest[0] < 2:
        raise UsageError(f"{origin}: 1..{longest[0]} does not vary; the longest must be 2 or more")
    return TensorSpec(name, dtype or "float32", tuple(shape), *(longest or (0,)), int(joined))
