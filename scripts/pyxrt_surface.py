"""Print the names, signatures and enumeration values of a module with pyxrt's API, one a line.

    python scripts/pyxrt_surface.py [MODULE]

MODULE is pyxrt by default. tests/host/xrt/surfaces has the tables of XRT's releases."""

import importlib
import inspect
import sys
from types import ModuleType


def surface(module: ModuleType) -> list[str]:
    """Return the lines, sorted. A class without public names, such as pybind11's vectors, has a single line."""
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    return sorted(line for name in names for line in _lines(name, getattr(module, name)))


def _lines(name: str, thing: object) -> list[str]:
    if inspect.isclass(thing):
        members = getattr(thing, "__members__", None)
        if members:
            return [f"{name} ENUM { {key: int(value) for key, value in members.items()} }"]
        inner = [key for key in vars(thing) if not key.startswith("_") or key in ("__init__", "__call__")]
        return [f"{name} CLASS", *(line for key in inner for line in _lines(f"{name}.{key}", getattr(thing, key)))]
    if callable(thing):
        text = (thing.__doc__ or "").splitlines()
        overloads = [line for line in text if "self:" in line or line.startswith(name.rpartition(".")[2] + "(")]
        try:
            shown = overloads or [name.rpartition(".")[2] + str(inspect.signature(thing))]
        except ValueError:
            shown = [""]
        return [f"{name} | {line}" for line in shown]
    return [f"{name} = {thing!r}"]


if __name__ == "__main__":
    print("\n".join(surface(importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "pyxrt"))))
