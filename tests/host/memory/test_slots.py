"""Test that tensor slots are bounded, do not overlap, and look the same on both sides."""

import mmap
import os

import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import SlotArena, SlotViews, slot_layouts
from headrace.host.memory.states import StateArena, StateSpecs

IMAGE = ((TensorSpec("image", "float16", (2, 5)),), (TensorSpec("classes", "float32", (7,)),))
SPEECH = (
    (TensorSpec("mel", "float32", (3, -1), 50), TensorSpec("speaker", "int64", ())),
    (TensorSpec("logits", "float32", (-1, 4), 25), TensorSpec("embedding", "float32", (6,))),
)


def test_slots_are_bounded_by_model_and_the_one_used_last_comes_first():
    arena = SlotArena({"image": IMAGE, "speech": SPEECH}, 3)
    slots = [arena.acquire("image") for _ in range(3)]
    assert sorted(slots) == [0, 1, 2] and arena.acquire("image") is None
    assert arena.free("speech") == 3
    arena.release("image", slots[1])
    assert arena.free("image") == 1 and arena.acquire("image") == slots[1]
    arena.close()


def test_no_tensor_overlaps_another_and_both_sides_see_the_same():
    arena = SlotArena({"image": IMAGE, "speech": SPEECH}, 3)
    models = {"image": IMAGE, "speech": SPEECH}
    value = 0
    for model in models:
        for tensors in (*arena.views[model].inputs, *arena.views[model].outputs):
            for slot in range(3):
                value += 1
                array = tensors.at(slot, tensors.spec.longest)
                assert array.ctypes.data % 4096 == 0 and array.nbytes == tensors.spec.nbytes
                array[...] = value
    layouts = slot_layouts(models, 3)
    memory = mmap.mmap(arena.fd, max(layout.end for layout in layouts.values()))
    value = 0
    for model in models:
        views = SlotViews(layouts[model], memory)
        for tensors in (*views.inputs, *views.outputs):
            for slot in range(3):
                value += 1
                assert (tensors.at(slot, tensors.spec.longest) == value).all()
                if tensors.spec.variable is not None:
                    assert tensors.at(slot, 2).shape == tensors.spec.sized(2) and tensors.at(slot, 2).flags.c_contiguous


def test_layouts_and_arenas_refuse_impossible_sizes():
    for make, text in [
        (lambda: SlotArena({"image": IMAGE}, 0), "at least one"),
        (lambda: TensorSpec("x", "float32", (-1, -1), 4), "-1 at most once"),
        (lambda: TensorSpec("x", "float32", (3, -1)), "longest"),
        (lambda: TensorSpec("x", "float32", (-2,)), "0 or more"),
    ]:
        with pytest.raises(UsageError, match=text):
            make()
    assert np.dtype("float32").itemsize * 150 == SPEECH[0][0].nbytes


@pytest.mark.parametrize(
    "made",
    [
        lambda: SlotArena({"m": ((TensorSpec("x", "float32", (1 << 20,)),), ())}, 4),
        lambda: StateArena({"m": StateSpecs((TensorSpec("x", "float32", (1 << 20,)),))}, 4),
    ],
    ids=["slots", "states"],
)
def test_an_arena_that_is_closed_has_given_its_memory_back_whoever_holds_an_array(made):
    arena = made()
    views = arena.views["m"]
    array = views.inputs[0].at(2) if isinstance(arena, SlotArena) else views.states["x"][2]
    array[...] = 1.0
    file = os.dup(arena.fd)
    assert os.fstat(file).st_blocks * 512 >= array.nbytes
    arena.close()
    assert os.fstat(file).st_blocks == 0 and not array.any()
    os.close(file)
