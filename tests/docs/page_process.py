"""scripts/docs_blocks.py as a fork of a process that has imported what pages need. `headrace` in their bash blocks is a
fork, too, whose network is that of the page. So is the interpreter of its Python blocks, whose names are new, so that
a forgotten import is noticed."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import forked
import page_python  # noqa: F401  the page's forks find it in sys.modules alone
from docs_runner import ROOT, docs_blocks

COMMANDS = Path(__file__).parent / "commands"


def main(arguments: Sequence[str]) -> None:
    """Run docs_blocks.py with the arguments."""
    words = forked.begin(arguments)
    if not docs_blocks.enter_namespace():
        sys.exit(docs_blocks.main(words))
    os.environ["PAGE_PATHS"] = os.pathsep.join(path for path in sys.path if is_installed(path))
    _, control, _ = forked.fork_server()
    options = ["--commands", str(COMMANDS), "--descriptor", str(control.fileno())]
    sys.exit(docs_blocks.main([*options, *words], own_network=True))


def is_installed(path: str) -> bool:
    """Return whether a module search path is also that of an installed command, and not one of the tests."""
    return bool(path) and (Path(path).is_relative_to(sys.prefix) or not Path(path).is_relative_to(ROOT))
