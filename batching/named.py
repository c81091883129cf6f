"""Import what users name as `module:attribute`: a policy, a model graph, traffic, a router, a network."""

import importlib
import os
import sys
from typing import Any

from headrace.batching.errors import UsageError, one_line


def import_attribute(name: str) -> Any:
    """Return the attribute that `module:attribute` names. The module may lie in the current folder.

    Raises whatever the module raises."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # it stays there, because a module may import another one later
        sys.path.insert(0, os.getcwd())
    return getattr(importlib.import_module(module), attribute)


def imported(what: str, name: str) -> Any:
    """Return the attribute that `module:attribute` names, as `import_attribute` does.

    `what` begins an error text, "policy" or "--router" for instance. Raises UsageError."""
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
