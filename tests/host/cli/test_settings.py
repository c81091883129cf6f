"""Settings on the command line and in TOML files: options, former names, `--set`, tables, and policies of one's own."""

import json
import os
import subprocess
import sys

import pytest
from command import headrace, headrace_anew, headrace_here

from headrace.batching.settings import FORMER, option
from headrace.host.cli.serve.command import serve
from headrace.host.cli.setting_options import help_text
from headrace.host.cli.simulate.command import simulate
from headrace.sim.scenario import every_setting

FREE = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
RUN = ("simulate", "--requests", 50, "--rate-rps", 100)
PATIENT = '''
from headrace.batching.policies.graph import Graph
from headrace.batching.settings import setting, settings


@settings()
class Patient(Graph):
    """Wait longer than graph does."""

    patience_ms: float = setting(default=7.0, help="How much longer it waits.", ge=0, le=900)

    def build(self, context):
        return Graph(window_ms=self.window_ms + self.patience_ms, max_batch=self.max_batch).build(context)
'''


def simulated(*arguments):
    """The settings, the warnings and the result that a run reports."""
    done = headrace_here(*RUN, *arguments, "--json")
    assert done.returncode in (None, 0), done.stderr
    report = json.loads(done.stdout)
    return report.pop("settings"), report.pop("warnings"), report


def refused(*arguments):
    done = headrace_here(*arguments)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("command", [simulate, serve], ids=["simulate", "serve"])
def test_each_setting_of_a_known_policy_has_an_option_that_names_the_policies(command):
    text = " ".join(headrace_here(command.name, "--help-all").stdout.split())
    assert "lazy, oracle, preba-lazy, deferred, earliest-deadline: Share of the outputs" in text.replace("- ", "-")
    for name in ("--coverage", "--defer-late", "--knee-growth", "--max-tasks", "--w2", "--bucket-s"):
        assert name in text


def test_every_setting_of_simulate_has_an_option_with_its_help():
    options = {param.name: param for param in simulate.params}
    for name, each in every_setting().items():
        assert each.help and name in options, name
        assert help_text(each).rstrip(".") in options[name].help or options[name].help.endswith(help_text(each))


def test_former_names_of_options_work():
    settings, _, _ = simulated("--sla-ms", "20")
    assert settings["slo_ms"] == 20.0
    slices = ("--accelerator", "a100-40gb", "--model", "swin_t", "--preprocess", "cpu:32")
    settings, warnings, _ = simulated(*slices, "--photo-pixels", "1000")
    assert settings["image_pixels"] == 1000 and warnings == []
    assert "--images missing: No such file" in refused(*RUN, *slices, "--photos", "missing")


def test_former_names_work_in_files_and_not_beside_the_present_ones(tmp_path, served):
    file = tmp_path / "run.toml"
    file.write_text("sla-ms = 20\n")
    assert simulated("--config", file)[0]["slo_ms"] == 20.0
    (own,) = served("--config", str(file))
    assert own.slo_ms == 20.0
    file.write_text('[[models]]\nsource = "resnet18"\nsla-ms = 30\n')
    (own,) = served("--config", str(file))
    assert own.slo_ms == 30.0
    file.write_text("sla-ms = 20\nslo-ms = 30\n")
    assert "is the former name of --slo-ms; give one of them" in refused("simulate", "--config", file)


@pytest.mark.parametrize("command", ["simulate", "serve", "plan", "demo"])
def test_the_help_shows_no_former_name(command):
    text = headrace_here(command, "--help-all").stdout
    assert "--slo-ms" in text
    for name in FORMER:
        assert option(name) not in text


def test_set_says_what_the_option_says():
    one, warnings, _ = simulated("--policy", "lazy", "--set", "coverage=0.95", "--set", "max-batch=8")
    assert warnings == [] and (one["coverage"], one["max_batch"]) == (0.95, 8)
    assert one == simulated("--policy", "lazy", "--coverage", "0.95", "--max-batch", "8")[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--set", "coverage"), "--set 'coverage': give NAME=VALUE, as in coverage=0.95"),
        (("--set", "coverage=2"), "--coverage 2: give a number above 0 and at most 1"),
        (("--set", "coverage=x"), "--coverage 'x': it must be of type float"),
        (("--set", "coverage=0.9", "--coverage", "0.9"), "--set coverage and --coverage say the same; give one"),
        (("--set", "coverage=1", "--set", "coverage=1"), "coverage is given twice"),
        (("--set", "cover=1"), "--set cover: lazy has no setting 'cover'; known are coverage, dec_timesteps,"),
        (("--set", "rate_rps=1"), "--set rate_rps: lazy has no setting 'rate_rps'; known are"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "serve"])
def test_a_wrong_assignment_is_refused_by_name(command, arguments, text):
    assert text in refused(command, "--policy", "lazy", *arguments)


def test_a_setting_that_another_policy_has_is_warned_about():
    settings, warnings, _ = simulated("--policy", "serial", "--coverage", "0.5")
    assert len(warnings) == 1 and warnings[0].startswith("--coverage has no effect with --policy serial")
    assert "coverage" not in settings


def test_an_assignment_beside_a_grid_is_for_the_policies_of_the_grid(tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text('requests = 50\npolicy = ["preba"]\n')
    done = headrace_here("simulate", "--grid", file, "--set", "knee_growth=1.5", "--json")
    assert [each["settings"]["knee_growth"] for each in json.loads(done.stdout)] == [1.5]
    assert "--set coverage: preba has no setting" in refused("simulate", "--grid", file, "--set", "coverage=0.5")


def test_a_table_of_a_policy_says_what_flat_keys_say(tmp_path):
    flat, table = tmp_path / "flat.toml", tmp_path / "table.toml"
    flat.write_text('policy = "lazy"\ncoverage = 0.95\nmax-batch = 8\nrate-rps = 300\naccelerator = "npu"\n')
    table.write_text(
        'seed = 0\n[policy]\nname = "lazy"\ncoverage = 0.95\nmax-batch = 8\n'
        '[traffic]\nname = "poisson"\nrate-rps = 300\n'
        '[hardware]\nname = "npu"\n'
    )
    one, other = (json.loads(headrace_here("simulate", "--config", file, "--json").stdout) for file in (flat, table))
    assert one["settings"] == other["settings"] and one["settings"]["coverage"] == 0.95
    assert one["latency_ms"] == other["latency_ms"]
    # The command line goes before the file.
    done = headrace_here("simulate", "--config", table, "--coverage", "0.5", "--json")
    assert json.loads(done.stdout)["settings"]["coverage"] == 0.5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[policy]\ncoverage = 2", "coverage is 2: give a number above 0 and at most 1"),
        ('[policy]\nname = "lasy"', "'lasy'"),
        ("[policy]\ncover = 1", "cover"),
        ("coverage = 0.5\n[policy]\ncoverage = 0.5", "twice"),
        ("[polcy]\ncoverage = 0.5", "polcy"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "serve"])
def test_a_wrong_table_is_refused(command, text, told, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(text)
    assert told in refused(command, "--config", file)


def test_unknown_names_in_a_file_are_told_with_the_known_ones(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("max-bach = 5\n")
    said = refused("simulate", "--config", file)
    assert "there is no setting 'max_bach'; known are" in said and " max_batch, " in said and " rate_rps, " in said
    said = refused("serve", "--config", file)
    assert "there is no setting 'max-bach'; known are" in said and " max-batch, " in said and " policy, " in said


def test_serve_takes_settings_of_policies_from_options_assignments_and_tables(tmp_path, served):
    (own,) = served("--policy", "lazy", "--coverage", "0.8", "--set", "dec_timesteps=9", "--slo-ms", "50")
    assert (own.policy, own.chosen.coverage, own.chosen.dec_timesteps, own.slo_ms) == ("lazy", 0.8, 9, 50.0)
    file = tmp_path / "server.toml"
    file.write_text('max-batch = 16\n[policy]\nname = "lazy"\ncoverage = 0.8\ndefer-late = true\n')
    (own,) = served("--config", str(file))
    assert (own.chosen.coverage, own.chosen.defer_late, own.chosen.max_batch) == (0.8, True, 16)
    (own,) = served("--config", str(file), "--coverage", "0.7")
    assert own.chosen.coverage == 0.7
    file.write_text(
        '[[models]]\nname = "a"\nsource = "resnet18"\n[models.policy]\nname = "preba"\nknee-growth = 1.5\n'
        '[[models]]\nname = "b"\nsource = "resnet18"\npolicy = "lazy"\ncoverage = 0.6\n'
    )
    one, other = served("--config", str(file))
    assert (one.policy, one.chosen.knee_growth) == ("preba", 1.5)
    assert (other.policy, other.chosen.coverage) == ("lazy", 0.6)


@pytest.fixture
def patient(tmp_path, monkeypatch):
    """A folder on PYTHONPATH with a policy in a module."""
    (tmp_path / "patient.py").write_text(PATIENT)
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *([known] if known else [])]))
    return tmp_path


def test_simulate_takes_a_policy_of_a_module(patient):
    arguments = ("simulate", "--rate-rps", 10, "--requests", 50, "--policy", "patient:Patient", "--json")
    usual, longer = (
        json.loads(headrace(*arguments, *more).stdout)
        for more in ((), ("--set", "patience_ms=107", "--window-ms", "5"))
    )
    assert usual["settings"]["policy"] == "patient:Patient" and usual["settings"]["patience_ms"] == 7.0
    assert longer["settings"]["patience_ms"] == 107.0 and longer["warnings"] == []
    assert longer["latency_ms"]["p50"] > usual["latency_ms"]["p50"] + 50
    file = patient / "run.toml"
    file.write_text('[policy]\nname = "patient:Patient"\npatience-ms = 107\n')
    done = headrace(*arguments[:5], "--config", file, "--json")
    assert json.loads(done.stdout)["latency_ms"] == longer["latency_ms"]
    done = headrace(*arguments, "--set", "patience_ms=901")
    assert done.returncode == 2 and "--patience-ms 901: give 0 to 900" in done.stderr
    done = headrace(*arguments, "--set", "patience=1")
    assert done.returncode == 2
    known = "max_batch, max_batch_tokens, patience_ms, window_ms"
    assert f"patient:Patient has no setting 'patience'; known are {known}" in done.stderr


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("patient:Nobody", "--policy 'patient:Nobody': module patient has no Nobody"),
        ("nowhere:Patient", "--policy 'nowhere:Patient': No module named 'nowhere'"),
        ("patient:setting", "must be a dataclass of settings with a method build(context)"),
        ("broken:Patient", "--policy 'broken:Patient': module broken fails"),
    ],
)
def test_a_policy_that_is_none_is_refused_with_why(patient, name, text):
    (patient / "broken.py").write_text("1 / 0\n")
    done = headrace("simulate", "--policy", name)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_setting_stands_in_one_place_and_is_seen_everywhere(patient):
    """The policy comes in a package with an entry point; its setting is one field of its class."""
    about = patient / "patient-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: patient\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[headrace.policies]\npatient = patient:Patient\n")
    for command in ("simulate", "serve"):
        text = " ".join(headrace_anew(command, "--help-all").stdout.split())
        assert "--patience-ms FLOAT patient: How much longer it waits [default: 7]." in text
    run = ("simulate", "--rate-rps", 10, "--requests", 50, "--json")
    by_option = json.loads(headrace_anew(*run, "--policy", "patient", "--patience-ms", 107).stdout)
    assert by_option["settings"]["policy"] == "patient" and by_option["settings"]["patience_ms"] == 107.0
    file = patient / "run.toml"
    file.write_text('[policy]\nname = "patient"\npatience-ms = 107\n')
    by_file = json.loads(headrace_anew(*run, "--config", file).stdout)
    program = """
import json
from headrace.batching.registry import find_policy, policy_names
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario, every_setting
scenario = Scenario.of(policy="patient", patience_ms=107, rate_rps=10, requests=50)
result = run_scenario(scenario)[0].result
names = [each.name for each in find_policy("patient").settings]
print(json.dumps([result["latency_ms"], names, "patience_ms" in every_setting(), policy_names()[-1]]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240)
    latency_ms, names, listed, last = json.loads(done.stdout)
    assert by_option["latency_ms"] == by_file["latency_ms"] == latency_ms
    assert "patience_ms" in names and listed and last == "patient"
    done = headrace_anew(*run, "--policy", "patient", "--patience-ms", 901)
    assert done.returncode == 2 and "--patience-ms 901: give 0 to 900" in done.stderr
    done = headrace_anew(*run, "--policy", "serial", "--patience-ms", 5)
    assert "--patience-ms has no effect with --policy serial" in done.stderr


def test_options_that_are_given_once_hold_for_the_models_of_a_repository(tmp_path, served):
    (tmp_path / "one.toml").write_text('source = "resnet18"\n')
    (tmp_path / "two.toml").write_text('source = "resnet18"\n[policy]\nname = "preba"\nknee-growth = 1.5\n')
    options = ("--repository", tmp_path, "--policy", "lazy", "--slo-ms", "50", "--coverage", "0.8")
    _, one, two = served(*options, of=("one", "two"))
    assert (one.policy, one.slo_ms, one.chosen.coverage) == ("lazy", 50.0, 0.8)
    assert (two.policy, two.slo_ms, two.chosen.knee_growth) == ("preba", 50.0, 1.5)
    *_, one = served(
        "--model",
        "a=resnet18",
        "--model",
        "b=resnet18",
        "--slo-ms",
        "50",
        "--slo-ms",
        "60",
        "--repository",
        tmp_path,
        of=("one",),
    )  # two values are for the two models
    assert one.slo_ms == 100.0


def test_lists_in_a_file_have_a_value_for_each_model_or_are_one_value_of_several_numbers(tmp_path, served):
    file = tmp_path / "run.toml"
    models = "".join(f'[[models]]\nname = "{name}"\nsource = "resnet18"\n' for name in "abc")
    file.write_text(f'slo-ms = [10, 20, 30]\nmean = [0.1, 0.2, 0.3]\nstd = ["1,1,1", "1,1,2", "1,1,3"]\n{models}')
    settings = served("--config", str(file))
    assert [own.slo_ms for own in settings] == [10.0, 20.0, 30.0]
    assert [own.mean for own in settings] == [(0.1, 0.2, 0.3)] * 3
    assert [own.std for own in settings] == [(1.0, 1.0, 1.0), (1.0, 1.0, 2.0), (1.0, 1.0, 3.0)]
    (first, *_) = served("--config", str(file), "--slo-ms", "40")  # the command line goes before the file
    assert first.slo_ms == 40.0
    file.write_text("slo-ms = [10, 20, 30]\n")
    assert "--slo-ms: 3 for 1 models; give one for all, or one for each" in refused("serve", "--config", file)
    file.write_text("mean = [0.5, 0.5]\n")
    assert "mean is [0.5, 0.5]: give 3 numbers of 0 or more, by comma" in refused("serve", "--config", file)


def test_each_model_has_a_processor_of_its_own_and_a_folder_names_its_program(served, tmp_path):
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "weights.pt2").touch()
    models = ("--model", f"{tmp_path}/vit", "--model", "other=resnet18")
    one, other = served(*models, "--processor", "none", "--processor", "qwen2-vl", "--engine", "pillow12")
    assert (one.name, one.source) == ("vit", f"{tmp_path}/vit/weights.pt2") and other.name == "other"
    assert (one.processor, other.processor) == ("none", "qwen2-vl") and one.engine == other.engine == "pillow12"
    file = tmp_path / "serve.toml"
    file.write_text(
        f'[[models]]\nsource = "{tmp_path}/vit/"\nprocessor = "./a.json"\n[[models]]\nsource = "resnet18"\n'
    )
    one, other = served("--config", str(file))
    assert (one.name, one.processor, other.processor) == ("vit", "./a.json", None)
    file.write_text(f'[[models]]\nsource = "{tmp_path}/vit/weights.pt2"\nname = "named"\n')
    assert served("--config", str(file))[0].name == "named"


def test_a_processor_too_many_or_an_unknown_engine_is_refused():
    assert "--processor: 3 for 2 models; give one for all, or one for each" in refused(
        "serve", *FREE, "--model", "a:a", "--model", "b:b", *("--processor", "none") * 3
    )
    assert "choose from torchvision, pillow12, pillow13" in refused("serve", *FREE, "--engine", "opencl")
