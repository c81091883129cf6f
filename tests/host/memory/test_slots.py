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


VISION = (
    (TensorSpec("patches", "float32", (-1, 1024), 1024, 1), TensorSpec("grid", "int64", (3,))),
    (TensorSpec("merged", "float32", (-1, 4), 256, 4), TensorSpec("mean", "float32", (4,))),
)


def test_a_joined_output_is_split_by_the_tokens_of_each_request():
    arena = SlotArena({"vision": VISION}, 4)
    views, tokens = arena.views["vision"], [8, 4, 12]
    merged = np.arange(24, dtype=np.float32).reshape(6, 4)
    merged[2, 1] = np.nan
    mean = np.ones((3, 4), np.float32)
    assert views.write_outputs([3, 0, 2], [merged, mean], tokens) == (1, [])
    for slot, rows in ((3, merged[:2]), (0, merged[2:3]), (2, merged[3:])):
        np.testing.assert_array_equal(views.outputs[0].at(slot, len(rows)), rows)
    for wrong in (merged[:5], merged.astype(np.float64), merged[:, :3]):
        with pytest.raises(
            ValueError, match=r"output 'merged' of a batch of 24 tokens is .*; expected float32\(6, 4\)"
        ):
            views.write_outputs([3, 0, 2], [wrong, mean], tokens)
    arena.close()


def test_a_free_slot_keeps_little_of_the_memory_of_long_joined_tensors():
    arena = SlotArena({"vision": VISION}, 2)

    def held() -> int:
        return os.fstat(arena.fd).st_blocks * 512

    slot = arena.acquire("vision")
    patches = arena.views["vision"].inputs[0].at(slot, 1024)
    patches[...] = 1.0
    assert held() >= patches.nbytes == 4 << 20
    arena.release("vision", slot)
    assert held() <= 1 << 20
    assert arena.acquire("vision") == slot and not patches[512:].any()
    arena.close()


def test_a_tensor_that_a_batch_joins_varies_in_its_first_dimension():
    for shape, tokens_per_row in (((4, -1), 1), ((4,), 1), ((-1,), -1)):
        with pytest.raises(UsageError, match="the variable dimension of a joined tensor must be the first one"):
            TensorSpec("x", "float32", shape, 4 if -1 in shape else 0, tokens_per_row)
    patches, stacked = VISION[0][0], TensorSpec("x", "float32", (-1, 3), 5)
    assert patches.holds((1024, 1024)) and not patches.holds((1025, 1024)) and not patches.holds((1, 1024, 1024))
    assert stacked.holds((1, 5, 3)) and not any(stacked.holds(shape) for shape in ((5, 3), (1, 6, 3), (2, 5, 3), (1,)))
    assert patches.batched(2, 7) == (7, 1024) and stacked.batched(2, 4) == (2, 4, 3)


def test_a_detached_slot_keeps_little_of_the_memory_of_long_joined_tensors_either():
    arena = SlotArena({"vision": VISION}, 1, spares=1)
    slot = arena.acquire("vision")
    patches = arena.views["vision"].inputs[0].at(slot, 1024)
    patches[...] = 1.0
    spare, memory = arena.detach("vision", slot)
    assert spare != slot and np.shares_memory(memory, patches)
    before = os.fstat(arena.fd).st_blocks * 512
    del memory
    assert before >= patches.nbytes > 2 * os.fstat(arena.fd).st_blocks * 512
    arena.close()
