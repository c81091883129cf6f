"""Files that are whole or not there, whoever else writes them at the same time: other threads, and other machines."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` that nobody else has. What is written there takes the place of `path` when the block ends,
    and is removed when it raises."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
