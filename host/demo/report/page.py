"""Write the demo's report as one HTML file: pictures and photos stand in it, and it loads nothing.

It begins with what to look at. Then come the picture, the photos with their labels, the tables, how to read them, and
what was simulated. It follows the reader's choice of a light or dark page.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from headrace.host.demo.report.tables import Table
from headrace.sim.plot_style import DARK, LIGHT, SHOWN_PX, themed_path

STYLE = f"""
:root {{ color-scheme: light dark; --back: {LIGHT.background}; --text: {LIGHT.text}; --muted: {LIGHT.muted};
  --line: {LIGHT.grid}; --band: {LIGHT.band}; }}
@media (prefers-color-scheme: dark) {{ :root {{ --back: {DARK.background}; --text: {DARK.text}; --muted: {DARK.muted};
  --line: {DARK.grid}; --band: {DARK.band}; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: {SHOWN_PX + 48}px; padding: 16px 24px 48px; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 26px; margin: 12px 0; }}
h2 {{ font-size: 20px; margin: 36px 0 8px; }}
li {{ margin: 6px 0; }}
img {{ max-width: 100%; height: auto; }}
.scroll {{ overflow-x: auto; margin: 12px 0 24px; }}
.picture {{ display: block; width: 100%; min-width: 640px; }}
a {{ color: inherit; }}
.photos {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); gap: 16px; }}
figure {{ margin: 0; }}
figure img {{ width: 100%; aspect-ratio: 4 / 3; object-fit: cover; border-radius: 6px; display: block; }}
figcaption {{ margin-top: 6px; }}
.muted, figcaption small, dd, footer {{ color: var(--muted); }}
table {{ border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; font-weight: 600; padding-bottom: 4px; }}
th {{ color: var(--muted); font-weight: 500; }}
th, td {{ text-align: right; padding: 4px 10px 4px 0; white-space: nowrap; border-bottom: 1px solid var(--line); }}
th.text, td.text {{ text-align: left; }}
tbody + tbody tr:first-child td {{ border-top: 2px solid var(--line); }}
dt {{ font-weight: 600; margin-top: 10px; }}
dd {{ margin: 0; }}
aside {{ background: var(--band); padding: 4px 20px; border-radius: 6px; }}
"""


@dataclass(frozen=True, slots=True)
class NamedImage:
    """A photo of the demo as JPEG, its name, and what the network says it shows."""

    name: str
    jpeg: bytes
    label: str


@dataclass(frozen=True, slots=True)
class Page:
    """The contents of the report.

    Attributes:
        subtitle: What ran, and on which machine.
        look: Sentences that say what to look at.
        images: Photos with labels; there may be none.
        named_by: The network that named them.
        tables: Tables, in the order of the page.
        reading: Terms with their explanations.
        notes: What was simulated or emulated.
    """

    subtitle: str
    look: Sequence[str]
    images: Sequence[NamedImage]
    named_by: str
    tables: Sequence[Table]
    reading: Sequence[tuple[str, str]]
    notes: Sequence[str]

    def html(self, picture: Path, files: Sequence[str]) -> str:
        """Return the page. `picture` is the light variant of the picture, and `files` are names in the same folder."""
        dark, light = (_data(themed_path(picture, theme).read_bytes(), "png") for theme in (DARK, LIGHT))
        parts = [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>Headrace demo</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body>",
            f'<h1>Headrace demo</h1><p class="muted">{escape(self.subtitle)}</p>',
            "<h2>What to look at</h2>",
            _list(self.look),
            f'<div class="scroll"><picture><source srcset="{dark}" media="(prefers-color-scheme: dark)">'
            f'<img class="picture" src="{light}" alt="Bars of latency, late requests, cores and cost"></picture></div>',
            *self._images(),
            "<h2>All numbers</h2>",
            *map(_table, self.tables),
            "<h2>How to read them</h2>",
            f"<dl>{''.join(f'<dt>{escape(term)}</dt><dd>{escape(text)}</dd>' for term, text in self.reading)}</dl>",
            "<h2>What is simulated</h2>",
            f"<aside>{_list(self.notes)}</aside>",
            "<h2>Files</h2>",
            f"<p>In the same folder: {', '.join(map(_link, files))}. Open the trace in Perfetto "
            "(ui.perfetto.dev).</p></body></html>",
        ]
        return "\n".join(parts) + "\n"

    def _images(self) -> list[str]:
        if not self.images:
            return []
        figures = [
            f'<figure><img src="{_data(image.jpeg, "jpeg")}" alt="{escape(image.name)}">'
            f"<figcaption>{escape(image.label)}<br><small>{escape(image.name)}</small></figcaption></figure>"
            for image in self.images
        ]
        return [
            "<h2>What the photos show</h2>",
            f'<p class="muted">The answers of {escape(self.named_by)}, with their probabilities.</p>',
            f'<div class="photos">{"".join(figures)}</div>',
        ]


def _data(contents: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(contents).decode()}"


def _link(name: str) -> str:
    return f'<a href="{escape(name)}">{escape(name)}</a>'


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"


def _table(table: Table) -> str:
    kinds = [' class="text"' if place in table.text else "" for place in range(len(table.headings))]

    def row(cells: Sequence[str], tag: str) -> str:
        shown = (f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    bodies = "".join(f"<tbody>{''.join(row(cells, 'td') for cells in rows)}</tbody>" for rows in table.groups)
    head = f"<caption>{escape(table.title)}</caption><thead>{row(table.headings, 'th')}</thead>"
    return f'<div class="scroll"><table>{head}{bodies}</table></div>'
