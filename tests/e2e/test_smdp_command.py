"""`headrace smdp`, and the policies by queue length in `headrace simulate`, as a user meets them."""

import json

import pytest
from command import headrace, headrace_here

GOOGLENET = ("smdp", "--tau", "0.3051,1.052", "--zeta", "19.90,19.60", "--bmax", "32")
KEYS = {"g", "iterations", "delta", "s_max", "control_limit", "policy", "latency_ms", "power_w", "method", "solve_ms"}


def result(*arguments):
    done = headrace(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("method", ["pi", "rvi"])
def test_a_row_of_table_1(method):
    found = result(
        *GOOGLENET,
        "--rho",
        "0.9",
        "--w1",
        "1",
        "--w2",
        "1",
        "--smax",
        "70",
        "--overflow-cost",
        "100",
        "--method",
        method,
        *(["--eps", "0.01"] if method == "rvi" else []),
    )
    assert found.keys() >= KEYS
    assert found["g"] == pytest.approx(66.134, abs=0.01) and found["control_limit"] == 7 and found["s_max"] == 70
    assert found["delta"] == pytest.approx(8.35e-4, rel=0.01)
    assert found["method"] == method and (found["iterations"] < 20) == (method == "pi")
    assert len(found["policy"]) == 72 and found["policy"][:9] == [0, 0, 0, 0, 0, 0, 0, 7, 8]
    assert found["g"] == pytest.approx(found["latency_ms"] + found["power_w"], rel=1e-3)


def test_the_truncation_is_chosen_and_the_table_is_readable():
    done = headrace(*GOOGLENET, "--rho", "0.9", "--w2", "1")
    assert done.returncode == 0 and "66.1338" in done.stdout and "7 to 32" in done.stdout


def test_a_truncation_that_hides_a_quantile_is_told_of():
    done = headrace(*GOOGLENET, "--rho", "0.5", "--smax", "1", "--overflow-cost", "100", "--json", timeout=60)
    found = json.loads(done.stdout)["latency_quantiles_ms"]
    assert done.returncode == 0 and found["p50"] > 0 and found["p99"] is None
    assert "the queue outgrows --smax 1: raise it" in done.stderr


def test_least_power_within_a_latency():
    found = result(*GOOGLENET, "--rho", "0.7", "--slo-ms", "12", "--slo-quantile", "0.95")
    assert 11 < found["latency_quantiles_ms"]["p95"] <= 12.05
    assert found["power_w"] < 46
    infeasible = headrace(*GOOGLENET, "--rho", "0.9", "--slo-ms", "3")
    assert infeasible.returncode == 1 and "the least is 9.69271" in infeasible.stderr


def test_a_measured_profile(tmp_path):
    points = [
        {"batch": b, "latency_s": 0.004 + 0.001 * b, "throughput_rps": b / (0.004 + 0.001 * b)} for b in (1, 2, 4, 8)
    ]
    body = {"version": 1, "model": "net", "workers": 1, "points": points, "machine": {}}
    (tmp_path / "p.json").write_text(json.dumps(body))
    found = result("smdp", "--profile", tmp_path / "p.json", "--rate-rps", "300", "--busy-w", "50", "--w2", "0.5")
    assert max(found["policy"]) <= 8 and 5 < found["latency_ms"] < 60
    assert 0 < found["power_w"] < 50
    without = result("smdp", "--profile", tmp_path / "p.json", "--rate-rps", "300")
    assert without["power_w"] is None and without["latency_ms"] < found["latency_ms"]


def test_bursty_arrivals_have_a_policy_for_each_phase():
    found = result(*GOOGLENET, "--mmpp", "2500,100,300,500", "--w2", "3")
    assert len(found["policy"][0]) == 2 and any(a != b for a, b in found["policy"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("smdp", "--rho", "0.5"), "give the latencies, by --tau"),
        (("smdp", "--tau", "0.3", "--rho", "0.5"), "give ALPHA,TAU0"),
        ((*GOOGLENET, "--rho", "1.1"), "unstable"),
        ((*GOOGLENET,), "one of --rho, --rate-rps and --mmpp"),
        ((*GOOGLENET, "--rho", "0.5", "--rate-rps", "9"), "one of --rho, --rate-rps and --mmpp"),
        ((*GOOGLENET, "--rho", "0.5", "--smax", "70"), "--smax and --overflow-cost together"),
        ((*GOOGLENET, "--rho", "0.5", "--eps", "0.1"), "--eps is for --method rvi"),
        ((*GOOGLENET, "--rho", "0.5", "--slo-quantile", "0.9"), "needs --slo-ms"),
        ((*GOOGLENET, "--rho", "0.5", "--slo-ms", "9", "--w2", "1"), "leave out --w2"),
        ((*GOOGLENET, "--rho", "0.5", "--w1", "0"), "weight of latency is 0"),
        ((*GOOGLENET, "--rho", "0.5", "--busy-w", "9"), "not by both"),
        (("smdp", "--profile", "/nowhere", "--rho", "0.5"), "--profile /nowhere"),
        ((*GOOGLENET, "--mmpp", "1,2,3"), "give RPS0,RPS1,MS0,MS1"),
        (("simulate", "--policy", "smdp", "--w2", "1"), "--busy-w"),
        (("simulate", "--policy", "smdp", "--busy-w", "-1"), "--busy-w -1"),
    ],
)
def test_bad_usage_is_exit_2_and_says_what_to_change(arguments, message):
    done = headrace_here(*arguments)
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""


def test_simulated_policies_by_queue_length():
    runs = {}
    for policy in ("static", "work-conserving", "smdp"):
        more = ("--w2", "2") if policy == "smdp" else ()
        runs[policy] = result(
            "simulate",
            "--policy",
            policy,
            "--rate-rps",
            "1000",
            "--max-batch",
            "16",
            "--busy-w",
            "60",
            "--requests",
            "8000",
            *more,
        )
        assert runs[policy]["finished"] == 8000
    assert runs["static"]["batch_size_mean"] == pytest.approx(16, abs=0.1)
    assert runs["static"]["latency_ms"]["mean"] > runs["smdp"]["latency_ms"]["mean"]
    assert runs["smdp"]["latency_ms"]["mean"] > runs["work-conserving"]["latency_ms"]["mean"]
    assert runs["static"]["energy_j"] < runs["smdp"]["energy_j"] < runs["work-conserving"]["energy_j"]
