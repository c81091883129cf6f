"""Check a policy in a process of its own, so that a policy that hangs or ends its process does no harm.

Python code that does not return is interrupted by a timer, and its history is shortened like any other. Code that
cannot be interrupted, such as a loop in C, is killed with its process.
"""

import contextlib
import dataclasses
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.batching.conformance import Broken, CallTooLong, Conformance, Instruments, check_policy, check_step_policy
from headrace.batching.errors import HeadraceError, UsageError
from headrace.batching.policy import NO_ERRORS, RETURNS, RULES, Rule
from headrace.batching.registry import policy_settings
from headrace.batching.steps import policy as step_rules
from headrace.batching.steps.registry import step_policy_settings

CALL_S = 2.0  # within which a call of the policy must return
STALLED_S = 15.0  # in one call, after which the process is killed
CHECK_S = 300.0  # for the whole check
NOTE_BYTES = 64  # of the name of the call that is being made
_POLL_S = 1.0


def check_in_process(
    policy: str, given: Mapping[str, str], examples: int, seed: int, *, steps: bool = False
) -> Conformance:
    """Check a policy with these settings: one of networks, or with `steps` one of models that decode.

    It is named as for `find_policy` or `find_step_policy`. Raises UsageError.

    Raises HeadraceError if the check takes longer than CHECK_S."""
    order = {
        "policy": policy,
        "given": given,
        "examples": examples,
        "seed": seed,
        "steps": steps,
        "path": sys.path,
        "call_s": CALL_S,
    }
    reading, writing = os.pipe()
    try:
        with tempfile.TemporaryFile() as notes:
            notes.truncate(mmap.PAGESIZE)
            command = [sys.executable, "-c", f"from {__name__} import main; main()", str(notes.fileno()), str(writing)]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=2, pass_fds=(notes.fileno(), writing), text=True
            )  # stdout belongs to --json
            try:
                os.close(writing)
                writing = -1
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError), process.stdin:
                    json.dump(order, process.stdin)
                with mmap.mmap(notes.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ) as calls:
                    answer, call = _wait(reading, calls)
            finally:
                process.kill()
                status = process.wait()
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    rules = {rule.name: rule for rule in (step_rules.RULES if steps else RULES)}
    if answer is None:
        what = f"{call} has not returned for {STALLED_S:g} s, and could not be interrupted"
        return _without_history(policy, rules[RETURNS.name], f"{what}; make it end in bounded time", seed)
    if not answer:
        return _without_history(
            policy, rules[NO_ERRORS.name], f"{call} ended the process with status {status}; let it return", seed
        )
    found = json.loads(answer)
    if "error" in found:
        raise UsageError(found["error"])
    return _read(found, rules)


def _wait(reading: int, calls: mmap.mmap) -> tuple[bytes | None, str]:
    """Return what the process wrote, and the name of its last call.

    That is None if the process stalls in a call, and empty if it ended without a result."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    began = moved = time.monotonic()
    note = b""
    answer = b""
    while True:
        if poll.poll(1e3 * _POLL_S):
            part = os.read(reading, 1 << 16)
            if not part:
                return answer, _name(calls[:NOTE_BYTES])
            answer += part
            continue
        now = time.monotonic()
        if calls[:NOTE_BYTES] != note:
            note, moved = calls[:NOTE_BYTES], now
        if now > moved + STALLED_S:
            return None, _name(note)
        if now > began + CHECK_S:
            raise HeadraceError(f"the check took longer than {CHECK_S:g} s; give fewer --examples")


def _name(note: bytes) -> str:
    return note.rstrip(b"\0").decode(errors="replace").partition(" ")[2] or "importing the policy"


def _without_history(policy: str, rule: Rule, message: str, seed: int) -> Conformance:
    return Conformance(policy, (), Broken(rule, message, ()), 0, seed)


def _read(found: dict[str, Any], rules: Mapping[str, Rule]) -> Conformance:
    broken = found["broken"]
    if broken is not None:
        broken = Broken(rules[broken["rule"]["name"]], broken["message"], tuple(broken["timeline"]), broken["events"])
    passed = tuple(rules[rule["name"]] for rule in found["passed"])
    return Conformance(found["policy"], passed, broken, found["histories"], found["seed"])


# ---- in the process ----


def main() -> None:
    """Check the policy that stdin names, and write the result."""
    order = json.load(sys.stdin)
    sys.path[:] = order["path"]
    notes, writing = map(int, sys.argv[1:3])
    with mmap.mmap(notes, mmap.PAGESIZE) as calls:
        instruments = Instruments(_Timer(calls, order["call_s"]).around, time.thread_time)
        try:
            more = order["examples"], order["seed"], instruments
            if order["steps"]:
                checked = check_step_policy(step_policy_settings(order["policy"], order["given"]), *more)
            else:
                checked = check_policy(policy_settings(order["policy"], order["given"]), *more)
            found = dataclasses.asdict(checked)
        except UsageError as error:
            found = {"error": str(error)}
    with open(writing, "w") as result:
        json.dump(found, result)
    sys.stdout.flush()
    os._exit(0)  # threads of the policy do not hold it up


class _Timer:
    """Bounds each call of the policy, and notes its name where the parent sees it."""

    def __init__(self, calls: mmap.mmap, call_s: float) -> None:
        self._calls = calls
        self._call_s = call_s
        self._made = 0
        signal.signal(signal.SIGALRM, self._ends)

    @contextlib.contextmanager
    def around(self, name: str) -> Iterator[None]:
        """Return the context of a call."""
        self._made += 1
        self._calls[:NOTE_BYTES] = f"{self._made} {name}".encode()[:NOTE_BYTES].ljust(NOTE_BYTES, b"\0")
        signal.setitimer(
            signal.ITIMER_REAL, self._call_s, self._call_s
        )  # again and again: the policy may catch the first
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ends(self, number: int, frame: object) -> None:
        raise CallTooLong
