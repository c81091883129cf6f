"""Plugins of vLLM and of SGLang, which let their image processors and feature extractors compute by Headrace.

An engine loads its plugin in each of its processes where Headrace is installed in the engine's environment. A plugin
does nothing unless the environment variable HEADRACE_TARGET names a target, as `headrace.register_processors` takes it.
"""

import logging
import os
from typing import Final

from headrace.host.adapters.registration import register_processors

TARGET: Final = "HEADRACE_TARGET"


def vllm() -> None:
    """Let the Auto classes of transformers make objects of Headrace in this process of vLLM.

    Raises UsageError: There is no such target."""
    _register("vllm")


def sglang() -> None:
    """Let the Auto classes of transformers make objects of Headrace in this process of SGLang.

    Raises UsageError: There is no such target."""
    _register("sglang")


def _register(engine: str) -> None:
    target = os.environ.get(TARGET)
    if target:
        register_processors(target)
        log = logging.getLogger(f"{engine}.headrace")  # engines show what their own loggers say
        log.info("headrace makes the inputs of models; target %s", target)
