"""The tools of all checks of policies: what a caller lends, how a broken rule is told, and the watch for clocks."""

import contextlib
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Protocol

from headrace.batching.errors import PolicyError, one_line
from headrace.batching.policy import NO_CLOCK, NO_ERRORS, RETURNS, Rule

MAX_LINES: Final = 200  # of a timeline


class CallTooLong(BaseException):
    """A call of a policy has not returned in time. Raised by a context of `Instruments`, and by nothing else."""


@dataclass(frozen=True)
class Instruments:
    """The tools that a caller lends to the checks, which have no clock of their own.

    Args:
        around: Returns, by the name of a call of the policy, the context in which the call is made. It raises
            CallTooLong where the call takes too long.
        cpu_s: Returns the CPU time of this thread (s). Without it, the rule on the cost of calls is not checked."""

    around: Callable[[str], AbstractContextManager[object]] = contextlib.nullcontext
    cpu_s: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that was broken.

    Args:
        rule: The rule.
        message: What the policy did, and what to change.
        timeline: What happened, a line each. The last line is where the rule was broken.
        events: How many events of the history were played."""

    rule: Rule
    message: str
    timeline: tuple[str, ...]
    events: int = 0


class RuleBroken(Exception):
    """Ends a play."""

    def __init__(self, rule: Rule, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class Player(Protocol):
    """The driver of one history.

    Args:
        played: How many events it has played.
        calling: The call of the policy that it makes."""

    played: int
    calling: str

    def begin(self) -> None:
        """Make the policy."""

    def happens(self, event: Any) -> None:
        """Play an event."""

    def drain(self) -> None:
        """Play the history to its end."""

    def breaks(self, rule: Rule, message: str) -> None:
        """Note that a rule was broken by the last call."""


class Spy:
    """Notes calls of clocks and of input and output that Python code makes inside its context."""

    def __init__(self) -> None:
        self.seen = ""

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._profile)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _profile(self, frame: FrameType | None, event: str, function: Any) -> None:
        if event != "c_call":
            return
        before = self.seen
        self._note(function)
        if self.seen != before and _in_garbage_collection(frame):
            self.seen = before

    def _note(self, function: Any) -> None:
        module = getattr(function, "__module__", None)
        name = getattr(function, "__name__", "")
        owner = getattr(getattr(function, "__self__", None), "__name__", "")
        if module == "time":
            self.seen = f"time.{name}"
        elif (owner in ("datetime", "date") and name in ("now", "utcnow", "today")) or module == "_socket":
            self.seen = f"{owner or module}.{name}"
        elif (module in ("io", "_io") and name == "open") or function in (print, input):
            self.seen = name


def watched(
    name: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    around: Callable[[str], AbstractContextManager[object]],
    spy: Spy | None,
    rule: Rule = NO_CLOCK,
) -> Any:
    """Call a method of a policy with the instruments around. Raises RuleBroken if `spy` sees a clock.

    Building a policy may read files, so a call named "build" breaks no rule."""
    if spy is None:
        with around(name):
            return function(*arguments)
    with around(name), spy:
        answer = function(*arguments)
    if spy.seen and name != "build":
        raise RuleBroken(rule, f"{name} called {spy.seen}; use the argument `now`, and no input or output")
    spy.seen = ""
    return answer


def play_events(player: Player, events: Sequence[Any], rules: Mapping[str, Rule]) -> None:
    """Play a history to its end, or until the policy breaks a rule.

    Args:
        player: The driver of the history. It notes the broken rule.
        events: The history.
        rules: The rules of the policy, by name."""
    try:
        player.begin()
        for number, event in enumerate(events):
            player.played = number + 1
            player.happens(event)
        player.drain()
    except RuleBroken as error:
        player.breaks(error.rule, str(error))
    except CallTooLong:
        player.breaks(rules[RETURNS.name], f"{player.calling} has not returned; make it end in bounded time")
    except PolicyError as error:
        player.breaks(rules[error.rule], str(error))
    except SystemExit as error:
        message = f"{player.calling} raised {one_line(error)}; a policy must not end the process"
        player.breaks(rules[NO_ERRORS.name], message)


def unlike(rule: Rule, first: Sequence[str], second: Sequence[str], events: int = 0) -> Broken | None:
    """Return `rule` as broken where two timelines of the same history first differ, or None.

    Args:
        rule: The rule that both are alike.
        first: The timeline of one policy.
        second: That of a policy that was told the same.
        events: How many events were played."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return Broken(
                rule,
                f"a second policy that was told the same answered otherwise: {other.strip()}; decide by what was told "
                "alone",
                tuple(first[: place + 1]),
                events,
            )
    return None


def add_line(timeline: list[str], line: str) -> None:
    """Add a line to a timeline. Of a long one, the lines in the middle are left out."""
    timeline.append(line)
    if len(timeline) > MAX_LINES:
        timeline[MAX_LINES // 2] = "..."
        del timeline[MAX_LINES // 2 + 1]


def _in_garbage_collection(frame: FrameType | None) -> bool:
    """Tell whether a callback of the garbage collector runs here. It may begin within any call, and is nobody's own."""
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False
