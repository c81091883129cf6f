"""Results of a sweep's jobs, kept on disk as they come: a second start runs only the rest."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headrace import batching, sim
from headrace.batching.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")

_DIGEST = b"headrace.records.sha256"  # in the metadata of the Parquet file
SOURCES = (".py", ".json", ".csv")  # what results are made by


@dataclass
class Journal(Generic[Result]):
    """Of jobs and results that are dataclasses of plain values, the results of the class `kind`.

    They lie in `path`, a Parquet file: `version` of the code, `key`, a column for each setting and, its name behind
    "result.", for each thing found (of a field `result` the things in it), and `record`, the row as JSON, from which
    results are the same to the bit. Its pages have checksums, and its records a digest: a damaged file is refused.
    Parquet cannot be appended to. So what comes is appended to a file of such records beside it, and `close` makes
    both one: a crash costs what it comes amidst, and no more. What another version of the code found is not taken,
    nor what was found from files that have changed since; nor a line that was cut short. For one sweep at a time.
    Raises UsageError if a file cannot be read, or is another's, and if pyarrow is missing."""

    path: Path
    kind: type[Result]
    _found: dict[str, Result] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        _check_pyarrow()
        for row in self._rows():
            try:
                if row["version"] == code_version():
                    self._found[row["key"]] = self.kind(**row["result"])
            except (TypeError, KeyError):
                continue
        text = self._log.read_bytes() if self._log.exists() else b""
        self._torn = bool(text) and not text.endswith(b"\n")

    @property
    def _log(self) -> Path:
        return self.path.with_suffix(".jsonl")

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Of both files, those that can be read."""
        try:
            kept = _records(self.path) if self.path.exists() else []
            lines: list[bytes] = self._log.read_bytes().splitlines() if self._log.exists() else []
        except OSError as error:
            raise UsageError(f"{self.path}: {error}") from error
        for line in (*map(str.encode, kept), *lines):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row

    def __len__(self) -> int:
        return len(self._found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def known(self, job: Any) -> Result | None:
        return self._found.get(self._key(job))

    def keep(self, job: Any, result: Result) -> None:
        """On disk when this returns, but for the kernel's part. Raises UsageError if it cannot be."""
        key = self._key(job)
        self._found[key] = result
        row = {"version": code_version(), "key": key, "job": _plain(job), "result": asdict(result)}  # type: ignore[call-overload]
        line = ("\n" if self._torn else "") + json.dumps(row) + "\n"
        self._torn = False
        try:
            with self._log.open("ab") as file:
                file.write(line.encode())
        except OSError as error:
            raise UsageError(f"{self._log}: {error}") from error

    def _key(self, job: Any) -> str:
        settings = _plain(job)
        files = {text: _contents(text, self.path) for text in _texts(settings)}
        return hashlib.sha256(json.dumps([type(job).__name__, settings, files], sort_keys=True).encode()).hexdigest()

    def close(self) -> None:
        """Everything is in the Parquet file, which is the old one or the new one whenever this is cut short."""
        if not self._log.exists():
            return
        rows = {(row.get("version"), row.get("key")): row for row in self._rows()}
        # Not in the order in which they ended: the same runs make the same file.
        ordered = sorted(rows.values(), key=lambda row: json.dumps([row.get("version"), row.get("job")]))
        new = self.path.with_suffix(".new")
        try:
            if rows:
                import pyarrow.parquet as pq

                pq.write_table(_table(ordered), new, write_page_checksum=True)
                new.replace(self.path)
            self._log.unlink()
        except OSError as error:
            raise UsageError(f"{self.path}: {error}") from error


def _plain(job: Any) -> dict[str, Any]:
    """Return a job as plain values by name. A job that is composed of settings has its own flat names (`flat`)."""
    flat = getattr(job, "flat", None)
    if flat is not None:
        return dict(flat())
    return {
        each.name: _plain(value) if is_dataclass(value := getattr(job, each.name)) else value for each in fields(job)
    }


@dataclass(frozen=True)
class _Rows:
    rows: list[tuple[str, dict[str, Any]]]  # the name of each one's class, and its fields


class RowJournal(Generic[Result]):
    """As Journal, of jobs whose results are rows: lists of dataclasses of the classes `kinds`, which hold plain values
    and tuples of them."""

    def __init__(self, path: Path, kinds: Sequence[type[Any]]) -> None:
        self._journal = Journal(path, _Rows)
        self._kinds = {kind.__name__: kind for kind in kinds}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._journal.close()

    def __len__(self) -> int:
        return len(self._journal)

    def known(self, job: Any) -> list[Result] | None:
        found = self._journal.known(job)
        if found is None:
            return None
        return [
            self._kinds[kind](**{name: tuple(each) if isinstance(each, list) else each for name, each in row.items()})
            for kind, row in found.rows
        ]

    def keep(self, job: Any, result: list[Result]) -> None:
        self._journal.keep(job, _Rows([(type(row).__name__, asdict(row)) for row in result]))  # type: ignore[call-overload]


def _check_pyarrow() -> None:
    """Raise UsageError if pyarrow is missing, before a sweep has done any work. It reads and writes the journals."""
    try:
        import pyarrow.parquet  # noqa: F401  takes a tenth of a second, and is an extra: runs without a file go without
    except ModuleNotFoundError as missing:
        if missing.name != "pyarrow":
            raise
        raise UsageError("results are kept in Parquet files, by pyarrow: pip install 'headrace[sweeps]'") from missing


def _records(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["record"], page_checksum_verification=True)
        records = [str(text) for text in table["record"].to_pylist()]
        digest = (table.schema.metadata or {}).get(_DIGEST)
        if digest is not None and digest != _digest_of(records):  # pages have checksums, the file's directory has none
            raise pa.ArrowInvalid("the digest of its records is another")
        return records
    except (pa.ArrowException, KeyError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # Arrow's own errors of damaged pages have none
            raise
        raise UsageError(
            f"{path} is no file of results that Headrace wrote, or a damaged one: move it away, or name another folder"
        ) from error


def _digest_of(records: Sequence[str]) -> bytes:
    return hashlib.sha256("\n".join(records).encode()).hexdigest().encode()


def _table(rows: Sequence[dict[str, Any]]) -> "pa.Table":
    import pyarrow as pa

    flat = [
        {
            "version": row.get("version"),
            "key": row.get("key"),
            **_flat("", row.get("job")),
            **_flat("result.", _found(row)),
            "record": json.dumps(row),
        }
        for row in rows
    ]
    names = dict.fromkeys(name for row in flat for name in row)
    table = pa.table({name: _column([row.get(name) for row in flat]) for name in names})
    return table.replace_schema_metadata({_DIGEST: _digest_of([row["record"] for row in flat])})


def _found(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the result. The contents of a field `result` take its place in the names of columns."""
    found = dict(row.get("result") or {})
    inner = found.get("result")
    if isinstance(inner, dict):
        del found["result"]
        found |= inner
    return found


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    """Names of what is nested have dots."""
    found: dict[str, Any] = {}
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            found |= _flat(f"{prefix}{name}.", each)
        else:
            found[prefix + name] = each
    return found


def _column(values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    try:
        return pa.array(values)
    except pa.ArrowException:  # of several kinds
        return pa.array([None if value is None else json.dumps(value) for value in values])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)


def _contents(text: str, results: Path) -> str | None:
    """Of a file that a setting names; of a folder, what there is in it and when it was written; None of any other text,
    such as a model's name that the folder of the results happens to have."""
    path = Path(text)
    try:
        if path.is_dir():
            if not text or results.resolve().is_relative_to(path.resolve()):
                return None
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
