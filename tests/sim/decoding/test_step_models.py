"""Step models: those of measured step times, their rules, and their names."""

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from step_latencies import Linear, OneSecond

import headrace
from headrace.batching.errors import UsageError
from headrace.sim.decoding.measured_steps import MeasuredStep, MeasuredSteps, read_steps, write_steps
from headrace.sim.decoding.step_models import RULES, check_step_model, find_step_model

HEADER = "prefill_tokens,cached_tokens,decode_requests,context_tokens,ms\n"


def steps_of(model, count, seed=0, noise=0.0):
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        chunks = tuple((chance.randint(1, 600), chance.choice((0, 200))) for _ in range(chance.choice((0, 1, 1, 2))))
        requests = chance.randint(0 if chunks else 1, 40)
        context = sum(chance.randint(1, 900) for _ in range(requests))
        seconds = model.seconds(chunks, requests, context) * (1 + noise * chance.uniform(-1, 1))
        found.append(MeasuredStep(chunks, requests, context, seconds))
    return found


# ---- measured step times ----


def test_a_linear_server_is_found_exactly_from_few_steps():
    server = Linear()
    model = MeasuredSteps(steps_of(server, 60))
    for step in steps_of(server, 200, seed=1):
        found = model.seconds(step.prefill, step.decode_requests, step.decode_context_tokens)
        assert found == pytest.approx(step.seconds, rel=1e-6)
    assert model.mean_error < 1e-6 and model.rows == 60


def test_noise_does_not_move_the_mean():
    server = Linear()
    model = MeasuredSteps(steps_of(server, 3000, noise=0.5))
    exact = steps_of(server, 500, seed=2)
    found = sum(model.seconds(each.prefill, each.decode_requests, each.decode_context_tokens) for each in exact)
    assert found == pytest.approx(sum(each.seconds for each in exact), rel=0.02)
    assert model.mean_error == pytest.approx(math.log(4 / 3), abs=0.02)  # the mean of |1 / (1 + u) - 1|


class Saturating:
    """A step takes a constant time up to 256 tokens, and then grows in proportion."""

    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 1e-3 * max(256, decode_requests + sum(new for new, _ in prefill)) / 256


def test_a_server_that_is_bound_by_memory_and_then_by_arithmetic_is_followed():
    sizes = [*range(1, 257, 15), *range(257, 2049, 64)]
    model = MeasuredSteps([MeasuredStep(((size, 0),), 0, 0, Saturating().seconds([(size, 0)], 0, 0)) for size in sizes])
    for size in (1, 128, 256, 512, 2048, 4096):
        assert model.seconds([(size, 0)], 0, 0) == pytest.approx(max(256, size) / 256e3, rel=0.02)


CHUNKS = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 5000)), max_size=4)


@examples(30, 300)
@given(CHUNKS, st.integers(0, 300), st.integers(0, 100_000), st.integers(1, 500), st.integers(0, 50))
def test_more_work_never_takes_less_time(chunks, requests, context, tokens, more):
    model = MeasuredSteps(steps_of(Linear(), 50, noise=0.3))
    base = model.seconds(chunks, requests, context + requests)
    assert model.seconds([*chunks, (tokens, 0)], requests, context + requests) >= base
    assert model.seconds(chunks, requests + more, context + requests + more) >= base
    assert math.isfinite(base) and (base > 0 or not (chunks or requests))


def test_steps_come_back_from_the_file_that_they_were_written_to(tmp_path):
    path = tmp_path / "steps.csv"
    written = [MeasuredStep(((128, 512), (300, 0)), 8, 4218, 0.0196), MeasuredStep((), 8, 4210, 0.0079)]
    write_steps(path, written)
    assert path.read_text() == HEADER + "128 300,512 0,8,4218,19.6\n,,8,4210,7.9\n"
    found = list(read_steps(path))
    assert [(each.prefill, each.decode_requests, each.decode_context_tokens) for each in found] == [
        (each.prefill, each.decode_requests, each.decode_context_tokens) for each in written
    ]
    assert [each.seconds for each in found] == pytest.approx([each.seconds for each in written])


def test_a_cell_of_0_stands_for_no_chunk(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(HEADER + "0,0,3,30,5\n")
    assert list(read_steps(path)) == [MeasuredStep((), 3, 30, 0.005)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("5,0,0,0,", "ms is empty, which is no time above 0"),
        ("5,0,0,0,-1", "ms is -1, which is no time above 0"),
        ("5,0,0,0,nan", "ms is nan, which is no time above 0"),
        ("5,0,0,0,inf", "ms is inf, which is no time above 0"),
        ("5 6,0,0,0,1", "prefill_tokens has 2 numbers, and cached_tokens 1"),
        ("5 0,0 0,0,0,1", "prefill_tokens has a chunk of 0 tokens"),
        ("-5,0,0,0,1", "prefill_tokens is -5, which is no list of whole numbers"),
        (",,0,0,1", "the step has no chunk and no request that decodes"),
        (",,2,1,1", "2 requests decode, and attend to 1 tokens, which are too few"),
        (",,2 3,9,1", "decode_requests has 2 numbers, where one is wanted"),
        ("5", "prefill_tokens has 1 numbers, and cached_tokens 0"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path, row, message):
    path = tmp_path / "steps.csv"
    path.write_text(HEADER + "5,0,0,0,1\n" + row + "\n")
    with pytest.raises(UsageError, match=re.escape(f"{path}, line 3: {message}")):
        MeasuredSteps.read(path)


def test_a_file_without_steps_or_with_another_header_is_refused(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(HEADER)
    with pytest.raises(UsageError, match="has no steps; give rows of prefill_tokens"):
        MeasuredSteps.read(path)
    path.write_text("tokens,ms\n1,2\n")
    with pytest.raises(UsageError, match="the header lacks prefill_tokens, cached_tokens"):
        MeasuredSteps.read(path)
    with pytest.raises(UsageError, match="there are no measured steps"):
        MeasuredSteps([])
    with pytest.raises(UsageError, match="has no work, or no duration above 0"):
        MeasuredSteps([MeasuredStep((), 0, 0, 1.0)])


# ---- the rules ----


class Raises:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 1.0 / decode_requests


class Negative:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 0.5 - decode_requests


class Text:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return "1.0"


class Nothing:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 1e-3 * sum(new for new, _ in prefill)


class Counts:
    asked = 0

    def seconds(self, prefill, decode_requests, decode_context_tokens):
        self.asked += 1
        return 1.0 + self.asked


class Changes:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        prefill.sort(reverse=True)
        prefill[:1] = []
        return 1.0


class Other:
    pass


BROKEN = {
    "method": (Raises, Other),
    "time": (Negative, Text),
    "work": (Nothing,),
    "same-answers": (Counts,),
    "arguments": (Changes,),
}


@pytest.mark.parametrize(("rule", "cls"), [(rule, cls) for rule, classes in BROKEN.items() for cls in classes])
def test_a_broken_rule_is_named_with_the_step(rule, cls):
    found = check_step_model(cls())
    assert found.broken == rule
    assert cls is Other or "seconds(" in found.message


def test_each_rule_has_a_model_that_breaks_it():
    assert {rule.name for rule in RULES} == set(BROKEN)


@pytest.mark.parametrize("model", [Linear(), OneSecond(), MeasuredSteps(steps_of(Linear(), 30))], ids=type)
def test_right_models_keep_all_rules(model):
    found = headrace.check_step_model(model, steps=50)
    assert found.broken is None and found.steps == 50 and found.message == ""


def test_the_measured_operators_keep_all_rules():
    pytest.importorskip("aiconfigurator_core")
    assert check_step_model(headrace.StepLatency("llama-3.1-8b", "h100", "vllm")).broken is None


# ---- names ----

OWN = """
class Model:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 2.0

made = Model()

def make():
    return Model()

class Needs:
    def __init__(self, size):
        pass

class Wrong:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return -1.0
"""


@pytest.fixture
def own_steps(tmp_path, monkeypatch):
    (tmp_path / "own_step_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own_steps")
@pytest.mark.parametrize("name", ["Model", "made", "make"])
def test_a_model_of_ones_own_is_found_as_class_object_or_function(name):
    assert find_step_model(f"own_step_models:{name}").seconds([(1, 0)], 0, 0) == 2.0
    requests = [headrace.StepRequest(0, 0.0, 10, 3)]
    result = headrace.simulate_decoding(requests, f"own_step_models:{name}", kv_blocks=10)
    assert result.ttft_ms["mean"] == 2000 and result.latency_ms["mean"] == 6000


@pytest.mark.usefixtures("own_steps")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_step_models:Needs", "it cannot be made without arguments: TypeError"),
        ("own_step_models:Wrong", "breaks the rule time: seconds([(1, 0)], 0, 0) is -1.0; return a number of seconds"),
        ("own_step_models:Missing", "module own_step_models has no Missing"),
        ("nothing", "there is no such step model; choose a CSV file of step times, or module:name"),
        ("nothing.csv", "nothing.csv: No such file"),
    ],
)
def test_a_name_that_stands_for_no_model_is_refused(name, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        find_step_model(name)


def test_an_entry_point_names_a_model(monkeypatch):
    class Point:
        value = "somewhere:Model"

        def load(self):
            return OneSecond

    monkeypatch.setattr("headrace.batching.named.installed", lambda group: {"mine": Point()})
    assert find_step_model("mine").seconds([], 1, 1) == 1.0
