"""Change single lines of the sources, and report the changes that no test notices.

    .venv/bin/python scripts/mutate.py [--count N] [--seed N] [--area NAME] [--file FILE] [--scope SCOPE]
                                       [--slow] [--only-slow] [--moved] [--survivors FILE] [--jobs N] [--json FILE]
                                       [--at-least PERCENT]

A mutant is a copy of the tree with one changed line. The tests that mirror the changed file run in that copy. The
mutant is killed when a test fails or takes too long, and it survives when all tests pass. A survivor shows a missing
test, or a change that alters no behaviour; a person must judge which of the two it is.

mutmut and cosmic-ray change only Python modules, and mypyc compiles many of this project's modules. A compiled module
hides the changed source, so every change of it would survive. Neither tool knows SystemVerilog.

If a file that changes is compiled by mypyc, the copy holds no module that mypyc compiled, so the Python sources run. It
keeps the extension of Cython, which has no Python form. The tests of an area must pass in the copy before the first
mutant; otherwise the exit status is 1.

The sample takes an equal share from each area. A larger --count with the same --seed extends the sample of an area.

--scope says how many tests a mutant must survive. Each scope begins with those before it:

nearest    the test files named after the source file; without any, those that import it, or those of the folder
folder     also the test files that import it, and all files of the mirroring test folder
area       also all other test files of the area

With --slow each survivor is also tried with the slow tests of its area. A mutant that they alone kill is a gap in
`make test`.

With --moved the areas are groups of tests that `make test` no longer runs. Each has the sources that the group guards,
and the quick tests of the same behaviour. --area chooses groups. Slow tests may take minutes for each
survivor. --survivors tries only the survivors of an earlier run with --json, whose lines may have moved since. With
--only-slow the quick tests do not run.

The table on stdout has a row for each area. Progress goes to stderr. The exit status is 1 when the score of the whole
sample is less than --at-least.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("batching", "bitstreams", "hls", "host", "sim")  # the folders of the package `headrace` in the copy
COPIED = (
    *FOLDERS,
    "benchmarks",
    "deploy",
    "docs",
    "examples",
    "scripts",
    "tests",
    "Makefile",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "setup.py",
)
SLACK = 5  # a test may take this many times as long as the longest test of the unchanged tree
MIN_TIMEOUT = 20.0  # seconds for one test, because machines pause


@dataclass(frozen=True)
class Area:
    """`sources`, `tests` and `slow` are glob patterns from the root.

    `tests` has all tests that may run for a mutant. `slow` has the files whose slow tests survivors are tried with, and
    is the same as `tests` if it is empty. `only` chooses tests of these files by pytest's -k."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    slow: tuple[str, ...] = ()
    only: str = ""


AREAS = {
    "batching": Area(("batching/**/*.py",), ("tests/batching/**/test_*.py",)),
    "engine": Area(("sim/engine.py",), ("tests/sim/test_*.py", "tests/batching/policies/test_*.py")),
    "live": Area(("host/live/**/*.py",), ("tests/host/live/test_*.py",)),
    "server": Area(("host/server/**/*.py",), ("tests/host/server/**/test_*.py",)),
    "dpu": Area(("host/dpu/**/*.py",), ("tests/host/dpu/**/test_*.py",)),
    "resize": Area(("hls/resize/*.sv",), ("tests/hls/test_resize.py",)),
    "transform": Area(("hls/decode/transform/*.sv",), ("tests/hls/test_transform.py",)),
    "decode": Area(
        ("hls/decode/*.sv", *(f"hls/decode/{room}/*.sv" for room in ("parse", "entropy", "transform", "render"))),
        tuple(f"tests/hls/test_{name}.py" for name in ("decode", "decode_scans", "sampling", "render", "transform")),
    ),
    "progressive": Area(
        ("hls/decode/progressive/*.sv",), ("tests/hls/test_progressive*.py", "tests/hls/test_image_cu_p*.py")
    ),
    "crop": Area(("hls/crop/*.sv",), ("tests/hls/test_crop.py",)),
    "image_cu": Area(("hls/image_cu/*.sv",), ("tests/hls/test_image_cu*.py", "tests/hls/test_store.py")),
    "audio_mel_cu": Area(
        ("hls/audio_mel_cu/*.sv",), ("tests/hls/test_audio_mel_cu*.py", "tests/hls/test_sound_store.py")
    ),
    "mel_normalize": Area(("hls/mel_normalize/*.sv",), ("tests/hls/test_mel_normalize.py",)),
    "resources": Area(("bitstreams/resources/*.py",), ("tests/bitstreams/resources/test_*.py",)),
}
SCOPES = ("nearest", "folder", "area")


def _in(folder: str, *tests: str) -> tuple[str, ...]:
    return tuple(f"{folder}/test_{name}.py" for name in tests)


def _papers(name: str, *tests: str) -> Area:
    """Return the jobs, rows and claims of one paper. Its plots are for people. Slow tests of its own run the paper."""
    files = ("runs", "rows", "claims", "causes", "conditions", "further", "tables")
    own = _in("tests/sim/experiments", *tests)
    shared = _in("tests/sim/experiments", "experiments")
    return Area(tuple(f"sim/experiments/{name}/{each}.py" for each in files), (*own, *shared), own, "not parvagpu")


MOVED = {
    "smdp": Area(("batching/smdp/*.py",), ("tests/batching/smdp/test_*.py",)),
    "paper smdp": _papers("smdp", "smdp_experiments"),
    "paper lazybatching": _papers("lazybatching", "lazybatching_experiments"),
    "paper batchmaker": _papers("batchmaker", "batchmaker_experiments"),
    "paper preba": _papers("preba", "preba_experiments"),
    "paper goodput": _papers("goodput", "goodput"),
    "paper slices": _papers("slices", "slices"),
    "planner": Area(
        ("sim/planner/*.py",), _in("tests/sim", "planner", "tuning", "placement", "schedule", "rotation", "allocate")
    ),
    "sweeps": Area(("sim/sweeps/*.py",), ("tests/sim/sweeps/test_*.py",)),
    "mutate": Area(("scripts/mutate.py",), ("tests/scripts/test_mutate.py",)),
    "cli": Area(
        ("host/cli/options.py", "host/cli/setting_options.py", "host/cli/console.py", "host/cli/interrupt.py"),
        _in("tests/host/cli", "settings", "output", "interrupt", "resumed", "policies", "bad_usage"),
        _in("tests/host/cli", "output", "interrupt", "resumed"),
    ),
    "dpu": Area(
        ("host/dpu/reference/image*.py", "host/dpu/cpu_profiling.py"),
        (*_in("tests/host/dpu/reference", "image", "image_file"), *_in("tests/host/dpu", "cpu_profiling")),
    ),
    "fleet": Area(("host/fleet/*.py",), _in("tests/host/fleet", "supervisor", "haproxy", "statistics", "fleet")),
    "server": Area(
        ("host/server/group.py", "host/server/service.py", "host/server/rows.py", "host/server/observe/access_log.py"),
        (*_in("tests/host/server", "limits", "models", "overload"), "tests/host/server/observe/test_records.py"),
    ),
    "bench": Area(("host/bench/*.py",), _in("tests/host/bench", "bench")),
    "networks": Area(("host/workers/networks/foreign/*.py",), ("tests/host/workers/networks/foreign/test_*.py",)),
    "split": Area(
        ("host/workers/networks/split/*.py",),
        (*_in("tests/host/workers/networks", "split"), *_in("tests/host/workers/networks/zoo", "split_zoo")),
    ),
    "demo": Area(("host/demo/*.py", "host/demo/*/*.py"), ("tests/host/demo/**/test_*.py",), _in("tests/e2e", "demo")),
    "resources": Area(("bitstreams/resources/*.py",), ("tests/bitstreams/resources/test_*.py",)),
    "wav": Area(("hls/wav/*.sv",), _in("tests/hls", "wav"), only="rtlsim"),
    "render": Area(("hls/decode/render/*.sv",), _in("tests/hls", "render"), only="rtlsim"),
    "sampling": Area(("hls/decode/render/upsample.sv", "hls/decode/render/color.sv"), _in("tests/hls", "sampling")),
    "crop": Area(("hls/crop/*.sv",), _in("tests/hls", "crop"), only="rtlsim"),
    "resize": Area(("hls/resize/*.sv",), _in("tests/hls", "resize"), only="rtlsim"),
    "decode": Area(("hls/decode/parse/*.sv", "hls/decode/entropy/*.sv"), _in("tests/hls", "decode"), only="rtl"),
    "scans": Area(("hls/decode/parse/scan*.sv", "hls/decode/entropy/*.sv"), _in("tests/hls", "decode_scans")),
    "progressive": Area(("hls/decode/progressive/*.sv",), _in("tests/hls", "progressive", "progressive_rtl")),
    "image_cu": Area(("hls/image_cu/*.sv",), _in("tests/hls", "image_cu")),
    "audio_mel_cu": Area(("hls/audio_mel_cu/*.sv",), _in("tests/hls", "audio_mel_cu_protocol", "audio_mel_cu")),
}


@dataclass(frozen=True)
class Mutant:
    """One changed line of a file; `line` counts from 1."""

    area: str
    file: str
    line: int
    kind: str
    old: str
    new: str


@dataclass(frozen=True)
class Outcome:
    """`by` is the first test that failed, "timeout" when the run ended without a report, or "" for a survivor.

    `slow` is the same for the slow tests, which are tried on survivors only. It does not make the mutant killed."""

    mutant: Mutant
    killed: bool
    by: str
    seconds: float
    slow: str = ""


# Changes of Python

COMPARE = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}
BOOLEAN = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
EXTREMES = {"min": "max", "max": "min"}
LOGS = {"log", "logger", "logging", "warnings"}


class _PythonChanges(ast.NodeVisitor):
    """Collects (line, column, end column, kind, new text); columns count characters from 0."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.found: list[tuple[int, int, int, str, str]] = []

    def column(self, line: int, offset: int) -> int:
        """Return the column in characters. `ast` counts bytes of UTF-8."""
        return len(self.lines[line - 1].encode()[:offset].decode())

    def replace(self, node: ast.expr | ast.stmt, kind: str, new: str) -> None:
        if node.lineno == node.end_lineno:
            start, stop = (self.column(node.lineno, offset) for offset in (node.col_offset, node.end_col_offset))
            self.found.append((node.lineno, start, stop, kind, new))

    def operator(self, left: ast.expr, right: ast.expr, kind: str, old: str, new: str) -> None:
        """Change the operator between two operands. Parentheses may surround it."""
        if left.end_lineno != right.lineno:
            return
        start, stop = self.column(left.end_lineno, left.end_col_offset), self.column(right.lineno, right.col_offset)
        at = self.lines[right.lineno - 1].find(old, start, stop)
        if at >= 0:
            self.found.append((right.lineno, at, at + len(old), kind, new))

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, kind, right in zip(operands, node.ops, operands[1:], strict=False):
            self.operator(left, right, "compare", *COMPARE[type(kind)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC and not isinstance(node.left, ast.JoinedStr):
            self.operator(node.left, node.right, "arithmetic", *ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.operator(left, right, "boolean", *BOOLEAN[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not) and node.lineno == node.operand.lineno:
            start, stop = (self.column(node.lineno, at) for at in (node.col_offset, node.operand.col_offset))
            if self.lines[node.lineno - 1][start:stop] == "not ":
                self.found.append((node.lineno, start, stop, "boolean", ""))
        self.generic_visit(node)

    def condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if node.test.lineno == node.test.end_lineno and not isinstance(node.test, ast.Compare | ast.UnaryOp):
            line = self.lines[node.test.lineno - 1]
            start, stop = (self.column(node.test.lineno, at) for at in (node.test.col_offset, node.test.end_col_offset))
            self.found.append((node.test.lineno, start, stop, "boolean", f"(not ({line[start:stop]}))"))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.condition(node)

    def visit_While(self, node: ast.While) -> None:
        self.condition(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.condition(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            self.replace(node, "constant", str(node.value + 1))
            self.replace(node, "constant", f"({node.value - 1})" if node.value == 0 else str(node.value - 1))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            if node.func.value.id.strip("_") in LOGS:
                return
        elif isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
            self.replace(node.func, "extreme", EXTREMES[node.func.id])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call | ast.Await) and not _logs(node.value):
            self.replace(node, "deletion", "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id.startswith("__"):
            return
        if not isinstance(node.targets[0], ast.Name):  # without the name, every read of it would fail
            self.replace(node, "deletion", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.replace(node, "deletion", "pass")
        if type(node.op) in ARITHMETIC:
            self.operator(node.target, node.value, "arithmetic", *ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self.replace(node, "deletion", "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self.replace(node, "deletion", "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        self.replace(node, "deletion", "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self.replace(node, "deletion", "pass")
            return
        value = node.value.value if isinstance(node.value, ast.Constant) else ...
        if value is not None and value is not False:
            self.replace(node, "return", "return None")
        if isinstance(node.value, ast.Compare | ast.BoolOp) or value is True:
            self.replace(node, "return", "return False")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Change nothing: an assertion tells mypy a type and is not behaviour."""

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        """Change nothing: a pattern takes no expressions."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Change nothing: the text is for people."""


def _logs(node: ast.expr) -> bool:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return any(name.strip("_") in LOGS for name in names)


def python_mutants(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, kind, new line) for every change of a Python source. Each changed source compiles."""
    lines = text.split("\n")
    changes = _PythonChanges(lines)
    changes.visit(ast.parse(text))
    for line, start, stop, kind, new in sorted(set(changes.found)):
        old = lines[line - 1]
        yield line, kind, old[:start] + new + old[stop:]


# Changes of SystemVerilog

_SKIPPED = re.compile(
    r"\s*(`|import\b|module\b|package\b|input\b|output\b|inout\b|\$(fatal|error)|assert\b|else \$fatal)"
)
_CHECK = re.compile(r"\|->|\bgen_bad_parameters\b")
_DECLARED = re.compile(r"\s*(?:\(\*.*\*\)\s*)?(logic|typedef|wire|reg|bit|int|parameter|localparam|struct|enum)\b")
_RULES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("arithmetic", r"(?<![-+'(,=*/<>&|?:\[])\s([-+])\s(?![:=])", {"+": "-", "-": "+"}),
    ("boolean", r"(&&|\|\|)", {"&&": "||", "||": "&&"}),
    ("compare", r"(?<![=!])(==|!=)(?![=?])", {"==": "!=", "!=": "=="}),
    ("compare", r"(?<![<>=])(<=?|>=?)(?![<>=])", {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
)
_SHIFT = re.compile(r"(?:<<<?|>>>?)\s*(\d+)\b(?!')")
_CONSTANT = re.compile(r"(?<![\w'$.])(\d+)(?![\w'.])")
_SIZED = re.compile(r"\b\d+'(?:d(\d+)|b([01]))\b")
_ASSIGNMENT = re.compile(r"(\s*(?:(?:else )?if \(.*\) |else )?)([a-z]\w*(?:\[[^\]]*\]|\.\w+)*\s*<?=\s[^;]*;)\s*$")


def _masked(text: str) -> list[str]:
    """Lines of the source with blanks for its comments and strings."""
    blank = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return blank.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text).split("\n")


def verilog_mutants(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, kind, new line) for every change by the token rules. A change that Verilator refuses is killed.

    Assertions and checks of parameters stay, because they are tests themselves."""
    lines = text.split("\n")
    found: set[tuple[int, int, int, str, str]] = set()
    for line, masked in enumerate(_masked(text), 1):
        if not masked.strip() or _SKIPPED.match(masked) or _CHECK.search(masked):
            continue
        if _DECLARED.match(masked):  # Verilator checks widths; values of parameters are behaviour
            masked = re.sub(r"\[[^\]]*\]", lambda found: " " * len(found.group()), masked)
        for kind, pattern, swap in _RULES:
            for match in re.finditer(pattern, masked):
                start, stop = match.span(1)
                if match[1] == "<=" and not _within_parentheses(masked, start):
                    continue  # an assignment
                found.add((line, start, stop, kind, swap[match[1]]))
        for match in _SHIFT.finditer(masked):
            for step in (1, -1):
                found.add((line, *match.span(1), "shift", str(int(match[1]) + step)))
        shifts = {match.start(1) for match in _SHIFT.finditer(masked)}
        for match in _CONSTANT.finditer(masked):
            if match.start(1) not in shifts:
                found.add((line, *match.span(1), "constant", str(int(match[1]) + 1)))
        for match in _SIZED.finditer(masked):
            if match[1] is not None:
                found.add((line, *match.span(1), "constant", str(int(match[1]) + 1)))
            else:
                found.add((line, *match.span(2), "constant", "10"[int(match[2])]))
        if not _DECLARED.match(masked) and (match := _ASSIGNMENT.match(masked)):
            found.add((line, *match.span(2), "deletion", ";"))
    for line, start, stop, kind, new in sorted(found):
        old = lines[line - 1]
        yield line, kind, old[:start] + new + old[stop:]


def _within_parentheses(line: str, column: int) -> bool:
    return line.count("(", 0, column) > line.count(")", 0, column)


# The sample


def mutants_of(root: Path, name: str, area: Area) -> list[Mutant]:
    """Return every mutant of an area, by file and line."""
    files = sorted({path for pattern in area.sources for path in root.glob(pattern)})
    mutants = []
    for path in files:
        text = path.read_text()
        lines = text.split("\n")
        changes = python_mutants(text) if path.suffix == ".py" else verilog_mutants(text)
        file = path.relative_to(root).as_posix()
        mutants += [Mutant(name, file, line, kind, lines[line - 1], new) for line, kind, new in changes]
    return mutants


def sample(candidates: dict[str, list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants in equal shares of the areas; an area with fewer leaves the rest to the others."""
    shuffled = {}
    for name, mutants in candidates.items():
        shuffled[name] = mutants.copy()
        random.Random(f"{seed}/{name}").shuffle(shuffled[name])
    taken = dict.fromkeys(candidates, 0)
    open_areas = [name for name in candidates if shuffled[name]]
    while open_areas and sum(taken.values()) < count:
        for name in list(open_areas):
            if sum(taken.values()) == count:
                break
            taken[name] += 1
            if taken[name] == len(shuffled[name]):
                open_areas.remove(name)
    return [mutant for name in candidates for mutant in shuffled[name][: taken[name]]]


def survivors_of(path: Path, candidates: dict[str, list[Mutant]]) -> list[Mutant]:
    """Return the mutants that survived an earlier run, from its JSON.

    Of several equal lines the one nearest to the former place is taken. A line that is gone is left out."""
    found = []
    for row in json.loads(path.read_text())["mutants"]:
        same = [
            mutant
            for mutant in candidates.get(row["area"], ())
            if (mutant.file, mutant.old, mutant.new) == (row["file"], row["old"], row["new"])
        ]
        if same and not row["killed"]:
            found.append(min(same, key=lambda mutant: abs(mutant.line - row["line"])))
    return found


def tests_of(root: Path, file: str, area: Area, scope: str = "area") -> list[str]:
    """Return the test files for a source file, those first that are the most likely to notice a change of it."""
    source = Path(file)
    every = sorted({path.relative_to(root) for pattern in area.tests for path in root.glob(pattern)})
    module = re.compile(rf"headrace\.{'.'.join(source.with_suffix('').parts)}\b")
    package = re.compile(rf"from headrace\.{'.'.join(source.parent.parts)} import [^\n]*\b{source.stem}\b")

    def distance(test: Path) -> int:
        if test.stem == f"test_{source.stem}" or source.stem in test.stem:
            return 0
        text = (root / test).read_text()
        if module.search(text) or package.search(text):
            return 1
        return 2 if test.parent == Path("tests") / source.parent else 3

    ranked = sorted((distance(test), test.as_posix()) for test in every)
    first = ranked[0][0]
    last = max(first, {"nearest": 0, "folder": 2, "area": 3}[scope])
    return [test for rank, test in ranked if rank <= last]


def slow_tests_of(root: Path, file: str, area: Area) -> list[str]:
    """Return the test files whose slow tests a survivor is tried with."""
    return tests_of(root, file, Area(area.sources, area.slow or area.tests), "area")


# Runs


_RUNNING: set[subprocess.Popen[str]] = set()  # an interrupt of this program must end them, too


class BaselineFailed(Exception):
    """The tests fail before anything is changed."""


def is_compiled(path: Path) -> bool:
    """Tell whether mypyc compiled a source. Cython's sources are `.pyx`."""
    return path.suffix == ".py" and any(path.parent.glob(f"{path.stem}.*.so"))


def make_copy(root: Path, folder: Path, *, compiled: bool = False) -> None:
    """Copy the tree to `folder` and link it as the package `headrace`. Without `compiled`, leave out what mypyc
    compiled."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source = root / name
        if source.is_dir():
            left_out = shutil.ignore_patterns("__pycache__") if compiled else _left_out
            shutil.copytree(source, folder / name, symlinks=True, ignore=left_out)
        elif source.exists():
            shutil.copy2(source, folder / name)
    links = folder / "build" / "typing" / "headrace"
    links.mkdir(parents=True)
    for name in FOLDERS:
        (links / name).symlink_to(Path("../../..") / name)
    if (root / ".venv").exists():
        (folder / ".venv").symlink_to((root / ".venv").resolve())


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return the caches and the compiled modules. The extension of Cython stays."""
    return {
        name
        for name in names
        if name == "__pycache__" or (name.endswith(".so") and not (Path(folder) / f"{name.split('.')[0]}.pyx").exists())
    }


def environment(folder: Path, *, write_bytecode: bool) -> dict[str, str]:
    left = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    left |= {"PYTHONPATH": str(folder / "build" / "typing"), "HYPOTHESIS_PROFILE": "same"}
    if not write_bytecode:
        left["PYTHONDONTWRITEBYTECODE"] = "1"
    return left


def run_tests(
    folder: Path,
    tests: Sequence[str],
    seconds: float | None,
    test_seconds: float | None,
    report: Path,
    *,
    write_bytecode: bool,
    marked: str = "not slow",
    only: str = "",
) -> tuple[int | None, str]:
    """Run pytest in a copy. Returns its exit status, None when it was ended after `seconds`, and its output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", marked, "-p", "no:cacheprovider", "--tb=short"]
    command += ["-k", only] if only else []
    command += [f"--junit-xml={report}"]
    if test_seconds is not None:
        # Hypothesis would try a test again that a signal ended; this method ends pytest itself.
        command += [f"--timeout={test_seconds:.0f}", "--timeout-method=thread"]
    process = subprocess.Popen(
        [*command, *tests],
        cwd=folder,
        env=environment(folder, write_bytecode=write_bytecode),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    _RUNNING.add(process)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        end_run(process)
        process.wait()
        _RUNNING.discard(process)


def end_run(process: subprocess.Popen[str]) -> None:
    """End a run of pytest, and all processes that its tests left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def first_failure(report: Path) -> str:
    """Return the name of the first test that failed by pytest's report; "" when there is none."""
    try:
        cases = ET.parse(report).iter("testcase")
    except (OSError, ET.ParseError):
        return ""
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            return f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("::")
    return ""


def times_of(report: Path) -> dict[str, list[float]]:
    """Return the seconds of each test by the file that it is in."""
    times: dict[str, list[float]] = defaultdict(list)
    for case in ET.parse(report).iter("testcase"):
        times[case.get("classname", "").split("::")[0]].append(float(case.get("time", 0)))
    return times


TESTS_FAILED = 1  # pytest's exit status


def check_copy(folder: Path, file: str) -> None:
    """Check that the copy's own Python source `file` is what a test imports there. Raises BaselineFailed."""
    if not file.endswith(".py") or file.split("/")[0] not in FOLDERS:
        return
    code = f"import headrace.{'.'.join(Path(file).with_suffix('').parts)} as m; print(m.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(folder, write_bytecode=True),
        text=True,
        capture_output=True,
        check=False,
    )
    path = found.stdout.strip()
    if not path.endswith(".py") or not Path(path).resolve().is_relative_to(folder.resolve()):
        raise BaselineFailed(f"the copy imports {path or found.stderr.strip()}, not its own sources")


@dataclass(frozen=True)
class Limits:
    """Seconds for one test, and for all tests of a mutant."""

    test: float
    run: float


SLOW = Limits(900.0, 1800.0)  # fixed limits, because the baseline does not run the slow tests


def baseline(folder: Path, tests: Sequence[str], only: str) -> Limits:
    """Run the tests of the unchanged copy. Raises BaselineFailed."""
    report = folder / "build" / "report.xml"
    began = time.monotonic()
    status, output = run_tests(folder, tests, None, None, report, write_bytecode=True, only=only)
    if status != 0:
        end = "\n".join(output.strip().splitlines()[-15:])
        raise BaselineFailed(f"the tests fail before anything is changed: {first_failure(report)}\n{end}")
    seconds = time.monotonic() - began
    longest = max((max(times, default=0.0) for times in times_of(report).values()), default=0.0)
    return Limits(max(MIN_TIMEOUT, SLACK * longest), max(3 * MIN_TIMEOUT, SLACK * seconds))


def try_mutant(
    folder: Path, mutant: Mutant, tests: Sequence[str], limits: Limits, slow_tests: Sequence[str] = (), only: str = ""
) -> Outcome:
    """Change the line in the copy, run the tests, on a survivor also the slow ones of `slow_tests`, and restore it.

    Without any tests, only slow ones run."""
    path, report = folder / mutant.file, folder / "build" / "report.xml"
    text = path.read_text()
    lines = text.split("\n")
    assert lines[mutant.line - 1] == mutant.old
    lines[mutant.line - 1] = mutant.new
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()  # Python recognizes a changed source only by its time in seconds and its size
    report.unlink(missing_ok=True)
    began = time.monotonic()
    try:
        path.write_text("\n".join(lines))
        status: int | None = 0
        if tests:
            status, _ = run_tests(folder, tests, limits.run, limits.test, report, write_bytecode=False, only=only)
        seconds = time.monotonic() - began
        slow = ""
        if status == 0 and slow_tests:
            report.unlink(missing_ok=True)
            status_of_slow, _ = run_tests(
                folder, slow_tests, SLOW.run, SLOW.test, report, write_bytecode=False, marked="slow", only=only
            )
            if status_of_slow == TESTS_FAILED:
                slow = first_failure(report) or "timeout"
    finally:
        path.write_text(text)
    if status is None:
        return Outcome(mutant, True, "timeout", seconds)
    return Outcome(mutant, status != 0, "" if status == 0 else first_failure(report) or "timeout", seconds, slow)


def run(
    root: Path,
    areas: dict[str, Area],
    mutants: Sequence[Mutant],
    scope: str,
    jobs: int,
    *,
    slow: bool = False,
    quick: bool = True,
) -> list[Outcome]:
    """Try all mutants, `jobs` at a time, in temporary copies of the tree. Raises BaselineFailed.

    `slow` and `quick` tell which tests run. Slow tests run on what quick ones do not kill."""
    with tempfile.TemporaryDirectory(prefix="headrace-mutants-") as name:
        copies = [Path(name) / str(number) for number in range(jobs)]
        files = dict.fromkeys(mutant.file for mutant in mutants)
        compiled = not any(is_compiled(root / file) for file in files)
        for folder in copies:
            make_copy(root, folder, compiled=compiled)
        for file in files:
            check_copy(copies[0], file)
        tests = {m: tests_of(root, m.file, areas[m.area], scope) if quick else [] for m in mutants}
        slow_tests = {m: slow_tests_of(root, m.file, areas[m.area]) if slow else [] for m in mutants}
        idle: Queue[Path] = Queue()
        for folder in copies:
            idle.put(folder)
        stop = threading.Event()

        def measured(area: str) -> Limits:
            names = dict.fromkeys(test for m in mutants if m.area == area for test in tests[m])
            if not names:
                return SLOW
            folder = idle.get()
            try:
                print(f"{area}: the unchanged tree, {len(names)} test files", file=sys.stderr, flush=True)
                return baseline(folder, list(names), areas[area].only)
            finally:
                idle.put(folder)

        def tried(number: int, mutant: Mutant, limits: Limits) -> Outcome | None:
            folder = idle.get()
            try:
                if stop.is_set():
                    return None
                area = areas[mutant.area]
                outcome = try_mutant(folder, mutant, tests[mutant], limits, slow_tests[mutant], area.only)
            finally:
                idle.put(folder)
            if stop.is_set():
                return None
            verdict = f"killed by {outcome.by}" if outcome.killed else "SURVIVED"
            verdict += f", but for {outcome.slow}, which is slow" if outcome.slow else ""
            where = f"{mutant.file}:{mutant.line} {mutant.kind}"
            print(f"{number}/{len(mutants)} {where}: {verdict} ({outcome.seconds:.0f} s)", file=sys.stderr, flush=True)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            try:
                used = list(dict.fromkeys(mutant.area for mutant in mutants))
                limits = dict(zip(used, pool.map(measured, used), strict=True))
                done = pool.map(lambda item: tried(item[0], item[1], limits[item[1].area]), enumerate(mutants, 1))
                return [outcome for outcome in done if outcome is not None]
            finally:
                stop.set()
                for process in list(_RUNNING):
                    end_run(process)


# The report


def score(outcomes: Sequence[Outcome]) -> float:
    """Return the percentage of the mutants that were killed; it is 100 without mutants."""
    return 100 * sum(outcome.killed for outcome in outcomes) / len(outcomes) if outcomes else 100.0


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a Markdown table of the areas, and the survivors with both lines."""
    lines = ["| area | killed | mutants | score |", "| --- | ---: | ---: | ---: |"]
    by_area: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_area[outcome.mutant.area].append(outcome)
    for area, part in [*by_area.items(), *([("all", list(outcomes))] if len(by_area) > 1 else [])]:
        lines.append(f"| {area} | {sum(o.killed for o in part)} | {len(part)} | {score(part):.0f} % |")
    for outcome in outcomes:
        if not outcome.killed:
            mutant = outcome.mutant
            lines += ["", f"{mutant.file}:{mutant.line} {mutant.kind}"]
            lines += [f"  - {mutant.old.strip()}", f"  + {mutant.new.strip()}"]
            lines += [f"  killed by {outcome.slow}, which is slow"] if outcome.slow else []
    return "\n".join(lines)


def moved_table(outcomes: Sequence[Outcome]) -> str:
    """Return a Markdown table of the groups of tests that `make test` no longer runs."""
    lines = [
        "| tests moved | tried | killed by `make test` | only by slow tests | by neither |",
        "| --- |" + " ---: |" * 4,
    ]
    by_area: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_area[outcome.mutant.area].append(outcome)
    for area, part in by_area.items():
        killed, slow = sum(o.killed for o in part), sum(bool(o.slow) for o in part)
        lines.append(f"| {area} | {len(part)} | {killed} | {slow} | {len(part) - killed - slow} |")
    return "\n".join(lines)


def report_json(outcomes: Sequence[Outcome], seed: int, scope: str) -> str:
    rows = [
        {**asdict(o.mutant), "killed": o.killed, "by": o.by, "slow": o.slow, "seconds": round(o.seconds, 1)}
        for o in outcomes
    ]
    return json.dumps({"seed": seed, "scope": scope, "score": score(outcomes), "mutants": rows}, indent=1) + "\n"


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: give 1 or more")
    return number


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, areas: dict[str, Area] | None = None) -> int:
    known = {**AREAS, **MOVED} if areas is None else areas
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=positive, default=100, help="mutants in all (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument("--area", action="append", choices=known, help="only this area; may be given again")
    parser.add_argument("--file", action="append", help="only this source file of the areas; may be given again")
    parser.add_argument("--scope", choices=SCOPES, default="area", help="tests that run (default: area)")
    parser.add_argument("--slow", action="store_true", help="try slow tests on survivors")
    parser.add_argument("--only-slow", action="store_true", help="try slow tests only")
    parser.add_argument("--moved", action="store_true", help="try groups of tests that are slow now")
    parser.add_argument("--survivors", type=Path, metavar="FILE", help="try the survivors of an earlier run's JSON")
    parser.add_argument("--jobs", type=positive, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all mutants with their outcomes")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="the least score (default: 0)")
    options = parser.parse_args(arguments)
    if areas is None:
        areas = MOVED if options.moved else AREAS
    unknown_areas = set(options.area or ()) - set(areas)
    if unknown_areas:
        parser.error(f"--area {min(unknown_areas)}: choose from {', '.join(areas)}")
    candidates = {name: mutants_of(root, name, areas[name]) for name in areas if name in (options.area or areas)}
    if options.file:
        unknown = set(options.file) - {mutant.file for part in candidates.values() for mutant in part}
        if unknown:
            parser.error(f"--file {min(unknown)}: no area that was asked for has a mutant there")
        candidates = {name: [m for m in part if m.file in options.file] for name, part in candidates.items()}
    if options.survivors:
        mutants = survivors_of(options.survivors, candidates)
    else:
        mutants = sample(candidates, options.count, options.seed)
    try:
        outcomes = run(
            root,
            areas,
            mutants,
            options.scope,
            options.jobs,
            slow=options.slow or options.only_slow,
            quick=not options.only_slow,
        )
    except BaselineFailed as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("mutate: interrupted", file=sys.stderr)
        return 1
    if options.moved:
        print(f"{moved_table(outcomes)}\n")
    print(table(outcomes))
    if options.json:
        options.json.write_text(report_json(outcomes, options.seed, options.scope))
    if score(outcomes) < options.at_least:
        print(
            f"mutate: {score(outcomes):.1f} % of the mutants were killed, less than {options.at_least} %",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that SIGTERM, too, removes the temporary copies
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore SIGINT otherwise
    sys.exit(main())
