"""What users name as `module:attribute`: a policy, a model graph, traffic, a router."""

import importlib
import sys
from typing import Any

from headrace.batching.errors import UsageError, one_line


def imported(what: str, name: str) -> Any:
    """Return the attribute of a module. The current folder is searched, too, as Python does for a script there.

    `what` begins an error text, "policy" or "--router" for instance. Raises UsageError."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"{what} {name!r}: give module:name")
    added = "" not in sys.path
    if added:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"{what} {name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{what} {name!r}: module {module} fails: {one_line(error)}") from error
    finally:
        if added:
            sys.path.remove("")
    if not hasattr(found, attribute):
        raise UsageError(f"{what} {name!r}: module {module} has no {attribute}")
    return getattr(found, attribute)
