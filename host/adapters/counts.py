"""Counts of what an adapter did where."""

import threading
from collections.abc import Iterable
from typing import Final

from headrace.host.adapters.device import CPU

DPU: Final = "dpu"
LIBRARY: Final = "library"

Place = tuple[str, str | None]  # where tensors were made, and the reason why no earlier place made them


class Counts:
    """Images or sounds by the place that made their tensors, and the last reasons. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {DPU: 0, CPU: 0, LIBRARY: 0}
        self._reasons: dict[str, str] = {}

    def add(self, places: Iterable[Place]) -> None:
        """Count one input for each place."""
        with self._lock:
            for place, reason in places:
                self._counts[place] += 1
                if reason is not None:
                    self._reasons[place] = reason

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers for "dpu", "cpu" and "library"."""
        with self._lock:
            return dict(self._counts)

    @property
    def reasons(self) -> dict[str, str]:
        """Return the last reason by place, for "cpu" in place of the DPU and for "library" in place of both."""
        with self._lock:
            return dict(self._reasons)
