"""Faults to inject into the emulated device, so that what a driver does about them can be tested."""

import random
from dataclasses import dataclass, field
from enum import Enum


class FaultKind(Enum):
    HANG = "hang"  # the run never completes, and the CU takes no other
    ERROR = "error"  # the run ends in ERT_CMD_STATE_ERROR
    SYNC = "sync"  # a buffer transfer raises RuntimeError, as on EIO


@dataclass(slots=True)
class Fault:
    """Fires on its occasions (runs of `cu`, or of any CU if None; transfers for SYNC) after the first `after` ones,
    each time with `probability`, and at most `times` times."""

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
        """Whether the fault happens on this occasion. The caller holds the device's lock."""
        if kind is not self.kind or (self.cu is not None and cu != self.cu):
            return False
        self._seen += 1
        if self._seen <= self.after or self._fired >= self.times or self._random.random() >= self.probability:
            return False
        self._fired += 1
        return True
