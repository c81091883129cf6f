"""Build a folder with the vendor's tools where they are installed, and keep the values of their reports with the
container.

The container stays as v++ wrote it, since its tools sign it in fields that this project does not write.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.bitstreams.errors import BuildError
from headrace.bitstreams.hw.reports import read_reports
from headrace.bitstreams.platforms import Platform
from headrace.bitstreams.whole_file import replacing
from headrace.bitstreams.xclbin import read_xclbin

TOOLS = ("v++", "vivado", "make")
VERSION_TIMEOUT_S = 120
KEPT_LINES = 5


def check_tools(card: Platform) -> None:
    """Raise BuildError if a tool is missing, or older than the platform."""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise BuildError(
                f"{tool} is missing; source the settings64.sh of Vitis {card.vitis} or later, or leave out --run"
            )
    try:
        done = subprocess.run(["v++", "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"v++ --version does not answer: {error}") from error
    release = re.search(r"v(\d{4})\.(\d+)", done.stdout)
    if release is None:
        raise BuildError("v++ --version names no release; is this the v++ of Vitis?")
    if (int(release[1]), int(release[2])) < tuple(map(int, card.vitis.split("."))):
        raise BuildError(f"v++ is of Vitis {release[1]}.{release[2]}; {card.platform} needs {card.vitis} or later")


def build_folder(folder: Path, card: Platform, on_line: Callable[[str], None]) -> dict[str, Any]:
    """Run `make xclbin` in the folder and return the values of its reports.

    `on_line` gets each line of the output. Raises BuildError."""
    check_tools(card)
    command = ["make", "-C", str(folder), "xclbin"]
    last: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as made:
        assert made.stdout is not None
        try:
            for line in made.stdout:
                on_line(line.rstrip())
                last = [*last, line.rstrip()][-KEPT_LINES:]
        except BaseException:  # Ctrl-C, for example: the processes of make end with it
            made.terminate()
            raise
    if made.returncode != 0:
        raise BuildError(f"the build in {folder} failed:\n" + "\n".join(last))
    container = folder / "build" / "hw" / "headrace.xclbin"
    reports = read_reports(container.parent)
    if reports is None:
        raise BuildError(f"the build ended without {container}")
    reports["uuid"] = str(read_xclbin(container).uuid)
    with replacing(_report_path(container)) as partial:
        partial.write_text(json.dumps(reports, indent=2) + "\n")
    return reports


def implementation(container: Path, uuid: str) -> dict[str, Any] | None:
    """Return the values that the build of this container reported. None if they are not known, or for another
    container."""
    try:
        report = json.loads(_report_path(container).read_text())
        return report if isinstance(report, dict) and report.get("uuid") == uuid else None
    except (OSError, ValueError):
        return None


def _report_path(container: Path) -> Path:
    """Return the path of the report's values for a container."""
    return container.with_name(f"{container.name}.json")
