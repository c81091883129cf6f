"""What both transports check of a request's tensors."""

import pytest

from headrace.batching import BadInput
from headrace.host.server.protocol.messages import MAX_RANK, checked_shape


def test_a_tensor_has_eight_dimensions_at_most():
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
    with pytest.raises(BadInput, match="its shape must be a list"):
        checked_shape("x", shape, 10)
