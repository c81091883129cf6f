"""vLLM, and `headrace render` in front of it, as processes. Tests and benchmarks start them so.

vLLM is that of `scripts/setup_vllm`. What a process prints goes to a log file, of which an error shows the end."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness import ROOT
from benchmarks.processes import ANY_PORT, END_S, HEADRACE

PYTHON = ROOT / "build" / "vllm" / "bin" / "python"
START_S = 300.0
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}
READY = re.compile(r"ready: .* at (http://\S+)/v1")


@contextlib.contextmanager
def vllm(model: Path, log: Path, *options: str, **settings: str) -> Iterator[tuple[str, int]]:
    """Serve the folder of a model, and give the address and the number of the process, which leads a session.

    `settings` are variables of its environment. Raises RuntimeError if it does not start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", model.name, "--port", str(port)]
    command += ["--enable-scale-out", "--dtype", "float32", "--max-model-len", "4096", "--enforce-eager", *options]
    url = f"http://127.0.0.1:{port}"
    with _process(command, model.parent, log, {**SETTINGS, **settings}) as started:
        _until(lambda: _answers(url), started, log)
        yield url, started.pid


@contextlib.contextmanager
def front(engine: str, model: Path, log: Path, *options: str) -> Iterator[tuple[str, int]]:
    """Serve the front end of an engine, and give the address and the number of the process, as `vllm` does."""
    command = [HEADRACE, "render", "--engine", engine, "--model", model.name, "--http", ANY_PORT, *options]
    with _process(command, model.parent, log, {}) as started:
        _until(lambda: READY.search(log.read_text()) is not None, started, log)
        found = READY.search(log.read_text())
        assert found is not None
        yield found[1], started.pid


@contextlib.contextmanager
def _process(
    command: Sequence[str], folder: Path, log: Path, settings: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in a session of its own. It and its children end with the context."""
    with log.open("wb") as file:
        environment = {**os.environ, **settings}
        started = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(END_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


def _until(done: Callable[[], bool], started: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while not done():
        if started.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"it does not start: {log.read_text()[-3000:]}")
        time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return int(response.status) == 200
    except OSError:
        return False
