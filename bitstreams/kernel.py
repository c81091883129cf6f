"""Read a kernel's arguments and ports from Vitis's `kernel.xml`."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.batching.errors import HeadraceError
from headrace.bitstreams.xclbin import Xclbin, XclbinError, check_content, read_xclbin

SCALAR, GLOBAL = 0, 1  # addressQualifier: a value in a register, or a pointer to device memory


class KernelError(HeadraceError):
    """The kernel.xml is not valid. The message says where."""


@dataclass(frozen=True, slots=True)
class KernelArg:
    """One argument of a kernel. It takes `size` bytes at byte `offset` of the control registers."""

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
    """An AXI port of `data_width` bits. A master is an AXI4 port to memory; the other one has the AXI4-Lite
    registers."""

    name: str
    is_master: bool
    data_width: int


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel with its arguments and ports.

    `outputs` and `counters` map names to offsets of registers. In these registers an RTL kernel reports how its last
    run ended, and what the run did. They are no arguments, so kernel.xml has them as processing instructions, which the
    vendor's tools skip: `<?headrace-output NAME OFFSET TEXT?>` and `<?headrace-counter NAME OFFSET TEXT?>`.

    `about` maps the offset of a register to a text that says what the register holds; an argument has its text in
    `<?headrace-argument NAME TEXT?>`. `record` has the name and the text of each word of the result record, from
    `<?headrace-record NAME TEXT?>`. A kernel may leave out all texts."""

    name: str
    control_protocol: str
    args: tuple[KernelArg, ...]
    ports: tuple[KernelPort, ...] = ()
    outputs: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    about: Mapping[int, str] = field(default_factory=dict)
    record: tuple[tuple[str, str], ...] = ()


def parse_kernels(xml: bytes) -> tuple[KernelSpec, ...]:
    """Return every kernel in a kernel.xml or in the EMBEDDED_METADATA of an xclbin. Raises KernelError."""
    try:
        return tuple(_kernel(element) for element in parse_xml(xml).iter("kernel"))
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        raise KernelError(f"the kernel description cannot be read: {type(error).__name__} {error}") from error


def read_checked(path: Path) -> Xclbin:
    """Read a container and check its content and metadata. XRT ends the process for some that are not valid.

    Raises XclbinError."""
    xclbin = read_xclbin(path)
    try:
        check_content(xclbin)
        kernels_of(xclbin)
    except XclbinError as error:
        raise XclbinError(f"{path}: {error}") from error
    return xclbin


def kernels_of(xclbin: Xclbin) -> tuple[KernelSpec, ...]:
    """Return the kernels that a container describes.

    Raises XclbinError if a unit or a connection belongs to no kernel, or the description cannot be read."""
    try:
        specs = parse_kernels(xclbin.metadata_xml)
    except KernelError as error:
        raise XclbinError(f"EMBEDDED_METADATA: {error}") from error
    arguments = {spec.name: {arg.index for arg in spec.args} for spec in specs}
    for ip in xclbin.ips:
        if ip.kernel not in arguments:
            raise XclbinError(f"the compute unit {ip.name} is of a kernel that EMBEDDED_METADATA does not describe")
    for connection in xclbin.connections:
        ip = xclbin.ips[connection.ip_index]
        if connection.arg_index not in arguments[ip.kernel]:
            raise XclbinError(
                f"CONNECTIVITY joins argument {connection.arg_index} of {ip.name}, which it does not have"
            )
    return specs


def parse_xml(xml: bytes) -> ElementTree.Element:
    """Return the root element, with processing instructions kept. Raises ElementTree.ParseError."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_pis=True))
    return ElementTree.fromstring(xml, parser)


def _kernel(element: ElementTree.Element) -> KernelSpec:
    args = []
    for child in element.iter("arg"):
        a = child.attrib
        if "hostSize" not in a:  # the bytes that the host passes
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
    offsets = {arg.name: arg.offset for arg in args}
    about: dict[int, str] = {}
    record: list[tuple[str, str]] = []
    for instruction in element.iter(ElementTree.ProcessingInstruction):
        target, *words = (instruction.text or "").split()
        if target in registers:
            name, offset, *rest = words
            registers[target][name] = int(offset, 0)
            about[int(offset, 0)] = " ".join(rest)
        elif target in ("headrace-argument", "headrace-record"):
            name, *rest = words
            if target == "headrace-argument":
                about[offsets[name]] = " ".join(rest)
            else:
                record.append((name, " ".join(rest)))
    name, protocol = element.attrib["name"], element.attrib["hwControlProtocol"]
    spec = KernelSpec(name, protocol, tuple(args), ports, *registers.values(), about, tuple(record))
    if [arg.index for arg in args] != list(range(len(args))):
        raise KernelError(f"kernel {spec.name}: argument ids must count up from 0")
    end = 0x10  # the control registers
    for arg in args:
        if arg.offset < end:
            raise KernelError(f"kernel {spec.name}: argument {arg.name} at 0x{arg.offset:x} overlaps what is before it")
        end = arg.offset + arg.size
    return spec
