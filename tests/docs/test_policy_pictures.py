"""The pictures of the policies show what the policies do."""

import ast
import re
import runpy
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headrace.batching.policies import BUILT_IN

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "draw_policies.py"))
CASES, FURTHER_CASES, play = SCRIPT["CASES"], SCRIPT["FURTHER_CASES"], SCRIPT["play"]
ALL = CASES | FURTHER_CASES


def steps_of(name: str, request: int) -> str:
    """Return the steps that a request has to run, as the picture writes them."""
    case = ALL[name]
    return "ABCD" if case.network == SCRIPT["NODES"] else "123456"[: SCRIPT["Example"]().cells[request]]


def test_every_policy_has_a_picture_and_a_colour():
    assert list(CASES) == list(BUILT_IN) == list(SCRIPT["COLORS"])


@pytest.mark.parametrize("name", ALL)
def test_each_request_runs_all_its_nodes_or_cells_once_and_in_order(name):
    done = play(ALL[name])
    for request, finished in enumerate(done.finished):
        ran = [
            (block, names)
            for block in done.blocks
            for number, names in zip(block.requests, block.names, strict=True)
            if number == request
        ]
        assert "".join(step for _, names in ran for step in names) == steps_of(name, request)
        assert ran[0][0].start >= done.example.arrival_ms[request]
        if name == "dynamic-graph":  # all requests of a set end together
            assert ran[-1][0].stop <= finished + 1e-9
        else:
            assert ran[-1][0].stop == pytest.approx(finished)


@pytest.mark.parametrize("name", ALL)
def test_the_worker_runs_one_batch_at_a_time_within_the_limit(name):
    blocks = play(ALL[name]).blocks
    assert all(before.stop <= after.start + 1e-9 for before, after in pairwise(blocks))
    assert max(len(block.requests) for block in blocks) <= (1 if name == "serial" else SCRIPT["MAX_BATCH"])


def test_the_policies_treat_the_example_in_different_ways():
    whole = [name for name, case in CASES.items() if case.network == SCRIPT["NODES"]]
    assert len({play(CASES[name]).blocks for name in whole}) == len(whole)


def test_padding_is_drawn_where_a_batch_is_longer_than_a_request():
    blocks = play(CASES["bucketed-graph"]).blocks
    (first,) = (block for block in blocks if block.requests == (2, 4))
    assert first.names == (("1", "2", "3", "4", "5", ""), ("1", "2", "3", "4", "5", "6"))
    assert not any("" in names for block in play(CASES["cellular"]).blocks for names in block.names)


def test_the_example_of_lazy_is_the_table_in_the_policys_file():
    """tests/batching/policies/test_worked_timelines.py replays that table with the policy, too."""
    text = ast.get_docstring(ast.parse((ROOT / "batching" / "policies" / "lazy.py").read_text()))
    rows = re.findall(
        r"^\s+([\d.]+) - ([\d.]+)\s+0\s+((?:R\d ?)+)\s+((?:[A-D] ?)+)\s+(\w+)\s*$",
        text.partition("Example of Eq. 2\n")[2],
        re.MULTILINE,
    )
    done = play(SCRIPT["Case"]("lazy", {"slack": "eq2"}), SCRIPT["EQ2"])
    drawn = [
        (
            f"{block.start:g}",
            f"{block.stop:g}",
            " ".join(f"R{number + 1}" for number in block.requests),
            " ".join(block.names[0]),
            block.reason,
        )
        for block in done.blocks
    ]
    assert len(rows) == 7
    assert drawn == [
        (start, stop, requests.strip(), nodes.strip(), reason) for start, stop, requests, nodes, reason in rows
    ]


def test_a_picture_draws_each_step_and_each_late_request():
    done = play(CASES["serial"])
    svg = ElementTree.fromstring(SCRIPT["timeline"](done))
    texts = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    for node in "ABCD":
        assert texts.count(node) == 8
    assert done.late == 1 and texts.count("late") == 1
    assert {f"R{number}" for number in range(1, 9)} <= set(texts)
    assert svg.attrib["width"] == "800"


def test_letters_can_be_read_on_the_colour_of_each_policy():
    for policy, colors in SCRIPT["COLORS"].items():
        for color in colors:
            assert SCRIPT["contrast"](SCRIPT["letters_on"](color), color) >= 4.5, policy


def test_a_policy_has_the_colour_that_it_has_in_all_other_pictures():
    style = pytest.importorskip("headrace.sim.plot_style")
    assert {policy: tuple(style.COLORS[policy]) for policy in CASES} == SCRIPT["COLORS"]
