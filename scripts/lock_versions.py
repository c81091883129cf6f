"""Writes constraints.txt: the versions of all that is installed in the environment that runs this.

    .venv/bin/python scripts/lock_versions.py

scripts/setup installs what that file names, so every machine tests with the same. To take newer versions, empty the
file and remove .venv; run scripts/setup, then the whole suite, and then this."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "constraints.txt"
PINNED = re.compile(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.!]*)(\+[A-Za-z0-9.]+)?")
HEADER = """\
# The versions that the suite passed with, of the extras demo and dev on Python 3.11; scripts/setup installs these.
# scripts/lock_versions.py writes this file.
"""


def pins(frozen: Iterable[str]) -> list[str]:
    """The lines of `pip freeze` as constraints, without the local part of a version: which build of torch is installed
    (for a CPU, or for a CUDA) depends on where it came from. Raises ValueError for what did not come from an index."""
    found = []
    for line in frozen:
        match = PINNED.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"{line.strip()!r} is no version of a package from an index; install one, or remove it")
        found.append(f"{match[1]}=={match[2]}")
    return sorted(found, key=str.lower)


def main() -> int:
    command = [sys.executable, "-m", "pip", "freeze", "--exclude-editable"]
    frozen = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    try:
        found = pins(frozen)
    except ValueError as error:
        print(f"lock_versions: {error}", file=sys.stderr)
        return 1
    FILE.write_text(HEADER + "".join(f"{pin}\n" for pin in found))
    print(f"lock_versions: wrote {len(found)} versions to {FILE.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
