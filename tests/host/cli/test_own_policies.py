"""`headrace demo` and `headrace plan --tune` with policies of a user's own, and with settings of policies."""

import json
import shlex

import pytest
from command import headrace, headrace_here

from headrace.batching import Profile, ProfilePoint

OWN = '''
from headrace.batching.policies.static import Static
from headrace.batching.policies.serial import Serial
from headrace.batching.settings import setting, settings


@settings()
class Limited:
    """Serves fixed batches."""

    max_batch: int = setting(default=8, help="Largest batch.", ge=1, le=64)
    patience: float = setting(default=0.5, help="A number that tuning leaves alone.", ge=0)

    def build(self, context):
        return Static(max_batch=self.max_batch).build(context)


@settings()
class Plain:
    """Serves one request at a time."""

    def build(self, context):
        return Serial().build(context)
'''
TUNE = ("plan", "--model", "net", "--accelerator", "profile", "--profile", "net.json", "--rate-rps", "20")


@pytest.fixture(autouse=True)
def in_a_folder_with_own_policies(tmp_path, monkeypatch):
    points = [ProfilePoint(batch, 0.02 + 0.005 * batch, batch / (0.02 + 0.005 * batch)) for batch in (1, 2, 4, 8)]
    (tmp_path / "net.json").write_text(Profile("net", 1, tuple(points)).to_json())
    (tmp_path / "own_policies.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_tuning_an_own_policy_tries_its_largest_batch_and_nothing_else():
    done = headrace(*TUNE, "--slo-ms", "400", "--tune", "own_policies:Limited,own_policies:Plain", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    by_policy = {each["policy"]: each for each in (answer["best"], *answer["runners_up"])}
    assert set(by_policy) == {"own_policies:Limited", "own_policies:Plain"}
    tried = [set(each) - {"policy", "requests", "quantile_ms"} for each in answer["tried"]]
    assert {frozenset(each) for each in tried} == {frozenset({"max_batch"}), frozenset()}
    for plan in by_policy.values():
        again = headrace(*shlex.split(plan["simulate"])[1:], "--json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["latency_ms"] == plan["latency_ms"]
        assert f"--policy {plan['policy']}" in plan["serve"]


@pytest.mark.parametrize(
    ("policies", "wording"),
    [
        ("magic", "--tune 'magic': choose from serial"),
        ("no_such_module:Policy", "no_such_module"),
        ("own_policies:Missing", "module own_policies has no Missing"),
    ],
)
def test_a_policy_that_cannot_be_found_is_not_tuned(policies, wording):
    done = headrace_here(*TUNE, "--slo-ms", "400", "--tune", policies)
    assert done.returncode == 2 and wording in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("options", "wording"),
    [
        (("--set", "coverage=0.5"), "--set coverage: none of the policies serial, graph, preba has this setting"),
        (("--policies", "graph", "--set", "window_ms=-1"), "--window-ms -1: give a number of 0 or more"),
        (("--policies", "graph", "--window-ms", "1", "--set", "window_ms=2"), "--set window_ms and --window-ms"),
        (("--policies", "serial", "--window-ms", "1"), "none of the policies serial has this setting"),
        (("--set", "window_ms"), "give NAME=VALUE"),
        (("--policies", "magic"), "'magic': there is no such policy"),
        (("--policies", "own_policies:Missing"), "module own_policies has no Missing"),
        (("--policies", "own_policies:Limited", "--set", "patience=-1"), "--patience -1: give a number of 0 or more"),
        (("--sla-ms", "-1"), "--sla-ms"),
    ],
)
def test_the_demo_refuses_settings_that_its_policies_do_not_have(options, wording):
    done = headrace_here("demo", *options)
    assert done.returncode == 2 and wording in done.stderr and len(done.stderr.splitlines()) == 1
