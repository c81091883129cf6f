"""One CU on an XRT device: its buffers, its runs and the record that it writes. Kinds of CUs are subclasses.

The code uses only what the real `pyxrt` has. Its `wait` keeps the interpreter lock, so the host waits for runs in short
slices. It cannot read registers, so a CU writes its `result` record to memory. Its scalars are C ints, so -1 stands for
0xFFFFFFFF.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

RESULT_WORDS = 8  # 32 bits each; the first word is the status
WAIT_SLICE_MS = 1


class CuLost(Exception):
    """A CU hung or failed; the request itself may be fine."""


class Stopwatch:
    """The time that counts towards a run's limit.

    On a card it is wall time. A unit of an emulated device is a thread of this machine, and the time in which that
    thread waits for a core does not count: `waited_s` returns it, as a sum since the thread began."""

    def __init__(self, waited_s: Callable[[], float]) -> None:
        self._waited_s = waited_s
        self._began = time.monotonic(), waited_s()

    def exceeds(self, limit_s: float) -> bool:
        """Return whether more than `limit_s` seconds have passed that count."""
        began, waited_s = self._began
        passed_s = time.monotonic() - began
        return passed_s > limit_s and passed_s - (self._waited_s() - waited_s) > limit_s


class Cu:
    """One CU, for one thread at a time. `counters` are the clocks of its last run, from devices that count them."""

    kernel_name: ClassVar[str]
    result_argument: ClassVar[int]
    records: ClassVar[int] = 1  # number of records in `result`

    def __init__(self, api: ModuleType, device: Any, context: Any, name: str, closing: threading.Event) -> None:
        """Open the CU. The driver sets `closing` when it gives up waiting."""
        self.name = name
        self.counters: Mapping[str, int] | None = None
        self._closing = closing
        self._last: Any = None  # the last run that began
        self._api = api
        self._device = device
        self._kernel = api.kernel(context, f"{self.kernel_name}:{{{name}}}")
        self._result = self._buffer(self.records * RESULT_WORDS * 4, self.result_argument)

    def lanes(self) -> Sequence[Any]:
        """Return the objects that callers acquire. Each serves one caller at a time."""
        return [self]

    def hangs(self) -> bool:
        """Return whether the last run has not ended. Then a new run would wait after it, and its buffers are in use."""
        ended = (self._api.ert_cmd_state.ERT_CMD_STATE_COMPLETED, *self.failed_states())
        return self._last is not None and self._last.state() not in ended

    def probe(self, timeout_s: float) -> bool:
        """Return whether the CU does a small job with a known answer right. It blocks as `run` does. Raises CuLost."""
        raise NotImplementedError

    def stop(self) -> None:
        """Begin to end a run that goes on, as the driver closes."""

    def close(self, deadline: float) -> None:
        """Wait for the end that `stop` began, until `deadline` (`time.monotonic()` seconds)."""

    def _stopwatch(self) -> "Stopwatch":
        """Return a stopwatch for a run's limit, which begins now."""
        return Stopwatch(getattr(self._kernel, "get_waited_s", lambda: 0.0))

    def _buffer(self, size: int, argument: int) -> Any:
        rounded = max(4096, (size + 4095) & ~4095)  # whole pages, as XRT allocates; so whole 16-byte words, too
        return self._api.bo(self._device, rounded, self._api.bo.flags.normal, self._kernel.group_id(argument))

    def _send(self, buffer: Any, data: Any) -> None:
        buffer.write(data, 0)
        buffer.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, max(1, memoryview(data).nbytes), 0)

    def _fetch(self, buffer: Any, size: int) -> NDArray[np.uint8]:
        """Return the first `size` bytes of the buffer. They are valid until the next run begins."""
        buffer.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, size, 0)
        return np.frombuffer(buffer.map(), np.uint8, size)

    def _start(self, timeout_s: float, *arguments: Any) -> list[int]:
        """Run the CU once and return the words of its record. Raises CuLost, and RuntimeError from XRT."""
        run = self._begin(*arguments)
        stopwatch = self._stopwatch()
        states = self._api.ert_cmd_state
        while True:
            state = run.wait(WAIT_SLICE_MS)
            if state == states.ERT_CMD_STATE_COMPLETED:
                break
            if state in self.failed_states():
                self._raise_failed(run, state)
            if self._closing.is_set():
                raise CuLost(f"{self.name} was given up, as the driver was closed")
            if stopwatch.exceeds(timeout_s):
                raise CuLost(f"{self.name} did not answer within {timeout_s:.4g} s")
        self._result.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE)
        # Emulated devices have more than pyxrt: they count the clocks of a run.
        self.counters = run.get_hw_emu_stats() if hasattr(run, "get_hw_emu_stats") else None
        words: list[int] = np.frombuffer(self._result.map(), "<u4", count=RESULT_WORDS).tolist()
        return words

    def _begin(self, *arguments: Any) -> Any:
        """Start a run and return it.

        pyxrt's kernel(...) ignores arguments that it cannot set. This method raises the error of XRT instead."""
        run = self._api.run(self._kernel)
        for index, argument in enumerate(arguments):
            run.set_arg(index, argument)
        run.start()
        self._last = run
        return run

    def failed_states(self) -> tuple[Any, ...]:
        states = self._api.ert_cmd_state
        return (
            states.ERT_CMD_STATE_ERROR,
            states.ERT_CMD_STATE_ABORT,
            states.ERT_CMD_STATE_NORESPONSE,
            states.ERT_CMD_STATE_SKERROR,
            states.ERT_CMD_STATE_SKCRASHED,
        )

    def _raise_failed(self, run: Any, state: Any) -> NoReturn:
        if hasattr(run, "wait2"):  # since XRT 2.20; it has no limit, but the run has ended
            run.wait2()  # raises an error with the reason
        raise CuLost(f"{self.name} ended in state {state.name}")


def as_int(word: int) -> int:
    """Return a 32-bit word as the C int with the same bits."""
    return word - (1 << 32) if word >> 31 else word
