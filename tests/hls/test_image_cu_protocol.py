"""The image CU's registers and buses under cocotb: two simulator runs for the tests of cocotb_image_cu.py."""

import protocol
import pytest


@pytest.mark.parametrize("names", protocol.shared_runs("image_cu", 2), ids="+".join)
def test_protocol(names, tmp_path):
    protocol.run("image_cu", names, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", protocol.tests("image_cu"))
def test_protocol_with_every_case(name, tmp_path):
    protocol.run("image_cu", [name], tmp_path, every=True)
