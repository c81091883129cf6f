"""BUILD_METADATA of a container: how it came about, as XRT's `xclbinutil --info` reads it, and what this project says.

The section is JSON. Under `build_metadata` stands the vendor's schema: the platform, and `xclbin` with the tool, the
kernels with their ports, arguments and instances. Ours is beside it, under `headrace`, where the vendor's tools do not
look. What `v++` writes has the former alone.
"""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

from headrace.bitstreams.kernel import KernelError, parse_xml
from headrace.bitstreams.platforms import Platform
from headrace.bitstreams.xclbin import XclbinError

SCHEMA = {"major": "1", "minor": "0", "patch": "0"}
OURS = "headrace"


def pack(ours: Mapping[str, Any], metadata_xml: bytes, board: Platform) -> bytes:
    """`ours` says what it likes, of which "headrace", the version, and "target" are told to the vendor's tools, too;
    `metadata_xml` is the container's EMBEDDED_METADATA. Raises KernelError."""
    try:
        kernels = [_kernel(element) for element in parse_xml(metadata_xml).iter("kernel")]
    except KeyError as error:
        raise KernelError(
            f"the kernel description lacks the attribute {error}, which the vendor's tools want"
        ) from error
    name, major, minor = board.shell_name
    platform = {
        "vendor": "xilinx",
        "board_id": board.name,
        "name": name,
        "version_major": major,
        "version_minor": minor,
        "board": {"name": f"xilinx.com:{board.name}", "vendor": "xilinx.com", "part": board.part},
    }
    tool = {"name": "headrace", "version": str(ours["headrace"]), "options": f"build --target {ours['target']}"}
    region = {"name": "OCL_REGION_0", "type": "clc_region", "kernels": kernels}
    return json.dumps(
        {
            "schema_version": SCHEMA,
            "build_metadata": {
                "schema_version": SCHEMA,
                "dsa": platform,
                "xclbin": {"generated_by": tool, "user_regions": [region]},
            },
            OURS: ours,
        },
        indent=2,
    ).encode()


def unpack(section: bytes) -> dict[str, Any]:
    """What `pack` was given or, of a container that is not ours, what the vendor's tool says of the build. Raises
    XclbinError."""
    try:
        found = json.loads(section or b"{}")
    except ValueError as error:  # UnicodeDecodeError is one
        raise XclbinError(f"BUILD_METADATA is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise XclbinError("BUILD_METADATA is not a JSON object")
    said = found.get(OURS, found.get("build_metadata", found))
    if not isinstance(said, dict):
        raise XclbinError("BUILD_METADATA is not an object of JSON objects")
    return said


def _kernel(element: ElementTree.Element) -> dict[str, Any]:
    ports = [
        {
            "name": port["name"],
            "mode": port["mode"],
            "range": port["range"],
            "data_width": port["dataWidth"],
            "port_type": port["portType"],
            "base": port["base"],
        }
        for port in (child.attrib for child in element.iter("port"))
    ]
    arguments = [
        {
            "name": arg["name"],
            "id": arg["id"],
            "address_qualifier": arg["addressQualifier"],
            "port": arg["port"],
            "size": arg["size"],
            "offset": arg["offset"],
            "host_offset": arg["hostOffset"],
            "host_size": arg["hostSize"],
            "type": arg["type"],
        }
        for arg in (child.attrib for child in element.iter("arg"))
    ]
    instances = [{"name": instance.attrib["name"]} for instance in element.iter("instance")]
    return {"name": element.attrib["name"], "ports": ports, "arguments": arguments, "instances": instances}
