import pytest

from headrace.sim.experiments.preba.transfers import CASES, transfers, way_to_gpu_us


def test_the_way_of_an_image_by_hand():
    """602,112 bytes at 12 and at 24.8 GB/s, each after 10 us; from device to device at 12 GB/s."""
    assert way_to_gpu_us("image", 187_500.0) == pytest.approx((60.2, 34.3, 60.2), abs=0.1)


def test_a_clip_of_ten_seconds_by_hand():
    """1,001 frames, so 1,004 values of 4 bytes for each of 80 bands: 321,280 bytes."""
    assert way_to_gpu_us("audio", 10.0) == pytest.approx((36.8, 23.0, 36.8), abs=0.1)


def test_every_case_takes_tens_of_microseconds_as_the_paper_says():
    claims = transfers()
    assert len(claims) == 2 * len(CASES) and {claim.bound for claim in claims} == {">", "<"}
    assert all(claim.kept for claim in claims)
