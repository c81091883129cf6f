"""The clock of the memory of `patches` and nothing else, on an ECP5: no unit with such a memory is faster.

    .venv/bin/python -m benchmarks.patch_memory [--json [FILE]]

The memory holds a row of squares of the widest image, and takes 192 of the device's 208 block RAMs. So its addresses go
over the whole device. The ways:

- Three parts of 64 bits, as `patches` has them. A part is as wide as an UltraRAM of a card.
- Twelve parts of 16 bits. On a card this takes four times as many UltraRAMs.
"""

import argparse
from pathlib import Path

from benchmarks.harness import Report, arguments, main, table
from benchmarks.routed_alone import routed_alone
from headrace.bitstreams.resources.routes import SEEDS

FOLDER = Path(__file__).parent / "patch_memories"
# Of a module: the bits of a part, and UltraRAMs of 4,096 words of 72 bits on a card.
WAYS = {"patch_memory": (64, 12), "patch_memory_12": (16, 48)}


def run(_: argparse.Namespace) -> Report:
    found = routed_alone(FOLDER, WAYS)
    memories = [
        {"module": name, "part_bits": bits, "ultra_rams": ultra_rams, **found[name]}
        for name, (bits, ultra_rams) in WAYS.items()
    ]
    rows = (
        f"{memory['part_bits']} | {memory['mhz']:.0f} | {', '.join(f'{mhz:.0f}' for mhz in memory['mhz_of_seeds'])}"
        f" | {memory['cells']['bram18']} | {memory['ultra_rams']}"
        for memory in memories
    )
    head = "bits of a part | MHz | of seeds | RAM of 18 kbit | UltraRAMs of a card"
    return Report({"seeds": list(SEEDS), "memories": memories}, table(head, rows))


if __name__ == "__main__":
    main(arguments(__doc__), run)
