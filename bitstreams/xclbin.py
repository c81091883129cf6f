"""Read and write `.xclbin` containers: the axlf format of XRT's `xclbin.h`, little-endian.

A container is a fixed header, a table of section headers and the sections, each at an 8-byte boundary. The reader
checks every count, offset and size against the file before it uses it.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from headrace.batching.errors import HeadraceError
from headrace.bitstreams.whole_file import replacing

MAGIC = b"xclbin2\0"
# struct axlf up to m_header: magic, m_signature_length, reserved, m_keyBlock, m_uniqueId
_PREAMBLE = struct.Struct("<8si28s256sQ")
# struct axlf_header: m_length, m_timeStamp, m_featureRomTimeStamp, m_versionPatch, m_versionMajor, m_versionMinor,
# m_mode, m_actionMask, m_interface_uuid, m_platformVBNV, uuid, m_debug_bin, m_numSections, padding
_HEADER = struct.Struct("<QQQHBBHH16s64s16s16sI4x")
_SECTION = struct.Struct("<I16s4xQQ")  # struct axlf_section_header: kind, name, padding, offset, size
_MEMORY = struct.Struct("<BB6xQQ16s")  # struct mem_data: type, used, padding, size in KiB, base address, tag
_IP = struct.Struct("<IIQ64s")  # struct ip_data: type, properties, base address, name
_CONNECTION = struct.Struct("<iii")  # struct connection: arg_index, m_ip_layout_index, mem_data_index
_COUNT = struct.Struct("<i")

NO_SIGNATURE = -1
MAX_SECTIONS = 64  # tools write far fewer
VERSION = (2, 18, 0)  # major, minor, patch of the tools with this format


class XclbinError(HeadraceError):
    """The file is not a valid container. The message says where."""


class Mode(IntEnum):
    """XCLBIN_MODE: the kind of device that the container is for."""

    FLAT = 0
    PR = 1
    TANDEM_STAGE2 = 2
    TANDEM_STAGE2_WITH_PR = 3
    HW_EMU = 4
    SW_EMU = 5
    HW_EMU_PR = 6


class SectionKind(IntEnum):
    """axlf_section_kind: the kinds that Headrace reads or writes. Other sections are kept as they are."""

    BITSTREAM = 0
    EMBEDDED_METADATA = 2
    MEM_TOPOLOGY = 6
    CONNECTIVITY = 7
    IP_LAYOUT = 8
    BUILD_METADATA = 14


class MemoryType(IntEnum):
    """MEM_TYPE: the types of Alveo cards."""

    DDR4 = 1
    HBM = 6


IP_KERNEL = 1
CONTROL_PROTOCOLS = ("ap_ctrl_hs", "ap_ctrl_chain", "ap_ctrl_none")  # index = IP_CONTROL bits of the properties
_CONTROL_SHIFT = 8
_INTERRUPT_ENABLE = 1


@dataclass(frozen=True, slots=True)
class MemoryBank:
    """A memory bank of `size_kb` KiB. `tag` is its name in `v++ --connectivity.sp`, such as HBM[3]."""

    type: int
    used: bool
    size_kb: int
    base_address: int
    tag: str


@dataclass(frozen=True, slots=True)
class IpInstance:
    """A compute unit. `name` is "kernel:instance", and `base_address` is that of its control registers."""

    name: str
    base_address: int
    control_protocol: str = "ap_ctrl_chain"

    @property
    def kernel(self) -> str:
        return self.name.partition(":")[0]

    @property
    def instance(self) -> str:
        return self.name.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Connection:
    """Argument number `arg_index` of instance number `ip_index` lies in bank number `memory_index`."""

    arg_index: int
    ip_index: int
    memory_index: int


@dataclass(frozen=True, slots=True)
class Xclbin:
    """The content of a container. `other_sections` holds the bytes of sections that Headrace does not interpret, by
    kind."""

    mode: Mode
    platform: str
    uuid: UUID
    bitstream: bytes
    metadata_xml: bytes
    build_metadata: bytes
    memories: tuple[MemoryBank, ...]
    ips: tuple[IpInstance, ...]
    connections: tuple[Connection, ...]
    other_sections: Mapping[int, bytes]


def make_xclbin(
    *,
    mode: Mode,
    platform: str,
    bitstream: bytes,
    metadata_xml: bytes,
    build_metadata: bytes,
    memories: Iterable[MemoryBank],
    ips: Iterable[IpInstance],
    connections: Iterable[Connection],
) -> Xclbin:
    """Return a container whose UUID comes from its content, so that equal content has an equal UUID."""
    layout = tuple(memories), tuple(ips), tuple(connections)
    return sealed(Xclbin(mode, platform, UUID(int=0), bitstream, metadata_xml, build_metadata, *layout, {}))


def sealed(xclbin: Xclbin) -> Xclbin:
    """Return the container with the UUID of its content."""
    digest = hashlib.sha256(f"{int(xclbin.mode)} {xclbin.platform}".encode())
    parts = (xclbin.bitstream, xclbin.metadata_xml, xclbin.build_metadata, _pack_memories(xclbin.memories))
    for part in (*parts, _pack_ips(xclbin.ips), _pack_connections(xclbin.connections)):
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return replace(xclbin, uuid=UUID(bytes=digest.digest()[:16], version=4))


def check_content(xclbin: Xclbin) -> None:
    """Raise XclbinError for a container of an emulated device whose content is not what its UUID was derived from.

    Its bitstream is code that would be run as it is. Containers for cards are checked by XRT, and have other UUIDs."""
    if xclbin.mode in (Mode.SW_EMU, Mode.HW_EMU) and sealed(xclbin).uuid != xclbin.uuid:
        raise XclbinError("it is damaged: its content is not that of its UUID; build it again")


def to_bytes(xclbin: Xclbin) -> bytes:
    """Return the bytes of the file. Raises XclbinError if a name is too long for its field."""
    sections = [
        (SectionKind.BITSTREAM, "bitstream", xclbin.bitstream),
        (SectionKind.MEM_TOPOLOGY, "mem_topology", _pack_memories(xclbin.memories)),
        (SectionKind.IP_LAYOUT, "ip_layout", _pack_ips(xclbin.ips)),
        (SectionKind.CONNECTIVITY, "connectivity", _pack_connections(xclbin.connections)),
        (SectionKind.EMBEDDED_METADATA, "embedded_metada", xclbin.metadata_xml),  # 15 characters and the zero
        (SectionKind.BUILD_METADATA, "build_metadata", xclbin.build_metadata),
        *((kind, "", data) for kind, data in xclbin.other_sections.items()),
    ]
    offset = _align(_PREAMBLE.size + _HEADER.size + len(sections) * _SECTION.size)
    table, body = b"", b""
    for kind, name, data in sections:
        table += _SECTION.pack(kind, _text(name, 16), offset + len(body), len(data))
        body += data + bytes(_align(len(data)) - len(data))
    preamble = _PREAMBLE.pack(MAGIC, NO_SIGNATURE, b"\xff" * 28, b"\xff" * 256, xclbin.uuid.int & (1 << 64) - 1)
    major, minor, patch = VERSION
    header = _HEADER.pack(
        offset + len(body),
        0,
        0,
        patch,
        major,
        minor,
        xclbin.mode,
        0,
        bytes(16),
        _text(xclbin.platform, 64),
        xclbin.uuid.bytes,
        bytes(16),
        len(sections),
    )
    head = preamble + header + table
    return head + bytes(offset - len(head)) + body


def write_xclbin(path: Path, xclbin: Xclbin) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_bytes(to_bytes(xclbin))


def read_xclbin(path: Path) -> Xclbin:
    """Read a container. Raises XclbinError, also if the file cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise XclbinError(f"{path}: {error.strerror}") from error
    try:
        return from_bytes(data)
    except XclbinError as error:
        raise XclbinError(f"{path}: {error}") from error


def from_bytes(data: bytes) -> Xclbin:
    """Read a container from its bytes. Raises XclbinError unless the container is valid."""
    if data[: len(MAGIC)] != MAGIC:
        raise XclbinError("this is not an xclbin: it does not begin with 'xclbin2'")
    head = _PREAMBLE.size + _HEADER.size
    if len(data) < head:
        raise XclbinError(f"the file ends in the header, after {len(data)} of {head} bytes")
    fields = _HEADER.unpack_from(data, _PREAMBLE.size)
    length, mode, platform, uuid, count = fields[0], fields[6], fields[9], fields[10], fields[12]
    if length != len(data):
        raise XclbinError(f"the header says {length} bytes and the file has {len(data)}; was it cut short?")
    if mode not in set(Mode):
        raise XclbinError(f"unknown mode {mode}")
    sections = _sections(data, head, count)

    def section(kind: SectionKind) -> bytes:
        if kind not in sections:
            raise XclbinError(f"there is no {kind.name} section")
        return sections[kind]

    known = set(SectionKind)
    xclbin = Xclbin(
        mode=Mode(mode),
        platform=_string(platform, "the platform name"),
        uuid=UUID(bytes=uuid),
        bitstream=section(SectionKind.BITSTREAM),
        metadata_xml=section(SectionKind.EMBEDDED_METADATA),
        build_metadata=sections.get(SectionKind.BUILD_METADATA, b""),
        memories=_unpack_memories(section(SectionKind.MEM_TOPOLOGY)),
        ips=_unpack_ips(section(SectionKind.IP_LAYOUT)),
        connections=_unpack_connections(section(SectionKind.CONNECTIVITY)),
        other_sections={kind: part for kind, part in sections.items() if kind not in known},
    )
    for connection in xclbin.connections:
        if not (0 <= connection.ip_index < len(xclbin.ips) and 0 <= connection.memory_index < len(xclbin.memories)):
            raise XclbinError(f"CONNECTIVITY joins what does not exist: {connection}")
    for memory in xclbin.memories:
        if memory.base_address + memory.size_kb * 1024 > 1 << 64:
            raise XclbinError(f"the bank {memory.tag} of {memory.size_kb} KB ends beyond what 64 bits address")
    return xclbin


def _sections(data: bytes, table: int, count: int) -> dict[int, bytes]:
    if count > MAX_SECTIONS or table + count * _SECTION.size > len(data):
        raise XclbinError(f"the header counts {count} sections, more than the file can hold")
    end = table + count * _SECTION.size
    sections: dict[int, bytes] = {}
    spans = []
    for number in range(count):
        kind, _, offset, size = _SECTION.unpack_from(data, table + number * _SECTION.size)
        if offset < end or offset + size > len(data):
            raise XclbinError(f"section {number} (kind {kind}) lies outside the file: {size} bytes at {offset}")
        if kind in sections:
            raise XclbinError(f"there are two sections of kind {kind}")
        sections[kind] = data[offset : offset + size]
        spans.append((offset, offset + size))
    spans.sort()
    for (_, stop), (start, _) in pairwise(spans):
        if start < stop:
            raise XclbinError(f"two sections overlap at byte {start}")
    return sections


def _align(size: int) -> int:
    return (size + 7) & ~7


def _text(text: str, size: int) -> bytes:
    raw = text.encode()
    if len(raw) >= size:
        raise XclbinError(f"the name {text!r} is longer than the {size - 1} bytes that the format has for it")
    return raw


def _string(raw: bytes, what: str) -> str:
    try:
        return raw.split(b"\0", 1)[0].decode()
    except UnicodeDecodeError as error:
        raise XclbinError(f"{what} is not text: {raw!r}") from error


def _items(section: bytes, item: struct.Struct, first: int, what: str) -> list[tuple[int | bytes, ...]]:
    if len(section) < _COUNT.size:
        raise XclbinError(f"the {what} section is empty")
    (count,) = _COUNT.unpack_from(section)
    if count < 0 or first + count * item.size > len(section):
        raise XclbinError(f"{what} counts {count} entries, more than its {len(section)} bytes can hold")
    return [item.unpack_from(section, first + number * item.size) for number in range(count)]


def _pack_memories(memories: Iterable[MemoryBank]) -> bytes:
    items = [_MEMORY.pack(m.type, m.used, m.size_kb, m.base_address, _text(m.tag, 16)) for m in memories]
    return _COUNT.pack(len(items)) + bytes(4) + b"".join(items)  # mem_data is 8-byte aligned


def _unpack_memories(section: bytes) -> tuple[MemoryBank, ...]:
    return tuple(
        MemoryBank(int(kind), bool(used), int(size), int(base), _string(bytes(tag), "a memory tag"))  # type: ignore[arg-type]
        for kind, used, size, base, tag in _items(section, _MEMORY, 8, "MEM_TOPOLOGY")
    )


def _pack_ips(ips: Iterable[IpInstance]) -> bytes:
    items = []
    for ip in ips:
        properties = CONTROL_PROTOCOLS.index(ip.control_protocol) << _CONTROL_SHIFT | _INTERRUPT_ENABLE
        items.append(_IP.pack(IP_KERNEL, properties, ip.base_address, _text(ip.name, 64)))
    return _COUNT.pack(len(items)) + bytes(4) + b"".join(items)  # ip_data is 8-byte aligned


def _unpack_ips(section: bytes) -> tuple[IpInstance, ...]:
    ips = []
    for kind, properties, base, name in _items(section, _IP, 8, "IP_LAYOUT"):
        protocol = int(properties) >> _CONTROL_SHIFT & 0xFF
        if kind != IP_KERNEL or protocol >= len(CONTROL_PROTOCOLS):
            raise XclbinError(f"IP_LAYOUT has an entry of type {kind!r}, control {protocol}; only kernels are known")
        ips.append(IpInstance(_string(bytes(name), "an IP name"), int(base), CONTROL_PROTOCOLS[protocol]))  # type: ignore[arg-type]
    return tuple(ips)


def _pack_connections(connections: Iterable[Connection]) -> bytes:
    items = [_CONNECTION.pack(c.arg_index, c.ip_index, c.memory_index) for c in connections]
    return _COUNT.pack(len(items)) + b"".join(items)


def _unpack_connections(section: bytes) -> tuple[Connection, ...]:
    return tuple(Connection(*map(int, item)) for item in _items(section, _CONNECTION, 4, "CONNECTIVITY"))
