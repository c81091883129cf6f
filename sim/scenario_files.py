"""Files with the settings of a simulated run, in TOML.

A key is a setting's name, with dashes or underscores. Settings may stand in tables, such as `[policy]`, whose names are
free but for one thing: `name` in `[policy]` is the policy. These two files say the same:

    policy = "lazy"                 [policy]
    coverage = 0.95                 name = "lazy"
                                    coverage = 0.95
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.batching.errors import LONGEST_NAME, UsageError
from headrace.sim.scenario import ACCELERATOR, POLICY, TRAFFIC, every_setting, renamed
from headrace.sim.text_files import read_toml

TABLES = (POLICY, "workload", TRAFFIC, "hardware", "preprocess", "fleet", "run")
_NAMES = {POLICY: POLICY, "hardware": ACCELERATOR, TRAFFIC: TRAFFIC}  # what `name` in a table is


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file, by their flat names. Raises UsageError."""
    where = f"--config {path}"
    given = flattened(where, read_toml(where, path))
    return {name: checked_setting(where, name, value, given) for name, value in given.items()}


def flattened(where: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a TOML file by their flat names, those in tables too. Raises UsageError."""
    found: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        name = name.replace("-", "_")
        if name in found:
            raise UsageError(f"{where}: a setting is there twice, with dashes and without: {name}")
        found[name] = value

    for key, value in body.items():
        if not isinstance(value, dict):
            put(key, value)
            continue
        if key not in TABLES:
            raise UsageError(f"{where}: there is no table [{key[:LONGEST_NAME]}]; known are {', '.join(TABLES)}")
        for name, each in value.items():
            put(_NAMES.get(key, "name") if name == "name" else name, each)
    return renamed(found)


def checked_setting(where: str, name: str, value: Any, given: Mapping[str, Any] | None = None) -> Any:
    """Return a value of a TOML file, in the type of the setting `name`.

    A setting of a policy of one's own is known only with the policy, so it is left to the scenario: `given` are all
    settings of the file. Raises UsageError that begins with `where`."""
    if name in (POLICY, ACCELERATOR, TRAFFIC):
        if not isinstance(value, str):
            raise UsageError(f"{where}: {name} is {value!r}: it must be of type str")
        return value
    known = every_setting().get(name)
    if known is None:
        if given is not None and ":" in str(given.get(POLICY, "")):
            return value
        names = sorted({*every_setting(), POLICY, ACCELERATOR, TRAFFIC})
        raise UsageError(f"{where}: there is no setting {name[:LONGEST_NAME]!r}; known are {', '.join(names)}")
    if isinstance(value, str) and known.kind is not str:
        raise UsageError(f"{where}: {name} is {value!r}: it must be of type {known.kind.__name__}; {known.allowed()}")
    return known.read(value, f"{where}: {name} is")
