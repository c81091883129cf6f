"""The image CU's registers and buses under cocotb: one simulator run for each test of cocotb_image_cu.py."""

import protocol
import pytest


@pytest.mark.parametrize("name", protocol.tests("image_cu"))
def test_protocol(name, tmp_path):
    protocol.run("image_cu", name, tmp_path)
