"""How every kind of plan is told: plan.json and plan.png in a folder, JSON or words on stdout."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.host.cli.console import show_json, tell


def give(
    body: Mapping[str, Any],
    in_words: Callable[[], None],
    draw: Callable[[Path], None] | None,
    out_folder: Path | None,
    as_json: bool,
) -> None:
    """`draw` makes the picture of that name; None if there is nothing to be seen."""
    if out_folder is not None:
        wrote = ["plan.json"]
        (out_folder / "plan.json").write_text(json.dumps(body, indent=2) + "\n")
        if draw is not None:
            draw(out_folder / "plan.png")
            wrote.append("plan.png")
        tell(f"wrote {out_folder}: {', '.join(wrote)}")
    if as_json:
        show_json(body)
    else:
        in_words()
