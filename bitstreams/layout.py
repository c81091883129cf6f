"""Place compute units as a link does: control registers at 64 KiB steps, and a memory bank for each memory argument.

With HBM, each memory port of each unit has a bank of its own, in order, as with `v++ --connectivity.sp` for all
arguments of the port. DDR has few banks, each of which takes many ports, so the ports of a unit share one. After the
last bank, units share banks from the first on. An argument of HANDED_OVER is written by one unit and read by any other.
So it lies in one bank that all of them reach, together with the other arguments of these ports.
"""

from collections.abc import Mapping, Sequence

from headrace.bitstreams.errors import WrongNumber
from headrace.bitstreams.kernel import KernelSpec
from headrace.bitstreams.platforms import Platform
from headrace.bitstreams.xclbin import Connection, IpInstance

CU_BASE, CU_STEP = 0x80_0000, 0x1_0000
MAX_CUS = 16
HANDED_OVER = frozenset({"mel"})  # memory arguments that one kernel writes and another one reads


def instances(specs: Sequence[KernelSpec], cus: Mapping[str, int]) -> list[IpInstance]:
    """Return the units with their names and base addresses. Raises WrongNumber."""
    total = sum(cus.values())
    if any(count < 1 for count in cus.values()) or not 1 <= total <= MAX_CUS:
        raise WrongNumber(f"{total} compute units asked for; a container holds 1 to {MAX_CUS}")
    names = [(spec, number) for spec in specs for number in range(1, cus[spec.name] + 1)]
    return [
        IpInstance(f"{spec.name}:{spec.name}_{number}", CU_BASE + index * CU_STEP, spec.control_protocol)
        for index, (spec, number) in enumerate(names)
    ]


def connections(specs: Sequence[KernelSpec], ips: Sequence[IpInstance], card: Platform) -> list[Connection]:
    """Return the bank of each memory argument. Raises WrongNumber if the memory has fewer ports than the units."""
    by_name = {spec.name: spec for spec in specs}
    ports = sum(len({arg.port for arg in by_name[ip.kernel].args if arg.is_global}) for ip in ips)
    if ports > card.ports:
        raise WrongNumber(
            f"{len(ips)} compute units have {ports} memory ports, and the {card.banks} banks of {card.name} take "
            f"{card.ports}; ask for fewer units"
        )
    banks: dict[str | tuple[int, str], int] = {}  # by argument for HANDED_OVER, else by unit and port
    joined = []
    for index, ip in enumerate(ips):
        pointers = [arg for arg in by_name[ip.kernel].args if arg.is_global]
        handed_over = {arg.port: arg.name for arg in pointers if arg.name in HANDED_OVER}
        for arg in pointers:
            own = (index, arg.port if card.memory == "HBM" else "")
            bank = banks.setdefault(handed_over.get(arg.port, own), len(banks) % card.banks)
            joined.append(Connection(arg.index, index, bank))
    return joined
