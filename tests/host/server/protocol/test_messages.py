"""Test the checks of a request's tensors that both transports share."""

import pytest

from headrace.batching import BadInput
from headrace.host.server.protocol.messages import MAX_RANK, checked_shape


def test_a_tensor_has_at_max_eight_dimensions():
    assert MAX_RANK == 8
    assert checked_shape("x", [1] * 8, 10) == (1,) * 8
    with pytest.raises(BadInput, match="at most 8 sizes"):
        checked_shape("x", [1] * 9, 10)


def test_elements_are_counted_to_the_last_and_a_size_of_0_as_one():
    assert checked_shape("x", [2, 0, 5], 10) == (2, 0, 5)
    with pytest.raises(BadInput, match="at most 9"):
        checked_shape("x", [2, 0, 5], 9)


@pytest.mark.parametrize("shape", [None, "123", [1.0], [True], [-1], [2**62], {"a": 1}], ids=repr)
def test_what_is_no_shape_is_told(shape):
    with pytest.raises(BadInput, match="give its shape as a list"):
        checked_shape("x", shape, 10)
