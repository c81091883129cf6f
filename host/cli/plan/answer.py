"""The output of every kind of plan: plan.json and plan.png in a folder, and JSON or words on stdout."""

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
    """Write a plan to its folder, and print it.

    Args:
        body: The plan as JSON.
        in_words: Prints the plan as text.
        draw: Draws the plan to a picture file. None leaves the picture out."""
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
