"""Requests in tensor slots: sources are read straight into the slot, and readers see the outputs in it."""

import os

import numpy as np
import pytest

from headrace.batching import BadInput, Request, Task
from headrace.host.live.tasks.interface import Written
from headrace.host.live.tasks.slots import SPARES, SlotTasks
from headrace.host.memory.files import FilePlace, MappedFiles, SharedFile
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.sources import Source

SPECS = {
    "net": (
        (TensorSpec("x", "float32", (2, 3)), TensorSpec("mask", "bool", (-1,), 4)),
        (TensorSpec("y", "float32", (5,)), TensorSpec("z", "int64", ())),
    )
}
MASK = np.array([True, False, True])
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class Elsewhere(Source):
    """A source that notes the array into which it was read. With `fails` it is gone when it is read."""

    def __init__(self, array, fails=False):
        self.dtype, self.shape = array.dtype, array.shape
        self._array = array
        self._fails = fails
        self.into = None

    def __getitem__(self, row):
        return Elsewhere(self._array[row], self._fails)

    def read_into(self, array):
        if self._fails:
            raise BadInput("the source is gone")
        self.into = array
        array[...] = self._array


@pytest.fixture
def tasks():
    made = SlotTasks(SPECS, 2)
    yield made
    made.close()


def test_a_source_is_read_into_the_slot_itself(tasks):
    source = Elsewhere(VALUES)
    assert tasks.take(7, "net", {"x": source, "mask": MASK}) == 3.0
    (slot,) = tasks.slots([Request(7, "net", 0.0)])
    x, mask = tasks.arena.views["net"].inputs
    assert np.shares_memory(source.into, x.at(slot))
    np.testing.assert_array_equal(x.at(slot), VALUES)
    np.testing.assert_array_equal(mask.at(slot, 3), MASK)


def test_a_source_that_fails_leaves_no_slot_taken(tasks):
    for id in range(3):
        with pytest.raises(BadInput, match="gone"):
            tasks.take(id, "net", {"x": VALUES, "mask": Elsewhere(MASK, fails=True)})
    assert tasks.arena.free("net") == 2


@pytest.mark.parametrize("wrong", [VALUES[0], VALUES.astype(np.float64)], ids=["shape", "type"])
def test_a_source_of_another_shape_or_type_is_refused_unread(tasks, wrong):
    source = Elsewhere(wrong)
    with pytest.raises(BadInput, match="it takes float32"):
        tasks.take(0, "net", {"x": source, "mask": MASK})
    assert source.into is None and tasks.arena.free("net") == 2


def test_a_source_becomes_an_array_where_one_is_needed():
    np.testing.assert_array_equal(np.asarray(Elsewhere(VALUES)), VALUES)
    np.testing.assert_array_equal(np.asarray(Elsewhere(VALUES)[1]), VALUES[1])


def test_a_reader_sees_the_outputs_in_the_slot_and_without_one_they_are_copied(tasks):
    request = Request(7, "net", 0.0)
    tasks.take(7, "net", {"x": VALUES, "mask": MASK})
    (slot,) = tasks.slots([request])
    y, z = tasks.arena.views["net"].outputs
    y.at(slot)[:], z.at(slot)[()] = 4.0, 9
    assert tasks.result(request, lambda outputs, _: {name: outputs[name].sum() for name in outputs}) == {
        "y": 20.0,
        "z": 9,
    }
    assert tasks.result(request, lambda outputs, _: np.shares_memory(outputs["y"], y.at(slot)))
    copied = tasks.result(request)
    y.at(slot)[:] = 0.0
    np.testing.assert_array_equal(copied["y"], np.full(5, 4.0, np.float32))


# ---- outputs that stay after their request ----

LARGE = {
    "net": (
        (TensorSpec("x", "float32", (3,)),),
        (
            TensorSpec("y", "float32", (20_000,)),
            TensorSpec("z", "float32", (-1, 1000), 40),
            TensorSpec("n", "int64", ()),
        ),
    )
}


class Answered:
    """Requests of one slot, of which each ends with outputs of its own number."""

    def __init__(self):
        self.tasks = SlotTasks(LARGE, 1)
        self._number = 0

    def kept(self, *names):
        """Run the next request and return the outputs that its reader keeps."""
        self._number += 1
        request = Request(self._number, "net", 0.0)
        self.tasks.take(request.id, "net", {"x": np.zeros(3, np.float32)})
        (slot,) = self.tasks.slots([request])
        y, z, n = self.tasks.arena.views["net"].outputs
        y.at(slot)[:], z.at(slot, 30)[:], n.at(slot)[()] = request.id, -request.id, request.id
        self.tasks.output_lengths[request.id] = [30]
        try:
            return self.tasks.result(request, lambda _, keep: [keep(name) for name in names])
        finally:
            self.tasks.release(request)

    def spares(self):
        """Return how many answers find a spare slot."""
        found = []
        while (answer := self.kept("y")[0]).base is not None:
            found.append(answer)
        return len(found)


@pytest.fixture
def answered():
    made = Answered()
    yield made
    made.tasks.close()


def test_large_outputs_are_kept_without_a_copy_and_later_requests_do_not_change_them(answered):
    kept = [answered.kept("z", "y", "n") for _ in range(SPARES)]
    for number, (z, y, n) in enumerate(kept, 1):
        assert z.base is not None and y.base is z.base and n.base is None
        assert y.shape == (20_000,) and z.shape == (30, 1000)
        assert (y == number).all() and (z == -number).all() and n == number
    slots = answered.tasks.arena.views["net"].outputs[0]
    assert all(any(np.shares_memory(y, slots.at(slot)) for slot in range(1 + SPARES)) for _, y, _ in kept)


def test_answers_beyond_the_spare_slots_are_copied(answered):
    kept = [answered.kept("y")[0] for _ in range(SPARES + 3)]
    assert [y.base is None for y in kept] == [False] * SPARES + [True] * 3
    assert [y[0] for y in kept] == [*range(1, SPARES + 4)]


def test_a_slot_is_spare_again_when_the_last_array_on_it_is_gone(answered):
    y, z = answered.kept("y", "z")
    assert answered.spares() == SPARES - 1
    part = memoryview(y[None]).cast("B")[:8]
    del y
    assert answered.spares() == SPARES - 1
    del z
    assert answered.spares() == SPARES - 1
    del part
    assert answered.spares() == SPARES


def test_a_reader_that_fails_keeps_no_slot(answered):
    def refuses(_, keep):
        keep("y")
        raise BadInput("no place")

    for number in range(2 * SPARES):
        request = Request(1000 + number, "net", 0.0)
        answered.tasks.take(request.id, "net", {"x": np.zeros(3, np.float32)})
        answered.tasks.output_lengths[request.id] = [30]
        with pytest.raises(BadInput, match="no place"):
            answered.tasks.result(request, refuses)
        answered.tasks.release(request)
    assert answered.spares() == SPARES


def test_what_is_kept_outlives_the_arena(answered):
    y, z = answered.kept("y", "z")
    answered.tasks.close()
    assert (y == 1).all() and (z == -1).all()


def test_an_arena_whose_answers_are_gone_gives_its_memory_back(answered):
    file = os.dup(answered.tasks.arena.fd)
    y, slots = answered.kept("y")[0], answered.tasks.arena.views["net"].outputs[0]
    before = os.fstat(file).st_blocks * 512
    del y
    answered.tasks.close()
    assert before >= slots.spec.nbytes and os.fstat(file).st_blocks == 0
    os.close(file)


# ---- tensors in files of clients ----


def using_files(in_files=True):
    tasks = SlotTasks(SPECS, 2)
    tasks.in_files = in_files
    return tasks


class Placed(Source):
    """A source whose elements lie in a file."""

    def __init__(self, file, offset, dtype, shape):
        self.dtype, self.shape = np.dtype(dtype), shape
        self.at = FilePlace(file, offset)

    def __getitem__(self, row):
        raise NotImplementedError

    def place(self):
        return self.at

    def read_into(self, array):
        if not self.at.file.is_open:
            raise BadInput("the file was closed")
        array[...] = 5


@pytest.fixture
def file():
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 4096)
    made = SharedFile(descriptor, 4096)
    yield made
    if made.is_open:
        made.close()


def test_only_where_workers_use_files_a_fixed_tensor_stays_in_its_file(file):
    x, mask = Placed(file, 0, "float32", (2, 3)), Placed(file, 64, "bool", (3,))
    for held in ([file], []):
        tasks = using_files(bool(held))
        tasks.take(7, "net", {"x": x, "mask": mask})
        request = Request(7, "net", 0.0)
        views = tasks.arena.views["net"]
        (slot,) = tasks.slots([request])
        assert (views.inputs[0].at(slot) == (0 if held else 5)).all()
        assert views.inputs[1].at(slot, 3).all()  # a variable one is copied
        assert list(tasks.files(Task(0, "net", (request,), 0, 1))) == held
        tasks.release(request)
        assert not tasks.files(Task(0, "net", (), 0, 1))
        tasks.close()


@pytest.fixture
def placed(file):
    """Provide tasks with a request whose x and y lie in the file, and its slot."""
    tasks = using_files()
    request = Request(7, "net", 0.0)
    tasks.take(7, "net", {"x": Placed(file, 0, "float32", (2, 3)), "mask": MASK}, {"y": FilePlace(file, 100)})
    yield tasks, request, tasks.slots([request])[0]
    tasks.close()


def worked(tasks, slot):
    """Do as a worker does with x and y."""
    views = tasks.arena.views["net"]
    files = MappedFiles()
    (file,) = tasks.files(Task(0, "net", (Request(7, "net", 0.0),), 0, 1))
    files.add(file.number, os.dup(file.descriptor), 4096)
    read = views.places.read(slot, 0, files, np.empty((2, 3), np.float32))
    views.write_outputs([slot], [np.ones((1, 5), np.float32), np.array([9])], files=files)
    files.remove([file.number])
    return read


def test_an_output_in_a_file_is_said_to_be_written_and_others_are_read(placed):
    tasks, request, slot = placed
    assert worked(tasks, slot)
    found = tasks.result(request)
    assert found["y"] == Written((5,), 20) and found["z"] == 9
    tasks.release(request)


def test_an_input_that_no_worker_has_read_is_an_error(placed, file):
    tasks, request, _ = placed
    with pytest.raises(BadInput, match="could not be read"):
        tasks.result(request)
    file.close()
    with pytest.raises(BadInput, match="the file was closed"):
        tasks.result(request)
    tasks.release(request)


def test_a_request_for_nobody_does_not_show_what_was_in_its_slot_before(placed):
    tasks, request, slot = placed
    views = tasks.arena.views["net"]
    views.inputs[0].at(slot)[...] = 7  # of an earlier request
    tasks.abandon(request)
    into = np.ones((2, 3), np.float32)
    assert views.places.read(slot, 0, MappedFiles(), into) and not into.any()
    tasks.release(request)
    assert not views.places.read(slot, 0, MappedFiles(), into)


@pytest.mark.parametrize("end", ["closed", "abandoned", "released"])
def test_a_file_is_not_written_for_a_request_once_it_is(placed, file, end):
    tasks, request, slot = placed
    if end == "closed":
        file.close()
    elif end == "abandoned":
        tasks.abandon(request)
    else:
        tasks.release(request)
        tasks.take(7, "net", {"x": VALUES, "mask": MASK})
        assert tasks.slots([request]) == [slot] and not tasks.files(Task(0, "net", (request,), 0, 1))
    views = tasks.arena.views["net"]
    files = MappedFiles()
    files.add(file.number, os.dup(file.descriptor), 4096)
    views.write_outputs([slot], [np.ones((1, 5), np.float32), np.array([9])], files=files)
    assert not any(os.pread(file.descriptor, 4096, 0)) and (views.outputs[0].at(slot) == 1).all()
    files.remove([file.number])


def test_a_worker_that_was_lost_has_read_nothing(placed):
    tasks, request, slot = placed
    worked(tasks, slot)
    tasks.lost(Task(0, "net", (request,), 0, 1))
    with pytest.raises(BadInput, match="could not be read"):
        tasks.result(request)
    assert worked(tasks, slot)
    assert isinstance(tasks.result(request)["y"], Written)
    tasks.release(request)
