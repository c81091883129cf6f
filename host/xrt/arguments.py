"""Conversion of call arguments as pybind11 does it for pyxrt.

An overload takes its arguments by position or by its parameter names, in its types. Everything else raises
TypeError."""

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# One overload: the function that converts each parameter or raises TypeError, by parameter name. pybind11 itself gives
# a name that begins with "arg" to a parameter that takes its value by position only.
Form = Mapping[str, Callable[[Any], Any]]


def taken(forms: Sequence[Form], given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the converted values of the first form that accepts the call, by parameter name and in the order of that
    form.

    Args:
        forms: the overloads, in the order in which they are tried.
        given: the arguments by position.
        named: the arguments by name.

    Raises TypeError if no form accepts the call."""
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
    raise TypeError(f"incompatible function arguments: give {known}, not {(*given, *named)!r}")


def as_a(*kinds: type) -> Callable[[Any], Any]:
    """Return a converter that accepts an object of one of these classes."""

    def checked(value: Any) -> Any:
        is_a(value, *kinds)
        return value

    return checked


def is_a(value: object, *kinds: type) -> None:
    """Raise TypeError unless `value` is of one of these classes."""
    if not isinstance(value, kinds):
        classes = " or ".join(kind.__qualname__ for kind in kinds)
        raise TypeError(f"incompatible function arguments: give {classes}, not {value!r}")


def as_text(value: object) -> str:
    """Convert to a std::string, which also takes bytes."""
    is_a(value, str, bytes, bytearray)
    return value if isinstance(value, str) else os.fsdecode(bytes(value))  # type: ignore[call-overload]


def as_size(value: object) -> int:
    """Convert to a size_t."""
    return _number(value, "a size", 0, 1 << 64)


def as_unsigned(value: object) -> int:
    """Convert to an unsigned int."""
    return _number(value, "a number", 0, 1 << 32)


def as_index(value: object) -> int:
    """Convert to an int."""
    return _number(value, "an index", -(1 << 31), 1 << 31)


def _number(value: object, what: str, least: int, end: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"incompatible function arguments: give {what}, not {value!r}")
    number = int(operator.index(value))  # type: ignore[call-overload]
    if not least <= number < end:
        raise TypeError(f"incompatible function arguments: give {what} from {least} to {end - 1}, not {value!r}")
    return number
