"""The zip archives of torch.save and torch.export.save, checked before anything in them is used.

torch reads an archive with its own parser, which ignores checksums. So this module takes an archive only if every
parser reads it as Python does:

- It begins with its first entry, ends with its directory, and has no comment.
- No two entries have the same name, and no entry overlaps another.
- No entry has a flag of a folder or of encryption.
- No entry is compressed, as torch writes it. So no archive unpacks to more bytes than it has.

Then the CRC-32 of every entry is compared."""

import contextlib
import hashlib
import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headrace.batching import UsageError
from headrace.batching.errors import one_line

_SIGNATURE = b"PK\x03\x04"
_END = struct.Struct("<4s4H2LH")  # the end of the directory
_LOCATOR = struct.Struct("<4sLQL")  # of the end in a zip64 archive
_END64 = struct.Struct("<4sQ2H2L4Q")
_HEADER = struct.Struct("<4s5H3L2H")  # of an entry
_FOLDER = 0x10  # an attribute; of an entry that has it torch reads nothing, and says nothing
_FLAGS = 0x808  # sizes after the entry, and a name in UTF-8
_DAMAGED = "it was damaged, or written without checksums (torch.serialization.set_crc32_options); save or copy it anew"


@contextlib.contextmanager
def opened(where: str, path: Path, sha256: str | None = None) -> Iterator[BinaryIO]:
    """Open a file after a comparison of its digest. What is read from it later is the file that was compared, even if
    another takes its name. Raises UsageError, which begins with `where`."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror or error}; name a file that can be read") from None
    with file:
        if sha256 is not None:
            try:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise UsageError(f"{where}: {error.strerror or error}; name a file that can be read") from None
            if digest != sha256.lower():
                raise UsageError(
                    f"{where}: its SHA-256 is {digest[:12]}..., and {sha256.lower()[:12]}... is expected; bring the "
                    "file that was meant, or correct the digest"
                )
            file.seek(0)
        yield file


def is_archive(file: BinaryIO) -> bool:
    """Return whether torch takes the file for a zip archive."""
    file.seek(0)
    found = file.read(len(_SIGNATURE)) == _SIGNATURE
    file.seek(0)
    return found


@contextlib.contextmanager
def checked(where: str, file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """Open an archive after all checks of this module; afterwards the file stands at its beginning.

    Raises UsageError, which begins with `where`."""
    with contextlib.ExitStack() as stack:
        stack.callback(file.seek, 0)
        try:
            archive = stack.enter_context(zipfile.ZipFile(file))
            _check_places(where, file, archive)
            _check_sums(where, archive)
        except (UsageError, MemoryError):
            raise
        except Exception as error:  # a damaged archive raises much
            raise UsageError(f"{where}: {one_line(error)}; {_DAMAGED}") from error
        yield archive


def _check_places(where: str, file: BinaryIO, archive: zipfile.ZipFile) -> None:
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    folded = [entry.filename.casefold() for entry in entries]
    if len(set(folded)) < len(folded):
        raise UsageError(f"{where}: it has two files of one name; save it anew with torch")
    if len({entry.filename.partition("/")[:2] for entry in entries}) != 1:
        raise UsageError(f"{where}: its files do not lie in one folder; save it anew with torch")
    end = 0
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise UsageError(
                f"{where}: {entry.filename!r} is compressed, to {entry.compress_size} of {entry.file_size} bytes; "
                "save it anew with torch, which does not compress"
            )
        if entry.external_attr & _FOLDER or entry.flag_bits & ~_FLAGS:
            raise zipfile.BadZipFile(f"{entry.filename!r} has flags that torch does not write")
        if entry.header_offset < end or (end == 0 and entry.header_offset):
            raise zipfile.BadZipFile(f"{entry.filename!r} does not begin where the file before it ends")
        file.seek(entry.header_offset)
        header = _HEADER.unpack(file.read(_HEADER.size))
        end = entry.header_offset + _HEADER.size + header[9] + header[10] + entry.compress_size
    if end > archive.start_dir or archive.start_dir != _directory(file):
        raise zipfile.BadZipFile("its directory does not lie where its end says")


def _directory(file: BinaryIO) -> int:
    """Return where the directory begins, for an archive that ends with the end of its directory."""
    size = file.seek(0, os.SEEK_END)
    file.seek(size - _END.size)
    signature, _, _, _, _, length, offset, comment = _END.unpack(file.read(_END.size))
    end = size - _END.size
    if signature != b"PK\x05\x06" or comment:
        raise zipfile.BadZipFile("it does not end with its directory")
    if end >= _LOCATOR.size:
        file.seek(end - _LOCATOR.size)
        located, _, place, _ = _LOCATOR.unpack(file.read(_LOCATOR.size))
        if located == b"PK\x06\x07":
            file.seek(place)
            *_, length, offset = _END64.unpack(file.read(_END64.size))
            if place + _END64.size + _LOCATOR.size != end:
                raise zipfile.BadZipFile("it does not end with its directory")
            end = place
    if offset + length != end:
        raise zipfile.BadZipFile("its directory does not lie where its end says")
    return int(offset)


def _check_sums(where: str, archive: zipfile.ZipFile) -> None:
    if (bad := archive.testzip()) is not None:
        raise UsageError(f"{where}: {bad!r} does not have its CRC-32 checksum; {_DAMAGED}")
