"""The parts that all CUs share."""

import pytest

from headrace.host.dpu.units.cu import as_int


@pytest.mark.parametrize(
    ("word", "number"), [(0, 0), (1, 1), (0x7FFFFFFF, 2**31 - 1), (0x80000000, -(2**31)), (0xFFFFFFFF, -1)]
)
def test_a_word_is_the_c_int_of_the_same_bits(word, number):
    assert as_int(word) == number
