"""Read all text files that users bring, with one style of errors.

The reader removes the byte order mark and the line ends that spreadsheets and Windows write.
"""

import codecs
import csv
import io
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headrace.batching.errors import LONGEST_ERROR, UsageError

MAX_TOML = 1 << 20  # bytes
MAX_DEPTH = 16  # the greatest depth; tables of settings have two levels
_TOO_DEEP = f"it nests too deep; tables and lists may hold each other {MAX_DEPTH} deep"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_text(where: str, path: Path, max_bytes: int | None = None) -> str:
    """Return the text with \\n at the end of each line. A byte order mark tells UTF-16; all other files are UTF-8.

    A file of more than `max_bytes` is an error. Raises UsageError, which begins with `where`, the words that name the
    file to its user."""
    try:
        with path.open("rb") as file:
            raw = file.read(-1 if max_bytes is None else max_bytes + 1)
        if max_bytes is not None and len(raw) > max_bytes:
            raise UsageError(f"{where}: it has more than {max_bytes} bytes; name the file that was meant")
        coding = next((coding for mark, coding in _MARKS if raw.startswith(mark)), "utf-8")
        text = raw.decode(coding)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror or error}; name a file that can be read") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: byte {error.start} is no text in {error.encoding}; save it as UTF-8") from error
    if "\0" in text:
        raise UsageError(f"{where}: this is no text file, for it holds a zero byte")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(where: str, path: Path) -> dict[str, Any]:
    """Return the table in a TOML file of at most MAX_TOML bytes, in which tables and lists nest at most MAX_DEPTH deep.

    Raises UsageError, which begins with `where`."""
    text = read_text(where, path, MAX_TOML)
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        why = (
            _TOO_DEEP
            if isinstance(error, RecursionError)
            else textwrap.shorten(str(error), LONGEST_ERROR, placeholder=" ...")
        )
        raise UsageError(f"{where}: {why}") from None
    if _depth(table) > MAX_DEPTH:
        raise UsageError(f"{where}: {_TOO_DEEP}")
    return table


def _depth(value: Any) -> int:
    """Return how deep tables and lists nest in the value. It does not recurse, because a file may nest them deep."""
    depth, level = 0, [value]
    while level:
        inner: list[Any] = []
        for each in level:
            inner += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        level = [each for each in inner if isinstance(each, (dict, list))]
        depth += 1
    return depth


def read_rows(path: Path, columns: Sequence[str | tuple[str, ...]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row of a CSV file by column, with the words that name its file and line.

    The header must have all `columns`, and exactly one of those in a tuple. Other columns are ignored. Raises
    UsageError."""
    rows = csv.DictReader(io.StringIO(read_text(str(path), path), newline=""), strict=True)
    try:
        present = set(rows.fieldnames or ())
        names = [(column,) if isinstance(column, str) else column for column in columns]
        lacking = [" or ".join(each) for each in names if present.isdisjoint(each)]
        several = [" and ".join(each) for each in names if len(present.intersection(each)) > 1]
        if lacking or several:
            why = f"lacks {', '.join(lacking)}" if lacking else f"has more than one of {', '.join(several)}"
            raise UsageError(f"{path}: the header {why}; it must be {header(columns)}")
        for row in rows:
            yield f"{path}, line {rows.line_num}", row
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from error


def header(columns: Sequence[str | tuple[str, ...]]) -> str:
    """Return the header that the columns make, with the first name of each."""
    return ",".join(column if isinstance(column, str) else column[0] for column in columns)
