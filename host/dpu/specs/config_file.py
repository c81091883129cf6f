"""Read the settings in a `preprocessor_config.json`, or in another file that a model of Hugging Face has."""

import json
from collections.abc import Collection, Mapping
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


def refuse_unknown(name: str, config: Config, known: Collection[str], own: Collection[str]) -> None:
    """Raise UsageError for a setting that no class knows. The error lists `own`, the settings that the class reads."""
    unknown = sorted(key for key, value in config.items() if value is not None and key not in known)
    if unknown:
        raise UsageError(
            f"{name}: the setting {unknown[0]} is unknown here; leave it out if transformers does not read it; "
            f"those that are read are {', '.join(sorted(own))}"
        )


class FileSettings:
    """The settings of a class of transformers. A method refuses a value of the wrong form by its key."""

    def __init__(self, name: str, values: Config) -> None:
        self.name = name
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values.get(key)

    def refuse(self, key: str, wanted: str) -> UsageError:
        """Return the error for the value of a key. `wanted` says what to give instead."""
        return UsageError(f"{self.name}: {key} is {json.dumps(self[key])}; give {wanted}")

    def flag(self, key: str) -> bool:
        """Return a flag, which is false if it is missing. Raises UsageError for another value."""
        if self[key] not in (True, False, None):
            raise self.refuse(key, "true or false")
        return bool(self[key])
