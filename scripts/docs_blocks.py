#!/usr/bin/env python3
"""Run the code blocks of Markdown pages, and compare or rewrite the outputs that the pages show.

    scripts/docs_blocks.py [--slow] [--update] [PAGE ...]

Without PAGE, it runs all pages of the documentation. The blocks of a page run in order, in one scratch folder with a
copy of examples/, with the virtual environment first on PATH. A bash block runs in a shell of its own (`bash -e`). The
Python blocks of a page share one interpreter. Blocks in other languages do not run.

HTML comments on the lines directly before a fence are marks:

    <!-- file: NAME -->           write the block to this file of the scratch folder, and do not run it
    <!-- server -->               start this one command, wait until it answers, and end it after the page
    <!-- slow -->                 run the block with --slow only
    <!-- quick: OLD => NEW -->    without --slow, replace OLD by NEW
    <!-- not run: REASON -->      never run the block
    <!-- fails: STATUS -->        expect this exit status, or in Python this exception
    <!-- warns: TEXT -->          expect TEXT in a warning on stderr; other blocks must not warn
    <!-- output -->               the text or json block is the stdout of the block before
    <!-- output: numbers vary --> the same, but numbers may differ

--update rewrites the outputs in the page, and runs all blocks in full. The output of a block that ran in its quick form
is not compared. The output of a block that fails as expected is its stderr, if its stdout is empty.

The pages run in a network namespace, so their servers can use the ports 8000 to 8002 at any time. Where the machine
forbids namespaces, runs wait for each other, and the page's ports must be free.

Exit status: 0, 1 (a block failed, or a mark is wrong), 2 (bad usage) or 3 (the pages cannot run here and now).
"""

import argparse
import contextlib
import ctypes
import difflib
import fcntl
import json
import os
import re
import resource
import select
import shlex
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("examples", "hls", "host/xrt", "benchmarks")
PAGES = ("README.md", "docs/**/*.md", *(f"{folder}/README.md" for folder in FOLDERS))
NOT_PAGES = ("docs/notes/", "docs/results/measured/")  # notes of the makers, and tables that scripts write

RUN = ("bash", "python")
ALIASES = {"": "a language", "sh": "bash", "shell": "bash", "console": "bash", "py": "python", "pycon": "python"}
OUTPUTS = ("text", "json")
MARKS = ("file", "server", "slow", "quick", "not run", "fails", "warns", "output")
WITH_VALUE = ("file", "quick", "not run", "fails", "warns")

COMMENT = re.compile(r"^\s*<!--\s*(.*?)\s*-->\s*$")
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(.*)$")
NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
# The command reports these states of a busy machine as warnings.
BUSY = ("in different rounds", "is still starting after")
PORTS = (8000, 8001, 8002)
TAIL_LINES = 15
FAILED, CANNOT_RUN = 1, 3
END_S = 60.0


class PageError(Exception):
    """A page has a wrong mark, or one of its blocks failed. The message names the page and the line."""


class CannotRun(Exception):
    """The machine cannot run the pages now. The message is the reason."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Args:
        line: Number of the fence's line, from 1.
        end: Number of the closing fence's line.
        language: First word after the fence.
        text: The block's lines, without the indentation of the fence.
        indent: The fence's indentation.
        marks: Names and values of its marks. A mark may stand several times.
    """

    line: int
    end: int
    language: str
    text: str
    indent: str
    marks: tuple[tuple[str, str], ...]

    def has(self, name: str) -> bool:
        return any(mark == name for mark, _ in self.marks)

    def values(self, name: str) -> list[str]:
        return [value for mark, value in self.marks if mark == name]

    def value(self, name: str) -> str | None:
        return next(iter(self.values(name)), None)

    @property
    def runs(self) -> bool:
        return self.language in RUN and not self.has("not run") and not self.has("file")


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages of the documentation, sorted."""
    found = {path for pattern in PAGES for path in root.glob(pattern)}
    return sorted(path for path in found if not str(path.relative_to(root)).startswith(NOT_PAGES))


def read_blocks(text: str, name: str) -> list[Block]:
    """Return the fenced blocks of a page.

    Args:
        text: The page.
        name: The page's name for messages.

    Raises:
        PageError: A mark is unknown or stands at the wrong place, or a fence has no closing line.
    """
    lines = text.splitlines()
    blocks: list[Block] = []
    marks: list[tuple[str, str]] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        if (comment := COMMENT.match(line)) and (mark := read_mark(comment[1])):
            marks.append(mark)
            number += 1
            continue
        fence = FENCE.match(line)
        if fence is None:
            if marks:
                raise PageError(f"{name}:{number}: a mark must stand directly before the fence of a block")
            number += 1
            continue
        closing = re.compile(rf"^\s*{re.escape(fence[2][0])}{{{len(fence[2])},}}\s*$")
        end = next((each for each in range(number + 1, len(lines)) if closing.match(lines[each])), None)
        if end is None:
            raise PageError(f"{name}:{number + 1}: the block has no closing fence")
        language = fence[3].split()[0] if fence[3] else ""
        body = [each.removeprefix(fence[1]) for each in lines[number + 1 : end]]
        text = "".join(f"{each}\n" for each in body)
        blocks.append(Block(number + 1, end + 1, language, text, fence[1], tuple(marks)))
        marks = []
        number = end + 1
    if marks:
        raise PageError(f"{name}:{number}: a mark must stand directly before the fence of a block")
    before: Block | None = None
    for block in blocks:
        if problem := wrong_marks(block, before):
            raise PageError(f"{name}:{block.line}: {problem}")
        before = block
    return blocks


def read_mark(comment: str) -> tuple[str, str] | None:
    """Return the mark and its value, or None for a comment that does not begin as a mark."""
    name, _, value = comment.partition(":")
    return (name.strip(), value.strip()) if name.strip() in MARKS else None


def wrong_marks(block: Block, before: Block | None) -> str | None:
    """Return what is wrong with the block's marks, or None.

    Args:
        block: The block.
        before: The block before it on the page, which an output belongs to.
    """
    if block.language in ALIASES:
        return f"the fence says {block.language!r}; write {ALIASES[block.language]}, or text if it is not to be run"
    if block.language.startswith(("{code", "{sourcecode")):
        return "a directive with code would not be run; write a plain fence"
    for name, value in block.marks:
        if bool(value) != (name in WITH_VALUE) and name != "output":
            return f"the mark {name!r} {'takes no value' if value else 'needs a value'}"
    if block.has("output"):
        if block.language not in OUTPUTS or len(block.marks) > 1:
            return "an output is a text or json block without other marks"
        if block.value("output") not in ("", "numbers vary"):
            return "an output has the mark <!-- output --> or <!-- output: numbers vary -->"
        if before is None or not before.runs or before.has("server"):
            return "no block that is run stands before this output"
        return None
    if block.has("file"):
        path = Path(block.value("file") or "")
        if path.is_absolute() or ".." in path.parts or path.parts[0] == "examples":
            return f"{path}: a file stands in the scratch folder, and not in its examples"
    elif block.marks and block.language not in RUN:
        return f"a block in {block.language} is not run; only the mark 'file' has a meaning there"
    if block.has("server") and (block.language != "bash" or not one_command(block.text)):
        return "a server is a bash block of one command"
    for text in block.values("quick"):
        if " =>" not in text or replacement(text)[0] not in block.text:
            return f"the block does not have the text that 'quick: {text}' replaces"
    if block.language == "bash" and not (block.value("fails") or "1").isdigit():
        return "the mark 'fails' of a bash block has an exit status"
    return None


def commands(text: str) -> str:
    """Return a bash block without its comment lines."""
    return "".join(f"{line}\n" for line in text.splitlines() if not line.lstrip().startswith("#")).strip()


def one_command(text: str) -> bool:
    return bool(commands(text)) and not re.search(r"[;&|]|[^\\]\n", commands(text))


def replacement(mark: str) -> tuple[str, str]:
    """Return the texts OLD and NEW of a mark `quick`. NEW may be empty."""
    old, _, new = mark.partition(" =>")
    return old, new.removeprefix(" ")


def quick_form(block: Block) -> str:
    text = block.text
    for each in block.values("quick"):
        text = text.replace(*replacement(each))
    return text


def masked(text: str) -> str:
    """Return the text with # for each number, and without what follows from the numbers' widths."""
    text = re.sub(r"[-\u2500\u2501=]{3,}", "---", NUMBER.sub("#", text))
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


# What the interpreter of a page runs: for each line of JSON on one pipe it executes a block, and answers on the other.
# The names of the blocks are those of the module __main__, so that classes of a block can be pickled.
INTERPRETER = """
def serve_blocks(commands, answers):
    import json, linecache, os, sys, traceback
    names = sys.modules["__main__"].__dict__
    del names["serve_blocks"]
    os.set_inheritable(commands, False)
    os.set_inheritable(answers, False)
    with os.fdopen(commands) as requests, os.fdopen(answers, "w") as replies:
        for line in requests:
            block = json.loads(line)
            for name, fd in (("stdout", 1), ("stderr", 2)):
                file = os.open(block[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.dup2(file, fd)
                os.close(file)
            page = block["page"]
            linecache.cache[page] = (len(block["source"]), None, block["source"].splitlines(True), page)
            raised = failed_at = None
            try:
                # Empty lines in front give the code the line numbers of the page.
                exec(compile(chr(10) * block["line"] + block["text"], page, "exec"), names)
            except BaseException as error:
                raised = type(error).__name__
                inside = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == page]
                failed_at = inside[-1] if inside else getattr(error, "lineno", None)
                if sys.exc_info()[2].tb_next is not None:
                    error.__traceback__ = error.__traceback__.tb_next
                traceback.print_exception(error)
            sys.stdout.flush()
            sys.stderr.flush()
            replies.write(json.dumps([raised, failed_at]) + chr(10))
            replies.flush()
serve_blocks(COMMANDS, ANSWERS)
"""


@dataclass
class Result:
    """The outcome of a block that ran.

    Args:
        status: The exit status, or the exception's name in Python; 0 without a failure.
        stdout: Its standard output.
        stderr: Its standard error.
        line: The page's line that failed, if it is known.
    """

    status: int | str
    stdout: str
    stderr: str
    line: int | None = None


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    block: Block
    stderr: Path
    url: str


@dataclass
class Page:
    """Runs the blocks of one page. `close` ends all that they started.

    Args:
        path: The page.
        slow: Whether to run the blocks in full.
        block_s: Longest time of a block (s).
        ready_s: Longest time until a server answers (s).
        updates: Whether to collect the outputs without a comparison.
        commands: A folder whose programs bash blocks find first.
        descriptor: A file descriptor that bash blocks have from this process.
    """

    path: Path
    slow: bool
    block_s: float
    ready_s: float
    updates: bool = False
    commands: Path | None = None
    descriptor: int | None = None
    scratch: Path = field(init=False)
    outputs: list[tuple[Block, str]] = field(init=False, default_factory=list)
    _interpreter: "Interpreter | None" = field(init=False, default=None)
    _servers: list[Server] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.name = os.path.relpath(self.path, ROOT) if self.path.is_relative_to(ROOT) else str(self.path)
        self.source = self.path.read_text()
        self.blocks = read_blocks(self.source, self.name)
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-docs-"))
        self.scratch = self._folder / "work"
        shutil.copytree(ROOT / "examples", self.scratch / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        self.environment = environment()
        self._bash_options: dict[str, Any] = {
            **{"cwd": self.scratch, "stdin": subprocess.DEVNULL, "start_new_session": True},
            **{"preexec_fn": die_with_parent, "env": self.environment},
        }
        if self.commands is not None:
            path = f"{self.commands}:{self.environment['PATH']}"
            self._bash_options["env"] = {**self.environment, "PATH": path, "PAGE_CONTROL": str(self.descriptor)}
        if self.descriptor is not None:
            self._bash_options["pass_fds"] = (self.descriptor,)

    def run(self) -> int:
        """Run the blocks, and return how many ran. `outputs` then has the stdout of each that the page shows.

        Raises:
            PageError: A block failed, or gave other output than the page shows.
        """
        count = 0
        before: tuple[Block, Result | None] | None = None
        for block in self.blocks:
            if block.has("output"):
                assert before is not None  # wrong_marks refuses other pages
                if before[1] is not None:
                    self._take_output(block, *before)
                continue
            before = block, None
            if block.has("not run") or (block.has("slow") and not self.slow):
                continue
            text = block.text if self.slow else quick_form(block)
            if name := block.value("file"):
                file = self.scratch / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            elif block.language in RUN:
                before = block, self._run(block, text)
                count += 1
        self.close()
        return count

    def _run(self, block: Block, text: str) -> Result | None:
        if block.has("server"):
            self._start(block, text)
            return None
        for server in self._servers:
            if server.process.poll() is not None:
                raise self._failure(server.block, server.block.text, "the server ended", server.stderr.read_text())
        if block.language == "python":
            if self._interpreter is None:
                options = self._bash_options
                descriptors = options.get("pass_fds", ())
                self._interpreter = Interpreter(self.scratch, self._folder, options["env"], descriptors)
            result = self._interpreter.run(block, text, self.name, self.source, self.block_s)
        else:
            result = self._bash(block, text)
        self._check(block, text, result)
        return result

    def _bash(self, block: Block, text: str) -> Result:
        failed_at = self._folder / "failed_at"
        failed_at.unlink(missing_ok=True)
        trap = shlex.quote(f'printf %s "$LINENO" >{shlex.quote(str(failed_at))}')
        out, err = self._folder / "stdout", self._folder / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                ["bash", "-e", "-c", f"trap {trap} ERR\n{text}"], stdout=stdout, stderr=stderr, **self._bash_options
            )
            try:
                status: int | str = process.wait(self.block_s)
            except subprocess.TimeoutExpired:
                status = f"none after {self.block_s:g} s"
            finally:
                kill_group(process)
        line = None
        if failed_at.exists():
            line = block.line + int(failed_at.read_text()) - 1
        return Result(status, read(out), read(err), line)

    def _start(self, block: Block, text: str) -> None:
        """Start a server and wait until it answers. A server at the same address ends before."""
        url = ready_url(text)
        for server in [each for each in self._servers if each.url == url]:
            self._end(server)
        stderr = self._folder / f"server{block.line}"
        with stderr.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-e", "-c", f"exec env {commands(text)}"],
                stdout=subprocess.DEVNULL,
                stderr=file,
                **self._bash_options,
            )
        self._servers.append(Server(process, block, stderr, url))
        deadline = time.monotonic() + self.ready_s
        while not answers(url):
            if process.poll() is not None:
                raise self._failure(block, text, f"the server ended with status {process.returncode}", read(stderr))
            if time.monotonic() > deadline:
                reason = f"the server did not answer at {url} within {self.ready_s:g} s"
                raise self._failure(block, text, reason, read(stderr))
            time.sleep(0.1)

    def _end(self, server: Server) -> None:
        self._servers.remove(server)
        server.process.terminate()
        try:
            status = server.process.wait(END_S)
        except subprocess.TimeoutExpired:
            status = None
        kill_group(server.process)
        if status != 0:
            reason = "SIGTERM did not end the server"
            if status is not None:
                reason = f"after SIGTERM the server ended with status {status}"
            raise self._failure(server.block, server.block.text, reason, read(server.stderr))

    def _check(self, block: Block, text: str, result: Result) -> None:
        expected: int | str = block.value("fails") or 0
        if block.language == "bash":
            expected = int(expected)
        if result.status != expected:
            reason = f"status {result.status}" + (f" in place of {expected}" if expected != 0 else "")
            raise self._failure(block, text, reason, result.stderr, result.line)
        told = [line for line in result.stderr.splitlines() if not any(words in line for words in BUSY)]
        warnings = [line for line in told if "warning" in line]
        if (wanted := block.value("warns")) is not None:
            if not any(wanted in line for line in told):
                raise self._failure(block, text, f"stderr does not have the warning {wanted!r}", result.stderr)
        elif warnings and not block.has("fails"):
            raise self._failure(block, text, "it warns", result.stderr)

    def _take_output(self, shown: Block, block: Block, result: Result) -> None:
        got = result.stdout or (result.stderr if block.has("fails") else "")
        got = stripped(got.replace(str(self.scratch), "/home/you"))
        self.outputs.append((shown, got))
        if self.slow or not block.has("quick"):
            compare = masked if shown.value("output") else stripped
            if compare(got) != compare(shown.text) and not self.updates:
                names = f"{self.name}:{shown.line}", f"output of the block of line {block.line}"
                lines = stripped(shown.text).splitlines(), got.splitlines()
                difference = "\n".join(difflib.unified_diff(*lines, *names, lineterm=""))
                raise PageError(f"{self.name}:{shown.line}: other output (--update rewrites it):\n{difference}")

    def _failure(self, block: Block, text: str, reason: str, stderr: str, line: int | None = None) -> PageError:
        line = line or block.line
        lines = self.source.splitlines()
        command = lines[line - 1].strip() if line > block.line else commands(text)
        tail = "\n".join(f"    {each}" for each in stderr.splitlines()[-TAIL_LINES:])
        return PageError(f"{self.name}:{line}: {reason}: {command}\n{tail or '    (nothing on stderr)'}")

    def updated(self) -> str:
        """Return the page with the outputs of this run."""
        lines = self.source.splitlines()
        for shown, got in sorted(self.outputs, key=lambda each: -each[0].line):
            lines[shown.line : shown.end - 1] = [f"{shown.indent}{line}".rstrip() for line in got.splitlines()]
        return "".join(f"{line}\n" for line in lines)

    def close(self) -> None:
        """End the interpreter, the servers and all other processes of the page, and remove the scratch folder.

        Raises:
            PageError: The interpreter or a server did not end, or ended with another status than 0.
        """
        problems = []
        if self._interpreter is not None:
            interpreter, self._interpreter = self._interpreter, None
            if problem := interpreter.close():
                problems.append(PageError(f"{self.name}: {problem}"))
        for server in list(self._servers):
            try:
                self._end(server)
            except PageError as error:
                problems.append(error)
        end_children()
        shutil.rmtree(self._folder, ignore_errors=True)
        if problems:
            raise problems[0]


class Interpreter:
    """The Python process of a page. It executes blocks one after the other in the module __main__.

    A program `page-python` on PATH, which may be in the folder of --commands, takes the place of `python`. PAGE_PIPES
    tells it the descriptors of the commands and the answers."""

    def __init__(self, scratch: Path, folder: Path, environment: dict[str, str], descriptors: Sequence[int]) -> None:
        self._files = folder / "python_stdout", folder / "python_stderr"
        commands, commands_end = os.pipe()
        self._answers, answers = os.pipe()
        self._commands = os.fdopen(commands_end, "w")
        self._killed = False
        program = INTERPRETER.replace("COMMANDS", str(commands)).replace("ANSWERS", str(answers))
        found = (shutil.which(name, path=environment["PATH"]) for name in ("page-python", "python"))
        with self._files[1].open("wb") as stderr:
            self._process = subprocess.Popen(
                [next(filter(None, found), sys.executable), "-c", program],
                cwd=scratch,
                env={**environment, "PAGE_PIPES": f"{commands},{answers}"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(commands, answers, *descriptors),
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        os.close(commands)
        os.close(answers)

    def run(self, block: Block, text: str, page: str, source: str, limit_s: float) -> Result:
        out, err = self._files
        request = {"page": page, "source": source, "line": block.line, "text": text}
        message = json.dumps(request | {"stdout": str(out), "stderr": str(err)})
        reply = b""
        deadline = time.monotonic() + limit_s
        try:
            self._commands.write(f"{message}\n")
            self._commands.flush()
            while not reply.endswith(b"\n"):
                if select.select([self._answers], [], [], 0.2)[0]:
                    read_bytes = os.read(self._answers, 65536)
                    if not read_bytes:
                        break
                    reply += read_bytes
                elif self._process.poll() is not None:
                    break
                elif time.monotonic() > deadline:
                    kill_group(self._process)  # it would go on with the block for as long as `close` waits
                    self._killed = True
                    return Result(f"none after {limit_s:g} s", read(out), read(err))
        except BrokenPipeError:
            pass
        if not reply:
            return Result(f"the interpreter ended with {self._process.wait(END_S)}", read(out), read(err))
        raised, line = json.loads(reply)
        return Result(raised or 0, read(out), read(err), line)

    def close(self) -> str | None:
        """End the interpreter as at the end of a program, and return what went wrong."""
        with contextlib.suppress(BrokenPipeError):
            self._commands.close()
        os.close(self._answers)
        problem = None
        try:
            status = self._process.wait(END_S)
            if status and not self._killed:
                problem = f"the Python interpreter ended with status {status}: {read(self._files[1])}"
        except subprocess.TimeoutExpired:
            problem = f"the Python interpreter did not end within {END_S:g} s"
        kill_group(self._process)
        return problem


def environment() -> dict[str, str]:
    """Return the environment of the blocks: the virtual environment is first on PATH, and output is plain."""
    inside = sys.prefix != sys.base_prefix
    prefix = Path(sys.prefix) if inside else ROOT / ".venv"
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "MAKEFLAGS")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    path = f"{prefix / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    return {**inherited, **plain, "PATH": path, "VIRTUAL_ENV": str(prefix)}


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def ready_url(text: str) -> str:
    """Return the address that tells whether the server of this command is ready."""
    given = re.search(r"--http[ =](\S+)", text)
    host, _, port = (given[1] if given else "127.0.0.1:8000").rpartition(":")
    scheme = "https" if "--tls-cert" in text else "http"
    return f"{scheme}://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}/v2/health/ready"


def answers(url: str) -> bool:
    context = ssl._create_unverified_context() if url.startswith("https") else None
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    try:
        with opener.open(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500  # another kind of server may not know this path
    except (OSError, ValueError):
        return False


LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent() -> None:
    """Let the kernel end the calling process when the runner dies, however it dies."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process's group, and collect the process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_children() -> None:
    """Kill all remaining children. Orphans of the blocks are among them, because the runner is their subreaper."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if not children:
            return
        for pid in map(int, children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def enter_namespace() -> bool:
    """Give this process and its children a network of their own, and return whether the machine allows that."""
    new_user, new_network = 0x10000000, 0x40000000
    user, group = os.geteuid(), os.getegid()
    if LIBC.unshare(new_network) != 0:
        if LIBC.unshare(new_user | new_network) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    loopback_up()
    return True


def loopback_up() -> None:
    """Switch the loopback interface on, which a new network namespace has switched off."""
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = struct.unpack("16sh", fcntl.ioctl(any_socket, get_flags, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", b"lo", flags | up))


@contextlib.contextmanager
def alone(wait_s: float) -> Iterator[None]:
    """Hold the lock by which runs without a namespace follow each other.

    Raises:
        CannotRun: Another run holds the lock for `wait_s` seconds, or another program uses the ports.
    """
    with (Path(tempfile.gettempdir()) / f"headrace-docs-{os.getuid()}.lock").open("w") as file:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CannotRun(f"another run of pages goes on after {wait_s:g} s") from None
                time.sleep(0.2)
        for port in PORTS:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    reason = f"network namespaces are forbidden here, and another program uses port {port}"
                    raise CannotRun(reason) from None
        yield


def main(arguments: Sequence[str], own_network: bool = False) -> int:
    """Run the pages. With `own_network`, this process has entered a namespace already."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--slow", action="store_true", help="run all blocks, in full")
    options.add_argument("--update", action="store_true", help="rewrite the outputs in the pages; implies --slow")
    options.add_argument("--block-s", type=float, help="longest time of a block (default: 280, with --slow 3500)")
    options.add_argument("--ready-s", type=float, default=240, help="longest time until a server answers")
    options.add_argument("--wait-s", type=float, default=600, help="longest wait for another run, without namespaces")
    options.add_argument("--shared-network", action="store_true", help="use the machine's network, not a namespace")
    options.add_argument("--commands", type=Path, help="folder whose programs bash blocks find first")
    options.add_argument("--descriptor", type=int, help="file descriptor that these programs have from this process")
    options.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="Markdown pages (default: all)")
    given = options.parse_args(arguments)
    if missing := [page for page in given.pages if not page.is_file()]:
        print(f"docs_blocks: there is no file {missing[0]}", file=sys.stderr)
        return 2
    inside = own_network or (not given.shared_network and enter_namespace())
    signal.signal(signal.SIGTERM, end_at_signal)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        with contextlib.nullcontext() if inside else alone(given.wait_s):
            return run_pages([page.resolve() for page in given.pages] or pages(), given)
    except CannotRun as reason:
        print(f"docs_blocks: {reason}", file=sys.stderr)
        return CANNOT_RUN


def end_at_signal(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def run_pages(paths: Sequence[Path], given: argparse.Namespace) -> int:
    slow = given.slow or given.update
    block_s = given.block_s or (3500 if slow else 280)
    failed = 0
    for path in paths:
        began = cpu_s()
        try:
            page = Page(path, slow, block_s, given.ready_s, given.update, given.commands, given.descriptor)
            try:
                count = page.run()
            finally:
                with contextlib.suppress(PageError):
                    page.close()
            if given.update and page.updated() != page.source:
                path.write_text(page.updated())
            print(f"docs_blocks: {page.name}: {count} blocks, {cpu_s() - began:.1f} CPU s", file=sys.stderr)
        except PageError as error:
            print(f"docs_blocks: {error}", file=sys.stderr)
            failed = FAILED
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
