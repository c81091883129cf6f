"""Files of clients are closed by their last user, and no worker writes a tensor whose place was taken away."""

import mmap
import os
import threading

import numpy as np
import pytest

from headrace.host.memory.files import FilePlace, MappedFiles, SharedFile
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import DONE, REVOKED, WORDS, WRITING, SlotArena, SlotViews, slot_layouts

SPECS = {"net": ((TensorSpec("x", "float32", (4,)),), (TensorSpec("y", "float32", (4,)),))}
X, Y = 0, 1
VALUES = np.arange(4, dtype=np.float32)


@pytest.fixture
def made():
    """Provide a file of 4,096 bytes, its contents as an array, and its descriptor that a worker may have."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 4096)
    return SharedFile(descriptor, 4096), np.frombuffer(mmap.mmap(descriptor, 4096), np.float32), os.dup(descriptor)


@pytest.fixture
def sides(made):
    """Provide the places of both sides, the file, its contents, and the worker's files."""
    file, contents, descriptor = made
    arena = SlotArena(SPECS, 3)
    layout = slot_layouts(SPECS, 3)["net"]
    views = SlotViews(layout, mmap.mmap(arena.fd, layout.end))
    mapped = MappedFiles()
    mapped.add(file.number, descriptor, 4096)
    yield arena.views["net"].places, views, file, contents, mapped
    mapped.remove([file.number])
    arena.close()


def is_open(descriptor):
    return os.path.exists(f"/proc/self/fd/{descriptor}")


def test_a_file_stays_open_for_the_requests_that_use_it(made):
    file, *_ = made
    revoked, closed = [], []
    file.when_closed(closed.append)
    for request in "ab":
        file.hold(request, lambda request=request: revoked.append(request))
    file.let_go("a")
    file.close()
    assert revoked == ["b"] and not closed and is_open(file.descriptor)
    file.let_go("b")
    assert closed == [file.number] and not is_open(file.descriptor)


def test_tensors_are_read_and_written_in_the_file_and_nowhere_else(sides):
    places, views, file, contents, mapped = sides
    contents[8:12] = VALUES
    places.put(1, X, FilePlace(file, 32))
    places.put(2, Y, FilePlace(file, 64))
    into = np.empty(4, np.float32)
    assert views.places.read(1, X, mapped, into) and into.tolist() == VALUES.tolist()
    assert not views.places.read(0, X, mapped, into) and not views.places.read(2, X, mapped, into)
    views.write_outputs([0, 2], [np.stack([VALUES + 1, VALUES + 2])], files=mapped)
    assert contents[16:20].tolist() == (VALUES + 2).tolist()
    assert views.outputs[0].at(0).tolist() == (VALUES + 1).tolist() and not views.outputs[0].at(2).any()
    assert [places.state(slot, Y) for slot in range(3)] == [0, 0, DONE]


def test_rows_that_are_not_contiguous_are_written(sides):
    places, views, file, contents, mapped = sides
    places.put(0, Y, FilePlace(file, 0))
    views.write_outputs([0], [np.stack([VALUES, -VALUES], 1).T[:1]], files=mapped)
    assert contents[:4].tolist() == VALUES.tolist()


def test_a_place_that_was_revoked_is_neither_read_nor_written(sides):
    places, views, file, contents, mapped = sides
    contents[8:12] = VALUES
    for tensor in (X, Y):
        places.put(0, tensor, FilePlace(file, 32 * (1 - tensor)))
        places.revoke(0, tensor)
    into = VALUES.copy()
    assert views.places.read(0, X, mapped, into) and not into.any() and places.state(0, X) == 0
    assert not views.places.write(0, Y, mapped, VALUES) and not contents[:4].any()
    for tensor in (X, Y):
        places.clear(0, tensor)
    assert not views.places.read(0, X, mapped, into) and not views.places.write(0, Y, mapped, VALUES)


def test_a_file_that_is_too_short_or_missing_fails_and_outputs_go_to_their_slots(sides):
    places, views, file, _, mapped = sides
    os.ftruncate(file.descriptor, 0)
    for there in (mapped, MappedFiles()):
        for tensor in (X, Y):
            places.put(0, tensor, FilePlace(file, 4000))
        into = VALUES.copy()
        assert views.places.read(0, X, there, into) and not into.any()
        assert not views.places.write(0, Y, there, VALUES)
        assert [places.state(0, tensor) for tensor in (X, Y)] == [0, 0]


@pytest.mark.parametrize("ends", [True, False])
def test_revoking_waits_for_a_write_that_has_begun_and_not_for_ever(sides, monkeypatch, ends):
    places, views, file, *_ = sides
    begun, may_end = threading.Event(), threading.Event()

    class Copying:
        """A mapping whose copy ends when its place was revoked, or when the test says so."""

        def write(self, array, offset):
            begun.set()
            while ends and views.places._words[Y * WORDS] != REVOKED:
                pass
            return ends or may_end.wait(30)

        def close(self):
            pass

    monkeypatch.setattr("headrace.host.memory.files.mapped", lambda *_: Copying())
    if ends:
        monkeypatch.setattr("headrace.host.memory.slots.REVOKE_S", 30.0)
    mapped = MappedFiles()
    mapped.add(file.number, os.dup(file.descriptor), 4096)
    places.put(0, Y, FilePlace(file, 0))
    writer = threading.Thread(target=views.places.write, args=(0, Y, mapped, VALUES))
    writer.start()
    begun.wait()
    places.revoke(0, Y)
    assert places.state(0, Y) == (DONE if ends else WRITING)
    may_end.set()
    writer.join()
    mapped.remove([file.number])


def test_places_of_different_slots_and_tensors_do_not_overlap():
    layout = slot_layouts(SPECS, 3)["net"]
    offset, size = layout.places
    assert offset == 3 * layout.stride and size == 3 * 2 * WORDS * 8 and layout.end >= offset + size
