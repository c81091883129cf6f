"""Archives that torch and Python may read differently, that unpack to more than they are, or that are damaged."""

import hashlib
import re
import zipfile

import pytest
import torch

from headrace.batching import UsageError
from headrace.host.workers.networks.foreign.archives import checked, opened


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "w.pt"
    torch.save({"weight": torch.arange(1000.0)}, path)
    return path


def check(path, sha256=None):
    with opened("--weights w.pt", path, sha256) as file, checked("--weights w.pt", file) as archive:
        return archive.namelist()


def rewritten(file, path, *, compression=zipfile.ZIP_STORED, more=()):
    with zipfile.ZipFile(file) as before, zipfile.ZipFile(path, "w", compression) as after:
        for name in before.namelist():
            after.writestr(name, before.read(name))
        for name, data in more:
            after.writestr(name, data)
    return path


def test_an_archive_of_torch_is_taken(file, tmp_path):
    assert "w/data.pkl" in check(file)
    assert "w/data.pkl" in check(rewritten(file, tmp_path / "v.pt"))


def test_an_archive_of_zip64_is_taken(file, tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)  # the form of a file above 4 GiB
    path = rewritten(file, tmp_path / "large.pt")
    assert b"PK\x06\x06" in path.read_bytes()
    assert "w/data.pkl" in check(path)


def test_a_compressed_archive_is_refused_before_it_is_unpacked(file, tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("w/data.pkl", bytes(64 << 20))
    with pytest.raises(UsageError, match=r"'w/data.pkl' is compressed, to \d+ of 67108864 bytes"):
        check(tmp_path / "bomb.pt")


def test_a_size_that_lies_is_refused(file, tmp_path):
    """The directory says that an entry is large; the file is not."""
    path = tmp_path / "lies.pt"
    data = file.read_bytes()
    place = data.rindex(b"PK\x01\x02")
    path.write_bytes(data[: place + 20] + b"\xff\xff\xff\x7f" * 2 + data[place + 28 :])
    with pytest.raises(UsageError):
        check(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [("w/DATA.pkl", "two files of one name"), ("other/data.pkl", "one folder"), ("w", "one folder")],
)
def test_an_entry_that_could_be_taken_for_another_is_refused(name, text, file, tmp_path):
    with pytest.raises(UsageError, match=text):
        check(rewritten(file, tmp_path / "more.pt", more=[(name, b"x")]))


def test_what_stands_before_or_after_an_archive_is_refused(file, tmp_path):
    data, path = file.read_bytes(), tmp_path / "x.pt"
    other = rewritten(file, tmp_path / "o.pt").read_bytes()
    for content in (b"PK\x03\x04" + data, data + b"x", data[:-2] + b"\x04\x00" + b"more", data + other):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=re.escape("--weights w.pt: ")):
            check(path)


def test_entries_that_overlap_are_refused(file, tmp_path):
    """Two entries of the directory that lead to one place unpack its bytes twice."""
    path = tmp_path / "overlap.pt"
    data = bytearray(rewritten(file, path).read_bytes())
    places = [found.start() for found in re.finditer(b"PK\x01\x02", data)]
    data[places[2] + 42 : places[2] + 46] = data[places[1] + 42 : places[1] + 46]
    path.write_bytes(data)
    with pytest.raises(UsageError, match="does not begin where"):
        check(path)


def test_an_entry_that_pretends_to_be_a_folder_is_refused(file, tmp_path):
    """torch would read nothing of it, and leave the memory of the weight as it was."""
    path = tmp_path / "folder.pt"
    data = bytearray(file.read_bytes())
    for found in re.finditer(b"PK\x01\x02", bytes(data)):
        data[found.start() + 38] |= 0x10
    path.write_bytes(data)
    with pytest.raises(UsageError, match="has flags that torch does not write"):
        check(path)


def test_bytes_that_changed_are_told_by_the_entry(file, tmp_path):
    data = bytearray(file.read_bytes())
    data[data.index(torch.tensor(500.0).numpy().tobytes())] ^= 1
    path = tmp_path / "damaged.pt"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="'w/data/0' does not have its CRC-32 checksum; it was damaged"):
        check(path)


def test_a_digest_is_compared_before_anything_else(file, tmp_path):
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert check(file, digest) and check(file, digest.upper())
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(UsageError, match=f"its SHA-256 is {digest[:12]}..., and {other[:12]}... is expected"):
        check(file, other)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="name a file that can be read"):
            check(path, "0" * 64)
