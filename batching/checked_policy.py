"""Checks of a policy's answers, in one place for both drivers.

A driver asks a `CheckedPolicy` instead of the policy itself. Each answer is checked before the driver uses it. A wrong
answer raises one `PolicyError` that names the policy and the rule. The simulator and the live runtime therefore report
the same mistake in the same words.

`Request.held_by` marks the state of a request. A request is ready after it was submitted, and after a task with it
ended before the request did. A request runs while a task has it. Tasks of cells may share a request, so there every
request in flight counts as ready.

This file is compiled (setup.py).
"""

import numbers
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headrace.batching.accounting import Ledger
from headrace.batching.errors import HeadraceError, PolicyError, one_line
from headrace.batching.graphs.execution import Sections
from headrace.batching.policy import (
    ANSWERS,
    BATCH_LIMIT,
    CELL_ORDER,
    FINISHES,
    LOST_WORKER,
    METHODS,
    NO_ERRORS,
    NODE_ORDER,
    NOTHING_LOST,
    ONE_MODEL,
    ONE_TASK,
    WAITING_REQUESTS,
    WAKEUP,
    WITHDRAWAL,
    Policy,
    Rule,
)
from headrace.batching.request import Request, Task

METHOD_NAMES: Final = ("submit", "next_task", "complete", "withdraw", "wakeup", "latest_start", "largest_batch")
MAX_WAKEUPS: Final = 100  # times in the past that `wakeup` may return in a row while nothing else happens


class _Mark:
    """A value of `Request.held_by`. Each value stands for one state of a request with one policy."""


class _Model:
    """The facts about a model that the checks need.

    Args:
        name: The model's name.
        sections: The encoder and decoder sections of its graph, or None if workers run the network as one piece.
    """

    def __init__(self, name: str, sections: Sections | None) -> None:
        self.name: str = name
        self.sections: Sections | None = sections
        self.nodes: int = 0 if sections is None else sections.nodes
        self.largest: int = 0  # the last answer of `largest_batch`; 0 before the first


class CheckedPolicy:
    """Asks a policy for a driver, and raises PolicyError where an answer breaks a rule.

    Every method raises PolicyError. After that the policy's state is unknown, and the driver must not ask it again.

    Args:
        policy: The policy to check.
        models: By model that the driver serves, the sections of its graph; None for a network that runs as one piece.
        cells: Whether tasks consist of cells.
        ledger: The driver's ledger.
    """

    def __init__(self, policy: Policy, models: Mapping[str, Sections | None], cells: bool, ledger: Ledger) -> None:
        self.name: Final[str] = f"{type(policy).__module__}:{type(policy).__qualname__}"
        for method in METHOD_NAMES:
            if not callable(getattr(policy, method, None)):
                raise self._broke(
                    METHODS, f"it has no method {method!r}", "give it one (batching/policy.py has its contract)"
                )
        self._cells: bool = cells
        self._ledger: Ledger = ledger
        self._models: dict[str, _Model] = {name: _Model(name, known) for name, known in models.items()}
        self._last: _Model = _Model(
            "no task yet", None
        )  # the model of the last task, because most tasks have the same model as the one before
        self._ready: _Mark = _Mark()
        self._runs: _Mark = _Mark()
        self._ends: _Mark = _Mark()
        self._left: Task | None = None  # the task that ended last, while its requests are not marked as ready
        self._wakeups: int = 0  # times in the past that `wakeup` returned since anything else happened
        # Look each method up once. A policy need not be compiled, so every look-up is by name and slow.
        self._submit: Callable[[Request, float], object] = policy.submit
        self._next_task: Callable[[int, float], object] = policy.next_task
        self._complete: Callable[[Task, float], object] = policy.complete
        self._withdraw: Callable[[Request, float], object] = policy.withdraw
        self._wakeup: Callable[[], object] = policy.wakeup
        self._latest_start: Callable[[Request], object] = policy.latest_start
        self._largest_batch: Callable[[str], object] = policy.largest_batch
        self.ahead: Final[int] = self._whole("ahead", self._attribute(policy, "ahead"))

    def submit(self, request: Request, now: float) -> None:
        """Hand a request to the policy. UnknownModel and other errors for users pass through as the policy raises
        them."""
        try:
            self._submit(request, now)
        except HeadraceError:
            raise
        except Exception as error:
            raise self._raised("submit", error) from error
        request.held_by = self._ready
        self._wakeups = 0

    def next_task(self, worker: int, now: float) -> Task | None:
        """Return the task that `worker` must run now, or None if it stays idle."""
        try:
            answer = self._next_task(worker, now)
        except Exception as error:
            raise self._raised("next_task", error) from error
        if answer is None:
            return None
        if not isinstance(answer, Task):
            raise self._broke(
                ANSWERS, f"next_task returned {_shown(answer)}", "return a Task, or None to leave the worker idle"
            )
        task = answer
        requests: object = task.requests
        if not isinstance(requests, tuple):
            raise self._broke(
                ANSWERS, f"{_name(task)} has its requests in a {type(requests).__name__}", "give it a tuple"
            )
        model = self._last
        if task.model is not model.name:
            model = self._model_of(task)
        if not 0 < len(task.requests) <= model.largest:
            self._check_batch(task, model)
        if self._cells or not task.preemptible or not 0 <= task.start < task.stop <= model.nodes or len(task.cells) > 0:
            self._check_span(task, model)
        self._wakeups = 0
        left = self._left
        if left is not None and task.requests is left.requests and task.model == left.model:
            self._left = None
            return task
        if left is not None:
            self._mark_left()
        ready, runs = self._ready, self._ready if self._cells else self._runs
        for request in requests:
            if not isinstance(request, Request) or request.held_by is not ready or request.model != task.model:
                raise self._cannot_run(task, request)
            request.held_by = runs
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        """Tell the policy that a task ended, and return the requests that finished with it."""
        finished = self._completed(task, now)
        self._wakeups = 0
        if len(finished) == 0 and not self._cells:
            if self._left is not None:
                self._mark_left()
            self._left = task
            return finished
        ready, ends = self._ready, self._ready if self._cells else self._ends
        if not self._cells:
            for request in task.requests:
                request.held_by = ends
        for each in finished:
            if not isinstance(each, Request) or each.held_by is not ends:
                raise self._cannot_finish(task, each)
            each.held_by = None
        if len(finished) < len(task.requests) and not self._cells:
            for request in task.requests:
                if request.held_by is ends:
                    request.held_by = ready
        if task.preemptible:
            self._check_end(task, finished)
        return finished

    def lost(self, task: Task, keep: Iterable[Request], now: float) -> None:
        """Tell the policy that a worker was lost while it ran `task`.

        Requests in `keep` return to the policy. The driver has given up the others."""
        lost = task.lost(keep)
        finished = self._completed(lost, now)
        if finished:
            raise self._cannot_finish(lost, finished[0], LOST_WORKER)
        kept = {request.id for request in lost.requests}
        for request in task.requests:
            if request.id not in kept:
                request.held_by = None
            elif not self._cells:
                request.held_by = self._ready
        self._wakeups = 0

    def withdraw(self, request: Request, now: float) -> bool:
        """Withdraw a request that has not begun. Return whether the policy removed it."""
        try:
            answer = self._withdraw(request, now)
        except Exception as error:
            raise self._raised("withdraw", error) from error
        if not isinstance(answer, bool):
            raise self._broke(ANSWERS, f"withdraw returned {_shown(answer)}", "return True or False")
        if answer:
            self._mark_left()
            if request.held_by is not self._ready:
                raise self._broke(
                    WITHDRAWAL,
                    f"withdraw returned True for request {request.id}, which runs or which it does not have",
                    "return False there",
                )
            request.held_by = None
            self._wakeups = 0
        return answer

    def wakeup(self, now: float) -> float:
        """Return the time (s) at which to ask the policy again if nothing else happens. The driver has an idle worker
        at `now`."""
        try:
            answer = self._wakeup()
        except Exception as error:
            raise self._raised("wakeup", error) from error
        at = answer if isinstance(answer, float) else self._number("wakeup", answer)
        if at > now:
            self._wakeups = 0
        elif at != at:
            raise self._broke(ANSWERS, "wakeup returned nan", "return a time in seconds, or math.inf")
        else:
            self._wakeups += 1
            if self._wakeups > MAX_WAKEUPS:
                raise self._broke(
                    WAKEUP,
                    f"wakeup returned a time in the past {self._wakeups} times in turn, and no task followed",
                    "return a later time, or a task from next_task when that time comes",
                )
        return at

    def latest_start(self, request: Request) -> float:
        """Return the time (s) at which the request must have begun to meet its deadline."""
        try:
            answer = self._latest_start(request)
        except Exception as error:
            raise self._raised("latest_start", error) from error
        at = self._number("latest_start", answer)
        if at != at:
            raise self._broke(ANSWERS, "latest_start returned nan", "return a time in seconds, or math.inf")
        return at

    def left_waiting(self, requests: int, now: float) -> PolicyError:
        """Return the error for a policy that leaves requests waiting although nothing more will happen."""
        return self._broke(
            NOTHING_LOST,
            f"it left {requests} requests waiting at {now} s though all workers are idle",
            "return a task from next_task, or from wakeup when to ask again",
        )

    # ---- rare cases and errors ----

    def _broke(self, rule: Rule, what: str, change: str) -> PolicyError:
        return PolicyError(f"policy {self.name!r} broke a rule: {what}; {change}", rule.name)

    def _raised(self, method: str, error: Exception) -> PolicyError:
        return self._broke(NO_ERRORS, f"{method} raised {one_line(error)}", "mend it, as a policy must not raise there")

    def _known(self) -> str:
        return ", ".join(sorted(self._models))

    def _attribute(self, policy: object, name: str) -> object:
        try:
            return getattr(policy, name)
        except Exception as error:
            raise self._raised(name, error) from error

    def _whole(self, name: str, answer: object) -> int:
        """Return `answer` as a whole number. Raise PolicyError if it is no whole number of 1 or more."""
        try:
            number = operator.index(answer)  # type: ignore[arg-type]
        except TypeError:
            number = 0
        if number < 1:
            rule = METHODS if name == "ahead" else ANSWERS
            raise self._broke(rule, f"{name} is {_shown(answer)}", "give a whole number of 1 or more")
        return number

    def _number(self, name: str, answer: object) -> float:
        if not isinstance(answer, numbers.Real):
            raise self._broke(ANSWERS, f"{name} returned {_shown(answer)}", "return a time in seconds, or math.inf")
        return float(answer)

    def _completed(self, task: Task, now: float) -> list[Any]:
        try:
            answer = self._complete(task, now)
        except Exception as error:
            raise self._raised("complete", error) from error
        if not isinstance(answer, list):
            raise self._broke(
                ANSWERS, f"complete returned {_shown(answer)}", "return a list of the requests that finished"
            )
        return answer

    def _mark_left(self) -> None:
        """Mark the requests of the task that ended last as ready.

        Nothing is marked where the policy continues with the same requests, which is the usual case."""
        if self._left is not None:
            ready = self._ready
            for request in self._left.requests:
                request.held_by = ready
            self._left = None

    def _model_of(self, task: Task) -> _Model:
        model = self._models.get(task.model)
        if model is None:
            raise self._broke(ONE_MODEL, f"{_name(task)} is of model {task.model!r}", f"workers have {self._known()}")
        self._last = model
        return model

    def _check_batch(self, task: Task, model: _Model) -> None:
        """Check the batch size of a task. The policy is asked for its largest batch again, because that may have
        grown."""
        if not task.requests:
            raise self._broke(BATCH_LIMIT, f"{_name(task)} has no requests", "return None to leave the worker idle")
        try:
            answer = self._largest_batch(model.name)
        except Exception as error:
            raise self._raised("largest_batch", error) from error
        model.largest = max(model.largest, self._whole(f"largest_batch({model.name!r})", answer))
        if len(task.requests) > model.largest:
            raise self._broke(
                BATCH_LIMIT,
                f"{_name(task)} has a batch of {len(task.requests)}, and largest_batch({model.name!r}) is "
                f"{model.largest}",
                "make smaller batches, or return the largest there",
            )

    def _check_span(self, task: Task, model: _Model) -> None:
        start, stop = task.start, task.stop
        if not 0 <= start < stop:
            raise self._wrong_span(task, "start at 0 or above, and stop above that")
        if self._cells:
            if stop > model.nodes or stop != start + 1:
                raise self._wrong_span(task, f"give one of the {model.nodes} cell types, and stop one above it")
            if len(task.cells) != len(task.requests):
                raise self._broke(
                    CELL_ORDER,
                    f"{_name(task)} has {len(task.cells)} cells for {len(task.requests)} requests",
                    "give each entry the number of its cell",
                )
            return
        if task.cells:
            raise self._broke(
                NODE_ORDER, f"{_name(task)} has cells", f"workers run model {model.name!r} by nodes; leave them out"
            )
        sections = model.sections
        if sections is None:
            if start > 0:
                raise self._wrong_span(task, f"workers run model {model.name!r} as one piece; start at 0")
        elif not task.preemptible:
            if start > 0 or stop != model.nodes:
                raise self._wrong_span(task, f"the graph has {model.nodes}; run them all, or make the task preemptible")
        elif start >= model.nodes or (stop > model.nodes and sections.first[start] == model.nodes):
            raise self._wrong_span(task, f"the graph has {model.nodes}; stop there at most")

    def _wrong_span(self, task: Task, change: str) -> PolicyError:
        order = CELL_ORDER if self._cells else NODE_ORDER
        return self._broke(order, f"{_name(task)} runs nodes {task.start} to {task.stop}", change)

    def _check_end(self, task: Task, finished: list[Request]) -> None:
        """Check that a graph without encoder and decoder finishes its requests at its last node, and nowhere else."""
        model = self._models[task.model]
        sections = model.sections
        if sections is not None and not sections.any and task.stop < model.nodes:
            raise self._broke(
                FINISHES,
                f"complete finished request {finished[0].id} at node {task.stop} of {model.nodes}",
                "finish a request when its last node has run",
            )

    def _cannot_run(self, task: Task, request: object) -> PolicyError:
        """Return the error for a task with a request that must not run now."""
        what = f"{_name(task)} has "
        if not isinstance(request, Request):
            return self._broke(
                WAITING_REQUESTS, f"{what}{_shown(request)} for a request", "give it requests that were submitted"
            )
        what += f"request {request.id}"
        if request.model != task.model:
            return self._broke(
                ONE_MODEL, f"{what} of model {request.model!r}", f"it is of model {task.model!r}; batch one model"
            )
        if sum(1 for each in task.requests if each is request) > 1 and not self._cells:
            return self._broke(WAITING_REQUESTS, f"{what} twice", "give it each request once")
        if request.held_by is self._runs:
            return self._broke(ONE_TASK, f"{what}, which runs already", "wait until its task has ended")
        known = self._ledger.find(request.id)
        if known is not None and known is not request:
            return self._broke(WAITING_REQUESTS, f"{what} as a copy", "give it the object that was submitted")
        return self._broke(
            WAITING_REQUESTS, f"{what}, which has ended or was never submitted", "give it requests that wait"
        )

    def _cannot_finish(self, task: Task, request: object, rule: Rule = FINISHES) -> PolicyError:
        which = f"request {request.id}" if isinstance(request, Request) else _shown(request)
        return self._broke(
            rule,
            f"complete finished {which}, which did not end with {_name(task)}",
            "return each request once, with the task that ends it",
        )


def _name(task: Task) -> str:
    return f"task {task.id}"


def _shown(answer: object) -> str:
    """Return an answer as an error message shows it: one line of bounded length."""
    if answer is None or isinstance(answer, (bool, int, float, str)):
        return repr(answer)[:80]
    return f"a {type(answer).__name__}"
