"""The registers and streams of image_stream under cocotb: one simulator run for the tests of cocotb_image_stream.py."""

import protocol


def test_protocol(tmp_path):
    protocol.run("image_stream", protocol.tests("image_stream"), tmp_path)
