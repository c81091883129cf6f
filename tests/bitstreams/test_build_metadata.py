"""BUILD_METADATA has the part that XRT's xclbinutil reads, and our own part."""

import json
import shutil
import subprocess

import containers
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


@pytest.fixture(scope="module")
def xclbinutil():
    """Return xclbinutil(*arguments), XRT's own program. Debian's package has only a wrapper of it."""
    tool = shutil.which("xclbinutil")
    if tool is None or b"XRT Build" not in subprocess.run([tool, "--version"], capture_output=True, timeout=60).stdout:
        pytest.skip("XRT's xclbinutil is not installed")

    def run(*arguments):
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def hw_container(tmp_path_factory):
    path = tmp_path_factory.mktemp("metadata") / "dpu_hw.xclbin"
    containers.hw_emu(path, image_cus=2, mel_cus=1, norm_cus=1)
    return path


@pytest.mark.timeout(900)  # Verilator, for one of them
@pytest.mark.parametrize("which", ["container", "hw_container", "vadd_xclbin", "vadd_hw_xclbin"])
def test_xclbinutil_takes_a_container_and_gives_its_sections(xclbinutil, which, request, tmp_path):
    path = request.getfixturevalue(which)
    xclbin = read_xclbin(path)
    told = xclbinutil("--info", "--input", path)
    kernels = ", ".join(spec.name for spec in kernels_of(xclbin))
    assert f"Kernels:                {kernels}\n" in told
    assert all(f"Instance:        {ip.instance}\n" in told for ip in xclbin.ips)
    for section, content in (("EMBEDDED_METADATA", xclbin.metadata_xml), ("BITSTREAM", xclbin.bitstream)):
        xclbinutil("--input", path, "--dump-section", f"{section}:RAW:{tmp_path / section}")
        assert (tmp_path / section).read_bytes() == content

    def dumped(section):
        file = tmp_path / f"{section}.json"
        xclbinutil("--input", path, "--dump-section", f"{section}:JSON:{file}")
        return json.loads(file.read_text())[section.lower()]

    assert [bank["m_tag"] for bank in dumped("MEM_TOPOLOGY")["m_mem_data"]] == [bank.tag for bank in xclbin.memories]
    names = [f"{ip.kernel}:{ip.instance}" for ip in xclbin.ips]
    assert [ip["m_name"] for ip in dumped("IP_LAYOUT")["m_ip_data"]] == names
    assert len(dumped("CONNECTIVITY")["m_connection"]) == len(xclbin.connections)
    assert dumped("BUILD_METADATA")["xclbin"]["user_regions"][0]["kernels"]


@pytest.mark.parametrize(
    ("card", "name"),
    [("u55c", ("gen3x16_xdma_base", "3", "0")), ("u250", ("gen3x16_xdma_shell", "4", "1"))],
)
def test_a_shells_name_is_told_from_its_version(card, name):
    assert platform(card).shell_name == name
    assert all(board.shell_name[0] for board in platforms().values())
