"""Test the table of docs/reference/xrt_calls.md: its calls are those of the script, and its columns are the results of
each device."""

import os
from pathlib import Path

import pytest
from backends import EMULATED, ENDS, HEADS, REAL, REASONS, ROWS, SCRIPT, TEXT, VARY, given


def test_the_table_has_the_scripts_calls():
    assert [row[0] for row in ROWS] == list(SCRIPT["CALLS"])


def test_the_counts_are_the_tables():
    for number, name in enumerate(HEADS[2:], start=2):
        alike = sum(row[number] == row[1] for row in ROWS)
        assert f"\n{name}: {alike} of {len(ROWS)} calls give" in TEXT


def test_what_differs_has_a_reason_and_nothing_else_has():
    assert set(REASONS) == {call for call, ours, *theirs in ROWS if any(value != ours for value in theirs)}


@pytest.mark.parametrize("backend", EMULATED, indirect=True)
@pytest.mark.parametrize("call", [row[0] for row in ROWS])
def test_the_emulated_device_gives_what_the_table_says(call, backend):
    assert given(call, backend.names()) == backend.listed[call]


def alone(call: str, told: str) -> bool:
    """Return whether a call must run alone: it ends the process, or a second handle closes the device."""
    return told in ENDS or call.startswith("x.device(0)")


@pytest.mark.parametrize("backend", REAL, indirect=True)
def test_the_real_xrt_gives_what_the_table_says(backend):
    """One process makes all calls that leave the device intact, one after another."""
    calls = {call: told for call, told in backend.listed.items() if call not in VARY and not alone(call, told)}
    names = backend.names()
    assert {call: given(call, names) for call in calls} == calls and len(calls) > 100
    os._exit(0)  # of the test's own process: after some of them XRT cannot end


@pytest.mark.slow  # not on hw_emu, whose shim would sleep for minutes
@pytest.mark.parametrize("backend", ["debian-sw_emu", "pyxrt-sw_emu"], indirect=True)
def test_the_real_xrt_ends_or_hangs_where_the_table_says(backend):
    """Each call runs in a process of its own."""
    folder = str(Path(backend.pyxrt.__file__).parent)
    calls = {call: told for call, told in backend.listed.items() if call not in VARY and alone(call, told)}
    for call, told in calls.items():
        assert SCRIPT["outcome"](call, backend.container, folder, str(backend.setup.parent)) == told, call
