"""An event loop that tells how long one of its turns has kept the processor: so long nobody else is served."""

import asyncio
import time


class TimedLoop(asyncio.SelectorEventLoop):
    """`longest_s` is the CPU time of the longest turn since it was last set to 0. Other processes do not change it."""

    longest_s = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()
        self.longest_s = max(self.longest_s, time.thread_time() - began)
