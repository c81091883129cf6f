"""Write constraints.txt: the versions of all packages in the environment that runs this program.

    .venv/bin/python scripts/lock_versions.py

scripts/setup installs these versions, so every machine tests with the same packages. To take newer versions, empty the
file and remove .venv. Then run scripts/setup, the whole test suite, and this program."""

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
    """Return the lines of `pip freeze` as constraints, without the local part of a version.

    The local part says which build of torch is installed (for a CPU, or for a CUDA), which depends on the index. Raises
    ValueError for a package that did not come from an index."""
    constraints = []
    for line in frozen:
        match = PINNED.fullmatch(line.strip())
        if match is None:
            raise ValueError(
                f"{line.strip()!r} is not a version of a package from an index; install one, or remove the package"
            )
        constraints.append(f"{match[1]}=={match[2]}")
    return sorted(constraints, key=str.lower)


def main() -> int:
    command = [sys.executable, "-m", "pip", "freeze", "--exclude-editable"]
    frozen = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    try:
        constraints = pins(frozen)
    except ValueError as error:
        print(f"lock_versions: {error}", file=sys.stderr)
        return 1
    FILE.write_text(HEADER + "".join(f"{pin}\n" for pin in constraints))
    print(f"lock_versions: wrote {len(constraints)} versions to {FILE.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
