"""`headrace plan --day`: what it prints and writes, and that what it predicts is what `headrace simulate` gives."""

import json
import shlex

import cv2
import pytest
from command import headrace, headrace_here

from headrace.host.cli.plan.schedule import _body, _print, draw
from headrace.sim.planner.allocate import Option, ServerPlan
from headrace.sim.planner.schedule import Change, DayAnswer, Schedule, Stage
from headrace.sim.planner.target import Candidate, Hardware, Target
from headrace.sim.workload.day import Interval


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("day")
    (folder / "day.csv").write_text("hour,vgg16\n0,60\n9,60\n")
    return folder


@pytest.fixture(scope="module")
def day(folder):
    return (
        "plan",
        "--model",
        "vgg16",
        "--gpu",
        "a100-40gb",
        "--slo-ms",
        "2.5",
        "--slo-quantile",
        "0.9",
        "--day",
        str(folder / "day.csv"),
        "--out",
        str(folder / "out"),
    )


@pytest.fixture(scope="module")
def planned(day):
    done = headrace(*day, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_schedule_costs_no_more_than_what_never_changes(planned):
    assert [(stage["from"], stage["to"]) for stage in planned["schedule"]] == [(0, 9), (9, 24)]
    assert planned["static"]["gpus"] == 1
    assert planned["saving_usd_per_day"] == planned["static"]["usd_per_day"] - planned["usd_per_day"] >= 0
    assert planned["late"] <= 0.1 and all(stage["quantile_ms"] <= 2.5 for stage in planned["schedule"])


def test_the_command_of_an_interval_simulates_it(planned):
    for stage in planned["schedule"][:1]:
        command, *words = shlex.split(stage["simulate"])
        assert command == "headrace"
        done = headrace_here(*words, "--json")
        assert done.returncode == 0 and not json.loads(done.stdout)["warnings"], done.stderr
        assert json.loads(done.stdout)["power_w"]["total"] == pytest.approx(stage["power_w"], rel=0.02)


def test_a_second_start_goes_on_and_writes_the_same(planned, day, folder):
    done = headrace(*day)
    assert done.returncode == 0, done.stderr
    assert "all day: " in done.stdout
    assert json.loads((folder / "out" / "plan.json").read_text()) == planned
    assert cv2.imread(str(folder / "out" / "plan.png")).std() > 10


@pytest.fixture
def answer():
    """Three hours of the night with one server, then two of another partition."""
    target = Target("resnet50", 3000, 50, "a100-40gb", gpus=2)
    one, two = (
        Candidate(Hardware(servers, parts, "cpu:32"), "preba") for servers, parts in ((1, "3g.20gb:2"), (2, "1g.5gb:7"))
    )
    spans = ((0, 2.5, 900.0, one), (2.5, 3, 1000.0, one), (3, 24, 3000.0, two))
    stages = tuple(
        Stage(Interval(start, end, {"resnet50": rate}), plan, 0.5 * plan.hardware.servers, 300.0, 0.001, 40.0)
        for start, end, rate, plan in spans
    )
    changes = (Change(0.0, False, two, one, 1, 60.0, 54_000.0, 0.01), Change(3.0, True, one, two, 1, 60.0, 0.0, 0.0))
    static = tuple(Stage(stage.interval, two, 1.0, 300.0, 0.001, 40.0) for stage in stages)
    return DayAnswer(target, Schedule(stages, changes, 22.51, 0.0012), Schedule(static, (), 24.0, 0.001), 30.0, 99)


def test_in_words_it_says_when_what_and_what_it_costs(answer, capsys):
    _print(answer)
    text = capsys.readouterr().out
    for words in (
        "00:00",
        "900 to 1000",
        "03:00, before the hour: 1 x 3g.20gb:2, cpu:32 to 2 x 1g.5gb:7, cpu:32; 1 re-partit",
        "in 60 s, 54000 requests late (0.023 % of the day's)",
        "22.51 $ a day, 0.12 % of the requests late",
        "The schedule saves 1.49 $ a day, 6.2 %.",
    ):
        assert words in text, text


def test_that_nothing_pays_is_an_answer(answer, capsys):
    _print(DayAnswer(answer.target, answer.static, answer.static, 30.0, 99))
    assert "No re-partitioning pays off. 2 x 1g.5gb:7, cpu:32, preba, all day: 24.00 $ a day" in capsys.readouterr().out


def test_the_day_is_drawn(answer, tmp_path):
    draw(tmp_path / "plan.png", answer)
    assert cv2.imread(str(tmp_path / "plan.png")).std() > 10


@pytest.fixture
def of_two_models():
    """A server of halves all day, and by night another one."""
    resnet50, swin_t = (Option(model, "3g.20gb", "cpu", 900.0, cores=3.0) for model in ("resnet50", "swin_t"))

    def server(*options):
        return ServerPlan(("3g.20gb", "3g.20gb"), tuple(("3g.20gb", option) for option in options), (), 1, False)

    day, night = (server(resnet50, swin_t),), (server(resnet50, swin_t), server(swin_t, None))
    stages = tuple(
        Stage(Interval(start, end, {"resnet50": 300.0, "swin_t": rate}), plan, 0.5 * len(plan), 300.0, 0.001, 40.0)
        for start, end, rate, plan in ((0, 12, 1500.0, night), (12, 24, 600.0, day))
    )
    changes = (Change(0.0, True, day, night, 0, 30.0, 0.0, 0.01), Change(12.0, False, night, day, 0, 30.0, 0.0, 0.01))
    static = tuple(Stage(stage.interval, night, 1.0, 300.0, 0.001, 40.0) for stage in stages)
    target = Target("resnet50", 1800, 50, "a100-40gb", gpus=2)
    return DayAnswer(target, Schedule(stages, changes, 18.02, 0.001), Schedule(static, (), 24.0, 0.001), 30.0, 99)


def test_of_several_models_it_says_whose_slices_are_which(of_two_models, capsys, tmp_path):
    _print(of_two_models)
    text = capsys.readouterr().out
    for words in (
        "resnet50, swin_t on a100-40gb",
        "1 x 3g.20gb swin_t, 1 x 3g.20gb idle",
        "00:00, before the hour",
        "The schedule saves 5.98 $ a day, 25 %.",
        "No GPU is re-partitioned: only the number of servers changes.",
    ):
        assert words in text, text
    draw(tmp_path / "plan.png", of_two_models)
    assert cv2.imread(str(tmp_path / "plan.png")).std() > 10


def test_the_commands_of_pieces_simulate_them(of_two_models):
    body = json.loads(json.dumps(_body(of_two_models)))
    night = body["schedule"][0]
    assert night["partition"] == ["3g.20gb,3g.20gb", "3g.20gb,3g.20gb"]
    assert [each["rate_rps"] for each in night["models"]["swin_t"]] == [750.0, 750.0]
    for piece in (night["models"]["swin_t"][0], night["models"]["resnet50"][0]):
        command, *words = shlex.split(piece["simulate"])
        done = headrace_here(*words, "--requests", "2000", "--json")
        assert command == "headrace" and done.returncode == 0, done.stderr
        assert not json.loads(done.stdout)["warnings"]
