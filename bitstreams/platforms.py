"""The cards for which containers are made, from platforms.toml: part, shell, dies (SLRs) and banks of memory."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headrace.batching.errors import UsageError
from headrace.bitstreams.xclbin import MemoryBank, MemoryType

DEFAULT = "u55c"


@dataclass(frozen=True, slots=True)
class Platform:
    """One card.

    Args:
        platform: Name for `v++ --platform`.
        shell: Name in the header of an xclbin.
        part: The FPGA.
        vitis: First release of Vitis with this platform.
        slrs: Number of dies.
        memory: HBM or DDR.
        bank_mib: Size of a bank, in MiB.
        base, step: Address of the first bank, and the distance to the next, in bytes.
        bank_slr: Die of each bank, or one die for all banks.
        ports: AXI masters that the memory takes, for all compute units together.
    """

    name: str
    platform: str
    shell: str
    part: str
    vitis: str
    slrs: int
    memory: str
    banks: int
    bank_mib: int
    base: int
    step: int
    bank_slr: tuple[int, ...]
    ports: int

    @property
    def shell_name(self) -> tuple[str, str, str]:
        """The name of the shell, and the first and second number of its version."""
        match = re.fullmatch(rf"xilinx_{self.name}_(.+?)_(\d+)(?:_(\d+))?", self.shell)
        assert match is not None, self.shell
        return match[1], match[2], match[3] or "0"

    def tag(self, bank: int) -> str:
        return f"{self.memory}[{bank}]"

    def slr_of(self, bank: int) -> int:
        return self.bank_slr[bank % len(self.bank_slr)]

    def memories(self, used: set[int]) -> list[MemoryBank]:
        """Return the banks as MEM_TOPOLOGY lists them. `used` are the numbers of the banks in use."""
        kind = MemoryType.HBM if self.memory == "HBM" else MemoryType.DDR4
        return [
            MemoryBank(kind, bank in used, self.bank_mib * 1024, self.base + bank * self.step, self.tag(bank))
            for bank in range(self.banks)
        ]


@cache
def platforms() -> dict[str, Platform]:
    table = tomllib.loads((Path(__file__).parent / "platforms.toml").read_text())
    return {name: Platform(name=name, **{**row, "bank_slr": tuple(row["bank_slr"])}) for name, row in table.items()}


def platform(name: str) -> Platform:
    """Return the card of that name. Raises UsageError."""
    if name not in platforms():
        raise UsageError(f"--platform {name}: unknown; choose one of {', '.join(platforms())}")
    return platforms()[name]
