"""Report how readable the documentation is, by file: sentences, their length, fragments and headings.

    .venv/bin/python scripts/readability.py                     # all Markdown files of the working tree
    .venv/bin/python scripts/readability.py docs README.md      # these files and folders only
    .venv/bin/python scripts/readability.py --since v0.2.0      # compare a revision with the working tree
    .venv/bin/python scripts/readability.py --list docs/project # show each long sentence and each fragment
    .venv/bin/python scripts/readability.py --docstrings sim    # docstrings of Python files instead
    .venv/bin/python scripts/readability.py --docstrings --depth 1  # the same, by folder
    .venv/bin/python scripts/readability.py --check             # fail for a sentence over 30 words in CHECKED

Code blocks, tables, comments and headings are no sentences. Inline code is one word. An entry of a list that ends
without a full stop is checked for its length, but it need not have a verb.

A fragment is a sentence without a finite verb. The rule knows the common verbs of this documentation and looks at the
word before, so it errs in both directions: read its list as a hint. --json FILE writes all numbers and sentences.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
MAX_WORDS = 30
# `make lint` checks these files and folders. UNCHECKED are laboratory notes and pages that a script writes.
CHECKED = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples", "hls", "host", "benchmarks")
UNCHECKED = ("docs/notes", "docs/results/measured")

ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "al.", "Fig.", "Figs.", "Eq.", "Eqs.", "Sec.", "Tab.", "approx.")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*(?=\s+[\"'(\[]*[A-Z0-9`\-*])")
WORD = re.compile(r"[^\W_]")
SECTION = re.compile(r"(Args|Attributes|Example|Raises|Returns|Source|Yields):$")


def listed_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Forms that are finite verbs wherever they stand.
FINITE = listed_words("""
    am are aren't became becomes began begins belongs brings came can can't cannot comes consists contains could
    depends did differs do does doesn't don't equals exists fell follows found gave gets gives goes got grew
    grows had hands happens has hasn't have haven't helps holds is isn't keeps kept knew knows lacks lasts
    leaves left lets lies loses lost made makes may means meets might must needs occurs owns pays ran remains
    said says seems sees sends sent shall should showed shows spends stands stood takes tells thinks took wants
    was went were will won't works would writes wrote
""")
# Base forms that are no nouns. Each is a finite verb unless "to" stands before it.
PURE_VERBS = listed_words("""
    accept add agree allow appear append apply arrive ask assert assume attach avoid become begin belong bring
    build choose collect combine come compare compile complete compute configure connect consider contain
    continue create decide decode define delete deliver depend derive describe detect determine differ disable
    discard distribute divide emit emulate enable encode enforce enlarge ensure enter evaluate exceed exclude
    execute exist expect explain extend feed fetch find follow forget gather generate get give go grow guarantee
    happen hide hold ignore implement imply improve include inject insert install interpolate introduce invert
    join keep know label learn leave let locate lose make manage meet merge modify multiply normalize obey occur
    omit pay perform pick preempt prepare preprocess prevent produce prove provide publish put raise reach read
    receive recognise recognize reduce refer reject rely remain remove rename render repeat replace represent
    reproduce require resample resize resolve respond restart restore reuse revive save say scrape see seem
    select send serve settle show shrink simulate solve speak specify spend submit subtract succeed suppose take
    tell terminate think throw tolerate transform translate treat try understand unload validate vary verify
    want warn weigh withdraw write
""")
# Base forms that may be nouns, too ("run"). These forms, and all forms with -s and -ed, are told by the word before.
VERBS = PURE_VERBS | listed_words("""
    aim answer average batch bear bind block bound break buy calculate call cancel carry catch cause change
    charge check claim clean clear close commit convert copy correct cost count cover crop cross cut deal
    decrease delay demand display document download draw drive drop edit end estimate exit export express fail
    fall fill finish fit fix flow force fork free gain group handle hang help host idle import increase infer
    jump kill lack last launch lay lead lie limit link lint list load lock log look lower map mark match matter
    mean measure miss mix model move name need notice offer open order overlap own pack pad pass pause pay pin
    place plan play plot point poll predict prefer print pull push queue record refuse register release replay
    report request reserve reset rest return rise round run scale schedule search separate set share shed skip
    sleep slow sort split stand start state stay step stop store stream suit supply support switch test tile
    time touch trace train transfer tune turn update use visit wait wake warm waste watch win work wrap yield
""")
# Words after which a form that may be a noun is one: "the runs", "of requests", "two copies".
BEFORE_NOUNS = listed_words("""
    a an the this that these those its their our your his her my no each every any some few many several more
    most less fewer other another such same own one two three four five six seven eight nine ten of in on at by
    for from with without to into onto over under per as between among through during after before about against
    than within until whose
""")
SUBJECTS = listed_words("i you we they it he she who which that this these those what one others")
OBJECTS = listed_words("it them the a an this these its their each every all no one")
OPENERS = listed_words("then and or but so please first next finally otherwise instead")
ADVERBS = listed_words("all always also both ever never not now often only soon still then therefore too")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or an entry of a list, with the line at which it begins."""

    line: int
    words: int
    text: str
    fragment: bool


@dataclass(slots=True)
class Report:
    """Hold the sentences and the number of headings of one file, or of several."""

    headings: int = 0
    sentences: list[Sentence] = field(default_factory=list)

    @property
    def words(self) -> int:
        return sum(sentence.words for sentence in self.sentences)

    @property
    def mean_words(self) -> float:
        return self.words / len(self.sentences) if self.sentences else 0.0

    @property
    def long(self) -> list[Sentence]:
        return [sentence for sentence in self.sentences if sentence.words > MAX_WORDS]

    @property
    def fragments(self) -> list[Sentence]:
        return [sentence for sentence in self.sentences if sentence.fragment]

    def numbers(self) -> dict[str, float]:
        return {
            "sentences": len(self.sentences),
            "words": self.words,
            "mean_words": round(self.mean_words, 1),
            f"over_{MAX_WORDS}_words": len(self.long),
            "fragments": len(self.fragments),
            "headings": self.headings,
        }


def of_markdown(text: str, phrases: bool = False) -> Report:
    """Read the prose of a Markdown file. With `phrases`, no entry of a list needs a verb."""
    report = Report()
    depth = 0  # of lists
    tokens = MarkdownIt("commonmark").enable("table").parse(without_front_matter(text))
    skipped: str | None = None
    before = ""
    for token in tokens:
        if skipped is not None:  # within a heading or a table
            skipped = None if token.type == skipped else skipped
            continue
        if token.type in ("heading_open", "table_open"):
            report.headings += token.type == "heading_open"
            skipped = token.type.replace("open", "close")
        elif token.type in ("list_item_open", "list_item_close"):
            depth += 1 if token.type == "list_item_open" else -1
        elif token.type == "inline" and before == "paragraph_open":
            assert token.map is not None
            prose, line = block_text(token), token.map[0] + 1
            found = sentences(prose, line, entry=depth > 0)
            report.sentences += [replace(each, fragment=False) if phrases and depth else each for each in found]
        before = token.type
    return report


def without_front_matter(text: str) -> str:
    """Blank the YAML block at the beginning, so that lines keep their numbers."""
    match = re.match(r"---\n.*?\n---\n", text, re.DOTALL)
    return "\n" * match[0].count("\n") + text[match.end() :] if match else text


def block_text(block: Token) -> str:
    """Return a paragraph as plain text, in the lines of the source. Inline code becomes one word."""
    parts: list[str] = []
    children = block.children or []
    closing = next((place for place, child in enumerate(children) if child.type == "link_close"), None)
    after = children[closing + 1 :] if closing and children[0].type == "link_open" else []
    if after and after[0].content.startswith(": "):  # "[Title](page.md): its first sentence" of an index
        children = after
    for child in children:
        if child.type == "text":
            parts.append(child.content)
        elif child.type == "code_inline":
            parts.append("`code`")
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
    if parts and parts[0].startswith(": "):
        parts[0] = parts[0][2:]
    lines = "".join(parts).split("\n")
    # Marks of MyST: containers such as ":::{note}", their options, and labels such as "(label)=".
    return "\n".join("" if re.match(r":::|:[\w-]+:( |$)|\([\w-]+\)=$", line) else line for line in lines)


def of_docstrings(source: str) -> Report:
    """Read the docstrings of a Python file, whose sections (Args, Returns ...) are lists."""
    report = Report()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text:
            first = node.body[0].lineno - 1
            found = of_markdown(sections_as_lists(text), phrases=True).sentences
            report.sentences += [replace(each, line=each.line + first) for each in found]
    return report


def sections_as_lists(text: str) -> str:
    lines, within = [], False
    for line in text.split("\n"):
        if SECTION.match(line):
            within = True
            line = ""
        elif line and not line.startswith(" "):
            within = False
        elif within and re.match(r"    \S", line):
            line = re.sub(r"^    (\*{0,2}\w+: )?", "- ", line)
        lines.append(line)
    return "\n".join(lines)


def sentences(prose: str, line: int, entry: bool = False) -> Iterator[Sentence]:
    """Yield the sentences of a paragraph that begins at `line`. `entry` says that it stands in a list."""
    start = 0
    for piece in split(prose):
        position = prose.index(piece, start)
        at = line + prose.count("\n", 0, position + len(piece) - len(piece.lstrip()))
        start = position + len(piece)
        text = " ".join(piece.split())
        words = sum(1 for word in text.split() if WORD.search(word))
        if words == 0:
            continue
        complete = text.rstrip("\"')]*").endswith((".", "!", "?", ":"))
        # "Safety." at the beginning of a paragraph, "In Python:", and a paragraph of one or two words.
        label = (words <= 4 and start < len(prose) and position == 0) or (words <= 3 and text.endswith(":"))
        label |= words <= 2 and not complete
        phrase = entry and (not complete or re.match(r"`code`:", prose) is not None)  # an entry that needs no verb
        fragment = not label and not phrase and not has_verb(text)
        yield Sentence(at, words, text, fragment)


def split(prose: str) -> Iterator[str]:
    start = 0
    for match in SENTENCE_END.finditer(prose):
        piece = prose[start : match.end()]
        if piece.endswith(ABBREVIATIONS) or re.search(r"(^|\s)\(?[A-Z]\.$", piece):
            continue
        yield piece
        start = match.end()
    if prose[start:].strip():
        yield prose[start:]


def has_verb(text: str) -> bool:
    """Say whether a sentence has a finite verb, as far as lists of verbs and the word before can tell."""
    before = ""  # the word before, without adverbs
    words = re.findall(r"[\w'`-]*[\w`][\w'`-]*|[,;:()]", text.lower().replace("\u2019", "'"))
    for word, after in zip(words, [*words[1:], ""], strict=True):
        first = before in ("", ",", ";", ":", "(") or before in OPENERS
        noun = before in BEFORE_NOUNS - SUBJECTS or before.endswith(("'s", "s'"))
        if word in FINITE or word.endswith("n't"):
            return True
        if word in PURE_VERBS and before != "to":
            return True
        plural = before in SUBJECTS or before.endswith(("s", "`")) or after in OBJECTS
        if word in VERBS and (first or plural) and not noun:
            return True
        bases = base_forms(word)
        if (bases & VERBS and not first and not noun) or (bases & PURE_VERBS and first and word.endswith("s")):
            return True
        if word not in ADVERBS and not word.endswith("ly"):
            before = word
    return False


def base_forms(word: str) -> set[str]:
    """Return the bases of which the word may be the form with -s or -ed."""
    found = set()
    if word.endswith("s"):
        found |= {word[:-1], word[:-2]} | ({word[:-3] + "y"} if word.endswith("ies") else set())
    if word.endswith("ed"):
        found |= {word[:-1], word[:-2], word[:-3]} | ({word[:-3] + "y"} if word.endswith("ied") else set())
    return found


def texts(revision: str | None, suffix: str) -> dict[str, str]:
    """Return the files of a revision, or of the working tree, that git knows."""
    if revision is None:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", f"*{suffix}"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        return {name: (ROOT / name).read_text() for name in names if (ROOT / name).is_file()}
    done = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True)
    if done.returncode != 0:
        raise ValueError(f"--since {revision}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        found = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(suffix)]
        return {member.name: archive.extractfile(member).read().decode() for member in found}  # type: ignore[union-attr]


def reports(files: dict[str, str], paths: Sequence[str]) -> dict[str, Report]:
    read = of_docstrings if any(name.endswith(".py") for name in files) else of_markdown
    return {name: read(text) for name, text in sorted(files.items()) if not paths or inside(name, paths)}


def inside(name: str, paths: Iterable[str]) -> bool:
    return any(name == path or name.startswith(f"{path.rstrip('/')}/") for path in paths)


def total(all_reports: Iterable[Report]) -> Report:
    found = Report()
    for report in all_reports:
        found.headings += report.headings
        found.sentences += report.sentences
    return found


def summed(files: dict[str, Report] | None, depth: int) -> dict[str, Report] | None:
    """Sum up the reports of the files that lie below the same folders."""
    if files is None:
        return None
    folders: dict[str, list[Report]] = {}
    for name, report in files.items():
        folder = "/".join(name.split("/")[:-1][:depth]) or "."
        folders.setdefault(folder, []).append(report)
    return {folder: total(found) for folder, found in folders.items()}


def table(after: dict[str, Report], before: dict[str, Report] | None) -> Iterator[str]:
    """Yield the lines of a Markdown table. With two revisions, each number is `before -> after`."""
    names = ["sentences", "mean words", f"over {MAX_WORDS} words", "fragments", "headings"]
    yield f"| file | {' | '.join(names)} |"
    yield "| --- |" + " ---: |" * len(names)
    rows = sorted({*after, *(before or {})})
    columns = [key for key in Report().numbers() if key != "words"]
    for name in [*rows, "all"]:
        chosen = [
            None if side is None else total(side.values()) if name == "all" else side.get(name)
            for side in (before, after)
        ]
        cells = [[f"{report.numbers()[key]:,}" if report else "-" for key in columns] for report in chosen]
        shown = cells[1] if before is None else [f"{old} -> {new}" for old, new in zip(*cells, strict=True)]
        yield f"| {name} | {' | '.join(shown)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="FILE_OR_FOLDER", help="relative to the repository [all]")
    parser.add_argument("--since", metavar="REV", help="compare this revision with the working tree")
    parser.add_argument("--at", metavar="REV", help="read this revision in place of the working tree")
    parser.add_argument("--depth", type=int, metavar="N", help="sum up the files below the same N folders")
    parser.add_argument("--docstrings", action="store_true", help="read Python docstrings in place of Markdown")
    parser.add_argument("--list", action="store_true", help="show each long sentence and each fragment")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers and sentences")
    parser.add_argument("--check", action="store_true", help=f"fail for a sentence over {MAX_WORDS} words in CHECKED")
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.paths or CHECKED)
    suffix = ".py" if options.docstrings else ".md"
    try:
        after = reports(texts(options.at, suffix), options.paths)
        before = reports(texts(options.since, suffix), options.paths) if options.since else None
    except ValueError as error:
        parser.error(str(error))
    if not after and not before:
        parser.error(f"no {suffix} file in {', '.join(options.paths)}")
    shown = (after, before) if options.depth is None else (summed(after, options.depth), summed(before, options.depth))
    print("\n".join(table(*shown)))
    if options.list:
        print("\n".join(["", *listing(after)]))
    if options.json:
        write_json(options.json, after, before)
    return 0


def listing(found: dict[str, Report]) -> Iterator[str]:
    for name, report in found.items():
        for sentence in report.sentences:
            if sentence.words > MAX_WORDS:
                yield f"{name}:{sentence.line}: {sentence.words} words: {sentence.text}"
            if sentence.fragment:
                yield f"{name}:{sentence.line}: no verb: {sentence.text}"


def write_json(file: Path, after: dict[str, Report], before: dict[str, Report] | None) -> None:
    sides = {"after": after} if before is None else {"before": before, "after": after}
    content = {
        side: {
            name: {
                **report.numbers(),
                "long": [asdict(sentence) for sentence in report.long],
                "without_verb": [asdict(sentence) for sentence in report.fragments],
            }
            for name, report in found.items()
        }
        for side, found in sides.items()
    }
    file.write_text(json.dumps(content, indent=2) + "\n")


def check(paths: Sequence[str]) -> int:
    files = {name: text for name, text in texts(None, ".md").items() if not inside(name, UNCHECKED)}
    count = 0
    for name, report in reports(files, paths).items():
        for sentence in report.long:
            print(
                f"{name}:{sentence.line}: a sentence has {sentence.words} words, at most {MAX_WORDS}: {sentence.text}"
            )
            count += 1
    print(f"{count} sentences to split" if count else f"no sentence has more than {MAX_WORDS} words")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
