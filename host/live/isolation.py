"""The isolation of suspects: requests that may have caused a fault run again without others.

A request can make its network raise, kill its worker, or hang. All other requests must still get their results. So:

- When a worker is lost, the requests of the task that it ran are suspects. Its other requests go back to the policy.
- When a network raises, all requests of that task are suspects.
- Suspects form groups. A group runs on one worker, under a policy of its own (`Tasks.isolated_policy`), and takes turns
  there with the tasks of the runtime's policy.
- After a worker's loss, each suspect is a group of its own. After an exception, the suspects split into two halves. So
  one bad request among n is found in about log2(n) more tasks.
- A request fails with the network's error when it raises alone. It fails with `WorkerLost` when it has killed
  `attempts` workers.

Example: request c makes the network raise.

    task      [a b c d] raises
    groups    [a b] runs well; [c d] raises
    groups    [c] raises: c fails with its own error; [d] runs well
"""

from collections import deque
from collections.abc import Callable, Iterable

from headrace.batching import CheckedPolicy, HeadraceError, Policy, Request
from headrace.host.live.requests import InFlight, Requests
from headrace.host.live.supervision import DispatchedTask, WorkerSlot
from headrace.host.live.tasks.interface import Tasks


class Isolation:
    """The groups of suspects that wait for a worker, and the rules for tasks that did not end well.

    `policy` is the runtime's own. `checked` wraps the policy of a group. A request may kill `attempts` workers.
    """

    def __init__(
        self,
        policy: CheckedPolicy,
        tasks: Tasks,
        requests: Requests,
        attempts: int,
        checked: Callable[[Policy], CheckedPolicy],
    ) -> None:
        self._policy = policy
        self._tasks = tasks
        self._requests = requests
        self._attempts = attempts
        self._checked = checked
        self._groups: deque[list[InFlight]] = deque()

    def has_work(self, slot: WorkerSlot) -> bool:
        """Tell whether there are suspects that the worker may run."""
        return bool(self._groups) or slot.isolated is not None

    def policy_for(self, slot: WorkerSlot, now: float) -> CheckedPolicy | None:
        """Return the policy of the worker's group of suspects. A worker without a group takes the next one, if any."""
        while slot.isolated is None and self._groups:
            # The caller of a suspect may have had its answer while the group waited.
            group = [in_flight for in_flight in self._groups.popleft() if in_flight.request.id in self._requests.by_id]
            if group:
                slot.isolated = self._checked(self._tasks.isolated_policy())
                slot.suspects = {in_flight.request.id: in_flight for in_flight in group}
                for in_flight in group:
                    in_flight.policy = slot.isolated
                    slot.isolated.submit(in_flight.request, now)
        return slot.isolated

    def is_current(self, slot: WorkerSlot, policy: CheckedPolicy) -> bool:
        """Tell whether a task of `policy` still counts. The policy of a group ends with the group's first fault."""
        return policy is self._policy or policy is slot.isolated

    def finished(self, slot: WorkerSlot, policy: CheckedPolicy, requests: Iterable[Request]) -> None:
        """Note that a task of `policy` finished `requests` on the worker. A group ends with its last request."""
        if policy is slot.isolated:
            for request in requests:
                slot.suspects.pop(request.id, None)
            if not slot.suspects:
                slot.isolated = None

    def task_raised(self, slot: WorkerSlot, dispatched: DispatchedTask, error: HeadraceError, now: float) -> None:
        """Handle a task in which the network raised. A request that was alone fails; more split into halves."""
        suspects = self._task_lost(slot, dispatched, True, now)
        if len(suspects) == 1:
            self._requests.fail(suspects[0], error)
        elif suspects:
            half = len(suspects) // 2
            self._add_group(suspects[:half])
            self._add_group(suspects[half:])

    def worker_lost(self, slot: WorkerSlot, error: HeadraceError, now: float) -> None:
        """Handle all tasks of a lost worker. Only the first of them was running."""
        running = True
        while slot.dispatched:
            for in_flight in self._task_lost(slot, slot.dispatched.popleft(), running, now):
                in_flight.kills += 1
                if in_flight.kills >= self._attempts or in_flight.failed:
                    self._requests.fail(in_flight, error)
                else:
                    self._add_group([in_flight])
            running = False
        if slot.isolated is not None:  # the group had no task at the worker
            self._add_group(self._end_group(slot))

    def _add_group(self, group: list[InFlight]) -> None:
        for in_flight in group:
            in_flight.policy = None
        self._groups.append(group)

    def _end_group(self, slot: WorkerSlot) -> list[InFlight]:
        """Give up the policy of the worker's group. Return the requests of the group."""
        group = list(slot.suspects.values())
        slot.isolated = None
        slot.suspects.clear()
        return group

    def _task_lost(self, slot: WorkerSlot, dispatched: DispatchedTask, running: bool, now: float) -> list[InFlight]:
        """Handle a task that did not end. Return its suspects, which no policy has any more.

        There are none if the worker was not `running` the task. All other requests of it go back to their policy.
        """
        task = dispatched.task
        at_task = self._tasks.lost(task)
        if dispatched.policy is not self._policy:
            if dispatched.policy is not slot.isolated:
                return []
            group = self._end_group(slot)
            for in_flight in group:
                self._tasks.restart(in_flight.request)
            if running:
                return group
            self._add_group(group)
            return []
        by_id = self._requests.by_id
        affected = {request.id: by_id[request.id] for request in at_task if request.id in by_id}
        for in_flight in affected.values():
            self._tasks.restart(in_flight.request)
        suspects = affected if running else {}
        keep = {request.id: request for request in task.requests if request.id not in suspects}
        dispatched.policy.lost(task, keep.values(), now)
        return list(suspects.values())
