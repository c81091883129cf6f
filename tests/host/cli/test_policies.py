"""`headrace policies` explains each policy, and `headrace check-policy` tells which rule a user's policy breaks."""

import json
import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest
from command import headrace, headrace_here

from headrace.batching import POLICIES
from headrace.batching.policy import COST, RULES
from headrace.batching.registry import find_policy
from headrace.batching.steps.policy import RULES as STEP_RULES
from headrace.host.cli.check_policy import process
from headrace.host.live.machine.children import children

MINE = '''
    """Last come, first served.

    Source: A. User, 2031,
    Section 3.
    """

    import math
    import time
    from dataclasses import dataclass, field

    from headrace.batching import Task, UnknownModel

    print("a module may print")


    class Newest:
        ahead = 1

        def __init__(self, graphs, limit):
            self.nodes = {graph.name: len(graph.nodes) for graph in graphs}
            self.waiting, self.tasks, self.limit = [], 0, limit

        def submit(self, request, now):
            self.largest_batch(request.model)
            self.waiting.append(request)

        def next_task(self, worker, now):
            if not self.waiting:
                return None
            AT_THREE
            self.tasks += 1
            request = self.waiting.pop(0)
            return Task(self.tasks, request.model, (request,), 0, self.nodes[request.model])

        def complete(self, task, now):
            if task.stop == task.start:
                self.waiting[:0] = task.requests
                return []
            return list(task.requests)

        def withdraw(self, request, now):
            if request in self.waiting:
                self.waiting.remove(request)
                return True
            return False

        def wakeup(self):
            return math.inf

        def latest_start(self, request):
            return request.deadline

        def largest_batch(self, model):
            if model not in self.nodes:
                raise UnknownModel.among(model, self.nodes)
            return self.limit


    @dataclass(frozen=True)
    class Settings:
        """Serve what came last."""

        limit: int = field(default=2, metadata={"help": "Largest batch.", "ge": 1, "le": 8})

        def build(self, context):
            return Newest(context.graphs, self.limit)
'''


@pytest.fixture
def folder(tmp_path):
    """A folder with modules of policies: a right one, and others that do something when three requests wait."""
    for name, line in {
        "right": "pass",
        "unlimited": "self.waiting[2:] = []",
        "hangs": "while len(self.waiting) == 3: pass",
        "stalls": "sum(iter(int, 1)) if len(self.waiting) == 3 else None",
        "exits": "__import__('os')._exit(9) if len(self.waiting) == 3 else None",
    }.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(MINE).replace("AT_THREE", line).lstrip())
    return tmp_path


def in_folder(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return headrace(*arguments, cwd=folder)


def test_all_policies_are_listed_with_a_line_each():
    done = headrace_here("policies")
    assert done.returncode == 0
    for name in POLICIES:
        assert re.search(rf"^{name} +[A-Z]", done.stdout, re.MULTILINE)
    listed = json.loads(headrace_here("policies", "--json").stdout)
    assert {each["name"] for each in listed} >= set(POLICIES)
    assert all(each["summary"].endswith(".") and "docstring" not in each["summary"] for each in listed)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_explained_with_its_settings(name):
    found = json.loads(headrace_here("policies", name, "--json").stdout)
    entry = find_policy(name)
    assert found["source"] == entry.source and found["package"] == "headrace" and found["tasks"] == entry.tasks
    assert [each["name"] for each in found["settings"]] == [each.name for each in entry.settings]
    assert found["paper"] and found["paper"] in headrace_here("policies", name).stdout
    shown = headrace_here("policies", name).stdout
    assert found["example"] in shown and entry.source in shown
    for each in entry.settings:
        assert re.search(rf"^{each.name} +{each.kind.__name__} ", shown, re.MULTILINE)


def test_an_explanation_names_the_paper_and_the_range_of_a_setting():
    shown = headrace_here("policies", "lazy").stdout
    assert "Source: Choi, Kim, Rhu, " in shown and "HPCA 2021" in shown
    assert re.search(r"^max_batch +int +1 to 4096 +64 +Largest batch, in requests\. *$", shown, re.MULTILINE)


@pytest.mark.parametrize("name", ["lazy", "cellular", "serial"])
def test_the_example_of_a_policy_runs(name):
    example = json.loads(headrace_here("policies", name, "--json").stdout)["example"]
    _, *arguments = shlex.split(example)
    assert headrace_here(*arguments, "--requests", "20").returncode == 0


def test_a_policy_of_the_current_folder_is_explained(folder):
    done = in_folder(folder, "policies", "right:Settings", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["summary"] == "Serve what came last."
    assert found["paper"] == "A. User, 2031, Section 3."
    assert found["package"] is None
    assert [(each["name"], each["default"], each["allowed"]) for each in found["settings"]] == [
        ("limit", 2, "give 1 to 8")
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("policies", "nothing"),
        ("policies", "no_module:Nothing"),
        ("policies", "math:Nothing"),
        ("policies", "math:sqrt"),
        ("check-policy", "nothing"),
        ("check-policy", "lazy", "--set", "max_batch=0"),
        ("check-policy", "lazy", "--set", "batch=2"),
        ("check-policy", "lazy", "--examples", "0"),
        ("check-policy",),
    ],
)
def test_a_name_or_setting_that_is_wrong_is_bad_usage(arguments):
    done = headrace_here(*arguments)
    assert done.returncode == 2
    assert done.stdout == "" and len(done.stderr.strip().splitlines()) == 1


def test_a_built_in_policy_keeps_all_rules():
    done = headrace_here("check-policy", "lazy", "--set", "max_batch=3", "--examples", "20", "--seed", "4")
    assert done.returncode == 0, done.stdout
    assert "keeps all" in done.stdout and f"  {COST.name} " in done.stdout


def test_a_right_policy_of_the_current_folder_keeps_all_rules(folder):
    done = in_folder(folder, "check-policy", "right:Settings", "--set", "limit=3", "--json", "--examples", "30")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["broken"] is None and found["settings"] == {"limit": 3} and found["histories"] == 30
    assert {each["name"] for each in found["passed"]} == {rule.name for rule in RULES} - {"cell-order"}
    assert all(each["sentence"] and each["source"] for each in found["passed"])


def test_of_two_policies_of_one_name_the_one_of_steps_is_checked_if_it_is_asked_for():
    of_steps = headrace_here("check-policy", "lazy", "--steps", "--examples", "5", "--json")
    assert of_steps.returncode == 0, of_steps.stderr
    found = json.loads(of_steps.stdout)
    assert found["tasks"] == "steps" and {each["name"] for each in found["passed"]} == {
        each.name for each in STEP_RULES
    }
    only = json.loads(headrace_here("check-policy", "continuous", "--examples", "5", "--json").stdout)
    assert only["tasks"] == "steps"
    wrong = headrace_here("check-policy", "graph", "--steps")
    assert wrong.returncode == 2 and "no such policy for models that decode" in wrong.stderr


def test_a_wrong_policy_of_steps_comes_with_the_shortest_history(folder):
    (folder / "hoards.py").write_text(HOARDS)
    done = in_folder(folder, "check-policy", "hoards:Settings")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("hoards:Settings breaks the rule token-order")
    assert "in batching/steps/policy.py, StepPolicy.next_step" in done.stdout
    assert "submit request 0 (1 + 1 of at most 1 tokens)" in done.stdout


HOARDS = """
from dataclasses import dataclass
import headrace

class Hoards:  # decodes before it has prefilled
    max_num_batched_tokens = max_num_seqs = max_encoder_tokens = 8

    def __init__(self, context):
        self.all = []

    def submit(self, request, now):
        if request.items:
            raise headrace.BadInput("text alone")
        self.all.append(request)

    def next_step(self, now):
        return headrace.Step(decoding=tuple(self.all[:1])) if self.all else None

    def complete(self, step, now):
        pass

    def withdraw(self, request, now):
        if request not in self.all:
            return False
        self.all.remove(request)
        return True

@dataclass(frozen=True)
class Settings:
    tasks = "steps"

    def build(self, context):
        return Hoards(context)
"""


def test_a_broken_rule_comes_with_the_shortest_history(folder):
    done = in_folder(folder, "check-policy", "unlimited:Settings", "--seed", "3")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("unlimited:Settings breaks the rule ")
    assert "in batching/policy.py, Policy." in done.stdout
    found = json.loads(in_folder(folder, "check-policy", "unlimited:Settings", "--seed", "3", "--json").stdout)
    assert found["broken"]["rule"]["name"] in ("nothing-lost", "withdrawal")
    assert found["broken"]["events"] <= 5
    for line in found["broken"]["timeline"]:
        assert line in done.stdout


def test_a_policy_that_does_not_return_is_interrupted(folder, monkeypatch):
    monkeypatch.setattr(process, "CALL_S", 0.3)
    monkeypatch.syspath_prepend(folder)
    done = headrace_here("check-policy", "hangs:Settings")
    assert done.returncode == 1, done.stderr
    assert "breaks the rule returns" in done.stdout and "next_task has not returned" in done.stdout
    assert "nothing more happens" in done.stdout


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("stalls", ("breaks the rule returns", "could not be interrupted")),
        ("exits", ("breaks the rule no-errors", "next_task ended the process with status 9")),
    ],
)
def test_a_policy_that_takes_its_process_with_it_is_told(folder, module, says, monkeypatch):
    monkeypatch.setattr(process, "STALLED_S", 3.0)
    monkeypatch.syspath_prepend(folder)
    done = headrace_here("check-policy", f"{module}:Settings")
    assert done.returncode == 1, done.stderr
    assert all(text in done.stdout for text in says)


def test_a_check_that_takes_too_long_ends(monkeypatch):
    monkeypatch.setattr(process, "CHECK_S", 1.0)
    before = children(os.getpid())
    done = headrace_here("check-policy", "lazy", "--examples", "100000")
    assert done.returncode == 1
    assert "the check took longer than 1 s; give fewer --examples" in done.stderr
    assert children(os.getpid()) == before
