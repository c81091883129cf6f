"""Faults that a test injects into the emulated device, to see how a driver handles them."""

import random
from dataclasses import dataclass, field
from enum import Enum


class FaultKind(Enum):
    """Name the kinds of fault."""

    HANG = "hang"  # the run never completes, and the CU executes no other run
    ERROR = "error"  # the run ends in ERT_CMD_STATE_ERROR
    SYNC = "sync"  # a buffer transfer raises RuntimeError, as pyxrt does on EIO


@dataclass(slots=True)
class Fault:
    """Describe one fault and count its occasions.

    An occasion is a run of `cu`, or a run of any CU if `cu` is None; for SYNC it is a buffer transfer. The first
    `after` occasions pass. The fault then happens on each occasion with `probability`, at most `times` times.

    Example: `Fault(FaultKind.HANG, after=2)` makes the third run hang."""

    kind: FaultKind
    cu: str | None = None
    after: int = 0
    times: int = 1
    probability: float = 1.0
    seed: int = 0
    _seen: int = field(default=0, init=False)
    _fired: int = field(default=0, init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def fires(self, kind: FaultKind, cu: str | None = None) -> bool:
        """Count one occasion and return whether the fault happens on it. The caller holds the lock of the device."""
        if kind is not self.kind or (self.cu is not None and cu != self.cu):
            return False
        self._seen += 1
        if self._seen <= self.after or self._fired >= self.times or self._random.random() >= self.probability:
            return False
        self._fired += 1
        return True
