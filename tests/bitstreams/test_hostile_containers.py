"""Containers with a valid layout and invalid content: the reader raises XclbinError, and the device XRT's errors."""

import random
import sys
from dataclasses import replace

import pytest

from headrace.bitstreams.build import describe
from headrace.bitstreams.kernel import read_checked
from headrace.bitstreams.xclbin import Mode, XclbinError, read_xclbin, sealed, write_xclbin
from headrace.host import xrt
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.specs import ImageSpec
from headrace.host.xrt import emulation

HOSTILE = {
    "banks of 2^70 bytes": (
        lambda x: {"memories": tuple(replace(m, size_kb=1 << 60) for m in x.memories)},
        "beyond what 64 bits",
    ),
    "a bank at the end of all addresses": (
        lambda x: {"memories": (replace(x.memories[0], base_address=2**64 - 4096), *x.memories[1:])},
        "64 bits",
    ),
    "a unit without a kernel": (
        lambda x: {"ips": (*x.ips, replace(x.ips[0], name="ghost:ghost_1"))},
        "ghost_1 is of a kernel that",
    ),
    "kernels that are not described": (lambda x: {"metadata_xml": b"<project/>"}, "vadd_1 is of a kernel that"),
    "a description that breaks off": (lambda x: {"metadata_xml": b"<project"}, "cannot be read: ParseError"),
    "an argument without its size on the host": (
        lambda x: {"metadata_xml": x.metadata_xml.replace(b' hostSize="0x8"', b"", 1)},
        "argument a has no hostSize",
    ),
    "an argument that there is not": (
        lambda x: {"connections": (replace(x.connections[0], arg_index=77), *x.connections[1:])},
        "argument 77 of",
    ),
    "a unit that there is not": (
        lambda x: {"connections": (replace(x.connections[0], ip_index=77), *x.connections[1:])},
        "does not exist",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_container_that_contradicts_itself_is_refused(vadd_xclbin, tmp_path, name):
    change, message = HOSTILE[name]
    sound = read_xclbin(vadd_xclbin)
    describe(sound)
    path = tmp_path / "hostile.xclbin"
    write_xclbin(path, sealed(replace(sound, **change(sound))))
    with pytest.raises(XclbinError, match=message):
        describe(read_xclbin(path))
    with pytest.raises(RuntimeError, match=message):
        emulation.device(0).load_xclbin(str(path))


@pytest.mark.parametrize("mode", [Mode.SW_EMU, Mode.PR])
@pytest.mark.parametrize("name", HOSTILE)
def test_the_real_xrt_is_not_asked_to_open_it(vadd_xclbin, tmp_path, name, mode, monkeypatch):
    monkeypatch.setenv("XCL_EMULATION_MODE", "sw_emu")
    monkeypatch.setitem(sys.modules, "pyxrt", None)  # whoever imports it is told that there is none
    change, message = HOSTILE[name]
    sound = read_xclbin(vadd_xclbin)
    path = tmp_path / "hostile.xclbin"
    write_xclbin(path, sealed(replace(sound, mode=mode, **change(sound))))
    for act in (lambda: xrt.api_for(path, xrt.Api.REAL), lambda: Dpu(path, ImageSpec(), api=xrt.Api.REAL)):
        with pytest.raises(XclbinError, match=rf"hostile\.xclbin: .*{message}"):
            act()
    write_xclbin(path, replace(sound, mode=mode))
    with pytest.raises(xrt.NoDevice, match="cannot be imported"):
        xrt.api_for(path, xrt.Api.REAL)


@pytest.mark.parametrize("build", [b"{nonsense", b"[1]", b"\xff\xfe", b"null"])
def test_bad_build_metadata_are_told_and_do_not_keep_the_device_from_it(vadd_xclbin, tmp_path, build):
    path = tmp_path / "hostile.xclbin"
    write_xclbin(path, sealed(replace(read_xclbin(vadd_xclbin), build_metadata=build)))
    with pytest.raises(XclbinError, match="BUILD_METADATA is not"):
        describe(read_xclbin(path))
    emulation.device(0).load_xclbin(str(path))


def test_a_flipped_bit_in_a_container_is_found_before_its_code_runs(vadd_xclbin, tmp_path):
    """The bit may be anywhere, except in bytes that are not read: padding, signatures and times."""
    whole = vadd_xclbin.read_bytes()
    sound = read_xclbin(vadd_xclbin)
    chance = random.Random(3)
    path = tmp_path / "flipped.xclbin"
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            found = read_checked(path)
        except XclbinError:
            refused += 1
            with pytest.raises(RuntimeError, match="failed to load xclbin"):
                emulation.xclbin(str(path))
        else:
            assert found == sound
    assert refused > 250
