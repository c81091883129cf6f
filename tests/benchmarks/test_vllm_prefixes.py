"""vLLM's prefix cache beside the simulator's, as the benchmark compares them."""

import pytest

from benchmarks.vllm_prefixes import BLOCK, LOADS, SYSTEM, requests_of, served, simulated
from benchmarks.vllm_servers import PYTHON


@pytest.mark.parametrize("load", LOADS)
def test_the_requests_share_a_system_prompt_and_conversations_and_are_too_many_for_the_cache(load):
    requests = requests_of(load, 60, 1)
    assert requests == sorted(requests, key=lambda each: each[0])
    assert all(contents[0] == (0, SYSTEM) for _, contents, _, _ in requests)
    turns = [contents[-1][0] for _, contents, prompt, _ in requests if contents[-1][1] > prompt]
    # At the highest load all requests have come before a conversation goes on.
    assert (len(set(turns)) < len(turns)) is (load < 0.2)
    found = simulated(requests)
    assert found["evicted"] > 100
    assert found["preemptions"] > 0
    assert all(tokens % BLOCK == 0 for _, tokens in found["found"])


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_requests_find_the_same_tokens_in_vllm_and_in_the_simulator():
    if not PYTHON.exists():
        pytest.skip("vLLM is not installed; make test-vllm installs it")
    requests = requests_of(0.2, 40, 1)
    assert served([requests]) == [simulated(requests)]
