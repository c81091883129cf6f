"""A test finds no emulated device of an earlier test, whatever held it."""

import gc

import garbage
import pytest

from headrace.host.xrt import emulation


@pytest.mark.parametrize("times", [1, 2])
def test_what_was_frozen_in_a_circle_is_collected(times):
    """As often as it happens: a collection freezes what is left, and the next one must still see what comes later."""
    for _ in range(times):
        circle = [emulation.device(0)]
        circle.append(circle)
        gc.freeze()
        del circle
        assert emulation._cards
        garbage.collect()
        assert not emulation._cards


def test_a_device_in_use_stays():
    device = emulation.device(0)
    garbage.collect()
    assert list(emulation._cards.values()) == [device._card]


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_begins_without_one(turn):
    assert not emulation._cards
    circle = [emulation.device(0)]
    circle.append(circle)
    gc.freeze()
