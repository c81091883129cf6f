"""One DPU, and the thread with the event loop that drives it, for callers in any thread."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from headrace.batching import HeadraceError, UsageError
from headrace.batching.errors import one_line
from headrace.bitstreams.cache import build
from headrace.bitstreams.kernel import read_checked
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Fallback, PreprocessorUnavailable
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.specs import AudioSpec

CPU: Final = "cpu"  # the target without a DPU
EMULATED: Final = ("sw_emu", "hw_emu")
IMAGE_CUS: Final = 4  # of an emulated device. It has audio CUs, too, because a process has one emulated device
CLOSING_S: Final = 10.0  # for the thread to end; the driver bounds each of its own waits
THREAD: Final = "headrace-adapter"

Result = Mapping[str, NDArray[Any]] | str


def container_of(target: str | os.PathLike[str]) -> Path:
    """Return the container of a target: of an emulated one, built if need be, or the file that it names.

    Raises UsageError for a target that does not exist, and for a container that cannot be built or read."""
    if target in EMULATED:
        return build(target=str(target), image_cus=IMAGE_CUS, mel_cus=1, norm_cus=1)
    if not Path(target).is_file():
        raise UsageError(
            f"target is {str(target)!r}; give {', '.join((CPU, *EMULATED))}, or the path of an .xclbin file"
        )
    read_checked(Path(target))
    return Path(target)


class Device:
    """The DPU of an adapter. It opens at the first files, for the spec that they have, and keeps to that spec.

    A process that was forked has no thread for it, so there the DPU makes nothing."""

    def __init__(self, container: Path) -> None:
        self._container = container
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._running: _Running | None = None
        self._closed = False
        self._why_not: str | None = None
        self._finalizer: weakref.finalize[..., Device] | None = None

    def process(self, files: Sequence[bytes], spec: ProcessorSpec | AudioSpec) -> list[Result]:
        """Return the tensors of each file by name, or the reason why the DPU does not make them."""
        if not files:
            return []
        try:
            return self._opened(spec).process(files)
        except PreprocessorUnavailable as error:
            return [str(error)] * len(files)

    def close(self) -> None:
        """Close the DPU, and end the thread. Calls in progress get a reason in place of tensors."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True
            self._running, finalizer, self._finalizer = None, self._finalizer, None
        if finalizer is not None:
            finalizer()

    def _opened(self, spec: ProcessorSpec | AudioSpec) -> "_Running":
        if os.getpid() != self._process:
            raise PreprocessorUnavailable("the device belongs to the process from which this one was forked")
        with self._lock:
            if self._closed:
                raise PreprocessorUnavailable("the device is closed")
            if self._why_not is not None:
                raise PreprocessorUnavailable(self._why_not)
            if self._running is None:
                try:
                    self._running = _Running(self._container, spec)
                except Exception as error:  # of the driver, of XRT or of the system
                    self._why_not = str(error) if isinstance(error, HeadraceError) else one_line(error)
                    raise PreprocessorUnavailable(self._why_not) from error
                self._finalizer = weakref.finalize(self, self._running.close)  # also when the interpreter ends
            if self._running.spec != spec:
                raise PreprocessorUnavailable("the device is open with other settings than those of this call")
            return self._running


class _Running:
    """An open DPU and its thread."""

    def __init__(self, container: Path, spec: ProcessorSpec | AudioSpec) -> None:
        """Start the thread, and open the DPU in it. Raises the errors of the driver."""
        self.spec = spec
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        opened: concurrent.futures.Future[Dpu[Any]] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=self._run, args=(container, opened), name=f"{THREAD}-{id(self):x}", daemon=True
        )
        self._process = os.getpid()
        self._thread.start()
        try:
            self._dpu = opened.result()
        except BaseException:  # also of an interrupt, after which the DPU may still open
            self._ask_to_end()
            raise
        _all_running.add(self)

    def _run(self, container: Path, opened: "concurrent.futures.Future[Dpu[Any]]") -> None:
        async def drive() -> None:
            try:
                dpu = Dpu(container, self.spec, fallback=Fallback.RAISE)
            except BaseException as error:
                opened.set_exception(error)
                return
            async with dpu:
                opened.set_result(dpu)
                await self._end.wait()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(drive())

    def process(self, files: Sequence[bytes]) -> list[Result]:
        work = self._all(files)
        try:
            done = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop is closed
            work.close()
            raise PreprocessorUnavailable("the device is closed") from error
        try:
            while True:  # the loop may end between the check and the call
                with contextlib.suppress(TimeoutError):
                    return done.result(timeout=1.0)
                if not self._thread.is_alive() and not done.done():
                    raise PreprocessorUnavailable("the device was closed")
        except concurrent.futures.CancelledError as error:
            raise PreprocessorUnavailable("the device was closed") from error
        finally:
            done.cancel()  # after an interrupt

    async def _all(self, files: Sequence[bytes]) -> list[Result]:
        return list(await asyncio.gather(*(self._one(data) for data in files)))

    async def _one(self, data: bytes) -> Result:
        try:
            return (await self._dpu.process(data)).tensors
        except HeadraceError as error:
            return str(error)
        except Exception as error:  # of a driver or a library; the CPU makes the tensors then
            return one_line(error)

    def _ask_to_end(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end.set)

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        self._ask_to_end()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSING_S)


_all_running: "weakref.WeakSet[_Running]" = weakref.WeakSet()


def _close_all() -> None:
    for running in list(_all_running):
        running.close()


# The end of the interpreter waits for the threads of the driver, and then calls what atexit has. A run that hangs must
# end before that, so threading itself has to call this. Without its function, the limit of the run ends it.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
