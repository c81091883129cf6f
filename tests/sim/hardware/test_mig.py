"""Test that instances are placed as NVIDIA places them, and that the error for others says what to change."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.hardware.gpu.mig import COMPUTE_SLICES, GPUS, MEMORY_SLICES, gpu_named, partition, partitions, placed

A100 = GPUS["a100-40gb"]


def names(found) -> list[str]:
    return [profile.name for profile in found]


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_as_many_instances_of_a_profile_fit_as_nvidia_says_and_no_more(gpu):
    for profile in gpu.profiles.values():
        assert len(placed(gpu, [profile] * profile.max_count)) == profile.max_count
        with pytest.raises(UsageError, match="do not fit one"):
            placed(gpu, [profile] * (profile.max_count + 1))


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_the_largest_instance_has_the_whole_memory_and_its_bandwidth(gpu):
    largest = max(gpu.profiles.values(), key=lambda profile: profile.compute_slices)
    assert gpu.bandwidth_of(largest) == gpu.bandwidth_bytes_s
    assert (largest.compute_slices, largest.memory_slices) == (COMPUTE_SLICES, MEMORY_SLICES)
    assert largest.sms <= gpu.sms


def test_the_partitions_of_an_a100_are_those_of_nvidias_guide():
    """The guide's figure shows profiles that go together, without regard to place. They are compared with full
    partitions without media extensions and double memory."""
    plain = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
    found = {tuple(names(each)) for each in partitions(A100, full=True) if set(names(each)) <= plain}
    one, two, three, four = "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"
    assert found == {
        (one,) * 7,
        (one,) * 5 + (two,),
        (one,) * 3 + (two,) * 2,
        (one,) + (two,) * 3,
        (one,) * 4 + (three,),
        (one,) * 2 + (two, three),
        (two, two, three),
        (three, three),
        (one,) * 3 + (four,),
        (one, two, four),
        (three, four),
        ("7g.40gb",),
    }


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_every_partition_is_there_once_and_full_ones_take_nothing_more(gpu):
    every = list(partitions(gpu))
    assert len({tuple(sorted(names(each))) for each in every}) == len(every)
    for each in partitions(gpu, full=True):
        for another in gpu.profiles.values():
            with pytest.raises(UsageError):
                placed(gpu, [*each, another])


@given(st.sampled_from(list(GPUS.values())), st.data())
def test_instances_lie_beside_each_other_where_they_may_begin(gpu, data):
    every = list(partitions(gpu))
    chosen = data.draw(st.permutations(data.draw(st.sampled_from(every))))
    instances = placed(gpu, chosen)
    assert names(instance.profile for instance in instances) == names(chosen)
    assert all(instance.place in instance.profile.places for instance in instances)
    spans = sorted((each.place, each.place + each.profile.memory_slices) for each in instances)
    assert all(low[1] <= high[0] for low, high in pairwise(spans)) and spans[-1][1] <= MEMORY_SLICES
    assert sum(each.compute_slices for each in chosen) <= COMPUTE_SLICES


def test_a_partition_is_read_as_it_is_written():
    instances = partition(A100, "1g.5gb:3,4g.20gb")
    assert names(instance.profile for instance in instances) == ["1g.5gb"] * 3 + ["4g.20gb"]
    assert instances[3].place == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1g.10gb:5", "5 instances of 1g.10gb do not fit a100-40gb, which has room for 4"),
        ("3g.20gb:2,1g.5gb", "7 of 7 compute and 9 of 8 memory slices"),
        ("1g.5gb+me:1,7g.40gb", "do not fit one a100-40gb"),
        ("2g.20gb", "a100-40gb has no profile '2g.20gb'; choose from 1g.5gb"),
        ("1g.5gb:0", "1 or more"),
        ("1g.5gb:", "1 or more"),
        ("1g.5gb:" + "9" * 5000, "1 or more"),
        ("1g.5gb:\u0663", "1 or more"),
        ("", "no profile ''"),
    ],
)
def test_what_is_no_partition_says_what_to_change(text, message):
    with pytest.raises(UsageError, match=message):
        partition(A100, text)


def test_a_gpu_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match="choose from a100-40gb, a100-80gb, h100, h200"):
        gpu_named("v100")
