"""Test the resources that a replica needs on its node."""

import pytest

from headrace.batching import UsageError
from headrace.host.fleet.resources import actor_options, check_total, parsed_resources


def test_names_and_amounts():
    found = parsed_resources("mig-1g.5gb=1,fpga=0.5,GPU=2,CPU=1")
    assert found == {"mig-1g.5gb": 1, "fpga": 0.5, "GPU": 2, "CPU": 1}
    assert actor_options(found) == {"num_cpus": 1, "num_gpus": 2, "resources": {"mig-1g.5gb": 1, "fpga": 0.5}}
    assert actor_options({"fpga": 1}) == {"num_cpus": 0, "num_gpus": 0, "resources": {"fpga": 1}}


@pytest.mark.parametrize(
    "text",
    ["", "x", "x=", "=1", "x=0", "x=-1", "x=nan", "x=inf", "x=1e3", "x=1.5", "x=1,", "x=1,x=1", "x y=1", "x=1e99"],
)
def test_what_is_no_resource_is_refused(text):
    with pytest.raises(UsageError, match="--resources"):
        parsed_resources(text)


def test_a_cluster_that_has_too_little_is_told_with_how_many_it_can_hold():
    check_total({"fpga": 1, "CPU": 2}, 3, {"fpga": 3, "CPU": 6})
    check_total({"fpga": 0.1}, 3, {"fpga": 0.3})
    with pytest.raises(UsageError, match=r"--replicas 4: each needs 1 fpga, and the cluster has 3; give at most 3"):
        check_total({"CPU": 1, "fpga": 1}, 4, {"fpga": 3, "CPU": 6})
    with pytest.raises(UsageError, match=r"--resources mig-1g.5gb=1: the cluster has 0 mig-1g.5gb"):
        check_total({"mig-1g.5gb": 1}, 1, {"CPU": 6})
