"""A JPEG file through an image CU with PYNQ, on a card or, after `headrace xrt-env`, on the emulated one (hw_emu).

    python preprocess_pynq.py FILE.xclbin PHOTO.jpg OUT.bin

OUT.bin has 3 x 224 x 224 little-endian float32: resized to 256 on the shorter side, cut to the middle, x / 255.
"""

import sys
from pathlib import Path

import numpy as np
import pynq

SIDE, NORMALIZE, FLOAT32, CENTRED, UNTOUCHED = 224, 3, 0, 0xFFFFFFFF, 0xFFFFFFFF


def main(container: str, image: str, output: str) -> int:
    try:
        jpeg = np.fromfile(image, np.uint8)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    overlay = pynq.Overlay(container)
    unit = getattr(overlay, next(name for name in overlay.ip_dict if name.startswith("image_cu")))

    def buffer(argument: str, size: int, dtype: str = "u1") -> pynq.buffer.PynqBuffer:
        """In the memory that the argument is joined to."""
        bank = overlay.device.get_memory_by_name(unit.args[argument].mem)
        return pynq.allocate((-(-size // 4096) * 4096 // np.dtype(dtype).itemsize,), dtype, target=bank)

    given, tensor = buffer("jpeg", jpeg.size), buffer("tensor", 3 * SIDE * SIDE * 4, "f4")
    tables, result = buffer("tables", 3 * 256 * 4, "f4"), buffer("result", 32, "u4")
    workspace = buffer("workspace", 6 << 20)
    given[: jpeg.size] = jpeg
    tables[:768] = np.tile(np.arange(256, dtype="f4") / np.float32(255), 3)
    result[:] = UNTOUCHED
    for sent in (given, tables, result):
        sent.sync_to_device()
    unit.call(
        given,
        jpeg.size,
        tensor,
        tensor.nbytes,
        tables,
        result,
        NORMALIZE,
        FLOAT32,
        256,
        SIDE,
        SIDE,
        CENTRED,
        CENTRED,
        workspace,
        workspace.nbytes,
        tables,
        0,
        0,
        0,  # no ring
        tables,
        0,  # no program
    )
    result.sync_from_device()
    tensor.sync_from_device()
    if result[0] != 0:
        print(f"{image}: status {result[0]}, see docs/reference/registers.md", file=sys.stderr)
        return 1
    Path(output).write_bytes(tensor[: 3 * SIDE * SIDE].tobytes())
    print(f"{result[3]}x{result[4]} to {result[1]}x{result[2]}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
