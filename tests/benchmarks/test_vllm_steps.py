"""vLLM's steps as the benchmark records them, and the figures that it compares."""

import pytest
from step_latencies import OneSecond

from benchmarks.vllm_servers import PYTHON
from benchmarks.vllm_steps import measured_figures, requests_of, served, simulated_figures, steps_of
from headrace import MeasuredSteps


def test_the_figures_of_a_run_are_those_of_its_times():
    requests = [(1.0, 10, 3), (2.0, 5, 1)]
    run = {"steps": [([(10, 0)], 0, 0, 0.5)], "first_s": [1.5, 4.0], "last_s": [2.5, 4.0], "preemptions": 2}
    found = measured_figures(requests, run)
    assert found["ttft_ms"] == 1250 and found["ttft_p90_ms"] == 2000
    assert found["tpot_ms"] == 500  # of the first request alone
    assert found["throughput_rps"] == pytest.approx(2 / 3) and found["preemptions"] == 2 and found["steps"] == 1


def test_the_simulator_gets_the_limits_of_vllm():
    found = simulated_figures([(0.0, 600, 2)], OneSecond())  # a step takes 256 tokens
    assert found["ttft_ms"] == pytest.approx(3000) and found["tpot_ms"] == pytest.approx(1000)


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_vllm_and_the_simulator_agree_within_a_fifth():
    if not PYTHON.exists():
        pytest.skip("vLLM is not installed; make test-vllm installs it")
    loads = [
        requests_of(rate_rps, count, seed) for rate_rps, count, seed in ((4.0, 6, 0), (12.0, 40, 1), (12.0, 40, 2))
    ]
    _, measured, compared = served(loads, "cpu")
    for requests, run in zip(loads[1:], (measured, compared), strict=True):
        assert run["preemptions"] == 0
        steps = steps_of(run)
        assert sum(new for step in steps for new, _ in step.prefill) == sum(prompt for _, prompt, _ in requests)
        assert sum(step.decode_requests for step in steps) == sum(output - 1 for _, _, output in requests)
        assert all(sum(new for new, _ in step.prefill) + step.decode_requests <= 256 for step in steps)
    real = measured_figures(loads[2], compared)
    made = simulated_figures(loads[2], MeasuredSteps(steps_of(measured)))
    for name in ("ttft_ms", "tpot_ms", "throughput_rps"):
        assert made[name] == pytest.approx(real[name], rel=0.2), name
