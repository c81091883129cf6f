"""The dispatch of tasks: `Dispatch` asks the policy for tasks, sends them to workers, and takes the answers.

Rules:

- A worker may have `Policy.ahead` tasks that have not ended. It runs them in the order in which they were sent. A task
  that waits at its worker has not begun, but no policy takes its requests back. So where late requests are dropped, or
  a worker begins each task at once, it gets the next whole task only when it is idle.
- When something happens, running preemptible tasks are told to end at their next node boundary (an interrupt). Then the
  policy may add new requests to their batch, or run another batch first.
- An interrupted task whose batch goes on unchanged is no news for the other workers. If anything else follows on its
  worker, or on a worker that was idle, the other workers' tasks are interrupted again. The engine of the simulator has
  the same rule (sim/engine.py), so both run the same tasks.

Example: request c arrives while worker 0 runs batch A and worker 1 runs batch B.

    arrival of c          both workers get an interrupt
    A ends at a boundary  the policy lets A go on as it was: worker 1 is left alone
    B ends at a boundary  the policy answers with B and c: worker 0 gets an interrupt again
"""

import itertools
from collections.abc import Sequence

from headrace.batching import CheckedPolicy, Task
from headrace.host.live.isolation import Isolation
from headrace.host.live.requests import InFlight, Requests
from headrace.host.live.results import Execution
from headrace.host.live.supervision import DispatchedTask, WorkerSlot
from headrace.host.live.tasks.interface import Tasks
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.messages import ANSWER, DONE
from headrace.host.workers.process import ModelError


class Dispatch:
    """The dispatch of the tasks of `policy`, and of suspects (isolation.py), to the workers in `slots`."""

    def __init__(
        self,
        policy: CheckedPolicy,
        slots: Sequence[WorkerSlot],
        tasks: Tasks,
        requests: Requests,
        isolation: Isolation,
        drop_late: bool,
    ) -> None:
        self._policy = policy
        self._slots = slots
        self._tasks = tasks
        self._requests = requests
        self._isolation = isolation
        self._ahead = policy.ahead if tasks.cells or (tasks.wait_at_worker and not drop_late) else 1
        self._numbers = itertools.count()
        self.ended: list[Execution] = []  # tasks that ended since the runtime last took them
        self.finished: list[tuple[InFlight, Execution]] = []  # requests that wait for their answer, with the last task

    @property
    def any_idle(self) -> bool:
        """Tell whether a worker in service has no task."""
        return any(slot.up and not slot.dispatched for slot in self._slots)

    def interrupt_running(self) -> None:
        """Tell every worker to end its running task at the next node boundary, if that is preemptible."""
        for slot in self._slots:
            if slot.dispatched and slot.up:
                running = slot.dispatched[0]
                if not running.interrupt_sent and running.task.preemptible:
                    slot.worker.interrupt(running.number)
                    running.interrupt_sent = True

    def offer(self, now: float) -> None:
        """Offer one task at a time to every worker that may have another, until no worker takes one."""
        ahead = self._ahead
        slots = [slot for slot in self._slots if slot.up and len(slot.dispatched) < ahead]
        while slots:
            again = []
            for slot in slots:
                offered = self._next_task(slot, now)
                ended_early, slot.ended_early = slot.ended_early, None
                if offered is None:
                    if ended_early is not None:
                        self.interrupt_running()
                    continue
                if ended_early is None or not _goes_on(ended_early, offered[0]):
                    self.interrupt_running()
                self._send(slot, *offered, now)
                if len(slot.dispatched) < ahead:
                    again.append(slot)
            slots = again

    def answered(self, slot: WorkerSlot, message: bytes, now: float, origin: float) -> bool:
        """Take the answer of a worker to its first task, and inform the policy. All else waits for the turn.

        The answer has times of the clock; those of an `Execution` count from `origin`.

        Returns:
            False if the task is an interrupted one that ended early. `offer` decides later whether that is news to the
            other workers. True in all other cases.
        """
        kind, _, began, gathered, ended = ANSWER.unpack_from(message)
        answer = message[ANSWER.size :]
        sent = slot.dispatched.popleft()
        slot.free_since = now
        if slot.dispatched:  # the next one begins now
            self._requests.begin(slot.dispatched[0].task.requests, now)
        times = (sent.handed, began - origin, gathered - origin, ended - origin, now)
        if kind != DONE:
            error = ModelError(f"the network failed on worker {slot.worker.name}: {answer.decode()}")
            task = sent.task.lost(sent.task.requests)  # nobody knows which of its nodes ran
            self.ended.append(Execution(slot.index, task, *times, str(error)))
            self._isolation.task_raised(slot, sent, error, now)
            return True
        task = self._tasks.ended(sent.task, answer)
        execution = Execution(slot.index, task, *times, None)
        self.ended.append(execution)
        ended_early = sent.interrupt_sent and task.stop < sent.task.stop and not task.ended
        if ended_early:
            slot.ended_early = task
        if self._isolation.is_current(slot, sent.policy):  # else the suspects of this task have begun again
            finished = sent.policy.complete(task, now)
            for request in finished:
                self.finished.append((self._requests.by_id[request.id], execution))
            self._isolation.finished(slot, sent.policy, finished)
        return not ended_early

    def worker_lost(self, slot: WorkerSlot, error: WorkerLost, now: float) -> None:
        """Take all tasks of a lost worker back. Their requests run again, or fail."""
        if slot.dispatched:
            sent = slot.dispatched[0]
            task = sent.task.lost(sent.task.requests)
            times = (sent.handed, sent.handed, sent.handed, now, now)
            self.ended.append(Execution(slot.index, task, *times, str(error)))
        self._isolation.worker_lost(slot, error, now)

    def close(self) -> None:
        """Take the tasks back that workers still had when they were killed."""
        for slot in self._slots:
            for sent in slot.dispatched:
                self._tasks.lost(sent.task)
            slot.dispatched.clear()

    def _next_task(self, slot: WorkerSlot, now: float) -> tuple[Task, CheckedPolicy] | None:
        """Return a task for the worker and the policy that made it. Suspects and all other requests take turns."""
        for _ in range(2):
            policy: CheckedPolicy | None = self._policy
            worker = slot.index
            if slot.suspects_next and self._isolation.has_work(slot):
                policy, worker = self._isolation.policy_for(slot, now), 0  # such a policy knows one worker only
            slot.suspects_next = not slot.suspects_next
            task = policy.next_task(worker, now) if policy is not None else None
            if policy is not None and task is not None:
                return task, policy
            if not self._isolation.has_work(slot):
                return None
        return None

    def _send(self, slot: WorkerSlot, task: Task, policy: CheckedPolicy, now: float) -> None:
        number = next(self._numbers)
        if not slot.dispatched:
            self._requests.begin(task.requests, now)
        slot.worker.send(number, self._tasks.message(task), self._tasks.files(task))
        slot.dispatched.append(DispatchedTask(number, task, policy, now))


def _goes_on(ended_early: Task, task: Task) -> bool:
    """Tell whether `task` is the same batch, from the node boundary at which it ended early."""
    return task.requests is ended_early.requests and task.start == ended_early.stop
