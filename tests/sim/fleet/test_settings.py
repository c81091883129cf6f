"""What a fleet cannot be is refused, by the option that says it."""

import pytest

from headrace.batching import UsageError
from headrace.sim.fleet.settings import Autoscale, Delay, Failure, parse_autoscale, parse_delay, parse_failures
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario, scenario_of


def test_what_is_written_is_what_is_meant():
    assert parse_delay("2") == Delay(0.002)
    assert parse_delay("lognormal:2:0.5") == Delay(0.002, 0.5)
    assert parse_failures("3@10:5, 0@60:1") == (Failure(3, 10.0, 5.0), Failure(0, 60.0, 1.0))
    assert parse_autoscale("2:8:30:60") == Autoscale(2, 8.0, 30.0, 60.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"servers": 0}, "--servers 0: give 1 to"),
        ({"servers": 2, "router": "best"}, "--router 'best': choose from random"),
        ({"router": "random"}, "--router is for a fleet; give --servers"),
        ({"failure": "0@1:1"}, "--failure is for a fleet; give --servers"),
        ({"servers": 2, "failure": "2@1:1"}, "there is no server 2; they are 0 to 1"),
        ({"servers": 2, "failure": "-1@1:1"}, "give SERVER@AT_S:FOR_S"),
        ({"servers": 2, "failure": "1@1:0"}, "give SERVER@AT_S:FOR_S"),
        ({"servers": 2, "failure": "1@1"}, "give SERVER@AT_S:FOR_S"),
        ({"servers": 2, "network_delay": "-1"}, "--network-delay '-1': give milliseconds"),
        ({"servers": 2, "network_delay": "lognormal:1"}, "--network-delay 'lognormal:1'"),
        ({"servers": 2, "mtbf_s": 1.0}, "--mtbf-s and --mttr-s go together"),
        ({"servers": 2, "mtbf_s": 1.0, "mttr_s": 0.0}, "--mttr-s 0: give a number above 0"),
        ({"servers": 2, "lost": "keep"}, "--lost 'keep': choose from reroute, fail"),
        ({"servers": 2, "autoscale": "3:1:1:1"}, "at least 3 of --servers 2; give 1 to 2"),
        ({"servers": 2, "autoscale": "0:1:1:1"}, "at least 0 of --servers 2"),
        ({"servers": 2, "autoscale": "1:0:1:1"}, "give LEAST:TARGET:START_S:COOLDOWN_S"),
        ({"servers": 2, "drop_late": True}, "--drop-late is not simulated with --servers"),
    ],
)
def test_refused(given, message):
    with pytest.raises(UsageError, match=message):
        run_scenario(Scenario.of(requests=10, **given))


def test_a_router_without_servers_is_refused_though_it_is_the_usual_one():
    with pytest.raises(UsageError, match="--router is for a fleet"):
        scenario_of({"router": "least-outstanding"})
