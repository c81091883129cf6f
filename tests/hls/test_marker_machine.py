"""The states of marker_machine under cocotb: one simulator run for the tests of cocotb_marker_machine.py."""

import protocol


def test_states(tmp_path):
    protocol.run("marker_machine", protocol.tests("marker_machine"), tmp_path)
