"""Tensor slots: bounded, apart from each other, the same for both sides."""

import mmap

import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import SlotArena, SlotViews, slot_layouts

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


def test_what_makes_no_sense_is_refused():
    for make, text in [
        (lambda: SlotArena({"image": IMAGE}, 0), "at least one"),
        (lambda: TensorSpec("x", "float32", (-1, -1), 4), "at most one -1"),
        (lambda: TensorSpec("x", "float32", (3, -1)), "longest"),
        (lambda: TensorSpec("x", "float32", (-2,)), "0 or more"),
    ]:
        with pytest.raises(UsageError, match=text):
            make()
    assert np.dtype("float32").itemsize * 150 == SPEECH[0][0].nbytes
