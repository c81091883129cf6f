"""BUILD_METADATA: what XRT's xclbinutil reads, and ours beside it."""

import json
import shutil
import subprocess

import pytest

from headrace.bitstreams import build_metadata
from headrace.bitstreams.build import build_sw_emu, describe
from headrace.bitstreams.kernel import kernels_of
from headrace.bitstreams.platforms import platform, platforms
from headrace.bitstreams.xclbin import XclbinError, read_xclbin


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    path = tmp_path_factory.mktemp("metadata") / "dpu.xclbin"
    build_sw_emu(path, image_cus=2, mel_cus=1, norm_cus=1)
    return path


def test_the_vendors_schema_has_each_kernel_with_ports_arguments_and_instances(container):
    xclbin = read_xclbin(container)
    told = json.loads(xclbin.build_metadata)["build_metadata"]
    assert told["xclbin"]["generated_by"]["name"] == "headrace" and told["dsa"]["board_id"] == "u55c"
    (region,) = told["xclbin"]["user_regions"]
    for kernel, spec in zip(region["kernels"], kernels_of(xclbin), strict=True):
        assert kernel["name"] == spec.name
        assert [arg["name"] for arg in kernel["arguments"]] == [arg.name for arg in spec.args]
        assert [int(arg["offset"], 0) for arg in kernel["arguments"]] == [arg.offset for arg in spec.args]
        assert {port["name"]: int(port["data_width"]) for port in kernel["ports"]} == {
            port.name: port.data_width for port in spec.ports
        }
        assert {arg["port"] for arg in kernel["arguments"]} <= {port["name"] for port in kernel["ports"]}
        instances = [instance["name"] for instance in kernel["instances"]]
        assert instances == [ip.instance for ip in xclbin.ips if ip.kernel == spec.name]


def test_ours_is_beside_it(container):
    assert describe(read_xclbin(container))["build"]["kernels"] == {
        "image_cu": 2,
        "audio_mel_cu": 1,
        "audio_norm_cu": 1,
    }


def test_of_another_tools_container_the_vendors_part_is_told():
    section = json.dumps({"build_metadata": {"xclbin": {"generated_by": {"name": "v++"}}}}).encode()
    assert build_metadata.unpack(section) == {"xclbin": {"generated_by": {"name": "v++"}}}
    assert build_metadata.unpack(b"") == {}
    with pytest.raises(XclbinError, match="not an object of JSON objects"):
        build_metadata.unpack(b'{"build_metadata": 3}')


def test_xclbinutil_takes_the_container(container):
    """XRT's own; Debian's package has a wrapper of it and not the program."""
    tool = shutil.which("xclbinutil")
    if tool is None or b"XRT Build" not in subprocess.run([tool, "--version"], capture_output=True, timeout=60).stdout:
        pytest.skip("XRT's xclbinutil is not installed")
    done = subprocess.run([tool, "--info", "--input", container], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Kernels:                image_cu, audio_mel_cu, audio_norm_cu" in done.stdout
    for unit in ("image_cu_1", "image_cu_2", "audio_mel_cu_1", "audio_norm_cu_1"):
        assert f"Instance:        {unit}\n" in done.stdout


@pytest.mark.parametrize(
    ("card", "name"),
    [("u55c", ("gen3x16_xdma_base", "3", "0")), ("u250", ("gen3x16_xdma_shell", "4", "1"))],
)
def test_a_shells_name_is_told_from_its_version(card, name):
    assert platform(card).shell_name == name
    assert all(board.shell_name[0] for board in platforms().values())
