#!/usr/bin/env python3
"""Draw the pictures that readers of tutorials and how-to pages see at their end, by the pages' own Python blocks.

    .venv/bin/python scripts/draw_pages.py [PAGE ...]

The blocks of a page run in full in a scratch folder, up to the one that writes the picture, which is copied to
docs/images. A page is named as in PICTURES, "tutorials/own_policy" for example."""

import argparse
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {  # by page: the file that its blocks write
    "how_to/sweep_and_plot": "p99.png",
    "tutorials/own_policy": "p99.png",
    "tutorials/paper_figure": "figure12.png",
    "tutorials/plan_a_server": "limit.png",
}
THEME = """from headrace.sim.plot_style import {0}, themed
theme = themed({0})
theme.__enter__()
"""
read_blocks = runpy.run_path(str(ROOT / "scripts" / "docs_blocks.py"))["read_blocks"]


def drawn(text: str, picture: str, dark: bool = False) -> bytes:
    """Run the Python blocks of a page's text up to the one that names the file `picture`, and return that file.

    `dark` draws with the colours for dark pages."""
    blocks = read_blocks(text, "the page")
    programs = [block.text for block in blocks if block.language == "python" and block.runs]
    last = next(number for number, program in enumerate(programs) if picture in program)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "examples").symlink_to(ROOT / "examples")
        for block in blocks:
            if name := block.value("file"):
                (folder / name).write_text(block.text)
        theme = THEME.format("DARK" if dark else "LIGHT")
        (folder / "page.py").write_text("\n".join([theme, *programs[: last + 1]]))
        subprocess.run([sys.executable, "page.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return (folder / picture).read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="*", help="default: all")
    for page in parser.parse_args().page or PICTURES:
        picture = ROOT / "docs" / "images" / f"{page}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / "docs" / f"{page}.md").read_text()
        for dark, path in ((False, picture), (True, picture.with_stem(f"{picture.stem}-dark"))):
            path.write_bytes(drawn(text, PICTURES[page], dark))
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
