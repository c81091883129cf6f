"""Arguments as pybind11 takes them for pyxrt: by place or by the names that an overload gives them, of its types, and
TypeError for all else."""

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Name to what gives the value or raises TypeError. A parameter of which the name begins with "arg" is pybind11's own
# word for one that is given by place alone.
Form = Mapping[str, Callable[[Any], Any]]


def taken(forms: Sequence[Form], given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The values by name and in the order of the first of the forms that takes them. Raises TypeError if none does."""
    refused: list[TypeError] = []
    for form in forms:
        names = list(form)
        by_name = names[len(given) :]
        if len(given) > len(names) or set(by_name) != set(named) or any(name.startswith("arg") for name in by_name):
            continue
        values = dict(zip(names, given, strict=False)) | dict(named)
        try:
            return {name: convert(values[name]) for name, convert in form.items()}
        except TypeError as error:
            refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    known = " or ".join(f"({', '.join(form)})" for form in forms)
    raise TypeError(f"incompatible function arguments: {known} is needed, not {(*given, *named)!r}")


def as_a(*kinds: type) -> Callable[[Any], Any]:
    """An object of these classes."""

    def checked(value: Any) -> Any:
        is_a(value, *kinds)
        return value

    return checked


def is_a(value: object, *kinds: type) -> None:
    """Raises TypeError for an argument of another type."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__qualname__ for kind in kinds)
        raise TypeError(f"incompatible function arguments: {wanted} is needed, not {value!r}")


def as_text(value: object) -> str:
    """A std::string, which takes bytes, too."""
    is_a(value, str, bytes, bytearray)
    return value if isinstance(value, str) else os.fsdecode(bytes(value))  # type: ignore[call-overload]


def as_size(value: object) -> int:
    """A size_t."""
    return _number(value, "a size", 0, 1 << 64)


def as_unsigned(value: object) -> int:
    """An unsigned int."""
    return _number(value, "a number", 0, 1 << 32)


def as_index(value: object) -> int:
    """An int."""
    return _number(value, "an index", -(1 << 31), 1 << 31)


def _number(value: object, what: str, least: int, end: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"incompatible function arguments: {what} is needed, not {value!r}")
    number = int(operator.index(value))  # type: ignore[call-overload]
    if not least <= number < end:
        raise TypeError(f"incompatible function arguments: {what} of {least} or more is needed, not {value!r}")
    return number
