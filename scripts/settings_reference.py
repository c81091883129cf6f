#!/usr/bin/env python3
"""Write docs/settings.md: every setting of simulations, policies and served models, from the classes that define them.

    .venv/bin/python scripts/settings_reference.py [--check]

With --check nothing is written, and the exit status is 1 if the file is not what would be written."""

import argparse
import sys
from pathlib import Path

from headrace.batching.registry import find_policy, policy_names
from headrace.batching.settings import Setting, settings_of
from headrace.host.server.settings import ModelSettings
from headrace.sim.fleet.settings import FleetSettings
from headrace.sim.hardware.settings import V100, Measured, MeasuredGpu, MigGpu, Npu
from headrace.sim.scenario import RunSettings
from headrace.sim.system.settings import Preprocess
from headrace.sim.workload.settings import Bursty, Deterministic, Poisson, Replay, Workload

OUT = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
GROUPS = {
    "Requests": {
        "`Workload`": Workload,
        "`Poisson` (`--traffic poisson`)": Poisson,
        "`Bursty` (`--traffic mmpp`)": Bursty,
        "Equal distances (`--traffic deterministic`)": Deterministic,
        "`Replay` (`--replay`)": Replay,
    },
    "Hardware": {
        "`Npu` (`--accelerator npu`)": Npu,
        "`MigGpu` (`--accelerator a100-40gb`, ...)": MigGpu,
        "`MeasuredGpu` (`--accelerator h100-measured`, ...)": MeasuredGpu,
        "`Measured` (`--accelerator profile`)": Measured,
        "`V100` (`--accelerator v100`)": V100,
        "`Preprocess`": Preprocess,
    },
    "Fleets and runs": {"`Fleet` (`--servers`)": FleetSettings, "The run": RunSettings},
}
HEAD = """# Settings

`scripts/settings_reference.py` writes this file from the classes that define the settings. A setting has one name
everywhere: `slo_ms` in Python and in TOML files, `--slo-ms` on the command line. Settings of a policy are also given as
`--set NAME=VALUE`, or in a table `[policy]`.
"""


def row(each: Setting) -> str:
    """Return the line of a setting in a table."""
    kind = f"{each.kind.__name__}{', several by comma' if each.many else ''}"
    bounds = each.allowed().removeprefix("give ").removeprefix("a ") if each.kind in (int, float) else ""
    values = ", ".join(f"`{name}`" for name in each.choices) or bounds
    default = "" if each.default is None else f"`{str(each.default).lower() if each.kind is bool else each.default}`"
    text = each.help.replace("|", "\\|")
    return f"| `{each.name}` | {kind} | {values} | {default} | {text} |"


def table(cls: type) -> str:
    """Return the settings of a class as a table."""
    rows = [row(each) for each in settings_of(cls)]
    if not rows:
        return "It has no settings.\n"
    return "\n".join(["| name | type | values | default | |", "| --- | --- | --- | --- | --- |", *rows]) + "\n"


def reference() -> str:
    """Return the whole file."""
    parts = [HEAD, "## Policies\n"]
    for name in policy_names():
        entry = find_policy(name)
        if entry.package == "headrace":
            parts += [f"### `{name}`\n", f"{entry.summary} In Python: `headrace.policies.{entry.cls.__name__}`.\n"]
            parts.append(table(entry.cls))
    for heading, classes in GROUPS.items():
        parts.append(f"## {heading}\n")
        for title, cls in classes.items():
            parts += [f"### {title}\n", table(cls)]
    parts += ["## Served models\n", "Options of `headrace serve`, and keys of a table `[[models]]`, with dashes.\n"]
    parts.append(table(ModelSettings))
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = reference()
    if not parser.parse_args().check:
        OUT.write_text(text)
    elif not OUT.exists() or OUT.read_text() != text:
        sys.exit(f"{OUT.name} is not what the settings say: run scripts/settings_reference.py")


if __name__ == "__main__":
    main()
