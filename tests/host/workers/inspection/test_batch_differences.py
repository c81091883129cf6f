"""How a batch changes the states of a step model."""

import pytest
import torch

from headrace.host.workers.inspection.batch_differences import step_difference
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.step_models import load_steps


@pytest.mark.parametrize("kind", ("transformer", "seq2seq", "lstm"))
def test_a_batch_changes_no_more_than_the_last_bits(kind):
    loaded = load_steps(Network(kind, kind, hidden=32, vocabulary=50, heads=2, longest_input=24))
    found = step_difference(loaded, 4)
    assert found["largest"] < 1e-5
    assert (found["first_node"] is None) == (found["largest"] == 0)


def test_a_step_that_looks_at_its_batch_is_found_out():
    loaded = load_steps(Network("lstm", "lstm", hidden=16, vocabulary=50))
    step = loaded.modules[0]
    forward = step.forward

    def mixed(tokens, state, lengths):
        updates, chosen = forward(tokens, state, lengths)
        return {name: value + 0.01 * value.mean(0) for name, value in updates.items()}, chosen

    step.forward = mixed
    with torch.no_grad():
        found = step_difference(loaded, 4)
    assert found["largest"] > 1e-3 and found["first_node"] == "lstm"
