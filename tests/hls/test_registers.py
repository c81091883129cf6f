"""One definition of registers and status codes: kernel.xml and status.hpp; everything else agrees with them."""

import re

import pytest

from headrace.bitstreams.kernel import parse_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.host.dpu.units.cu import RESULT_WORDS
from headrace.host.dpu.units.status import Status

HLS = hls_folder()
of_every_cu = pytest.mark.parametrize("cu", sorted(path.parent.name for path in HLS.glob("*/kernel.xml")))


@of_every_cu
def test_the_pragmas_are_kernel_xmls_registers(cu):
    source = (HLS / cu / f"{cu}.cpp").read_text()
    (spec,) = parse_kernels((HLS / cu / "kernel.xml").read_bytes())
    lite = r"s_axilite port = (\w+) bundle = control offset = (0x[0-9A-F]+)"
    offsets = {name: int(offset, 16) for name, offset in re.findall(lite, source)}
    assert offsets == {arg.name: arg.offset for arg in spec.args}
    masters = dict(re.findall(r"m_axi port = (\w+) bundle = (\w+)", source))
    assert masters == {arg.name: arg.port.removeprefix("M_AXI_").lower() for arg in spec.args if arg.is_global}
    assert "#pragma HLS INTERFACE ap_ctrl_chain port = return" in source and spec.control_protocol == "ap_ctrl_chain"


@of_every_cu
def test_the_arguments_are_in_kernel_xmls_order(cu):
    source = (HLS / cu / f"{cu}.cpp").read_text()
    signature = re.search(rf'extern "C" void {cu}\((.*?)\)\s*{{', source, re.S).group(1)
    (spec,) = parse_kernels((HLS / cu / "kernel.xml").read_bytes())
    assert [part.split()[-1].lstrip("*") for part in signature.split(",")] == [arg.name for arg in spec.args]
    pointers = ["*" in part for part in signature.split(",")]
    assert pointers == [arg.type.endswith("*") for arg in spec.args]


@of_every_cu
def test_the_arguments_are_what_a_host_sets_and_registers_do_not_overlap(cu):
    """OpenCL demands a value for each argument, PYNQ a buffer for each pointer: no register that the unit
    writes is one."""
    (spec,) = parse_kernels((HLS / cu / "kernel.xml").read_bytes())
    assert all(arg.is_global == arg.type.endswith("*") for arg in spec.args)
    assert spec.outputs and next(iter(spec.outputs)) == "status"
    places = [(arg.offset, arg.size) for arg in spec.args]
    places += [(offset, 4) for offset in (*spec.outputs.values(), *spec.counters.values())]
    taken = [offset + byte for offset, size in places for byte in range(size)]
    assert len(set(taken)) == len(taken)


@of_every_cu
def test_the_counters_of_kernel_xml_are_those_of_the_rtl_in_their_order(cu):
    package = (HLS / cu / f"{cu}_pkg.sv").read_text()
    fields = re.search(r"struct packed \{([^}]*)\} counters_t;", package).group(1)
    names = re.findall(r"logic \[31:0\] (\w+);", fields)
    (spec,) = parse_kernels((HLS / cu / "kernel.xml").read_bytes())
    assert list(spec.counters.items()) == [(name, 0x140 + 4 * i) for i, name in enumerate(names)]


def test_the_status_codes_of_the_host_are_the_hardwares():
    header = (HLS / "include/headrace/status.hpp").read_text()
    codes = {name: int(value) for name, value in re.findall(r"STATUS_(\w+) = (\d+)", header)}
    assert codes == {status.name: status.value for status in Status}
    assert all(status.reason for status in Status)


def test_the_status_codes_of_the_rtl_are_the_hardwares():
    package = (HLS / "rtl/headrace_pkg.sv").read_text()
    codes = {name: int(value) for name, value in re.findall(r"Status(\w+)\s*= 8'd(\d+)", package)}
    assert codes == {status.name.title().replace("_", ""): status.value for status in Status}


@of_every_cu
def test_every_register_and_every_word_of_the_record_has_a_text(cu):
    (spec,) = parse_kernels((HLS / cu / "kernel.xml").read_bytes())
    offsets = {arg.offset for arg in spec.args} | {*spec.outputs.values(), *spec.counters.values()}
    assert spec.about.keys() == offsets and all(text.endswith(".") for text in spec.about.values())
    assert len(spec.record) == RESULT_WORDS and spec.record[0][0] == "status"
    outputs = [name for name, _ in spec.record if name in spec.outputs]
    assert set(outputs) == set(spec.outputs)  # a host that cannot read registers finds them in the record
