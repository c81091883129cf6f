"""axi_read_share and axi_write_share x rtlsim: three clients on one master, before a memory that answers them in any
order."""

import ctypes
from functools import cache

import pytest
import rtlsim

CLIENTS = 3
ALL = CLIENTS


class Outcome(ctypes.Structure):
    _fields_ = [("cycles", ctypes.c_uint64), ("most_passed_over", ctypes.c_uint64)]


@cache
def library(top: str) -> ctypes.CDLL:
    return rtlsim.load(top)


@pytest.fixture(params=["axi_read_share", "axi_write_share"])
def share(request):
    def run(bursts: int, *, stall=0, only=ALL, seed=1) -> Outcome:
        """The bench checks whose each address, word and answer is; it raises if one is another's, or does not come."""
        outcome = Outcome()
        fault = library(request.param).rtl_axi_share(
            ctypes.c_uint32(bursts),
            ctypes.c_uint32(stall),
            ctypes.c_uint32(only),
            ctypes.c_uint32(seed),
            ctypes.byref(outcome),
        )
        assert fault == 0, {1: "hangs", 2: "breaks the protocol", 3: "an assertion failed"}[fault]
        return outcome

    return run


@pytest.mark.parametrize("stall", [0, 60, 200])
@pytest.mark.parametrize("seed", range(5))
def test_each_client_is_answered_what_it_asked_for(share, stall, seed):
    share(2000, stall=stall, seed=seed)


@pytest.mark.parametrize("stall", [0, 100])
def test_clients_that_wait_take_turns(share, stall):
    """Of those that ask at the same time, each has its turn before another has its second."""
    assert 0 < share(2000, stall=stall).most_passed_over <= CLIENTS


@pytest.mark.parametrize("only", range(CLIENTS))
def test_a_client_that_is_alone_loses_no_clock(share, only):
    """Of bursts of 8.5 words on average."""
    bursts = 500
    assert share(bursts, only=only).cycles <= bursts * 8.5 * 1.05 + 20


@pytest.mark.parametrize("before, every", [(0, 1), (1, 1), (3, 1), (3, 40), (8, 500)])
def test_responses_of_before_a_reset_are_nobodys_and_waited_for(before, every):
    """Else the next burst would have its response before its data is written, or its writer none left to wait for."""
    assert before * every <= _after_a_reset(before, every) <= before * every + 4


@pytest.mark.parametrize("before", [1, 8])
def test_a_memory_that_is_reset_as_well_is_not_waited_for_forever(before):
    assert 1000 < _after_a_reset(before, 0) < 1040


def _after_a_reset(before: int, every: int) -> int:
    """Clocks from a reset, with so many bursts unanswered, to the next address."""
    outcome = Outcome()
    fault = library("axi_write_share").rtl_axi_write_share_reset(
        ctypes.c_uint32(before), ctypes.c_uint32(every), ctypes.byref(outcome)
    )
    assert fault == 0, {1: "hangs", 2: "breaks the protocol", 3: "an assertion failed"}[fault]
    return outcome.cycles
