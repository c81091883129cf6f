"""Files of rows: CSV with a header."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.batching.errors import UsageError


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row by column, with the words that name its file and line; columns beyond `columns` are left alone. Raises
    UsageError, as does a header without one of them."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file, strict=True)
            missing = [column for column in columns if column not in (rows.fieldnames or ())]
            if missing:
                raise UsageError(f"{path}: the header lacks {', '.join(missing)}; it must be {','.join(columns)}")
            for row in rows:
                yield f"{path}, line {rows.line_num}", row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}") from error
