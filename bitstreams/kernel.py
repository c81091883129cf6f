"""A kernel's arguments and ports, read from Vitis's `kernel.xml`."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.batching.errors import HeadraceError
from headrace.bitstreams.xclbin import Xclbin, XclbinError, check_content, read_xclbin

SCALAR, GLOBAL = 0, 1  # addressQualifier: a register of its own, or a pointer to device memory


class KernelError(HeadraceError):
    """The kernel.xml is not sound; the message says where."""


@dataclass(frozen=True, slots=True)
class KernelArg:
    """`offset` and `size` in bytes: where the argument lies among the control registers."""

    index: int
    name: str
    port: str
    offset: int
    size: int
    type: str
    address_qualifier: int

    @property
    def is_global(self) -> bool:
        return self.address_qualifier == GLOBAL


@dataclass(frozen=True, slots=True)
class KernelPort:
    """An AXI port; `data_width` in bits. `is_master`: AXI4 to memory, else the AXI4-Lite registers."""

    name: str
    is_master: bool
    data_width: int


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """`outputs` and `counters`: name to offset of registers in which an RTL kernel tells how its last run ended, and
    what it did. They are no arguments, so kernel.xml has them as processing instructions, `<?headrace-output NAME
    OFFSET?>` and `<?headrace-counter NAME OFFSET?>`, which the vendor's tools skip."""

    name: str
    control_protocol: str
    args: tuple[KernelArg, ...]
    ports: tuple[KernelPort, ...] = ()
    outputs: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)


def parse_kernels(xml: bytes) -> tuple[KernelSpec, ...]:
    """Every kernel in a kernel.xml or in an xclbin's EMBEDDED_METADATA. Raises KernelError."""
    try:
        return tuple(_kernel(element) for element in parse_xml(xml).iter("kernel"))
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        raise KernelError(f"the kernel description cannot be read: {type(error).__name__} {error}") from error


def read_checked(path: Path) -> Xclbin:
    """Read a container and check its content and metadata, because XRT ends the process over some that are not sound.

    Raises XclbinError."""
    xclbin = read_xclbin(path)
    try:
        check_content(xclbin)
        kernels_of(xclbin)
    except XclbinError as error:
        raise XclbinError(f"{path}: {error}") from error
    return xclbin


def kernels_of(xclbin: Xclbin) -> tuple[KernelSpec, ...]:
    """The kernels of a container's compute units, and others that it describes. Raises XclbinError for units and
    connections that no kernel has, and for a description that cannot be read."""
    try:
        found = parse_kernels(xclbin.metadata_xml)
    except KernelError as error:
        raise XclbinError(f"EMBEDDED_METADATA: {error}") from error
    arguments = {spec.name: {arg.index for arg in spec.args} for spec in found}
    for ip in xclbin.ips:
        if ip.kernel not in arguments:
            raise XclbinError(f"the compute unit {ip.name} is of a kernel that EMBEDDED_METADATA does not describe")
    for connection in xclbin.connections:
        ip = xclbin.ips[connection.ip_index]
        if connection.arg_index not in arguments[ip.kernel]:
            raise XclbinError(
                f"CONNECTIVITY joins argument {connection.arg_index} of {ip.name}, which it does not have"
            )
    return found


def parse_xml(xml: bytes) -> ElementTree.Element:
    """The root element, with processing instructions kept. Raises ElementTree.ParseError."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_pis=True))
    return ElementTree.fromstring(xml, parser)


def _kernel(element: ElementTree.Element) -> KernelSpec:
    args = []
    for child in element.iter("arg"):
        a = child.attrib
        if "hostSize" not in a:  # the bytes that a host gives
            raise KernelError(
                f"kernel {element.attrib['name']}: argument {a['name']} has no hostSize, without which XRT opens no "
                'kernel; give hostSize="0x8" to a pointer and "0x4" to a 32-bit number'
            )
        index, qualifier = int(a["id"]), int(a["addressQualifier"])
        args.append(
            KernelArg(index, a["name"], a["port"], int(a["offset"], 0), int(a["size"], 0), a["type"], qualifier)
        )
    ports = tuple(
        KernelPort(port.attrib["name"], port.attrib["mode"] == "master", int(port.attrib["dataWidth"], 0))
        for port in element.iter("port")
    )
    registers: dict[str, dict[str, int]] = {"headrace-output": {}, "headrace-counter": {}}
    for instruction in element.iter(ElementTree.ProcessingInstruction):
        target, *words = (instruction.text or "").split()
        if target in registers:
            name, offset = words
            registers[target][name] = int(offset, 0)
    name, protocol = element.attrib["name"], element.attrib["hwControlProtocol"]
    spec = KernelSpec(name, protocol, tuple(args), ports, *registers.values())
    if [arg.index for arg in args] != list(range(len(args))):
        raise KernelError(f"kernel {spec.name}: argument ids must count up from 0")
    end = 0x10  # the control registers
    for arg in args:
        if arg.offset < end:
            raise KernelError(f"kernel {spec.name}: argument {arg.name} at 0x{arg.offset:x} overlaps what is before it")
        end = arg.offset + arg.size
    return spec
