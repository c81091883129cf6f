"""The report of a comparison: one HTML page without a network, for light and dark screens."""

import base64
from html import escape
from typing import Any, Final

from headrace.host.compare.comparison import DIFFERS, EQUAL, FAILED, REFUSED, Comparison, FileResult
from headrace.host.compare.difference import Difference
from headrace.host.compare.effect import Effect

TITLES: Final = {
    "decode": "decode",
    "convert": "convert",
    "resize": "resize",
    "crop": "crop or pad",
    "normalize": "normalize",
    "layout": "layout",
    "resample": "resample",
    "features": "features",
    "unknown": "unknown",
}
MEANINGS: Final = {
    "decode": "from the bytes of a file to pixels or samples",
    "convert": "Exif orientation, CMYK, palettes, transparency, 16 bits to RGB; channels to mono",
    "resize": "the size that the model takes",
    "crop": "cut or padded to the canvas, and cut into tiles",
    "normalize": "pixels to values",
    "layout": "the order of the axes and of the values, and the type",
    "resample": "to the rate of the model",
    "features": "spectrum, mel bands, logarithm, normalization, padding",
}
COLOURS: Final = {EQUAL: "good", DIFFERS: "bad", FAILED: "bad", REFUSED: "plain"}

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5c6675; --paper: #ffffff; --card: #f4f6f9; --line: #d8dde5;
  --good: #1a7f4b; --bad: #b3261e; --bar: #c2571a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #9aa5b4; --paper: #14181e; --card: #1d232b;
  --line: #343c47; --good: #58c98c; --bad: #ff8a80; --bar: #f0954f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; }
p { margin: .25rem 0 .75rem; } .dim { color: var(--dim); } .good { color: var(--good); } .bad { color: var(--bad); }
.verdict { font-size: 1.15rem; font-weight: 600; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .9rem; }
.card b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 500; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
tr.first td { background: var(--card); font-weight: 600; }
.bar { display: inline-block; height: .7rem; background: var(--bar); border-radius: 2px; vertical-align: baseline; }
.files { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem; }
figure .pair { display: flex; gap: .5rem; align-items: flex-start; }
figure img { flex: 1 1 0; min-width: 0; max-width: 100%; max-height: 16rem; object-fit: contain;
  image-rendering: pixelated; background: #000; border-radius: .25rem; }
figcaption { font-size: .88rem; margin-top: .5rem; overflow-wrap: anywhere; }
.scale { height: .6rem; width: 12rem; border-radius: 2px; display: inline-block;
  background: linear-gradient(90deg, #000, #420a68, #bb3754, #f98e08, #fcffc8); }
"""


def html(of: Comparison) -> str:
    """Return the report as one page."""
    name, reference = escape(of.candidate["name"]), escape(of.reference["name"])
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{name} compared with transformers: {reference}</title><style>{STYLE}</style></head><body>",
        f"<h1>{name} compared with transformers: {reference}</h1>",
        f'<p class="dim">{escape(of.reference["class"])} of transformers {escape(_version(of))} is the reference. '
        f"Inputs: {escape(of.inputs)}. Tolerance: {of.tolerance:g}.</p>",
        _verdict(of),
        _cards(of),
        _first(of),
        _stages(of),
        _effect(of),
        _pictures(of),
        _files(of),
        _versions(of),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part)


def _version(of: Comparison) -> str:
    return str(of.reference["versions"].get("transformers", ""))


def verdict(of: Comparison) -> str:
    """Return the outcome as one sentence."""
    compared = of.count(EQUAL) + of.count(DIFFERS)
    if of.equal:
        return (
            f"{compared} of {compared} inputs are equal to those of transformers."
            if compared
            else "Nothing was compared."
        )
    if not of.count(DIFFERS):
        rest = f" The other {compared} are equal." if compared else ""
        return f"{of.count(FAILED)} of {len(of.files)} inputs failed.{rest}"
    first = next(iter(of.first))
    earliest = "" if first == "unknown" else f" The earliest stage that differs is {TITLES[first]}."
    return f"{of.count(DIFFERS)} of {compared} inputs differ.{earliest}"


def _verdict(of: Comparison) -> str:
    note = f'<p class="dim">{escape(of.note)}</p>' if of.note else ""
    return f'<p class="verdict {"good" if of.equal else "bad"}">{escape(verdict(of))}</p>{note}'


def _cards(of: Comparison) -> str:
    words = {EQUAL: "equal", DIFFERS: "differ", FAILED: "failed", REFUSED: "refused by transformers"}
    cards = []
    for result, text in words.items():
        count = of.count(result)
        cards.append(f'<div class="card"><b class="{COLOURS[result] if count else "plain"}">{count}</b>{text}</div>')
    return f'<div class="cards">{"".join(cards)}</div>'


def _table(head: list[tuple[str, bool]], rows: list[tuple[list[str], str]]) -> str:
    """Return a table of HTML cells. The head says which columns are numbers, and a row has a class."""
    top = "".join(f'<th class="n">{text}</th>' if number else f"<th>{text}</th>" for text, number in head)
    body = []
    for cells, kind in rows:
        made = "".join(
            f'<td class="n">{cell}</td>' if number else f"<td>{cell}</td>"
            for cell, (_, number) in zip(cells, head, strict=True)
        )
        body.append(f'<tr class="{kind}">{made}</tr>')
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _first(of: Comparison) -> str:
    if not of.first:
        return ""
    longest = max(of.first.values())
    rows = []
    for name, count in of.first.items():
        bar = f'<span class="bar" style="width:{max(1, round(180 * count / longest))}px"></span>'
        reasons: dict[str, int] = {}
        for each in of.files:
            if each.first == name and each.why and not of.candidate["stages"]:
                reasons[each.why] = reasons.get(each.why, 0) + 1
        said = "<br>".join(f"{escape(text)}: {n}" for text, n in sorted(reasons.items(), key=lambda row: -row[1])[:6])
        rows.append(([TITLES[name], str(count), bar, said], ""))
    head = [("stage", False), ("inputs", True), ("", False), ("" if of.candidate["stages"] else "explained by", False)]
    about = (
        "The first stage of each input whose result differs, given the reference's input of this stage."
        if of.candidate["stages"]
        else "Only the tensors of this candidate are known. A stage is named if another way to compute this stage "
        "alone explains them."
    )
    return f'<h2>Where the first difference arises</h2><p class="dim">{about}</p>{_table(head, rows)}'


def _stages(of: Comparison) -> str:
    if not of.stages:
        return ""
    first = next(iter(of.first), None)
    rows = []
    for name, found in of.stages.items():
        differ = found["differ"]
        rows.append(
            (
                [
                    f'{TITLES[name]}<br><span class="dim">{MEANINGS[name]}</span>',
                    f"{differ} of {found['files']}",
                    f"{_number(found['max'])} {found['unit']}" if differ else "",
                    f"{found['share']:.2%}" if differ else "",
                ],
                "first" if name == first else "",
            )
        )
    head = [("stage", False), ("inputs that differ", True), ("largest difference", True), ("share of values", True)]
    return (
        '<h2>Stage by stage</h2><p class="dim">Each stage of the candidate ran with the input that the reference has '
        f"there, so a stage does not inherit the difference of another.</p>{_table(head, rows)}"
    )


def _effect(of: Comparison) -> str:
    found = of.effect
    if found is None:
        return ""
    text = (
        f"The first class changes for {found['flips']} of {found['files']} inputs. The logits move by at most "
        f"{_number(found['max'])}; their mean Euclidean distance is {_number(found['distance'])}."
    )
    failed = f" The network failed for {found['failed']} inputs." if found["failed"] else ""
    return f"<h2>Effect on the network</h2><p>{text}{failed}</p>"


def _pictures(of: Comparison) -> str:
    shown = [each for each in of.files if each.pictures is not None]
    if not shown:
        return ""
    return (
        '<h2>Heat maps</h2><p class="dim">Black is equal. The colour grows with the square root of the difference: '
        f'<span class="scale"></span></p><div class="files">{"".join(map(_figure, shown))}</div>'
    )


def _figure(of: FileResult) -> str:
    assert of.pictures is not None
    source = (
        "" if of.pictures.source is None else _img(of.pictures.source, "jpeg", f"{of.file} as the reference has it")
    )
    heat = _img(of.pictures.heat, "png", f"difference of {of.file}")
    why = f": {escape(of.why)}" if of.why else ""
    first = f"First at {TITLES.get(of.first or '', of.first)}{why}." if of.first else ""
    stage = TITLES.get(of.pictures.stage, of.pictures.stage)
    return (
        f'<figure><div class="pair">{source}{heat}</div><figcaption><b>{escape(of.file)}</b><br>{first} '
        f'<span class="dim">Map of {stage}: {escape(of.pictures.scale.strip())}.</span></figcaption></figure>'
    )


def _img(data: bytes, kind: str, text: str) -> str:
    return f'<img alt="{escape(text)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'


def _files(of: Comparison) -> str:
    head = [("input", False), ("result", False), ("first", False), ("why", False), ("largest", True), ("share", True)]
    network = any(each.effect is not None for each in of.files)
    if network:
        head += [("flips", True), ("logits", True)]
    rows = []
    for each in of.files:
        largest = _largest(each)
        cells = [
            escape(each.file),
            f'<span class="{COLOURS[each.result]}">{each.result}</span>',
            TITLES.get(each.first or "", ""),
            escape("; ".join(filter(None, (each.why, each.note)))),
            "" if largest is None else f"{_number(largest.max)} {largest.unit}",
            "" if largest is None else f"{largest.share:.1%}",
        ]
        if network:
            cells += _effect_cells(each.effect)
        rows.append((cells, ""))
    return f"<h2>All inputs</h2>{_table(head, rows)}"


def _effect_cells(of: Effect | str | None) -> list[str]:
    if isinstance(of, Effect):
        return [f"{of.flips} of {of.rows}", _number(of.max)]
    return ["" if of is None else escape(of), ""]


def _largest(of: FileResult) -> Difference | None:
    """Return the difference of the tensor in levels, or in values."""
    if of.result != DIFFERS:
        return None
    return of.levels or next((each for each in of.tensors.values() if isinstance(each, Difference)), None)


def _versions(of: Comparison) -> str:
    def listed(versions: Any) -> str:
        return ", ".join(f"{escape(str(name))} {escape(str(text))}" for name, text in versions.items())

    candidate = listed(of.candidate["versions"])
    return (
        f'<h2>Versions</h2><p class="dim">Reference: {listed(of.reference["versions"])}.'
        f"{f'<br>Candidate: {candidate}.' if candidate else ''}</p>"
    )


def _number(value: float) -> str:
    return f"{value:.3g}"
