"""Play a history against a policy as a driver would, and check every answer against the rules.

`CheckedPolicy` checks what both drivers check. This file adds what a driver does not look at: whether requests run
their nodes or cells in order, whether a withdrawal was right, and whether something stays of a request that has left.
After the last event the history is played to its end: all tasks end, and workers are asked until every request has
ended.
"""

import gc
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.batching.accounting import Ledger
from headrace.batching.checked_policy import MAX_WAKEUPS, CheckedPolicy
from headrace.batching.conformance.bench import Bench
from headrace.batching.conformance.histories import ASK, COME, END, LOSE, UNKNOWN, WITHDRAW, Event, History
from headrace.batching.conformance.instruments import (
    Broken,
    Instruments,
    RuleBroken,
    Spy,
    add_line,
    play_events,
    watched,
)
from headrace.batching.errors import HeadraceError, PolicyError, UnknownModel, UsageError, one_line
from headrace.batching.graphs.execution import Decoding, Sections, steps
from headrace.batching.policy import (
    CELL_ORDER,
    FINISHES,
    FORGETS,
    LATEST_START,
    LOST_WORKER,
    NO_ERRORS,
    NODE_ORDER,
    NOTHING_LOST,
    REASON,
    RULES,
    UNKNOWN_MODEL,
    WAKEUP,
    WITHDRAWAL,
    Policy,
    Rule,
)
from headrace.batching.request import REASONS, Request, Task

NOBODY = "nobody"  # a model that no policy has
UNKNOWN_ID = 1 << 30  # of the first request for it
TASK_S = 1.0  # that each task takes once the history is over
_BY_NAME = {rule.name: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class Offered:
    """A task that the policy returned, without its requests."""

    model: str
    batch_size: int
    reason: str


@dataclass(slots=True)
class Played:
    """The outcome of a history: the first rule that was broken, if any, and the answers of the policy."""

    broken: Broken | None = None
    tasks: list[Offered] = field(default_factory=list)
    timeline: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Progress:
    """How far a request has run.

    Args:
        request: The request.
        node: The next node.
        rounds: How often the section around `node` has run.
        worker: Where it has begun; -1 before that.
        ended: Whether its output has ended.
        handed: How many of its cells were put into tasks.
        completed: How many of them have run.
        cells_on: The worker that has those which have not run.
        may_restart: Whether the worker that ran its last cell was lost: it goes on, or begins again."""

    request: Request
    node: int = 0
    rounds: int = 0
    worker: int = -1
    ended: bool = False
    handed: int = 0
    completed: int = 0
    cells_on: int = -1
    may_restart: bool = False


def play(bench: Bench, history: History, instruments: Instruments | None = None, spying: bool = False) -> Played:
    """Play a history. With `spying`, also watch the calls of the policy for clocks, input and output."""
    player = _Player(bench, history.workers, instruments or Instruments(), spying)
    play_events(player, history.events, _BY_NAME)
    return player.found


class _Player:
    """The driver of one history."""

    def __init__(self, bench: Bench, workers: int, instruments: Instruments, spying: bool) -> None:
        self.found = Played()
        self.played = 0  # events
        self.calling = "build"
        self._bench = bench
        self._around = instruments.around
        self._spy = Spy() if spying else None
        self._sections = {model: times.sections for model, times in bench.times.items()}
        self._ledger = Ledger()
        self._now = 0.0
        self._running: list[list[Task]] = [[] for _ in range(workers)]
        self._known: dict[int, _Progress] = {}  # in flight
        self._came: set[int] = set()
        self._fresh: set[int] = set()  # the policy was not asked since it got these
        self._references: dict[int, int] = {}
        self._decoding = Decoding()
        self._unknown = 0

    def breaks(self, rule: Rule, message: str) -> None:
        """Note that a rule was broken by the last call."""
        self._tell(f"{self.calling} breaks the rule {rule.name}")
        self.found.broken = Broken(rule, message, tuple(self.found.timeline), self.played)

    def begin(self) -> None:
        """Make the policy."""
        workers = len(self._running)
        self._tell(f"a new policy for {workers} worker{'s' if workers > 1 else ''}")
        try:
            self._raw: Policy = self._call("build", self._bench.build, workers)
        except UsageError:
            raise
        except Exception as error:
            raise RuleBroken(NO_ERRORS, f"build raised {one_line(error)}") from error
        self._policy = self._call(
            "reading its methods", CheckedPolicy, self._raw, self._sections, bool(self._bench.cells), self._ledger
        )

    def happens(self, event: Event) -> None:
        """Play one event. One that does not apply is left out."""
        self._now += event.after_s
        if event.kind == COME:
            self._come(event)
        elif event.kind == UNKNOWN:
            self._come_unknown()
        elif event.kind == WITHDRAW:
            self._withdraw(event.request)
        elif event.kind == ASK:
            self._ask(event.worker)
        elif event.kind == END:
            self._end(event.worker, event.share)
        elif event.kind == LOSE:
            self._lose(event.worker, event.given_up)
        self._ledger.check()

    # ---- events ----

    def _come(self, event: Event) -> None:
        deadline = self._now + event.deadline_s
        lengths = f"input of {event.input_len}, output of {event.output_len}" if event.model != "a" else ""
        lengths = f"input of {event.input_len}" if event.model == "a" and event.input_len != 1 else lengths
        numbers = [n for n in range(event.request, event.request + event.count) if n not in self._came]
        what = "request" if len(numbers) == 1 else f"{len(numbers)} requests"
        if not numbers:
            return
        due = "" if deadline == math.inf else f"deadline {deadline:g} s"
        more = ", ".join(filter(None, (due, lengths)))
        span = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        self._tell(f"submit {what} {span} of {event.model}" + (f" ({more})" if more else ""))
        for number in numbers:
            request = Request(number, event.model, self._now, deadline, float(event.input_len), event.output_len)
            self._references[number] = sys.getrefcount(request)
            self._came.add(number)
            self._ledger.submit(request)
            try:
                self._call("submit", self._policy.submit, request, self._now)
            except PolicyError:
                raise
            except HeadraceError as error:
                message = f"submit raised {one_line(error)} for a model that the policy has"
                raise RuleBroken(NO_ERRORS, message) from error
            self._known[number] = _Progress(request)
            self._fresh.add(number)
            latest = self._call("latest_start", self._policy.latest_start, request)
            if latest > deadline:
                raise RuleBroken(
                    LATEST_START,
                    f"latest_start of request {number} is {latest:g} s, and its deadline is {deadline:g} s; "
                    "return the deadline, or an earlier time",
                )

    def _come_unknown(self) -> None:
        self._unknown += 1
        request = Request(UNKNOWN_ID + self._unknown, NOBODY, self._now)
        before = sys.getrefcount(request)
        self._tell(f"submit a request of {NOBODY}, which is no model of the policy")
        for name, call in (
            ("submit", lambda: self._policy.submit(request, self._now)),
            ("largest_batch", lambda: self._raw.largest_batch(NOBODY)),
        ):
            try:
                self._call(name, call)
            except UnknownModel:
                continue
            except Exception as error:
                message = f"{name} raised {one_line(error)} for an unknown model; raise UnknownModel"
                raise RuleBroken(UNKNOWN_MODEL, message) from error
            raise RuleBroken(UNKNOWN_MODEL, f"{name} took an unknown model; raise UnknownModel")
        if self._call("withdraw", self._policy.withdraw, request, self._now):
            raise RuleBroken(WITHDRAWAL, "withdraw returned True for a request that it refused; return False")
        if _still_referred_to(request, before):
            raise RuleBroken(UNKNOWN_MODEL, "the policy keeps the request that it refused; keep nothing of it")

    def _withdraw(self, number: int) -> None:
        progress = self._known.get(number)
        if progress is None:  # ended, or never came: another object of the same number stands for it
            if number not in self._came:
                stranger = Request(number, "a", self._now)
                answer = self._call("withdraw", self._policy.withdraw, stranger, self._now)
                self._tell(f"withdraw request {number}, which never came: {answer}")
                if answer:
                    raise RuleBroken(WITHDRAWAL, "withdraw returned True for a request that it never had")
            return
        request = progress.request
        begun = progress.worker >= 0
        answer = self._call("withdraw", self._policy.withdraw, request, self._now)
        self._tell(f"withdraw request {number}: {answer}")
        right = not begun
        if self._bench.cells and (progress.may_restart or (not begun and number not in self._fresh)):
            right = answer  # these may have begun before a task of theirs is handed out
        if answer != right:
            state = "has begun" if begun else "waits and has not begun"
            raise RuleBroken(
                WITHDRAWAL, f"withdraw returned {answer} for request {number}, which {state}; return {right}"
            )
        if not answer:
            return
        self._ledger.cancel(request)
        del self._known[number], progress
        self._fresh.discard(number)
        if _still_referred_to(request, self._references[number]):
            raise RuleBroken(FORGETS, f"the policy keeps request {number}, which was withdrawn; keep nothing of it")
        if self._call("withdraw", self._policy.withdraw, request, self._now):
            raise RuleBroken(WITHDRAWAL, f"withdraw returned True twice for request {number}; forget it at once")

    def _ask(self, worker: int) -> bool:
        """Offer a task. Return whether the worker took one."""
        tasks = self._running[worker]
        if len(tasks) >= self._policy.ahead:
            return False
        task = self._call("next_task", self._policy.next_task, worker, self._now)
        self._fresh.clear()
        if task is None:
            self._tell(f"worker {worker} is offered nothing")
            return False
        ids = _ids(task)
        what = f"cells {', '.join(map(str, task.cells))}" if task.cells else f"nodes {task.start} to {_boundary(task)}"
        self._tell(f"worker {worker} is offered task {task.id}: {ids} of {task.model}, {what} ({task.reason})")
        self.found.tasks.append(Offered(task.model, task.batch_size, task.reason))
        if task.reason not in REASONS:
            raise RuleBroken(REASON, f"task {task.id} has the reason {task.reason!r}; choose from {', '.join(REASONS)}")
        if task.cells:
            self._begin_cells(task, worker)
        else:
            self._begin_nodes(task, worker)
        tasks.append(task)
        return True

    def _end(self, worker: int, share: float) -> None:
        if not self._running[worker]:
            return
        task = self._running[worker].pop(0)
        ended = self._ended(task, share)
        at = f" at boundary {ended.stop}" if task.preemptible else ""
        over = f", whose outputs have ended: {', '.join(str(each.id) for each in ended.ended)}" if ended.ended else ""
        self._tell(f"task {task.id} ends on worker {worker}{at}{over}")
        due = self._due_cells(ended) if ended.cells else self._due_nodes(ended)
        for request in self._call("complete", self._policy.complete, ended, self._now):
            if request.id not in due:
                raise RuleBroken(
                    FINISHES,
                    f"complete finished request {request.id}, whose last node has not run; finish it with that",
                )
            due.discard(request.id)
            self._ledger.finish(request)
            del self._known[request.id]
            self._tell(f"request {request.id} is finished")
            if self._call("withdraw", self._policy.withdraw, request, self._now):
                raise RuleBroken(WITHDRAWAL, f"withdraw returned True for request {request.id}, which has ended")
        if due and not ended.cells:
            raise RuleBroken(
                FINISHES,
                f"complete did not finish request {min(due)}, whose last node ran in task {task.id}; return it",
            )

    def _lose(self, worker: int, given_up: int) -> None:
        tasks = self._running[worker]
        if not tasks:
            return
        self._running[worker] = []
        alive = [each.id for each in dict.fromkeys(tasks[0].requests) if each.id in self._known]
        out = set(alive[:given_up])
        says = f"; the driver gives up {', '.join(map(str, sorted(out)))}" if out else ""
        self._tell(f"worker {worker} is lost with {', '.join(f'task {task.id}' for task in tasks)}{says}")
        for place, task in enumerate(tasks):
            keep = [each for each in task.requests if place > 0 or each.id not in out]
            try:
                self._call("complete", self._policy.lost, task, keep, self._now)
            except PolicyError as error:
                if error.rule == NO_ERRORS.name:
                    raise RuleBroken(LOST_WORKER, str(error)) from error
                raise
            for request in task.requests:
                progress = self._known.get(request.id)
                if progress is not None:
                    self._begins_anew(progress)
        for number in out:
            self._ledger.fail(self._known.pop(number).request)
        for progress in self._known.values():
            if progress.worker != worker:
                continue
            if self._bench.cells:
                progress.may_restart = True
            else:
                self._begins_anew(progress)  # the worker held its state

    def drain(self) -> None:
        """Let everything end that has begun or waits."""
        if self._came:
            self._tell("nothing more happens: workers are asked until every request has ended")
        told = 0
        for _ in range(200 + 60 * len(self._known)):
            if not self._known and not any(self._running):
                break
            self._now += TASK_S if any(self._running) else 0.0
            for worker in range(len(self._running)):
                while self._running[worker]:
                    self._end(worker, 1.0)
            took = [self._ask(worker) for worker in range(len(self._running))]
            if any(took) or not self._known:
                told = 0
                continue
            wakeup = self._call("wakeup", self._policy.wakeup, self._now)
            if wakeup == math.inf:
                raise self._policy.left_waiting(len(self._known), self._now)
            told += 1
            if told <= MAX_WAKEUPS:
                self._tell(f"wakeup is at {wakeup:g} s")
            self._now = max(self._now, wakeup)
        else:
            raise RuleBroken(NOTHING_LOST, f"{len(self._known)} requests wait or run, and do not come to their end")
        wakeup = self._call("wakeup", self._policy.wakeup, self._now)
        if wakeup < math.inf:
            raise RuleBroken(WAKEUP, f"wakeup is {wakeup:g} s though no request waits; return math.inf")
        for worker in range(len(self._running)):
            self._ask(worker)

    # ---- what a driver knows ----

    def _begin_nodes(self, task: Task, worker: int) -> None:
        sections = self._sections[task.model]
        for request in task.requests:
            progress = self._known[request.id]
            if progress.worker not in (-1, worker):
                raise RuleBroken(
                    NODE_ORDER,
                    f"task {task.id} runs request {request.id} on worker {worker}, but it has begun on worker "
                    f"{progress.worker}, which holds its state; go on there",
                )
            if task.start not in _next_nodes(progress, sections):
                raise RuleBroken(
                    NODE_ORDER,
                    f"task {task.id} runs request {request.id} from node {task.start}, but its next node is "
                    f"{' or '.join(map(str, _next_nodes(progress, sections)))}",
                )
            if task.start != progress.node:
                progress.node, progress.rounds = task.start, 0
            progress.worker = worker

    def _ended(self, task: Task, share: float) -> Task:
        """Return the task as it ended."""
        if task.preemptible:
            sections = self._sections[task.model]
            first, last = task.start + 1, self._decoding.stop(task, sections)
            return self._decoding.end(task, first + round(share * (last - first)), sections)
        if not task.cells:
            return task
        ended = []
        for request, cell in zip(task.requests, task.cells, strict=True):
            first = self._bench.cells[task.model].unfold(request).open_from
            if 0 <= first <= cell and cell - first + 1 >= request.output_len:
                ended.append(request)
        return task.ended_at(task.stop, tuple(ended))

    def _due_nodes(self, ended: Task) -> set[int]:
        """Move the requests of a task on. Return those whose last node has run."""
        sections = self._sections[ended.model]
        over = {request.id for request in ended.ended}
        due = set()
        for request in ended.requests:
            progress = self._known[request.id]
            if not ended.preemptible:
                due.add(request.id)
                continue
            _advance(progress, ended, request.id in over, sections)
            if sections.nodes in _next_nodes(progress, sections):
                due.add(request.id)
        return due

    def _begin_cells(self, task: Task, worker: int) -> None:
        model = self._bench.cells[task.model]
        for request, cell in zip(task.requests, task.cells, strict=True):
            progress = self._known[request.id]
            unfolded = model.unfold(request)
            kind = next(each.type for each in reversed(unfolded.subgraphs) if cell >= each.first)
            what = f"task {task.id} runs cell {cell} of request {request.id}"
            if progress.may_restart and cell == 0:
                self._begins_anew(progress)
            progress.may_restart = False
            if progress.ended or (unfolded.open_from < 0 and cell >= unfolded.cells):
                raise RuleBroken(CELL_ORDER, f"{what}, which has ended")
            if cell != progress.handed:
                raise RuleBroken(CELL_ORDER, f"{what}; the next one is {progress.handed}")
            if kind != task.start:
                raise RuleBroken(CELL_ORDER, f"{what} as type {task.start}; it is of type {kind}")
            in_flight = progress.handed > progress.completed
            if in_flight and (progress.cells_on != worker or request in _before(task, request, cell)):
                raise RuleBroken(CELL_ORDER, f"{what} before cell {cell - 1} has run")
            progress.handed += 1
            progress.cells_on = progress.worker = worker

    def _due_cells(self, ended: Task) -> set[int]:
        """Move the requests of a task of cells on. Return those that may finish: all cells of theirs have run."""
        over = {request.id for request in ended.ended}
        for request in ended.requests:
            progress = self._known.get(request.id)
            if progress is not None and progress.handed > progress.completed:
                progress.completed += 1
                progress.ended = progress.ended or request.id in over
        due = set()
        for number, progress in self._known.items():
            if progress.request.model == ended.model:
                unfolded = self._bench.cells[ended.model].unfold(progress.request)
                complete = progress.ended if unfolded.open_from >= 0 else progress.completed >= unfolded.cells
                if complete:
                    due.add(number)
        return due

    def _begins_anew(self, progress: _Progress) -> None:
        self._decoding.forget(progress.request)
        progress.node = progress.rounds = progress.handed = progress.completed = 0
        progress.worker = progress.cells_on = -1
        progress.ended = progress.may_restart = False

    # ---- calls ----

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the policy, with the instruments around."""
        self.calling = name
        return watched(name, function, arguments, self._around, self._spy)

    def _tell(self, text: str) -> None:
        add_line(self.found.timeline, f"{self._now:8.3f} s  {text}")


def _still_referred_to(request: Request, before: int) -> bool:
    """Tell whether more refers to a request than before. The caller has one reference, as it had then."""
    if sys.getrefcount(request) - 1 <= before:
        return False
    gc.collect()  # a cycle of objects that nobody has any more
    return sys.getrefcount(request) - 1 > before


def _ids(task: Task) -> str:
    numbers = [request.id for request in task.requests]
    if len(numbers) > 4 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"requests {numbers[0]} to {numbers[-1]}"
    return f"request{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _boundary(task: Task) -> str:
    return "the end" if task.stop > 1 << 20 else str(task.stop)


def _before(task: Task, request: Request, cell: int) -> list[Request]:
    """Return the request if the task has an earlier cell of it as well."""
    return [
        each for each, number in zip(task.requests, task.cells, strict=True) if each is request and number == cell - 1
    ]


def _advance(progress: _Progress, ended: Task, over: bool, sections: Sections) -> None:
    """Move a request on by a preemptible task as it ended."""
    first, after = sections.first[ended.start], sections.after[ended.start]
    if ended.stop <= first or first == after:
        progress.node, progress.rounds = ended.stop, 0
        return
    rounds, rest = divmod(ended.stop - first, after - first)
    if ended.start < first:
        progress.rounds = 0
    progress.rounds += rounds
    progress.node = first + rest
    progress.ended = progress.ended or over


def _next_nodes(progress: _Progress, sections: Sections) -> tuple[int, ...]:
    """Return the nodes from which a request may go on: one, or two where it may leave its section."""
    node = progress.node
    if node >= sections.nodes:
        return (sections.nodes,)
    for section, leaves in (
        (sections.encoder, progress.rounds >= steps(progress.request.input_len)),
        (sections.decoder, progress.ended),
    ):
        if node == section.start and len(section) > 0 and progress.rounds > 0:
            return (section.stop,) if leaves else (node,)
    return (node,)
