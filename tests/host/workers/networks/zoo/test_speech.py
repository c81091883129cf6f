"""Speech models: a request's output does not depend on its batch, and the networks have the published structure."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.host.workers.networks.zoo.citrinet import Citrinet, citrinet
from headrace.host.workers.networks.zoo.conformer import (
    SIZES,
    Conformer,
    RelativeAttention,
    conformer_ctc,
    relative_positions,
)


def small_conformer():
    return Conformer(3, 32, 4, vocabulary=11, kernel=7)


def small_citrinet():
    return Citrinet(32, 48, ((5, 7), (7,), (9, 11)), vocabulary=11)


MODELS = [(small_conformer, 4), (small_citrinet, 8)]


def learned(make):
    """Return the network with weights, and with batch norm's means and variances, that are no simple numbers."""
    torch.manual_seed(3)
    model = make().eval()
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        with torch.no_grad():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif name.endswith(("bias", "running_mean", ".u", ".v")):
                value.normal_(0, 0.5)
    return model


@pytest.mark.parametrize(("make", "stride"), MODELS)
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5), more=st.integers(0, 40), seed=st.integers(0, 99))
@torch.inference_mode()
def test_a_requests_output_is_what_it_is_alone(make, stride, lengths, more, seed):
    """The output does not depend on the other requests, the length of the padding, or its values."""
    model = learned(make)
    torch.manual_seed(seed)
    batch = torch.full((len(lengths), 80, max(lengths) + more), 1e4)
    alone = [torch.randn(1, 80, length) for length in lengths]
    for row, features in zip(batch, alone, strict=True):
        row[:, : features.shape[2]] = features
    together, steps = model(batch, torch.tensor(lengths))
    for row, count, length, features in zip(together, steps.tolist(), lengths, alone, strict=True):
        expected, own = model(features, torch.tensor([length]))
        assert count == own.item() == expected.shape[1] == math.ceil(length / stride)
        torch.testing.assert_close(row[:count], expected[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "make",
    [lambda: conformer_ctc("conformer_ctc_small"), citrinet],
    ids=["Conformer-CTC small", "CitriNet-512"],
)
@torch.inference_mode()
def test_with_random_weights_too_outputs_follow_inputs_and_are_finite(make):
    model = make()
    logs, _ = model(torch.randn(2, 80, 400), torch.tensor([400, 400]))
    assert logs.isfinite().all() and (logs[0] - logs[1]).abs().max() > 0.1


@pytest.mark.parametrize(("make", "stride"), MODELS)
@torch.inference_mode()
def test_the_outputs_are_log_probabilities_that_follow_the_input(make, stride):
    model = learned(make)
    features = torch.randn(2, 80, 64)
    logs, _ = model(features, torch.tensor([64, 64]))
    assert logs.shape == (2, 64 // stride, 12)
    torch.testing.assert_close(logs.exp().sum(2), torch.ones(2, 64 // stride))
    assert (logs[0] - logs[1]).abs().max() > 0.1


@torch.inference_mode()
def test_attention_scores_by_content_and_by_distance():
    """The sums are those of Dai et al. 2019, Section 3.3, for one query and one key at a time."""
    torch.manual_seed(5)
    attention = RelativeAttention(8, 2).double()
    attention.u.normal_()
    attention.v.normal_()
    x, steps = torch.randn(1, 6, 8, dtype=torch.float64), 6
    table = relative_positions(steps, 8, x.device).double()
    valid = torch.tensor([[True] * 5 + [False]])
    q, k, v = (part[0].unflatten(1, (2, 4)) for part in attention.queries_keys_values(x).chunk(3, 2))
    rows = []
    for i in range(steps):
        heads = []
        for h in range(2):
            scores = []
            for j in range(5):
                place = attention.positions(table[steps - 1 - (i - j)]).unflatten(0, (2, 4))[h]
                by_content = (q[i, h] + attention.u[h, 0]) @ k[j, h]
                scores.append((by_content + (q[i, h] + attention.v[h, 0]) @ place) / math.sqrt(4))
            heads.append(torch.softmax(torch.stack(scores), 0) @ v[:5, h])
        rows.append(torch.cat(heads))
    torch.testing.assert_close(attention(x, table, valid)[0], attention.out(torch.stack(rows)))


def test_a_distance_has_the_sines_and_cosines_of_its_position():
    table = relative_positions(4, 6, torch.device("cpu"))
    assert table.shape == (7, 6)
    for row, distance in zip(table, range(3, -4, -1), strict=True):
        for pair in range(3):
            angle = distance / 10_000 ** (2 * pair / 6)
            assert row[2 * pair : 2 * pair + 2].tolist() == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)


@pytest.mark.parametrize(
    ("make", "millions"),  # Gulati et al. 2020, Table 1, with an LSTM decoder; NeMo's conformer_ctc_bpe.yaml and cards
    [
        (lambda: Conformer(*SIZES["conformer_ctc_large"]), 118.8),
        (lambda: Conformer(*SIZES["conformer_ctc_small"]), 13),
        (lambda: Citrinet(512), 36),
        (lambda: Citrinet(256), 10),
    ],
    ids=["Conformer-CTC large", "Conformer-CTC small", "CitriNet-512", "CitriNet-256"],
)
def test_the_sizes_are_those_published(make, millions):
    with torch.device("meta"):
        parameters = sum(each.numel() for each in make().parameters())
    assert parameters / 1e6 == pytest.approx(millions, rel=0.05)


def test_the_seed_fixes_the_weights_and_nobody_elses_random_numbers():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, same, other = (conformer_ctc("conformer_ctc_small", seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected) and not first.training
    weights = [model.classes.weight for model in (first, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert torch.equal(citrinet(256).classes.weight, citrinet(256).classes.weight)


@pytest.mark.parametrize(("make", "_"), MODELS)
def test_lengths_beyond_what_there_is_count_as_what_there_is(make, _):
    model = learned(make)
    features = torch.randn(2, 80, 40)
    with torch.inference_mode():
        found = model(features, torch.tensor([0, 99]))
        expected = model(features, torch.tensor([1, 40]))
    assert torch.equal(found.lengths, expected.lengths) and torch.equal(found.log_probs, expected.log_probs)
    assert found.log_probs.isfinite().all()
