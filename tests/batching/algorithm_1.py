"""Algorithm 1 of BatchMaker, written from the paper and in its order, for comparison with the policy `cellular`."""

from dataclasses import dataclass, field


@dataclass
class Part:
    """A subgraph of a request: cells of one type."""

    request: int
    type: int
    cells: list[int]
    sources: dict[int, list[int]]  # of each cell, within the subgraph
    outside: set[int]  # the cells that it waits for
    pinned: int | None = None
    running: int = 0
    submitted: list[int] = field(default_factory=list)

    def ready(self) -> list[int]:
        """Return the cells whose sources are submitted, in the order in which they became ready."""
        free = [cell for cell in self.cells if cell not in self.submitted]
        found = [cell for cell in free if all(source in self.submitted for source in self.sources[cell])]
        last = [max((self.submitted.index(source) for source in self.sources[cell]), default=-1) for cell in found]
        return [cell for _, cell in sorted(zip(last, found, strict=True), key=lambda pair: pair[0])]


class Algorithm1:
    """The scheduler of the paper. `types` are pairs of Bsizes.Max and the priority; Bsizes.Min is 1.

    NumReadyNodes counts the nodes that the worker may take, so that no empty batch is submitted."""

    def __init__(self, types, workers, max_tasks):
        self.types = types
        self.max_tasks = max_tasks
        self.queues = [[] for _ in types]
        self.blocked = []
        self.running = [0] * len(types)
        self.given = [[] for _ in range(workers)]

    def submit(self, request, parts):
        """Add a request: `parts` are (type, cells, sources by cell, cells outside that it waits for)."""
        for type, cells, sources, outside in parts:
            self.blocked.append(Part(request, type, cells, sources, set(outside)))
        self._release()

    def _release(self):
        for part in [part for part in self.blocked if not part.outside]:
            self.blocked.remove(part)
            self.queues[part.type].append(part)

    def next_task(self, worker):
        """Return (type, [(request, cell)]) or None."""
        if not self.given[worker]:
            self._schedule(worker)
        return self.given[worker].pop(0) if self.given[worker] else None

    def _ready_nodes(self, type, worker):
        return sum(len(part.ready()) for part in self.queues[type] if part.pinned in (None, worker))

    def _schedule(self, worker):
        ready = [self._ready_nodes(type, worker) for type in range(len(self.types))]
        chosen = [type for type, (most, _) in enumerate(self.types) if ready[type] >= most]
        if not chosen:
            chosen = [type for type in range(len(self.types)) if self.running[type] == 0 and ready[type] > 0]
        if not chosen:
            chosen = [type for type in range(len(self.types)) if ready[type] > 0]
        if chosen:
            self._batch(max(chosen, key=lambda type: (self.types[type][1], -type)), worker)

    def _batch(self, type, worker):
        for _ in range(self.max_tasks):
            batch = self._form(type, worker)
            if not batch:
                break
            for part, cell in batch:
                part.submitted.append(cell)
                part.pinned = worker
                part.running += 1
            self.running[type] += 1
            self.given[worker].append((type, batch))

    def _form(self, type, worker):
        batch = []
        for part in self.queues[type]:
            if part.pinned in (None, worker):
                for cell in part.ready():
                    batch.append((part, cell))
                    if len(batch) == self.types[type][0]:
                        return batch
        return batch

    def complete(self, type, batch):
        """End a task."""
        self.running[type] -= 1
        for part, cell in batch:
            part.running -= 1
            if part.running == 0:
                part.pinned = None
            for other in self.blocked:
                if other.request == part.request:
                    other.outside.discard(cell)
            self._release()
