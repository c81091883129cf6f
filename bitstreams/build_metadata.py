"""Write and read BUILD_METADATA, the section of a container that says how it was built.

The section is JSON. `build_metadata` holds the vendor's schema, which XRT's `xclbinutil --info` reads: the platform,
and `xclbin` with the tool and the kernels with their ports, arguments and instances. `headrace` holds this project's
own data, which the vendor's tools ignore. A container from `v++` has the former alone.
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
    """Return the section.

    Args:
        ours: This project's data, any JSON object. Its "headrace" (the version) and "target" also go to the vendor's
            part.
        metadata_xml: EMBEDDED_METADATA of the container.
        board: The card.

    Raises:
        KernelError: The kernel description lacks an attribute.
    """
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
    """Return the data that `pack` got, or the vendor's part if the container is from another tool. Raises
    XclbinError."""
    try:
        content = json.loads(section or b"{}")
    except ValueError as error:  # UnicodeDecodeError is one
        raise XclbinError(f"BUILD_METADATA is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise XclbinError("BUILD_METADATA is not a JSON object")
    metadata = content.get(OURS, content.get("build_metadata", content))
    if not isinstance(metadata, dict):
        raise XclbinError("BUILD_METADATA is not an object of JSON objects")
    return metadata


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
