"""Estimate how much of a card the RTL units take: cells, memories and the longest path of logic.

Yosys makes the estimate. It is not the vendor's tool: it places nothing, puts no two small LUTs in one place, and
leaves the registers around an UltraScale+ multiplier outside it. So the numbers of LUTs and flip-flops are rather too
high. The delay of a path is an estimate, a range from published delays of cells (delays.py). abc9's own delay, of
LUTs and wires only, is in the report too. None of them is a clock rate.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.bitstreams.errors import BuildError, MissingExtra
from headrace.bitstreams.resources import delays, netlist, synthesis
from headrace.bitstreams.sources import place
from headrace.bitstreams.verilate import instantiated, needed_files, rtl_sources
from headrace.bitstreams.whole_file import replacing

TIME_LIMIT_S = 1800
CLOCK_MHZ = 300
TARGET_IMAGES_PER_S = 8600
# Clocks from start to start of an image of 500x375 pixels at 4:2:0, quality 90: the mean over the bundled photos, which
# benchmarks/image_cu.py measures on the RTL (51,667 clocks to done and 97 of register accesses).
CYCLES_PER_IMAGE = 51_760
JPEG_BYTES = 45_160  # mean size of these files

# Alveo U55C, data sheet DS978, table of resources.
U55C = {"lut": 1_303_680, "ff": 2_607_360, "dsp": 9_024, "bram36": 2_016, "uram": 960}

# Per cent of a U55C that PREBA's DPUs take, arXiv 2411.19114, Table 1 ("REG" is ff), as printed. The image rows and the
# audio rows add up to less than their totals in LUT, FF and BRAM. The number of compute units is not given.
PREBA_TABLE_1 = {
    "decode": {"lut": 19.7, "ff": 8.6, "bram36": 0.7, "uram": 22.5, "dsp": 6.2},
    "resize": {"lut": 7.1, "ff": 2.3, "bram36": 0.0, "uram": 0.0, "dsp": 8.6},
    "crop": {"lut": 0.6, "ff": 0.4, "bram36": 0.0, "uram": 0.0, "dsp": 0.0},
    "normalize": {"lut": 13.0, "ff": 3.3, "bram36": 11.2, "uram": 0.0, "dsp": 3.0},
    "image_cu": {"lut": 44.5, "ff": 16.5, "bram36": 19.3, "uram": 22.5, "dsp": 17.8},
    "resample": {"lut": 0.2, "ff": 0.1, "bram36": 1.0, "uram": 0.0, "dsp": 0.0},
    "mel": {"lut": 41.5, "ff": 24.6, "bram36": 18.2, "uram": 37.5, "dsp": 34.2},
    "mel_normalize": {"lut": 3.1, "ff": 1.7, "bram36": 1.7, "uram": 7.5, "dsp": 1.3},
    "audio": {"lut": 45.9, "ff": 26.9, "bram36": 23.3, "uram": 45.0, "dsp": 35.5},  # both of its compute units
}
IMAGE_UNITS = ("image_cu", "decode", "progressive_decoder", "resize", "crop", "scaler", "normalize", "patches")
AUDIO_UNITS = ("audio_mel_cu", "wav", "resample", "mel", "audio_norm_cu", "mel_normalize")
UNITS = (*IMAGE_UNITS, *AUDIO_UNITS)

OnStep = Callable[[str, int, int, str], None]  # unit, step, of how many, name of the step


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that runs in a process of its own and says in JSON lines how far it is, as synthesis.py does."""

    name: str  # of its files in the cache
    verb: str  # what a broken module does not
    work: str
    packages: tuple[str, ...]  # whose versions the result depends on
    code: tuple[ModuleType, ...]  # on which it depends; the last one is run
    steps: int
    arguments: tuple[str, ...] = ()  # in front of the module's name


SYNTHESIS = Tool("report", "synthesise", "synthesis", ("pyosys",), (delays, netlist, synthesis), synthesis.STEP_COUNT)


def resource_report(
    cache: Path,
    *,
    cycles_per_image: int = CYCLES_PER_IMAGE,
    units: Sequence[str] = UNITS,
    sources: Sequence[Path] | None = None,
    on_step: OnStep = lambda *_: None,
) -> dict[str, Any]:
    """Synthesise the units that have RTL, each with the modules below it, and compare them with the card.

    A unit that fails has its `error` in the report, and the other units are still reported. Results for the same
    sources come from `cache`. Raises MissingExtra if Yosys is not installed."""
    if find_spec("pyosys") is None:
        raise MissingExtra("Yosys (pyosys)", "rtl")
    files = list(rtl_sources() if sources is None else sources)
    tops = [unit for unit in units if any(file.stem == unit for file in files)]
    parts = {part: top for top in reversed(tops) for part in parts_of(top, files) if part not in tops}
    names = [*tops, *parts]
    measured = measure_all(names, files, cache, on_step=on_step)
    cus = math.ceil(TARGET_IMAGES_PER_S * cycles_per_image / (CLOCK_MHZ * 1e6))
    ordered = [name for top in tops for name in (top, *(part for part in parts if parts[part] == top))]
    return {
        "tool": f"Yosys {installed_version('pyosys')}, read_slang, synth_xilinx {synthesis.OPTIONS}",
        "card": {"name": "Alveo U55C", **U55C},
        "clock_mhz": CLOCK_MHZ,
        "cycles_per_image": cycles_per_image,
        "target_images_per_s": TARGET_IMAGES_PER_S,
        "cus": cus,
        "missing_units": [unit for unit in units if unit not in tops],
        "units": [_row(name, parts.get(name), measured[name], _cus_of(name, parts, cus)) for name in ordered],
    }


def _cus_of(name: str, parts: Mapping[str, str], cus: int) -> int:
    """Return the number of CUs for a unit.

    Image units are in as many CUs as reach the target rate. One CU of each audio kind is many times faster than
    needed."""
    return 1 if parts.get(name, name) in AUDIO_UNITS else cus


def _row(name: str, part_of: str | None, measured: Mapping[str, Any], cus: int) -> dict[str, Any]:
    row: dict[str, Any] = {"unit": name, "part_of": part_of, "error": None, **measured}
    if row["error"] is None:
        row["percent_of_card"] = share_of_card(measured["resources"])
        row["percent_of_card_for_cus"] = share_of_card(measured["resources"], cus)
        row["preba_percent"] = PREBA_TABLE_1.get(name)
    return row


def share_of_card(resources: Mapping[str, float], cus: int = 1) -> dict[str, float]:
    """Return the per cent of a U55C that so many compute units take."""
    return {kind: 100 * cus * resources[kind] / have for kind, have in U55C.items()}


def parts_of(top: str, files: Sequence[Path]) -> list[str]:
    """Return the modules that `top` instantiates, without the shared ones in rtl/, in the order of the source."""
    top_file = next(file for file in files if file.stem == top)
    modules = {file.stem for file in files if place(file).parts[0] != "rtl" and file.stem != top}
    return list(dict.fromkeys(name for name in instantiated(top_file) if name in modules))


def measure_all(
    names: Sequence[str],
    files: Sequence[Path],
    cache: Path,
    *,
    tool: Tool = SYNTHESIS,
    on_step: OnStep = lambda *_: None,
) -> dict[str, dict[str, Any]]:
    """Return the result of `measure` for each module, or {"error": text} where it failed. They run in parallel."""
    children = _Children()

    def one(name: str) -> dict[str, Any]:
        try:
            return measure(name, files, cache, tool=tool, on_step=on_step, children=children)
        except BuildError as error:
            return {"error": str(error)}

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        try:
            return dict(zip(names, threads.map(one, names), strict=True))
        except BaseException:  # Ctrl-C, for example: the threads end when their processes have ended
            children.kill_all()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def measure(
    name: str,
    files: Sequence[Path],
    cache: Path,
    *,
    tool: Tool = SYNTHESIS,
    on_step: OnStep = lambda *_: None,
    children: "_Children | None" = None,
) -> dict[str, Any]:
    """Return the tool's result for module `name` from these files, from `cache` if it is there. Raises BuildError."""
    files = needed_files(name, files)
    digest = hashlib.sha256(" ".join([name, *tool.arguments, *map(installed_version, tool.packages)]).encode())
    for file in [*files, *(Path(str(module.__file__)) for module in tool.code)]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    kept = cache / f"{tool.name}-{name}-{digest.hexdigest()[:16]}.json"
    try:
        result: dict[str, Any] = json.loads(kept.read_text())
        on_step(name, tool.steps, tool.steps, "from cache")
        return result
    except (OSError, ValueError):
        pass  # no result yet, or an incomplete file
    with tempfile.TemporaryDirectory(prefix=f"headrace-{tool.name}-") as folder:
        result = _run(name, files, Path(folder) / "tool.log", tool, children or _Children(), on_step)
    on_step(name, tool.steps, tool.steps, "done")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for old in cache.glob(f"{tool.name}-{name}-*.json"):
            old.unlink(missing_ok=True)
        with replacing(kept) as partial:
            partial.write_text(json.dumps(result))
    except OSError:
        pass  # without a cache the next report only takes longer
    return result


class _Children:
    """The running processes, so that all can be ended at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._closed = False

    def start(self, command: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a process in a group of its own.

        Yosys has child processes too, and only this process should get Ctrl-C."""
        with self._lock:
            if self._closed:
                raise BuildError("interrupted")
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
            self._running.add(process)
            return process

    def kill(self, process: "subprocess.Popen[str]") -> None:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._running.discard(process)

    def kill_all(self) -> None:
        with self._lock:
            self._closed = True
            for process in list(self._running):
                self.kill(process)


def _run(
    name: str, files: Sequence[Path], log: Path, tool: Tool, children: _Children, on_step: OnStep
) -> dict[str, Any]:
    arguments = (*tool.arguments, name, str(log), *map(str, files))
    process = children.start([sys.executable, "-m", tool.code[-1].__name__, *arguments])
    late = threading.Event()

    def stop() -> None:
        late.set()
        children.kill(process)

    timer = threading.Timer(TIME_LIMIT_S, stop)
    timer.start()
    result: dict[str, Any] | None = None
    try:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            message = json.loads(line)
            if "result" in message:
                result = message["result"]
            else:
                on_step(name, message["step"], message["of"], message["name"])
        complaint = process.stderr.read()
    finally:
        timer.cancel()
        if sys.exc_info()[0] is not None:
            children.kill(process)
        process.wait()
    if late.is_set():
        raise BuildError(f"{name}: {tool.work} took more than {TIME_LIMIT_S} s")
    if process.returncode < 0:
        raise BuildError(
            f"{name}: {tool.work} was ended by signal {-process.returncode} (9: perhaps too little memory)"
        )
    if result is None or process.returncode != 0:
        raise BuildError(f"{name} does not {tool.verb}:\n{_errors(log, complaint)}")
    return result


def _errors(log: Path, complaint: str) -> str:
    """Return the lines of the log with errors: Yosys's own, and the source lines that the frontend shows below them."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    shown: list[str] = []
    for number, line in enumerate(lines):
        if re.search(r"\bERROR:|: error:", line) and line not in shown:
            shown.append(line)
            if not line.startswith("ERROR:"):
                shown += [below for below in lines[number + 1 : number + 3] if below.startswith(" ")]
    if len(shown) > 1:
        shown = [line for line in shown if not line.startswith("ERROR: Design elaboration failed")]
    return "\n".join(shown[:20] or complaint.splitlines()[-5:] or lines[-5:])


def installed_version(package: str) -> str:
    """Return the version of a package, or "unknown" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
