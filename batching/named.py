"""Look-up of objects that users name as `module:attribute`: a policy, a model graph, traffic or a router."""

import importlib
import sys
from typing import Any

from headrace.batching.errors import UsageError, one_line


def imported(what: str, name: str) -> Any:
    """Return an attribute of a module. The current folder is searched too, as for a Python script that lies there.

    Args:
        what: The beginning of error texts, for example "policy" or "--router".
        name: The name, as `module:attribute`.

    Raises:
        UsageError: The name has another form, the module cannot be imported, or it has no such attribute.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"{what} {name!r}: give module:name")
    added = "" not in sys.path
    if added:
        sys.path.insert(0, "")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"{what} {name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{what} {name!r}: module {module} fails: {one_line(error)}") from error
    finally:
        if added:
            sys.path.remove("")
    if not hasattr(loaded, attribute):
        raise UsageError(f"{what} {name!r}: module {module} has no {attribute}")
    return getattr(loaded, attribute)
