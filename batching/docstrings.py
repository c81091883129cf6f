"""Docstrings of compiled classes. mypyc keeps none of a class, so that `help()` would show nothing."""

import ast
import sys
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@cache
def docstrings(cls: type) -> tuple[str, str]:
    """Return the docstrings of a class's module and of the class.

    A compiled module keeps neither. They are then read from its source, which lies next to it."""
    module = sys.modules[cls.__module__]
    package, _, name = cls.__module__.rpartition(".")
    folders = getattr(sys.modules.get(package), "__path__", ())  # __file__ of a compiled module may be wrong
    source = next((path for folder in folders if (path := Path(folder, f"{name}.py")).is_file()), None)
    own = cls.__doc__ or ""
    if source is None or not _is_lost(own):
        return module.__doc__ or "", "" if own.startswith(f"{cls.__name__}(") else own  # dataclass() writes a signature
    tree = ast.parse(source.read_text("utf-8"))
    own_class = next((each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == cls.__name__), None)
    return ast.get_docstring(tree) or "", (own_class and ast.get_docstring(own_class)) or ""


def with_docstring(value: T) -> T:
    """Return a public value. If it is a class that lost its docstring, the class has it again."""
    if isinstance(value, type) and _is_lost(value.__doc__ or ""):
        value.__doc__ = docstrings(value)[1]
    return value


def _is_lost(docstring: str) -> bool:
    return not docstring or docstring.startswith("mypyc")  # mypyc puts a text of its own there
