"""Run the parts of a check, each in a process of its own with a bound, and write gpu_check.json and gpu_check.md.

A part that fails, hangs or crashes the device's driver costs only its own rows: the others still run, and the rows
that it had made are kept."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from headrace.batching import HeadraceError, UsageError
from headrace.host.validation.device import hide_gpus
from headrace.host.validation.page import page
from headrace.host.validation.plan import FULL, LIMITS_S, SMALL, WHOLE_S, last_line
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.fork_server.client import ENVIRONMENT
from headrace.host.workers.profiling.batches import machine

PROBE_S: Final = 120.0  # a cold import of torch
GUIDE: Final = "docs/how_to/check_models_on_a_gpu.md"  # what each part needs, and how to read its page
END_S: Final = 5.0  # longest wait for a process that was killed
LAST_BYTES: Final = 1 << 14
LAST_LINES: Final = 3  # of a part's stderr, in its error
_PROBE: Final = """
import json, sys
import torch
cuda = torch.cuda.is_available()
found = {"torch": torch.__version__, "cuda": torch.version.cuda, "kind": "cuda" if cuda else "cpu"}
try:
    import torchvision
    found["torchvision"] = torchvision.__version__
except Exception:
    found["torchvision"] = None
if cuda:
    properties = torch.cuda.get_device_properties(0)
    found |= {"name": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
    found |= {"multiprocessors": properties.multi_processor_count, "cudnn": torch.backends.cudnn.version()}
print(json.dumps(found))
"""


def check(
    out: Path, *, device: str | None = None, small: bool = False, parts: Sequence[str] = (), folder: Path | None = None
) -> bool:
    """Run the parts and write both files into `out`.

    Args:
        out: A folder. It is made if it is missing.
        device: "cuda" or "cpu"; None takes CUDA if torch finds a GPU, else the CPU.
        small: Measure little. The CPU is always measured at small size.
        parts: Names of LIMITS_S; empty for all.
        folder: The folder in which the parts run: a checkout, in which lies the network of `benchmarks.networks`.

    Returns whether all parts ran to their end. Raises UsageError for a device or a part that is not there, and if torch
    is not installed."""
    if unknown := sorted(set(parts) - set(LIMITS_S)):
        raise UsageError(f"there is no part {unknown[0]!r}; choose from {', '.join(LIMITS_S)}")
    if device not in (None, "cuda", "cpu"):
        raise UsageError(f"--device {device}: choose cuda or cpu")
    if device == "cpu":
        hide_gpus()
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # so that torch and the workers mean the same GPU
    began = time.monotonic()
    found = _probe()
    if device == "cuda" and found["kind"] != "cuda":
        raise UsageError(
            f"--device cuda: torch {found['torch']} finds no GPU; install a torch wheel for CUDA, see {GUIDE}"
        )
    if found["kind"] == "cpu":
        small = True
        tell("no GPU: all parts run on the CPU at small size")
    out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "device": {**found, "name": found.get("name") or machine()["cpu"]},
        "machine": machine(),
        "small": small,
        "sizes": asdict(SMALL if small else FULL),
        "parts": {},
    }
    chosen = [name for name in LIMITS_S if not parts or name in parts]
    for number, name in enumerate(chosen, 1):
        left_s = WHOLE_S - (time.monotonic() - began)
        limit_s = min(LIMITS_S[name], left_s)
        tell(f"part {number} of {len(chosen)}: {name}, at most {limit_s:.0f} s")
        result["parts"][name] = part = _run(name, found, small, limit_s, folder)
        tell(f"{name}: {len(part['rows'])} rows in {part['seconds']:.1f} s" + (part["error"] and f"; {part['error']}"))
        result["wall_s"] = time.monotonic() - began
        # After each part, so that a check that is killed leaves what it has.
        (out / "gpu_check.json").write_text(json.dumps(result, indent=2) + "\n")
        (out / "gpu_check.md").write_text(page(result))
    return not any(part["error"] for part in result["parts"].values())


def tell(text: str) -> None:
    """Write a line of progress to stderr."""
    print(f"gpu_check: {text}", file=sys.stderr, flush=True)


def _probe() -> dict[str, Any]:
    """Return what torch finds here. It runs in another process, as this one must not hold a GPU."""
    try:
        done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_S)
    except subprocess.TimeoutExpired as error:
        raise HeadraceError(f"torch was not imported within {PROBE_S:g} s; is the machine busy?") from error
    if done.returncode != 0:
        raise UsageError(f"torch cannot be used: {last_line(done.stderr)}; install it, see {GUIDE}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _run(name: str, device: dict[str, Any], small: bool, limit_s: float, folder: Path | None) -> dict[str, Any]:
    """Run one part and return its rows, its seconds, and its error, which is empty if it ran to its end."""
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    error = ""
    if limit_s <= 0:
        return {"rows": rows, "seconds": 0.0, "error": "no time was left for it"}
    given = {"part": name, "device": device["kind"], "gpu": device.get("name", ""), "small": small, "limit_s": limit_s}
    command = [sys.executable, "-m", "headrace.host.validation.part", json.dumps(given)]
    with contextlib.closing(_lines(command, folder, began + limit_s, _environment(device["kind"]))) as lines:
        try:
            for line in lines:
                message = json.loads(line)
                if "case" not in message:  # the last line of a part that failed
                    error = message["error"]
                else:
                    rows.append(message)
                    measured = message["measured"]
                    shown = message["error"] or message["note"]
                    if measured is not None:
                        shown = f"{measured:.4g} {message['unit']}"
                    tell(f"{name}: {message['case']}, {message['quantity']}: {shown}")
        except TimeoutError:
            error = f"it was stopped after {limit_s:.0f} s"
        except (HeadraceError, ValueError) as failure:
            error = str(failure)
    lost = [row for row in rows if row["error"]]
    if lost and not error:
        error = f"{len(lost)} of its cases failed, the first by {lost[0]['error']}"
    return {"rows": rows, "seconds": time.monotonic() - began, "error": error}


def _environment(kind: str) -> dict[str, str]:
    """Return the environment of a part. On the CPU it gives torch the threads that a worker has there."""
    # A part runs in a checkout, whose folder headrace/ has no parts. Without the safe path, `python -m` would find it
    # before an installed Headrace.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    if kind != "cpu":
        return environment
    threads = str(worker_devices(1)[0].threads)
    return {**environment, **ENVIRONMENT, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}


def _lines(command: Sequence[str], folder: Path | None, until: float, environment: Mapping[str, str]) -> Generator[str]:
    """Run a command and yield the lines of its stdout.

    The process and all that it started are killed at the end. Raises TimeoutError if it runs after `until`, and
    HeadraceError if it fails."""
    line = bytearray()
    with tempfile.TemporaryFile() as words, selectors.DefaultSelector() as selector:
        # The process has a session of its own, so that its workers can be killed with it.
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                if not selector.select(left_s):
                    continue
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    break
                line += chunk
                while (end := line.find(b"\n")) >= 0:
                    yield line[:end].decode()
                    del line[: end + 1]
            if process.wait(timeout=END_S) != 0:
                words.seek(max(0, words.seek(0, os.SEEK_END) - LAST_BYTES))
                last = words.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]
                raise HeadraceError(f"its process ended with status {process.returncode}: {' / '.join(last)}")
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=END_S)
            process.stdout.close()
