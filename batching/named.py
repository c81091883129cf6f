"""Find what users name: a policy, a model graph, traffic, a router, a network.

A name is `module:attribute`, or that of an entry point of an installed package. Each kind has its group of entry
points: `headrace.policies`, `headrace.models`, `headrace.traffic` and `headrace.routers`.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from headrace.batching.errors import UsageError, one_line


def import_attribute(name: str) -> Any:
    """Return the attribute that `module:attribute` names. The module may lie in the current folder.

    Raises whatever the module raises."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # it stays there, because a module may import another one later
        sys.path.insert(0, os.getcwd())
    return getattr(importlib.import_module(module), attribute)


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of all installed packages in a group, by name."""
    return {point.name: point for point in _all_installed().select(group=group)}


@cache
def _all_installed() -> Any:
    """Return the entry points of all groups. To find them, Python reads a file of each package."""
    return entry_points()


def is_own(name: str, group: str) -> bool:
    """Tell whether a name is that of a user's own: an entry point of the group, or `module:attribute`."""
    return ":" in name or name in installed(group)


def own(what: str, name: str, group: str) -> Any:
    """Return what a name stands for, for which `is_own` is true.

    `what` begins an error text, "--policy" for instance. Raises UsageError."""
    point = installed(group).get(name)
    if point is None:
        return _imported(what, name)
    try:
        return point.load()
    except Exception as error:
        raise UsageError(f"{what} {name!r} of entry point {point.value} fails: {one_line(error)}") from error


def _imported(what: str, name: str) -> Any:
    """Return the attribute that `module:attribute` names, as `import_attribute` does.

    Raises UsageError."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"{what} {name!r}: give module:name")
    try:
        return import_attribute(name)
    except ImportError as error:
        raise UsageError(f"{what} {name!r}: {error}") from error
    except AttributeError as error:
        if getattr(error, "name", None) == attribute:
            raise UsageError(f"{what} {name!r}: module {module} has no {attribute}") from None
        raise UsageError(f"{what} {name!r}: module {module} fails: {one_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{what} {name!r}: module {module} fails: {one_line(error)}") from error
