"""The events of a fleet: arrivals, the router, the way to a server and its preprocessing, its turns, and the way back.

All servers share one clock and two heaps: one of their turns, one of requests and answers on their way. A turn is of
one server, so the cost of a request does not depend on the number of servers. At each instant the run takes these steps
in order:

1. Servers die, come back, start or stop.
2. Requests come to the router.
3. Requests come to servers.
4. Each server that something happened to has its turn.

The router counts a request from its sending until the answer is back, and knows at once which servers are up. The run
keeps nothing of a request after its answer. This file is compiled (setup.py).
"""

import heapq
import math
import random
from collections.abc import Callable, Iterator

from headrace.batching.accounting import AccountingError, Ledger
from headrace.batching.policy import Policy
from headrace.batching.request import Request
from headrace.sim.engine import (
    TURNS_BETWEEN_LOOKS,
    Arrivals,
    Durations,
    Outcome,
    Server,
    Tally,
    Times,
    next_block,
    nth,
)
from headrace.sim.fleet.routers import Router, make_router
from headrace.sim.fleet.settings import Fleet
from headrace.sim.interrupt import look_for_signals

DIES, MAY_DIE, UP, STARTED = 0, 1, 2, 3  # the kinds of changes
ANY = -1  # in place of the number of a life: any life
BACK = -1  # in place of the number of a step: an answer on its way to the router


class _Call:
    """A request, and the seconds that each step of preprocessing takes for it."""

    def __init__(self, request: Request, seconds: list[float]) -> None:
        self.request: Request = request
        self.seconds: list[float] = seconds


class _Site(Outcome):
    """The place of a server in the fleet. `server` is a new one after each stop or failure, and `life` counts these
    ends."""

    def __init__(self, number: int, tally: Tally, steps: list[int]) -> None:
        super().__init__(0)
        self.number: int = number
        self.server: Server | None = None
        self.life: int = 0
        self.turn_at: float = math.inf
        self.due: bool = False
        self.under_way: dict[int, _Call] = {}  # requests on the way to it, or in it
        self.answered: list[Request] = []  # requests answered in this turn
        self.free: list[list[float]] = []  # for each step of preprocessing, when each of its servers is free
        self.steps: list[int] = steps
        self.on_since: float = -1.0  # since when it starts or runs; -1 if it does not
        self.leaves: bool = False  # it stops after its requests
        self._tally: Tally = tally

    def comes(self, request: Request, now: float) -> None:
        self._tally.comes(request, now)

    def begins(self, request: Request, now: float) -> None:
        self._tally.begins(request, now)

    def ends(self, request: Request, now: float) -> None:
        self.answered.append(request)


class FleetRun:
    """One run of a fleet, and what is reported of it.

    `tally` has the requests as the router sees them, and the workers of all servers in the order of the servers.
    `step_servers` has the number of servers of each step of preprocessing. `seconds` returns how long each step takes
    for each request of a block."""

    def __init__(
        self,
        fleet: Fleet,
        new_policy: Callable[[], Policy],
        times: Times,
        workers: int,
        seed: int,
        open_from: Callable[[Request], int] | None,
        delay_s: float,
        step_servers: list[int],
        seconds: Callable[[Arrivals], list[list[float]]],
    ) -> None:
        self.tally: Tally = Tally()
        self.ready_after: Durations = Durations()
        self.step_busy_s: list[float] = [0.0] * len(step_servers)
        self.rerouted: int = 0
        self.failures: int = 0
        self.on_s: float = 0.0  # the seconds of all servers together
        self.first: float = math.inf  # the time of the first arrival
        self._fleet: Fleet = fleet
        self._new_policy: Callable[[], Policy] = new_policy
        self._times: Times = times
        self._workers: int = workers
        self._open_from: Callable[[Request], int] | None = open_from
        self._delay_s: float = delay_s
        self._seconds: Callable[[Arrivals], list[list[float]]] = seconds
        self._router: Router = make_router(fleet.router, fleet.servers, seed)
        self._network: Callable[[], float] | None = fleet.delay.sampler(seed + 1)
        self._travels: bool = self._network is not None or delay_s > 0 or len(step_servers) > 0
        self._lives: random.Random = random.Random(seed + 2)
        self._sites: list[_Site] = [_Site(number, self.tally, step_servers) for number in range(fleet.servers)]
        self._busy_s: list[float] = [0.0] * (workers * fleet.servers)
        self._turns: list[tuple[float, int]] = []  # it may hold turns that were put off, or brought forward
        self._ways: list[tuple[float, int, int, int, int, _Call]] = []  # time, request, step, server, life
        self._changes: list[tuple[float, int, int, int, float]] = []  # time, kind, server, life, duration
        self._due: list[_Site] = []
        self._now: float = 0.0
        self._running: int = 0  # the number of servers that start or take requests
        self._off: list[int] = []  # the servers that are off; the next to start is last
        self._scaled_at: float = -math.inf
        self._begin()

    def run(self, blocks: Iterator[Arrivals]) -> None:
        """Serve all arrivals to the end.

        Raises PolicyError if a policy breaks a rule, or leaves requests waiting though nothing more will happen."""
        ledger = self.tally.ledger
        block = next_block(blocks)
        seconds: list[list[float]] = [] if block is None else self._seconds(block)
        place = following = turns = 0
        while block is not None or ledger.in_flight > 0:
            turns += 1
            if turns % TURNS_BETWEEN_LOOKS == 0:
                look_for_signals()
            upcoming = self._upcoming()
            if block is not None:
                upcoming = min(upcoming, block.arrival[place])
            if self._changes:
                upcoming = min(upcoming, self._changes[0][0])
            if upcoming == math.inf:
                raise AccountingError(
                    f"{ledger.in_flight} requests are in flight at {self._now} s, and no event is left"
                )
            now = self._now = max(self._now, upcoming)
            while self._changes and self._changes[0][0] <= now:
                _, what, number, life, for_s = heapq.heappop(self._changes)
                self._change(what, number, life, for_s)
            while block is not None and block.arrival[place] <= now:
                call = _Call(nth(block, place, following), [step[place] for step in seconds])
                self.first = min(self.first, call.request.arrival)
                ledger.submit(call.request)
                self._send(call)
                self._scale()
                following += 1
                place += 1
                if place == len(block.arrival):
                    block = next_block(blocks)
                    seconds = [] if block is None else self._seconds(block)
                    place = 0
            while self._ways and self._ways[0][0] <= now:
                _, _, step, number, life, call = heapq.heappop(self._ways)
                self._goes_on(call, step, number, life)
            while self._turns and self._turns[0][0] <= now:
                at, number = heapq.heappop(self._turns)
                if at == self._sites[number].turn_at:
                    self._is_due(self._sites[number])
            due = self._due
            self._due = []
            for site in due:
                self._turn(site)
        for site in self._sites:
            self._stops(site)
        self.tally.worker_busy_s = self._busy_s

    def outstanding(self) -> list[int]:
        """Return the number of requests by server, as the router counts."""
        return self._router.outstanding

    def _begin(self) -> None:
        scale = self._fleet.autoscale
        for number, site in enumerate(self._sites):
            if scale is not None and number >= scale.least:
                self._off.append(number)
                continue
            self._boots(site)
            self._router.add(number)
        self._off.reverse()
        if self._fleet.mtbf_s is not None:
            for number in range(self._fleet.servers):
                self._may_die(number)
        for failure in self._fleet.failures:
            heapq.heappush(self._changes, (failure.at_s, DIES, failure.server, ANY, failure.for_s))

    def _upcoming(self) -> float:
        while self._turns and self._turns[0][0] != self._sites[self._turns[0][1]].turn_at:
            heapq.heappop(self._turns)
        upcoming = self._turns[0][0] if self._turns else math.inf
        return min(upcoming, self._ways[0][0]) if self._ways else upcoming

    def _send(self, call: _Call) -> None:
        """Send a request from the router to a server."""
        if not self._router.up:
            self._fails(call.request)
            return
        site = self._sites[self._router.pick()]
        self._router.changes(site.number, 1)
        site.under_way[call.request.id] = call
        if self._travels:
            at = self._now + self._delay_s + (0.0 if self._network is None else self._network())
            heapq.heappush(self._ways, (at, call.request.id, 0, site.number, site.life, call))
        else:
            self._submit(site, call.request, False)

    def _goes_on(self, call: _Call, step: int, number: int, life: int) -> None:
        """Move a request to its next step, or to the server after the last step; or take an answer at the router."""
        site = self._sites[number]
        if step == BACK:
            self._is_answered(site, call.request)
        elif life != site.life:
            pass  # the server has died, and the request was sent again
        elif step == len(site.steps):
            self.ready_after.add(self._now - call.request.arrival)
            self._submit(site, call.request, True)
        else:
            free, taken = site.free[step], call.seconds[step]
            end = max(self._now, free[0]) + taken
            heapq.heapreplace(free, end)
            self.step_busy_s[step] += taken
            heapq.heappush(self._ways, (end, call.request.id, step + 1, number, life, call))

    def _submit(self, site: _Site, request: Request, travelled: bool) -> None:
        assert site.server is not None
        site.server.submit(request, self._now, travelled)
        self._is_due(site)

    def _is_due(self, site: _Site) -> None:
        if not site.due:
            site.due = True
            self._due.append(site)

    def _turn(self, site: _Site) -> None:
        site.due = False
        server = site.server
        if server is None:  # the server has stopped at this instant
            return
        server.turn(self._now)
        at = server.upcoming()
        if at != site.turn_at:
            site.turn_at = at
            if at < math.inf:
                heapq.heappush(self._turns, (at, site.number))
        elif at <= self._now:
            heapq.heappush(self._turns, (at, site.number))  # the entry was popped for this turn
        if at == math.inf and server.in_flight > 0:
            raise server.left_waiting()
        if site.answered:
            answered = site.answered
            site.answered = []
            for request in answered:
                call = site.under_way.pop(request.id)
                if self._network is None:
                    self._is_answered(site, request)
                else:
                    at = self._now + self._network()
                    heapq.heappush(self._ways, (at, request.id, BACK, site.number, site.life, call))

    def _is_answered(self, site: _Site, request: Request) -> None:
        self._router.changes(site.number, -1)
        self.tally.ledger.finish(request)
        self.tally.ends(request, self._now)
        self._scale()
        if site.leaves and self._router.outstanding[site.number] == 0:
            self._drained(site)

    def _fails(self, request: Request) -> None:
        self.tally.ledger.fail(request)
        self.tally.forgets(request)

    def _boots(self, site: _Site) -> None:
        site.free = [[self._now] * servers for servers in site.steps]
        site.turn_at = math.inf
        site.ledger = Ledger()
        site.server = Server(self._new_policy(), site, self._times, self._workers, False, self._open_from, False)
        site.on_since = self._now
        site.leaves = False
        self._running += 1

    def _stops(self, site: _Site) -> None:
        """Stop a server and count what it did."""
        server = site.server
        if site.on_since >= 0.0:
            self.on_s += self._now - max(site.on_since, min(self.first, self._now))
            site.on_since = -1.0
        if server is None:
            return
        for worker, seconds in enumerate(server.worker_busy_s()):
            self._busy_s[site.number * self._workers + worker] += seconds
        self.tally.tasks += site.tasks
        self.tally.node_runs += site.node_runs
        self.tally.request_node_runs += site.request_node_runs
        self.tally.in_system_s += site.in_system_s
        site.tasks = site.node_runs = site.request_node_runs = 0
        site.in_system_s = 0.0
        site.turn_at = math.inf
        site.server = None
        site.leaves = False
        site.life += 1

    def _change(self, what: int, number: int, life: int, for_s: float) -> None:
        site = self._sites[number]
        if what == MAY_DIE:
            self._may_die(number)
            what = DIES
        if what == DIES:
            if site.server is not None:
                self._dies(site, for_s)
        elif what == STARTED:
            if life == site.life:  # the server has not died since
                self._router.add(number)
        elif self._fleet.autoscale is None:
            self._boots(site)
            self._router.add(number)
        else:
            self._off.append(number)
            self._scale()

    def _may_die(self, number: int) -> None:
        """Draw the next failure of a server. A server that is off at that time does not die.

        Exponential times have no memory, so they may be drawn from any instant, also from the start of the run."""
        mtbf_s, mttr_s = self._fleet.mtbf_s, self._fleet.mttr_s
        assert mtbf_s is not None and mttr_s is not None
        at, for_s = self._now + self._lives.expovariate(1.0 / mtbf_s), self._lives.expovariate(1.0 / mttr_s)
        heapq.heappush(self._changes, (at, MAY_DIE, number, ANY, for_s))

    def _dies(self, site: _Site, for_s: float) -> None:
        self.failures += 1
        if not site.leaves:
            self._running -= 1
        self._stops(site)
        if self._router.is_up(site.number):
            self._router.remove(site.number)
        heapq.heappush(self._changes, (self._now + for_s, UP, site.number, ANY, 0.0))
        lost = list(site.under_way.values())
        site.under_way = {}
        for call in lost:
            self._router.changes(site.number, -1)
            if self._fleet.lost == "fail":
                self._fails(call.request)
            else:
                self.rerouted += 1
                self.tally.forgets(call.request)
                self._send(call)
        self._scale()

    def _scale(self) -> None:
        scale = self._fleet.autoscale
        if scale is None:
            return
        wanted = max(scale.least, math.ceil(self.tally.ledger.in_flight / scale.target))
        if wanted > self._running and self._off:
            site = self._sites[self._off.pop()]
            self._scaled_at = self._now
            self._boots(site)
            heapq.heappush(self._changes, (self._now + scale.start_s, STARTED, site.number, site.life, 0.0))
        elif (
            wanted < self._running
            and len(self._router.up) > scale.least
            and self._now >= self._scaled_at + scale.cooldown_s
        ):
            site = self._sites[self._router.up[-1]]
            self._router.remove(site.number)
            site.leaves = True
            self._running -= 1
            self._scaled_at = self._now
            if self._router.outstanding[site.number] == 0:
                self._drained(site)

    def _drained(self, site: _Site) -> None:
        self._stops(site)
        self._off.append(site.number)
