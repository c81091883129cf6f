"""Check docstrings and names against the words of this project: plain sentences, and no retired name.

    .venv/bin/python scripts/check_words.py [FILE_OR_FOLDER ...]

A docstring must not begin with a fragment's first word (FRAGMENTS), and must end its first sentence. A name must not be
one of RETIRED, and must not have one of RETIRED_PARTS among its parts. This is a floor: a text that passes may still be
hard to read."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("batching", "benchmarks", "bitstreams", "examples", "headrace", "hls", "host", "scripts", "sim")
FRAGMENTS = ("of", "by", "as", "who", "what", "whose", "whoever", "whatever")
RETIRED = {
    "quick": "process_tuning",
    "Alarm": "PreciseTimer",
    "Visit": "RequestTrace",
    "Ran": "TaskRecord",
    "Standing": "Snapshot",
    "Asked": "RequestOptions",
    "Wanted": "RequestedOutput",
    "Units": "FairPool",
    "Lane": "JobSlot",
    "DeadlineLine": "DeadlineQueue",
    "crew": "worker_pool",
    "tables_beside": "solve_tables_in_background",
}
RETIRED_PARTS = {
    "most": "max",
    "photo": "image",
    "photos": "images",
    "sound": "audio",
    "sounds": "audio",
    "sla": "slo",
    "behind": "after",
    "beside": "with",
    "apart": "isolated",
}
ALLOWED = {  # names of other libraries, and names that are fixed
    "most_common",
    "soundfile",
    "SoundFile",
    "SOUND_FORMAT",  # a status of the hardware
    "sla_violation_rate",
}


def docstring_errors(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text is None or not text.strip():
            continue
        line = node.body[0].lineno
        first = re.match(r"[^\w`-]*([\w-]+)", text)
        if first is not None and first[1].lower() in FRAGMENTS:
            yield line, f"a docstring begins with {first[1]!r}; begin with a sentence that says what the thing does"
        opening = text.split("\n\n")[0].rstrip()
        if not opening.endswith((".", ":", "?", "!", "`", ")", '"')):
            yield line, "the first paragraph of a docstring is no sentence; end it with a full stop"


def name_errors(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.NAME or token.string in ALLOWED:
            continue
        name = token.string.strip("_")
        if name in RETIRED and name[0].isupper():
            yield token.start[0], f"the name {token.string} is retired; say {RETIRED[name]}"
            continue
        parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
        for part in parts:
            if part.lower() in RETIRED_PARTS:
                yield token.start[0], f"the name {token.string} has {part!r}; say {RETIRED_PARTS[part.lower()]!r}"
                break


def files(arguments: list[str]) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [ROOT / name for name in listed.split("\n") if name.split("/")[0] in FOLDERS]
    if arguments:
        chosen = [Path(argument).resolve() for argument in arguments]
        found = [path for path in found if any(path == each or each in path.parents for each in chosen)]
    return [path for path in found if path.is_file()]


def main(arguments: list[str]) -> int:
    count = 0
    for path in files(arguments):
        source = path.read_text()
        for line, reason in sorted({*docstring_errors(ast.parse(source)), *name_errors(source)}):
            print(f"{path.relative_to(ROOT)}:{line}: {reason}")
            count += 1
    print(f"{count} texts or names to change" if count else "docstrings and names are as they should be")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
