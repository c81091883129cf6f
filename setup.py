"""Compiles the hot loop of the simulator, and the policies that it drives, with mypyc; all else is in pyproject.toml.

The same files run uncompiled, several times slower: without a C compiler the extensions are left out."""

import os
import sys
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
    # pip runs this file three times, twice only to ask for metadata.
    if os.environ.get("HEADRACE_PURE") or {"egg_info", "dist_info"} & set(sys.argv):
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
    # Other packages' types are left out: reading torch's takes ten times as long as all the rest.
    options = "--config-file= --no-site-packages --ignore-missing-imports --namespace-packages --explicit-package-bases"
    found = mypycify(
        options.split() + [str(root / "headrace" / path) for path in COMPILED],
        group_name="headrace.batching.compiled",
        debug_level="0",
    )
    for extension in found:
        extension.optional = True
    return found


setup(ext_modules=extensions())
