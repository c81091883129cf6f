"""audio_norm_cu's registers and buses under cocotb: one simulator run for the tests of cocotb_audio_norm_cu.py."""

import protocol
import pytest


@pytest.mark.parametrize("names", protocol.shared_runs("audio_norm_cu", 1), ids="+".join)
def test_protocol(names, tmp_path):
    protocol.run("audio_norm_cu", names, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", protocol.tests("audio_norm_cu"))
def test_protocol_with_every_case(name, tmp_path):
    protocol.run("audio_norm_cu", [name], tmp_path, every=True)
