"""Values that pass between processes come back equal, and other values are refused."""

import contextlib
import json
import pickle
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import ModelGraph, NodeKind
from headrace.batching.graphs.model_graph import HALF_LENGTH, Kernel, MatMul, Node
from headrace.host.dpu.specs import AudioSpec, Damaged, ImageSpec
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.inspection.json_values import NotPlain, from_plain, to_plain
from headrace.host.workers.networks.description import NetworkDescription
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.steps import Signature, Step

SPEC = TensorSpec("x", "float32", (3, -1), 7)
PRODUCT = MatMul(HALF_LENGTH, 2, 3)
VALUES = [
    NetworkDescription(name="a", inputs=(SPEC,), outputs=(SPEC, SPEC), transform=ImageSpec(damaged=Damaged.LENIENT)),
    NetworkDescription(name="b", inputs=(SPEC,), outputs=(), transform=AudioSpec(n_mels=40), categories=("x", "y")),
    ModelGraph("g", (Node("n", NodeKind.ENCODER, (PRODUCT,), 4, (Kernel("mm", 1, 2, 3, (PRODUCT,)),)),)),
    Signature(
        "s",
        9,
        (TensorSpec("x", "int64", (-1, 2), 5),),
        (Step("one", NodeKind.STATIC, appends=("x",)), Step("two", NodeKind.DECODER)),
        5,
        6,
    ),
    Network("n", "transformer", max_batch=(1, 2), weights="w.pt"),
    {"largest": float("inf"), "first_node": None},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_was(value):
    assert from_plain(to_plain(value)) == value


def test_sequences_come_back_as_tuples_and_numpys_numbers_as_pythons():
    assert from_plain(to_plain([1, (2.5, "a"), np.float64(0.1), np.int64(3)])) == (1, (2.5, "a"), 0.1, 3)


class Unknown(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "value", [object(), Unknown.ONE, {1: 2}, b"bytes", np.zeros(2), {1}], ids=lambda value: type(value).__name__
)
def test_what_cannot_pass_is_told(value):
    with pytest.raises((NotPlain, ValueError)):
        to_plain(value)


GOOD = json.loads(to_plain(SPEC))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b'{"class": "Path", "value": "/"}',
        b'{"class": "TensorSpec"}',
        b'{"class": []}',
        b'{"value": 1}',
        b'{"class": "NodeKind", "value": "none"}',
        b"[" * 100_000,
        pickle.dumps(SPEC),
        json.dumps({**GOOD, "value": {**GOOD["value"], "more": 1}}).encode(),
        json.dumps({**GOOD, "value": {**GOOD["value"], "shape": [-1, -1]}}).encode(),
        json.dumps({**GOOD, "value": {**GOOD["value"], "shape": None}}).encode(),
        json.dumps({**GOOD, "value": [1, 2]}).encode(),
    ],
    ids=lambda data: data[:30].decode("latin-1"),
)
def test_what_is_damaged_or_forged_is_told(data):
    with pytest.raises(NotPlain):
        from_plain(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["class", "value", "name", "shape"]), inner),
)
GRAPH = to_plain(VALUES[2])


@given(JSON)
def test_any_json_is_a_value_or_told(value):
    with contextlib.suppress(NotPlain):
        from_plain(json.dumps(value).encode())


@given(st.integers(0, len(GRAPH) - 1), st.binary(max_size=3))
def test_any_change_of_a_value_is_a_value_or_told(at, instead):
    with contextlib.suppress(NotPlain):
        from_plain(GRAPH[:at] + instead + GRAPH[at + 1 :])
