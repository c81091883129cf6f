#!/usr/bin/env python3
"""Write the list of pages in the index of each section of docs/: a line for each page, with its first sentence.

    scripts/docs_index.py

It rewrites the part of docs/SECTION/index.md between the comments `generated: pages` and `end of generated part`. ORDER
has the groups and the order of the pages. Pages that it does not name follow in the order of their names.
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
# For each section, its groups of pages in order. A group without a title is the only one of its section.
ORDER = {
    "tutorials": {
        "": ["serve_a_network", "speech_server", "own_policy", "paper_figure", "plan_a_server", "alveo_folder"],
    },
    "how_to": {
        "Serve": [
            "send_an_image",
            "own_preprocessing",
            "hugging_face_processors",
            "transformers_processors",
            "sounds_before_vllm",
            "compare_front_ends",
            "own_network",
            "from_triton",
            "before_triton",
            "limits_and_overload",
            "grpc_front",
            "observe",
            "mig",
            "kserve",
            "ray",
        ],
        "Simulate and plan": [
            "choose_a_load",
            "replay_a_trace",
            "simulate_models_that_decode",
            "own_step_policy",
            "sweep_and_plot",
            "simulate_a_server",
            "simulate_a_fleet",
            "cells_and_trees",
            "tune_a_policy",
            "smdp_tables",
            "plan_several_models",
            "plan_models_that_decode",
            "plan_a_day",
            "check_models_on_a_gpu",
        ],
        "Build hardware": ["wave", "add_a_unit", "small_boards", "xrt_programs"],
    },
    "reference": {
        "Software": [
            "cli/index",
            "python",
            "policies/index",
            "settings",
            "protocol",
            "status_codes",
            "metrics",
            "file_formats",
            "image_processors",
            "environment",
        ],
        "Hardware": ["units", "registers", "xrt_calls"],
    },
    "explanation": {
        "": [
            "the_seam",
            "exactness",
            "live_and_simulated",
            "slice_model",
            "npu_model",
            "measured_gpus",
            "decoding_steps",
            "does_a_dpu_pay",
            "dpu_before_decoders",
            "lazy",
            "security",
        ],
    },
    "results": {
        "Papers": ["preba", "lazybatching", "batchmaker", "smdp", "parvagpu"],
        "Studies of this project": [
            "goodput",
            "slices",
            "gpu",
            "gpu_check",
            "measured/h100",
            "aiconfigurator",
            "image_processors",
            "speech",
            "resampling",
            "energy",
            "front_ends",
            "vllm",
            "vllm_steps",
            "benchmarks",
        ],
    },
    "project": {"": ["contributing", "changelog", "release", "limits", "glossary"]},
}
OTHERS = "More"
BEGIN, END = "<!-- generated: pages -->", "<!-- end of generated part -->"
# A sentence ends with a full stop, a question mark or a colon before a space and a capital letter.
SENTENCE = re.compile(r"(.+?[.?:])(?=\s+[A-Z`\[]|\s*$)")


def pages(section: Path) -> dict[str, list[str]]:
    """Return the section's pages by group, in order: its own, and those of its folders or the index of a folder."""
    paths = [path for path in section.glob("*.md") if path.name != "index.md"]
    for folder in (path for path in section.iterdir() if path.is_dir()):
        index = folder / "index.md"
        paths += [index] if index.exists() else folder.glob("*.md")
    found = {path.relative_to(section).with_suffix("").as_posix() for path in paths}
    groups = {title: [name for name in names if name in found] for title, names in ORDER[section.name].items()}
    rest = sorted(found - {name for names in groups.values() for name in names})
    if list(groups) == [""]:
        groups[""] += rest
    else:
        groups[OTHERS] = rest
    return {title: names for title, names in groups.items() if names}


def title_and_opening(text: str) -> tuple[str, str]:
    """Return a page's title and its first sentence, without links.

    Raises:
        ValueError: The page has no title, or no paragraph after it.
    """
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    if title is None:
        raise ValueError("the page has no title; begin it with '# '")
    paragraphs = [" ".join(each.split()) for each in text[title.end() :].split("\n\n") if each.strip()]
    prose = next((each for each in paragraphs if each[0].isalnum() or re.match(r"[*\[]|`[^`]", each)), None)
    if prose is None:
        raise ValueError("the page has no opening; say what it gives in one or two sentences after the title")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    sentence = SENTENCE.match(plain)
    return title[1].strip(), sentence[1].rstrip(":") if sentence else plain


def listed(section: Path) -> str:
    """Return the generated part of a section's index."""
    lists, toctrees = [], []
    for group, names in pages(section).items():
        lines = []
        for name in names:
            try:
                title, opening = title_and_opening((section / f"{name}.md").read_text())
            except ValueError as error:
                raise ValueError(f"{section.name}/{name}.md: {error}") from None
            lines.append(f"- [{title}]({name}.md): {opening}")
        lists += [f"## {group}"] * bool(group) + ["\n".join(lines)]
        caption = [f":caption: {group}"] * bool(group)
        toctrees.append("\n".join(["```{toctree}", ":hidden:", *caption, "", *names, "```"]))
    return "\n\n".join([BEGIN, *lists, *toctrees, END])


def rewritten(index: Path) -> str:
    text = index.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{index}: there is no part between {BEGIN} and {END}")
    return before + listed(index.parent) + after


def main() -> int:
    try:
        for section in ORDER:
            index = DOCS / section / "index.md"
            text = rewritten(index)
            if text != index.read_text():
                index.write_text(text)
                print(f"docs_index: wrote {index.relative_to(DOCS.parent)}", file=sys.stderr)
    except ValueError as error:
        print(f"docs_index: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
