"""The protocol of step models: the outputs of a user's model are checked, and each error says what to change.

Results do not depend on the other requests of a batch.
"""

import mmap
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from headrace.batching import BadInput, UsageError
from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.live.tasks.cells import CellTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.states import ZERO, StateViews
from headrace.host.workers.networks.sequence_networks import Network, plan
from headrace.host.workers.networks.step_models import load_steps, signature
from headrace.host.workers.networks.step_rows import StepRows
from headrace.host.workers.networks.steps import Step

STATIC, ENCODER, DECODER = NodeKind.STATIC, NodeKind.ENCODER, NodeKind.DECODER
EXAMPLE = Path(__file__).parents[4] / "examples" / "moving_average.py"
SUM = TensorSpec("sum", "float32", (4,))
GROWN = TensorSpec("grown", "float32", (-1, 4), 6)


class Gives(nn.Module):
    """A step that returns what the test gives it."""

    def __init__(self, gives=None):
        super().__init__()
        self.gives = gives or (lambda batch: ({"sum": torch.zeros(batch, 4)}, None))

    def forward(self, tokens, state, lengths):
        return self.gives(len(tokens))


class Model:
    def __init__(self, *steps, states=(SUM,), vocabulary=9):
        self.states, self.vocabulary, self.steps = states, vocabulary, steps


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Return the signature of a model that module:function returns."""

    def of(model, **settings):
        (tmp_path / "ownsteps.py").write_text("def model():\n    return given\n")
        monkeypatch.chdir(tmp_path)
        monkeypatch.delitem(sys.modules, "ownsteps", raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))
        sys.modules.pop("ownsteps", None)
        import ownsteps

        ownsteps.given = model
        return signature(Network("own", "ownsteps:model", **settings))

    return of


def step(kind=ENCODER, gives=None, name="step", **settings) -> Step:
    return Step(name, kind, Gives(gives), **settings)


def chooses(batch):
    return {}, torch.zeros(batch, dtype=torch.int64)


@pytest.mark.parametrize(
    "model, text",
    [
        (object(), "without 'states'"),
        (Model(), "1 states and 0 steps"),
        (Model(step(), vocabulary=1), "give 2 or more words"),
        (Model("step"), "a str in its steps; give a Step"),
        (Model(step(), states=3), "its states are no sequence"),
        (Model(step("encoder")), "of kind 'encoder'; give STATIC, ENCODER or DECODER"),
        (Model(step(), states=(TensorSpec("sum", "bfloat16", (4,)),)), "bfloat16; give one of float32, "),
        (Model(Step("step", ENCODER, len)), "no torch.nn.Module"),
        (Model(step(), step()), "two steps are named 'step'"),
        (Model(step(), step(name="b")), "2 steps of kind ENCODER; make one"),
        (Model(step(DECODER, chooses)), "after a STATIC or ENCODER"),
        (Model(step(DECODER, chooses), step(name="b")), "comes last"),
        (Model(step(reads=2)), "a leaf's .reads 0. and an inner node's"),
        (Model(step(appends=("sum",))), "appends to 'sum'; give that state a first dimension of -1"),
        (Model(step(), states=(TensorSpec("t", "float32", (4, -1), 6),)), r"put the dimension that grows, -1, first"),
        (Model(step(), states=(GROWN, SUM)), "put one of a fixed shape first"),
        (Model(step(max_batch=0)), "give 1 or more"),
        # what a first run shows
        (Model(step(gives=lambda batch: {})), "must return a dict of updates and the chosen tokens"),
        (Model(step(gives=lambda batch: ({"h": torch.zeros(batch, 4)}, None))), "'h', which is no state"),
        (Model(step(gives=lambda batch: ({"sum": torch.zeros(4)}, None))), r"return float32 of shape \(1, 4\)"),
        (Model(step(gives=lambda batch: ({"sum": torch.zeros(1, 4).double()}, None))), "torch.float64 of shape"),
        (Model(step(gives=chooses)), "only a DECODER step does"),
        (Model(step(), step(DECODER, name="b")), "must choose int64 tokens"),
        (Model(step(appends=("grown",)), states=(SUM, GROWN)), "appends nothing to state 'grown'"),
        (
            Model(step(gives=lambda batch: ({"grown": torch.zeros(batch, 1, 4)}, None)), states=(SUM, GROWN)),
            "name it in the step's `appends`",
        ),
        (Model(step(reads=0, gives=lambda batch: ({}, None)), step(reads=2, name="b")), "gives no state 'sum'"),
        (Model(step(gives=lambda batch: 1 / 0)), "a first run failed: ZeroDivisionError"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_what_to_change(served, model, text):
    with pytest.raises(UsageError, match=text) as refused:
        served(model)
    assert "\n" not in str(refused.value) and "'own'" in str(refused.value)


def test_inputs_and_outputs_that_find_no_room_are_refused_before_they_run(served):
    def gives(batch):
        return {"grown": torch.zeros(batch, 1, 4)}, torch.zeros(batch, dtype=torch.int64)

    def reads(batch):
        return {"grown": torch.zeros(batch, 1, 4)}, None

    encode = step(ENCODER, reads, appends=("grown",))
    decode = step(DECODER, gives, name="decode", appends=("grown",))
    told = served(Model(encode, decode, states=(SUM, GROWN)))
    assert plan(told, [1, 2, 3], 3).limit == 3
    with pytest.raises(BadInput, match=r"at most 6 steps in 'grown'.*need 7; give a shorter input or fewer steps"):
        plan(told, [1, 2, 3], 4)
    told = served(Model(step(STATIC), step(DECODER, chooses, name="decode")), longest_input=3)
    assert plan(told, [1, 2, 3], 1000).limit == 1000
    with pytest.raises(BadInput, match="takes at most 3 tokens, not 4; give fewer"):
        plan(told, [1, 2, 3, 4], 1)


def test_what_a_model_is_served_with_is_known_without_its_weights():
    told = signature(Network("t", "transformer", 1 << 14, 30_000, heads=8))  # gigabytes, if it were loaded
    assert [(node.name, node.kind) for node in told.graph.nodes] == [
        ("transformer-encoder", STATIC),
        ("transformer-decoder", DECODER),
    ]
    assert told.inputs == told.outputs == (TensorSpec("tokens", "int64", (-1,), 128),)
    assert signature(Network("l", "lstm", 8)).outputs == (TensorSpec("h", "float32", (8,)),)


def test_a_message_that_would_be_too_long_is_refused():
    with pytest.raises(UsageError, match="batches of 6000; give at most"):
        CellTasks([Network("l", "lstm", 8, max_batch=(6000,))], 1)


def rows_of(loaded, count=8) -> tuple[StepRows, StateViews]:
    specs = loaded.signature.row
    views = StateViews(specs, count, memory=mmap.mmap(-1, StateViews(specs, count).end))
    return StepRows(loaded.signature, loaded.modules, views, torch.device("cpu")), views


@pytest.fixture
def example(tmp_path, monkeypatch):
    shutil.copy(EXAMPLE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "moving_average", raising=False)
    return Network("own", "moving_average:Model")


def test_only_what_is_new_of_a_growing_state_is_written_and_what_lies_behind_it_is_never_seen(example):
    rows, views = rows_of(load_steps(example))
    views.states["words"][1:] = float("nan")  # of former requests
    input = torch.tensor([[3, 4, 5], [6, 0, 0]])
    rows.run(0, input, torch.tensor([ZERO, ZERO]), torch.tensor([2, 5]), torch.tensor([3, 1]))
    assert views.lengths["words"].tolist() == [0, 0, 3, 0, 0, 1, 0, 0]
    assert not torch.from_numpy(views.states["words"][2, :3]).isnan().any()
    assert torch.from_numpy(views.states["words"][2, 3:]).isnan().all()
    before = views.states["words"][5, :1].copy()
    both = torch.tensor([2, 5])
    _, chosen = rows.run(1, torch.tensor([7, 8]), both, both)
    assert views.lengths["words"][[2, 5]].tolist() == [4, 2] and (views.states["words"][5, :1] == before).all()
    assert chosen.shape == (2,) and not torch.from_numpy(views.states["words"][5, :2]).isnan().any()
    assert not any(block[ZERO].any() for block in views.states.values())


def test_a_full_state_takes_no_more_and_spoils_nobody(example):
    """Steps that were sent before the end of an output was known still run, and their results are ignored."""
    rows, views = rows_of(load_steps(example))
    views.lengths["words"][3] = 64
    views.states["words"][4] = 5.0
    row = torch.tensor([3])
    for _ in range(3):
        rows.run(1, torch.tensor([2]), row, row)
    assert views.lengths["words"][3] == 64 and (views.states["words"][4] == 5.0).all()


def test_a_state_that_a_step_leaves_out_stays_as_it_was_read(example):
    rows, views = rows_of(load_steps(example))
    views.states["bias"][1], views.states["bias"][6] = 2.5, 9.0
    views.lengths["words"][1] = 1
    rows.run(1, torch.tensor([2]), torch.tensor([1]), torch.tensor([6]))
    assert (views.states["bias"][6] == 2.5).all()
