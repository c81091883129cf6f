"""The cards' data, and containers for emulation in the shape of each card."""

from pathlib import Path

import numpy as np
import pytest

from headrace.batching.errors import UsageError
from headrace.bitstreams.build import build_kernels, describe
from headrace.bitstreams.platforms import platform, platforms
from headrace.bitstreams.xclbin import MemoryType
from headrace.host.xrt import emulation

VADD = Path(__file__).parent / "vadd"
XML = (VADD / "kernel.xml").read_bytes()
GIB = 1 << 30
MEMORY = {
    "u50": (32, GIB // 4, 0),
    "u55c": (32, GIB // 2, 0),
    "u280": (32, GIB // 4, 0),
    "u250": (4, 16 * GIB, 1 << 38),
}


@pytest.mark.parametrize("card", MEMORY)
def test_the_memory_of_a_card(card):
    banks = platform(card).memories({1})
    assert (len(banks), banks[0].size_kb * 1024, banks[0].base_address) == MEMORY[card]
    assert [bank.used for bank in banks] == [number == 1 for number in range(len(banks))]
    assert {bank.type for bank in banks} == {MemoryType.DDR4 if card == "u250" else MemoryType.HBM}
    ends = [bank.base_address + bank.size_kb * 1024 for bank in banks]
    assert all(end <= bank.base_address for end, bank in zip(ends, banks[1:], strict=False))


@pytest.mark.parametrize("card", MEMORY)
def test_the_names_of_a_card_agree(card):
    found = platform(card)
    assert found.platform.startswith(f"xilinx_{card}_") and found.shell.startswith(f"xilinx_{card}_")
    assert found.part.startswith(f"xc{card}-") and len(found.shell) < 64  # the field of an xclbin's header
    assert all(0 <= found.slr_of(bank) < found.slrs for bank in range(found.banks))


def test_an_unknown_card_is_refused():
    assert set(platforms()) == set(MEMORY)
    with pytest.raises(UsageError, match="--platform u200: unknown; choose one of u50, u55c, u250, u280"):
        platform("u200")


@pytest.mark.parametrize("card", MEMORY)
def test_an_emulation_container_has_the_cards_memory(tmp_path, card):
    xclbin = build_kernels(tmp_path / "v.xclbin", [VADD / "vadd.cpp"], [], [XML], {"vadd": 5}, card=card)
    description = describe(xclbin)
    assert description["platform"] == platform(card).shell
    used = [memory for memory in description["memories"] if memory["used"]]
    if card == "u250":  # a unit's ports share a bank; the fifth unit shares that of the first
        banks = [set(each["banks"].values()) for each in description["kernels"][0]["instances"]]
        assert banks == [{"DDR[0]"}, {"DDR[1]"}, {"DDR[2]"}, {"DDR[3]"}, {"DDR[0]"}]
        assert [memory["base_address"] for memory in used] == [0x40 << 32, 0x50 << 32, 0x60 << 32, 0x70 << 32]
    else:
        assert [memory["tag"] for memory in used] == [f"HBM[{number}]" for number in range(10)]


def test_a_container_for_another_card_is_built_again(tmp_path):
    first = build_kernels(tmp_path / "v.xclbin", [VADD / "vadd.cpp"], [], [XML], {"vadd": 1})
    other = build_kernels(tmp_path / "v.xclbin", [VADD / "vadd.cpp"], [], [XML], {"vadd": 1}, card="u280")
    assert first.uuid != other.uuid and first.platform != other.platform


def test_units_reach_memory_far_from_0(tmp_path):
    """The first bank of the U250 begins at 2^38. Bytes go there and back, and a unit computes a sum there."""
    path = tmp_path / "v.xclbin"
    build_kernels(path, [VADD / "vadd.cpp"], [], [XML], {"vadd": 1}, card="u250")
    device = emulation.device(0)
    kernel = emulation.kernel(device, device.load_xclbin(str(path)), "vadd")
    buffers = [emulation.bo(device, 64, emulation.bo.normal, kernel.group_id(number)) for number in range(3)]
    assert all(buffer.address() >= 1 << 38 for buffer in buffers)
    for buffer in buffers[:2]:
        buffer.write(np.arange(16, dtype=np.int32).tobytes(), 0)
        buffer.sync(emulation.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, 64, 0)
    run = kernel(*buffers, 16, 5, 0)
    run.wait(60_000)
    buffers[2].sync(emulation.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, 64, 0)
    assert np.frombuffer(buffers[2].read(64, 0), np.int32).tolist() == [2 * number + 5 for number in range(16)]
