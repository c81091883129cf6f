"""Keep the results of a sweep's jobs on disk as they come, so that a second start runs only the rest."""

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

_DIGEST = b"headrace.records.sha256"  # the key in the metadata of the Parquet file
SOURCES = (".py", ".json", ".csv")  # the files that determine results


@dataclass
class Journal(Generic[Result]):
    """The results of jobs. Jobs and results are dataclasses of plain values, and results have the class `kind`.

    They lie in `path`, a Parquet file with these columns: `version` of the code, `key`, one for each setting, one for
    each field of the result, and `record`. The names of result columns begin with "result."; the contents of a field
    `result` take its place. `record` is the row as JSON, from which results are the same to the bit. The file's pages
    have checksums, and its records a digest: a damaged file is refused.

    Nothing can be appended to a Parquet file. So new records are appended to a second file of JSON lines, and `close`
    merges both. A crash costs only the jobs that are running. The journal ignores results of another version of the
    code, results from files that have changed since, and lines that were cut short. One sweep at a time may use it.
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
        """Yield the rows of both files that can be read."""
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
        """Write a result to disk before returning; the kernel may still hold it. Raises UsageError if writing fails."""
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
        """Merge all results into the Parquet file. If this is interrupted, the file is the old one or the new one."""
        if not self._log.exists():
            return
        rows = {(row.get("version"), row.get("key")): row for row in self._rows()}
        # The order is not that of their ends, so that the same runs make the same file.
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


def _plain(value: Any) -> Any:
    """Return a job, or a part of one, as plain values.

    A job that is composed of settings has its own flat names (`flat`)."""
    flat = getattr(value, "flat", None)
    if flat is not None:
        return dict(flat())
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class _Rows:
    rows: list[tuple[str, dict[str, Any]]]  # the name of each row's class, and its fields


class RowJournal(Generic[Result]):
    """A journal of jobs whose results are rows: lists of dataclasses of the classes `kinds`.

    The rows hold plain values and tuples of them."""

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
        kept = self._journal.known(job)
        if kept is None:
            return None
        return [
            self._kinds[kind](**{name: tuple(each) if isinstance(each, list) else each for name, each in row.items()})
            for kind, row in kept.rows
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
        # pages have checksums, but the file's directory has none
        if digest is not None and digest != _digest_of(records):
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
    fields = dict(row.get("result") or {})
    inner = fields.get("result")
    if isinstance(inner, dict):
        del fields["result"]
        fields |= inner
    return fields


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    """Return nested values under names with dots."""
    flat: dict[str, Any] = {}
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            flat |= _flat(f"{prefix}{name}.", each)
        else:
            flat[prefix + name] = each
    return flat


def _column(values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    try:
        return pa.array(values)
    except pa.ArrowException:  # it raises several kinds
        return pa.array([None if value is None else json.dumps(value) for value in values])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)


def _contents(text: str, results: Path) -> str | None:
    """Return what identifies the contents of a file or folder that a setting names; None for any other text.

    A folder is identified by its entries, their sizes and times. A text may be a model's name that the folder of the
    results happens to contain; it gives None as well."""
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
    """Return a digest of the sources of batching and sim, which determine the results."""
    digest = hashlib.sha256()
    for folder in (Path(batching.__file__).parent, Path(sim.__file__).parent):
        for path in sorted(each for each in folder.rglob("*") if each.suffix in SOURCES):
            digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
