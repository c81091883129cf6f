"""Containers: the layout written by hand from xclbin.h, a round trip, and a reader whose only failure is
XclbinError."""

import random
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bitstreams.whole_file import replacing
from headrace.bitstreams.xclbin import (
    Connection,
    IpInstance,
    MemoryBank,
    MemoryType,
    Mode,
    Xclbin,
    XclbinError,
    from_bytes,
    make_xclbin,
    read_xclbin,
    to_bytes,
)


def sample(bitstream: bytes = b"\x7fELF and more", **changes) -> Xclbin:
    content = {
        "mode": Mode.SW_EMU,
        "platform": "xilinx_u55c",
        "bitstream": bitstream,
        "metadata_xml": b"<project/>",
        "build_metadata": b"{}",
        "memories": [
            MemoryBank(MemoryType.HBM, True, 524288, 0, "HBM[0]"),
            MemoryBank(MemoryType.HBM, False, 524288, 524288 * 1024, "HBM[1]"),
        ],
        "ips": [IpInstance("vadd:vadd_1", 0x800000), IpInstance("vadd:vadd_2", 0x810000)],
        "connections": [Connection(0, 0, 0), Connection(0, 1, 1)],
    }
    return make_xclbin(**(content | changes))


def test_the_file_has_xclbin_hs_layout():
    xclbin = sample()
    data = to_bytes(xclbin)
    assert data[:8] == b"xclbin2\0"
    assert struct.unpack_from("<i", data, 8) == (-1,)  # m_signature_length
    header = 304  # 8 + 4 + 28 + 256 + 8
    assert struct.unpack_from("<Q", data, header) == (len(data),)  # m_length
    assert struct.unpack_from("<H", data, header + 28) == (5,)  # m_mode: XCLBIN_SW_EMU
    assert data[header + 48 : header + 112].rstrip(b"\0") == b"xilinx_u55c"  # m_platformVBNV
    assert UUID(bytes=data[header + 112 : header + 128]) == xclbin.uuid
    (count,) = struct.unpack_from("<I", data, header + 144)
    assert count == 6
    found = {}
    for number in range(count):  # sizeof(axlf_section_header) is 40, the table begins at 456
        kind, offset, size = struct.unpack_from("<I20xQQ", data, 456 + 40 * number)
        assert offset % 8 == 0
        found[kind] = data[offset : offset + size]
    assert found[0] == b"\x7fELF and more" and found[2] == b"<project/>" and found[14] == b"{}"
    assert struct.unpack_from("<i4xBB6xQQ16s", found[6]) == (2, 6, 1, 524288, 0, b"HBM[0]".ljust(16, b"\0"))
    name = b"vadd:vadd_1".ljust(64, b"\0")
    assert struct.unpack_from("<i4xIIQ64s", found[8]) == (2, 1, 0x101, 0x800000, name)  # IP_KERNEL, chain + interrupt
    assert struct.unpack("<i6i", found[7]) == (2, 0, 0, 0, 0, 1, 1)


def test_what_is_written_is_read():
    assert from_bytes(to_bytes(sample())) == sample()


def test_sections_of_other_kinds_are_kept():
    xclbin = from_bytes(to_bytes(sample()))
    xclbin = Xclbin(**{name: getattr(xclbin, name) for name in xclbin.__slots__} | {"other_sections": {11: b"clocks"}})
    assert from_bytes(to_bytes(xclbin)).other_sections == {11: b"clocks"}


def test_the_uuid_is_the_contents():
    assert sample().uuid == sample().uuid
    others = [sample(b"other"), sample(mode=Mode.HW_EMU), sample(platform="u280"), sample(connections=[])]
    assert len({sample().uuid, *(other.uuid for other in others)}) == 5


@pytest.mark.parametrize("change", [{"platform": "p" * 64}, {"memories": [MemoryBank(6, True, 1, 0, "m" * 16)]}])
def test_a_name_too_long_for_its_field_is_refused(change):
    with pytest.raises(XclbinError, match="longer than"):
        to_bytes(sample(**change))


@given(st.binary(max_size=600))
def test_any_other_bytes_are_refused_by_name(data):
    for file in (data, b"xclbin2\0" + data):
        with pytest.raises(XclbinError):
            from_bytes(file)


def test_a_damaged_container_is_refused_or_read_and_never_crashes():
    rng = random.Random(1)
    whole = to_bytes(sample())
    refused = 0
    for _ in range(4000):
        data = bytearray(whole)
        match rng.randrange(3):
            case 0:
                data = data[: rng.randrange(len(data))]
            case 1:
                for _ in range(rng.randint(1, 4)):
                    data[rng.randrange(len(data))] = rng.choice((0, 0xFF, 0x80, rng.randrange(256)))
            case 2:
                at = rng.randrange(304, 700)
                data[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, len(whole))))
        try:
            to_bytes(from_bytes(bytes(data)))
        except XclbinError:
            refused += 1
    assert refused > 1000


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(XclbinError, match="nowhere"):
        read_xclbin(tmp_path / "nowhere.xclbin")


def test_two_processes_that_write_one_file_leave_it_whole(tmp_path):
    script = """
import sys
from pathlib import Path
from headrace.bitstreams.xclbin import Mode, make_xclbin, read_xclbin, write_xclbin
path, content = Path(sys.argv[1]), sys.argv[2].encode() * 500_000
parts = {"memories": [], "ips": [], "connections": [], "metadata_xml": b"<project/>", "build_metadata": b"{}"}
mine = make_xclbin(mode=Mode.SW_EMU, platform="card", bitstream=content, **parts)
for _ in range(40):
    write_xclbin(path, mine)
    assert len(set(read_xclbin(path).bitstream)) == 1
"""
    command = [sys.executable, "-c", script, str(tmp_path / "x.xclbin")]
    both = [subprocess.Popen([*command, letter], stderr=subprocess.PIPE, text=True) for letter in "ab"]
    assert [process.communicate(timeout=60)[1] for process in both] == ["", ""]
    assert [path.name for path in tmp_path.iterdir()] == ["x.xclbin"]


def test_two_writers_in_one_process_each_write_their_own(tmp_path):
    """Each writer has its file open at the same time as the other."""
    path, both = tmp_path / "x", threading.Barrier(2)

    def write(text):
        with replacing(path) as partial, partial.open("w") as file:
            file.write(text)
            both.wait(10)
            file.write(text)
            file.flush()
            both.wait(10)
            assert partial.read_text() == 2 * text
        return path.read_text()

    with ThreadPoolExecutor(2) as threads:
        assert set(threads.map(write, ["a", "bb"])) <= {"aa", "bbbb"}
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_writer_that_fails_leaves_what_was_there(tmp_path):
    (tmp_path / "x").write_text("before")
    with pytest.raises(OSError, match="full"), replacing(tmp_path / "x") as partial:
        partial.write_text("half")
        raise OSError("full")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("x", "before")]
