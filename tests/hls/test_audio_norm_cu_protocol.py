"""audio_norm_cu's registers and buses under cocotb: one simulator run for each test of cocotb_audio_norm_cu.py."""

import protocol
import pytest


@pytest.mark.parametrize("name", protocol.tests("audio_norm_cu"))
def test_protocol(name, tmp_path):
    protocol.run("audio_norm_cu", name, tmp_path)
