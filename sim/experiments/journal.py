"""Results of a sweep's jobs, kept in a file as they come: a second start runs only the rest."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from headrace import batching, sim
from headrace.batching.errors import UsageError

Result = TypeVar("Result")

SOURCES = (".py", ".json", ".csv")  # what results are made by


@dataclass
class Journal(Generic[Result]):
    """Of jobs and results that are dataclasses of plain values, the results of the class `kind`. A line of `path` is a
    JSON object: `version` of the code, `key` and `job` with all its settings, `result`. What an older version of the
    code found is not taken, nor what was found from files that have changed since; nor a line that was cut short.
    Raises UsageError if the file cannot be read."""

    path: Path
    kind: type[Result]
    _found: dict[str, Result] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        try:
            text = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise UsageError(f"{self.path}: {error}") from error
        for line in text.splitlines():
            try:
                row = json.loads(line)
                if row["version"] == code_version():
                    self._found[row["key"]] = self.kind(**row["result"])
            except (ValueError, TypeError, KeyError):
                continue
        self._torn = bool(text) and not text.endswith(b"\n")

    def __len__(self) -> int:
        return len(self._found)

    def known(self, job: Any) -> Result | None:
        return self._found.get(_key(job))

    def keep(self, job: Any, result: Result) -> None:
        """On disk when this returns, but for the kernel's part. Raises UsageError if it cannot be."""
        key = _key(job)
        self._found[key] = result
        row = {"version": code_version(), "key": key, "job": asdict(job), "result": asdict(result)}  # type: ignore[call-overload]
        line = ("\n" if self._torn else "") + json.dumps(row) + "\n"
        self._torn = False
        try:
            with self.path.open("ab") as file:
                file.write(line.encode())  # in one piece: who else appends does not come between
        except OSError as error:
            raise UsageError(f"{self.path}: {error}") from error


def _key(job: Any) -> str:
    settings = asdict(job)
    files = {text: _contents(Path(text)) for text in _texts(settings)}
    return hashlib.sha256(json.dumps([settings, files], sort_keys=True).encode()).hexdigest()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)


def _contents(path: Path) -> str | None:
    """Of a file that a setting names; of a folder, what there is in it and when it was written; None of any other
    text."""
    try:
        if path.is_dir():
            return repr(sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in os.scandir(path)))
        if not path.is_file():
            return None
        stat = path.stat()
        return _digest(path, stat.st_size, stat.st_mtime_ns)
    except (OSError, ValueError):
        return None


@cache
def _digest(path: Path, size: int, written_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def code_version() -> str:
    """Of batching and sim, whose results these are."""
    found = hashlib.sha256()
    for folder in (Path(batching.__file__).parent, Path(sim.__file__).parent):
        for path in sorted(each for each in folder.rglob("*") if each.suffix in SOURCES):
            found.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]
