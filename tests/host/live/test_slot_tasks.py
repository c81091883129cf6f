"""Requests in tensor slots: sources are read straight into the slot, and readers see the outputs in it."""

import numpy as np
import pytest

from headrace.batching import BadInput, Request
from headrace.host.live.tasks.slots import SlotTasks
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
    assert tasks.result(request, lambda outputs: {name: outputs[name].sum() for name in outputs}) == {"y": 20.0, "z": 9}
    assert tasks.result(request, lambda outputs: np.shares_memory(outputs["y"], y.at(slot)))
    copied = tasks.result(request)
    y.at(slot)[:] = 0.0
    np.testing.assert_array_equal(copied["y"], np.full(5, 4.0, np.float32))
