"""Read the settings in a `preprocessor_config.json`, or in another file that a model of Hugging Face has."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.batching import UsageError

Config = Mapping[str, Any]


def read(path: Path) -> Config:
    """Return the settings of a file. Raises UsageError for a file that has none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise UsageError(f"{path}: it nests too deep; give a preprocessor_config.json") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} has no object of settings; give a preprocessor_config.json")
    return values
