#!/usr/bin/env python3
"""Write the list of pages in the index of each section of docs/: a line for each page, with its first sentence.

    scripts/docs_index.py

It rewrites the part of docs/SECTION/index.md between the comments `generated: pages` and `end of generated part`. ORDER
has the order of the pages. Pages that it does not name follow in the order of their names.
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
ORDER = {
    "tutorials": [
        "serve_a_network",
        "speech_server",
        "own_policy",
        "paper_figure",
        "plan_a_server",
        "alveo_folder",
    ],
    "how_to": [
        "send_an_image",
        "own_preprocessing",
        "own_network",
        "from_triton",
        "limits_and_overload",
        "observe",
        "mig",
        "kserve",
        "ray",
        "replay_a_trace",
        "sweep_and_plot",
        "check_models_on_a_gpu",
        "wave",
        "add_a_unit",
        "xrt_programs",
    ],
    "reference": [
        "cli/index",
        "python",
        "policies/index",
        "settings",
        "protocol",
        "status_codes",
        "metrics",
        "file_formats",
        "units",
        "registers",
    ],
    "explanation": [
        "the_seam",
        "exactness",
        "live_and_simulated",
        "slice_model",
        "npu_model",
        "measured_gpus",
        "does_a_dpu_pay",
        "lazy",
        "security",
    ],
    "results": [
        "preba",
        "lazybatching",
        "batchmaker",
        "smdp",
        "parvagpu",
        "goodput",
        "slices",
        "gpu",
        "gpu_check",
        "benchmarks",
    ],
    "project": ["contributing", "changelog", "release", "limits", "glossary"],
}
BEGIN, END = "<!-- generated: pages -->", "<!-- end of generated part -->"
# A sentence ends with a full stop, a question mark or a colon before a space and a capital letter.
SENTENCE = re.compile(r"(.+?[.?:])(?=\s+[A-Z`\[]|\s*$)")


def pages(section: Path) -> list[str]:
    """Return the names of the section's pages in order: its own, and the index of each folder in it."""
    found = {path.relative_to(section).with_suffix("").as_posix() for path in section.glob("*.md")} - {"index"}
    found |= {path.relative_to(section).with_suffix("").as_posix() for path in section.glob("*/index.md")}
    known = [name for name in ORDER.get(section.name, []) if name in found]
    return known + sorted(found - set(known))


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
    lines = [BEGIN, ""]
    names = pages(section)
    for name in names:
        try:
            title, opening = title_and_opening((section / f"{name}.md").read_text())
        except ValueError as error:
            raise ValueError(f"{section.name}/{name}.md: {error}") from None
        lines.append(f"- [{title}]({name}.md): {opening}")
    toctree = ["```{toctree}", ":hidden:", "", *names, "```"] if names else []
    return "\n".join([*lines, "", *toctree, END] if names else [BEGIN, END])


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
