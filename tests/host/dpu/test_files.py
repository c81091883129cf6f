"""A tensor's file is whole, or it is not there."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.host.dpu import files

TENSOR = np.arange(6.0).reshape(2, 3)


@pytest.fixture(params=["nameless", "named", "no /proc"])
def file_system(request, monkeypatch, tmp_path):
    """Use file systems with files without a name, without them, and with such files that cannot get a name."""
    real = os.open

    def refusing(path, flags, *more, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, *more, **named)

    def no_link(*_, **__):
        raise FileNotFoundError(2, "No such file or directory")

    if request.param == "named":
        monkeypatch.setattr(files.os, "open", refusing)
        return request.param
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except OSError as error:
        pytest.skip(f"{tmp_path}: {error.strerror}")
    if request.param == "no /proc":
        monkeypatch.setattr(files.os, "link", no_link)
    return request.param


def test_a_tensor_replaces_the_one_before(file_system, tmp_path):
    for factor in (1, 2):
        files.save(tmp_path / "a.npy", lambda file, factor=factor: np.save(file, factor * TENSOR))
        assert (np.load(tmp_path / "a.npy") == factor * TENSOR).all() and len(list(tmp_path.iterdir())) == 1
    old = os.umask(0)
    os.umask(old)
    assert (tmp_path / "a.npy").stat().st_mode & 0o777 == 0o666 & ~old


def test_nothing_is_there_before_it_is_whole_and_nothing_stays_of_what_fails(file_system, tmp_path):
    seen = []

    def full(file):
        file.write(b"half")
        file.flush()
        seen.append([path.name for path in tmp_path.iterdir()])
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        files.save(tmp_path / "a.npy", full)
    (names,) = seen
    assert len(names) == (file_system == "named") and all(name.startswith("a.npy.") for name in names)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("names", "outputs"),
    [
        (["a.jpg", "b.png"], ["a", "b"]),
        (["a.jpg", "a.png", "c/a.jpg"], ["a", "a-2", "a-3"]),
        (["a.jpg", "a-2.jpg", "a.jpeg"], ["a", "a-2", "a-3"]),
        (["a.jpg", "a.jpeg", "a-2.jpg"], ["a", "a-3", "a-2"]),
        (["a.wav", "a.flac", "a-2.wav", "a-2.flac"], ["a", "a-3", "a-2", "a-2-2"]),
    ],
)
def test_no_tensor_takes_anothers_name(names, outputs):
    assert files.output_names([Path(name) for name in names]) == [f"{output}.npy" for output in outputs]


def test_a_suffix_tells_the_kind_of_file():
    assert files.output_names([Path("a.jpg"), Path("a.png")], ".npz") == ["a.npz", "a-2.npz"]


@given(st.lists(st.from_regex(r"[ab](-[23]){0,2}[.](jpg|png)", fullmatch=True), max_size=12))
def test_any_files_have_names_of_their_own_and_the_first_of_a_stem_keeps_it(names):
    found = files.output_names([Path(name) for name in names])
    assert len(set(found)) == len(names)
    for place, name in enumerate(names):
        stem = Path(name).stem
        if stem not in {Path(other).stem for other in names[:place]}:
            assert found[place] == f"{stem}.npy"
