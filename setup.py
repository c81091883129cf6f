"""Compiles the hot loop of the simulator, and the policies that it drives, with mypyc; all else is in pyproject.toml.

The same files run uncompiled, several times slower: without a C compiler the extensions are left out."""

import os
from pathlib import Path

from setuptools import setup

COMPILED = (
    "batching/accounting.py",
    "batching/batch_table.py",
    "batching/execution.py",
    "batching/graph_batching.py",
    "batching/lazy.py",
    "batching/preba.py",
    "batching/request.py",
    "batching/serial.py",
    "batching/window.py",
    "sim/engine.py",
)


def extensions():
    if os.environ.get("HEADRACE_PURE"):
        return []
    from mypyc.build import mypycify

    # mypyc takes a module's name from its path, so it is shown the folders under the name of the package.
    root = Path("build/typing")
    (root / "headrace").mkdir(parents=True, exist_ok=True)
    for folder in ("batching", "sim"):
        link = root / "headrace" / folder
        link.unlink(missing_ok=True)
        link.symlink_to(Path("../../..") / folder)
    os.environ["MYPYPATH"] = str(root)
    found = mypycify(
        ["--config-file=", "--namespace-packages", "--explicit-package-bases", "--ignore-missing-imports"]
        + [str(root / "headrace" / path) for path in COMPILED],
        group_name="headrace.batching.compiled",
        debug_level="0",
    )
    for extension in found:
        extension.optional = True
    return found


setup(ext_modules=extensions())
