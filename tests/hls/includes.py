"""What a C++ file is made of: itself and all that it includes, so that a result is kept as long as these stay."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path


def with_includes(sources: Iterable[Path], folders: Sequence[Path]) -> list[Path]:
    """Return the sources and what they include, also through others, from their own folders or from `folders`.

    What lies in neither is the system's or is generated, and does not count. Conditions of the preprocessor are not
    looked at: an include that is left out counts."""
    found = list(dict.fromkeys(sources))
    for file in found:  # which grows
        for name in _included(file):
            place = next((folder / name for folder in (file.parent, *folders) if (folder / name).is_file()), None)
            if place is not None and (place := place.resolve()) not in found:
                found.append(place)
    return found


def update(digest: "hashlib._Hash", files: Iterable[Path]) -> None:
    """Add names and contents. Folders have no say: what was built stays good in another checkout."""
    for file in files:
        digest.update(f"{file.parent.name}/{file.name}\0".encode() + _contents(file))


@cache
def _contents(file: Path) -> bytes:
    return file.read_bytes()


@cache
def _included(file: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', _contents(file).decode(errors="replace"), re.MULTILINE)
