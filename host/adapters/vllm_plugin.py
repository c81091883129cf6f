"""A plugin of vLLM, which lets its image processors and feature extractors compute by Headrace.

vLLM loads it in each of its processes where Headrace is installed in vLLM's environment. It does nothing unless the
environment variable HEADRACE_TARGET names a target, as `headrace.register_processors` takes it.
"""

import logging
import os
from typing import Final

from headrace.host.adapters.registration import register_processors

TARGET: Final = "HEADRACE_TARGET"

_log = logging.getLogger("vllm.headrace")  # vLLM shows what its own loggers say


def register() -> None:
    """Let the Auto classes of transformers make objects of Headrace in this process.

    Raises UsageError: There is no such target."""
    target = os.environ.get(TARGET)
    if target:
        register_processors(target)
        _log.info("headrace makes the inputs of models; target %s", target)
