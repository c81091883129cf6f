#!/usr/bin/env python3
"""Write the generated parts of docs/reference/ from the code, and the pictures of the policies.

    .venv/bin/python scripts/docs_reference.py [--check] [PAGE ...]

A page is written by hand, except for regions such as this one:

    <!-- generated: options simulate -->
    ...
    <!-- end of generated part -->

The first word names a generator, which a module in scripts/reference/ defines. The other words are its arguments. The
script replaces what stands between the two comments. It also runs scripts/draw_policies.py, unless pages are given.

With --check nothing is written, and the exit status is 1 if a page or a picture is not what the code gives, or if a
command or a policy has no page.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import draw_policies
from reference import command_line, image_processors, policies, python_api, served, settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
END = "<!-- end of generated part -->"
REGION = re.compile(rf"<!-- generated: ([^\n]*?) -->\n.*?{re.escape(END)}", re.DOTALL)
OTHERS = ("pages",)  # parts that scripts/docs_index.py writes
GENERATORS: dict[str, Callable[..., str]] = {
    **command_line.GENERATORS,
    **image_processors.GENERATORS,
    **policies.GENERATORS,
    **python_api.GENERATORS,
    **served.GENERATORS,
    **settings.GENERATORS,
}


def filled(text: str, page: str) -> str:
    """Return a page with all its regions generated anew. Raises SystemExit for a region of an unknown generator."""

    def generated(found: re.Match[str]) -> str:
        name, *arguments = found[1].split()
        if name in OTHERS:
            return found[0]
        if name not in GENERATORS:
            sys.exit(f"{page}: there is no generator {name!r}; choose from {', '.join(GENERATORS)}")
        return f"<!-- generated: {found[1]} -->\n{GENERATORS[name](*arguments).strip()}\n{END}"

    if text.count("<!-- generated:") != text.count(END):
        sys.exit(f"{page}: each <!-- generated: ... --> needs one {END}, on lines of their own")
    return REGION.sub(generated, text)


def missing() -> list[str]:
    """Return what the code has and docs/reference/ has no page for."""
    wanted = [f"cli/{name}.md" for name in command_line.COMMANDS] + [f"policies/{name}.md" for name in policies.NAMES]
    return [page for page in wanted if not (PAGES / page).exists()]


def stale_pages(pages: Iterable[Path], *, write: bool) -> list[str]:
    """Return the pages that are not what the code gives. With `write` they are written."""
    stale = []
    for path in pages:
        text = path.read_text("utf-8")
        made = filled(text, path.name)
        if made != text:
            stale.append(str(path.relative_to(ROOT)))
            if write:
                path.write_text(made, "utf-8")
    return stale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something is out of date")
    parser.add_argument("pages", nargs="*", type=Path, help="pages to write [all of docs/reference]")
    given = parser.parse_args()
    stale = stale_pages(
        map(Path.resolve, given.pages) if given.pages else sorted(PAGES.rglob("*.md")), write=not given.check
    )
    if not given.pages:
        stale += [f"docs/images/policies/{name}" for name in draw_policies.stale_pictures(write=not given.check)]
        if pages := missing():
            sys.exit(f"docs/reference has no page {', '.join(pages)}")
    if given.check and stale:
        sys.exit(f"{', '.join(stale)}: not what the code gives; run scripts/docs_reference.py")
    for each in () if given.check else stale:
        print(f"wrote {each}")


if __name__ == "__main__":
    main()
