"""How far work is and how long it still takes: on a terminal beside the bar, in a log as a line now and then."""

import io
import re

import pytest
from rich.console import Console

from headrace.host.cli import console
from headrace.host.cli.console import LINE_EVERY_S, Stages, progress


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def shows(monkeypatch, clock, terminal):
    err = Console(
        file=io.StringIO(), force_terminal=terminal, color_system=None, width=160, get_time=clock, markup=False
    )
    monkeypatch.setattr(console, "err", err)
    return err.file


@pytest.fixture
def terminal(monkeypatch, clock):
    return shows(monkeypatch, clock, True)


@pytest.fixture
def log(monkeypatch, clock):
    return shows(monkeypatch, clock, False)


def last(terminal, shown):
    """How far the bar is, what has passed, and what is left, as they now stand there."""
    shown.refresh()
    lines = re.findall(r"(\d+/[\d?]+) +(\d+:\d\d:\d\d)(?: +(\S+ left))?", terminal.getvalue())
    return lines[-1]


def stepped(stages, clock, *at_s):
    """A step at each of these times from the clock's start."""
    for each in at_s:
        clock.now = 1000.0 + each
        stages.step()


def test_the_time_left_is_that_of_the_mean_pace_however_long_a_step_takes(terminal, clock):
    with progress() as shown:
        stages = Stages(shown)
        stages.stage("runs", 10)
        assert last(terminal, shown) == ("0/10", "0:00:00", "-:--:-- left")
        stepped(stages, clock, 100.0)
        assert last(terminal, shown) == ("1/10", "0:01:40", "0:15:00 left")
        clock.now += 50  # nothing has ended since
        assert last(terminal, shown) == ("1/10", "0:02:30", "0:14:10 left")
        stepped(stages, clock, 200.0, 200.1)  # on two cores
        assert last(terminal, shown) == ("3/10", "0:03:20", "0:07:47 left")
        clock.now += 3600
        assert last(terminal, shown)[2] == "0:00:00 left"
        stepped(stages, clock, *[4000.0] * 7)
        assert last(terminal, shown) == ("10/10", "1:06:40", "0:00:00 left")


def test_what_was_done_before_says_nothing_of_the_pace(terminal, clock):
    with progress() as shown:
        stages = Stages(shown)
        stages.stage("runs", 1000)
        clock.now += 5  # to look up what is known
        stages.skip(980)
        assert last(terminal, shown) == ("980/1000", "0:00:00", "-:--:-- left")
        stepped(stages, clock, 15.0, 25.0)
        assert last(terminal, shown) == ("982/1000", "0:00:20", "0:03:00 left")


def test_each_stage_has_its_own_time(terminal, clock):
    with progress() as shown:
        stages = Stages(shown)
        stages.stage("first", 2)
        stages.skip(1)
        stepped(stages, clock, 100.0)
        stages.stage("second", 3)
        stepped(stages, clock, 101.0)
        assert last(terminal, shown) == ("1/3", "0:00:01", "0:00:02 left")


def test_of_an_unknown_length_nothing_is_said_to_be_left(terminal, clock):
    with progress() as shown:
        stages = Stages(shown)
        stages.stage("search")
        stepped(stages, clock, 1.0, 2.0)
        assert last(terminal, shown) == ("2/?", "0:00:02", "")


def test_a_log_has_a_line_now_and_then_with_what_is_left(log, clock):
    with progress() as shown:
        stages = Stages(shown)
        stages.stage("[red]runs", 100)
        stages.skip(40)
        stepped(stages, clock, *(LINE_EVERY_S / 10 * number for number in range(1, 41)))
        stages.stage("search")
        stepped(stages, clock, *(5 * LINE_EVERY_S + number for number in range(31)))
    assert log.getvalue().splitlines() == [
        "[red]runs",
        "[red]runs: 50 of 100, 0:02:30 left",
        "[red]runs: 60 of 100, 0:02:00 left",
        "[red]runs: 70 of 100, 0:01:30 left",
        "[red]runs: 80 of 100, 0:01:00 left",
        "search",
        "search: 1",
        "search: 31",
    ]


def test_what_ends_soon_has_one_line_in_a_log(log, clock):
    with progress() as shown:
        stages = Stages(shown)
        stages.stage("runs", 2)
        stepped(stages, clock, 1.0, 2 * LINE_EVERY_S)  # the end is told by the result
    assert log.getvalue() == "runs\n"
