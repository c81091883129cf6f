"""A clock that only the test moves, in place of the driver's. A time-out passes when the test says so."""

import asyncio
import threading
from collections import Counter

PATIENCE_S = 60.0  # of the machine's clock; only a test that fails waits for so long


class StoppedClock:
    """Stands in for the module `time`. It has no `sleep`, so code that pauses in real time fails."""

    def __init__(self) -> None:
        self.now = 0.0
        self._reads: Counter[int] = Counter()  # by thread

    def monotonic(self) -> float:
        self._reads[threading.get_ident()] += 1
        return self.now

    async def waited_for(self, threads: int) -> None:
        """Return when so many threads have set a deadline and have looked at the clock again since."""
        async with asyncio.timeout(PATIENCE_S):
            while sum(reads > 1 for reads in self._reads.copy().values()) < threads:
                await asyncio.sleep(0.001)


async def turns_until(*calls: "asyncio.Task[object]") -> list[int]:
    """Return after how many turns of the event loop each call ended, when all have."""
    turns, ended = 0, []
    for call in calls:
        call.add_done_callback(lambda _: ended.append(turns))
    async with asyncio.timeout(PATIENCE_S):
        while len(ended) < len(calls):
            await asyncio.sleep(0)
            turns += 1
    return ended
