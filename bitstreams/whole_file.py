"""Write files that are whole or not there, even if other threads or other machines write them at the same time."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a unique path in the folder of `path`. The file there replaces `path` when the block ends.

    If the block raises, the file is removed."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
