"""Let the Auto classes of transformers make adapters."""

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from headrace.host.adapters.audio import HeadraceFeatureExtractor
from headrace.host.adapters.device import CPU
from headrace.host.adapters.images import HeadraceImageProcessor
from headrace.host.adapters.library import Adapter, Work, transformers

METHOD: Final = "from_pretrained"

_lock = threading.Lock()
_originals: dict[Any, Any] = {}  # the method of each Auto class before it was replaced


def register_processors(target: str | os.PathLike[str] = CPU) -> None:
    """Let `AutoImageProcessor`, `AutoFeatureExtractor` and `AutoProcessor` of transformers make objects of Headrace.

    `from_pretrained` then gives a `HeadraceImageProcessor` or a `HeadraceFeatureExtractor` for each class that Headrace
    has, and the library's object for all others. A second call replaces the target. Objects that exist stay as they
    are.

    Args:
        target: "cpu", "sw_emu", "hw_emu", or the path of an .xclbin file, as for the two classes.

    Raises:
        UsageError: There is no such target, or transformers is missing. An emulated target cannot be built.
    """
    library = transformers()
    Work(target)  # says what is wrong with the target, and builds its container
    with _lock:
        _restore()
        for auto, adapter in (
            (library.AutoImageProcessor, HeadraceImageProcessor),
            (library.AutoFeatureExtractor, HeadraceFeatureExtractor),
        ):
            _originals[auto] = auto.__dict__[METHOD]
            setattr(auto, METHOD, classmethod(_replacement(_originals[auto], adapter, target)))


def unregister_processors() -> None:
    """Give the Auto classes of transformers their own methods back. Without `register_processors` it does nothing."""
    with _lock:
        _restore()


def _restore() -> None:
    while _originals:
        auto, original = _originals.popitem()
        setattr(auto, METHOD, original)


def _replacement(original: Any, adapter: type[Adapter], target: str | os.PathLike[str]) -> Callable[..., Any]:
    """Return a `from_pretrained` that makes adapters of what the library's own makes."""

    @functools.wraps(original.__func__)
    def from_pretrained(cls: Any, *arguments: Any, **settings: Any) -> Any:
        made = original.__get__(None, cls)(*arguments, **settings)
        kind = type(made[0] if isinstance(made, tuple) else made)  # a tuple with return_unused_kwargs
        return adapter._adapted(made, Work(target)) if adapter._knows(kind) else made

    return from_pretrained
