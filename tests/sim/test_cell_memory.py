"""Which tasks of cells gather and copy states, by the rules at the head of sim/cell_memory.py."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import NodeTimes
from headrace.batching.graphs.cell_graph import CellModel, lstm, seq2seq
from headrace.batching.graphs.execution import Copying
from headrace.batching.policies.cellular import CellularBatching
from headrace.batching.request import Request, Task
from headrace.sim.cell_memory import CellMemory
from headrace.sim.engine import Arrivals, run
from headrace.sim.simulation import open_from

COPYING = Copying(gather_row_s=1e-6, state_bytes=8000, transfer_s=10e-6, bytes_s=8e9)  # a state takes 1 us to copy
REQUESTS = {name: Request(number, "net", 0.0) for number, name in enumerate("ABCDEF")}


def moves(memory, worker, cells):
    """Return the microseconds that a task pays; `cells` as in "A0 B0"."""
    named = [(REQUESTS[cell[0]], int(cell[1:])) for cell in cells.split()]
    requests, numbers = zip(*named, strict=True)
    return 1e6 * memory.moves(worker, Task(0, "net", requests, 0, 1, cells=numbers), COPYING)


def test_a_batch_gathers_only_when_its_members_change():
    """The example at the head of the module."""
    memory = CellMemory()
    paid = [moves(memory, 0, cells) for cells in ("A0 B0", "A1 B1", "A2 B2 C0", "A3 B3", "A4 B4")]
    assert paid == pytest.approx([0, 0, 3, 2, 0])
    assert (memory.gathers, memory.copied) == (2, 0)


def test_two_batches_that_take_turns_do_not_gather():
    memory = CellMemory()
    paid = [moves(memory, 0, cells) for cells in ("A0 B0", "C0 D0", "A1 B1", "C1 D1", "A2 B2")]
    assert paid == [0, 0, 0, 0, 0]


def test_a_state_on_another_worker_is_copied_with_one_transfer_for_each_worker():
    memory = CellMemory()
    for worker, cells in ((0, "A0 B0"), (1, "C0"), (2, "D0")):
        moves(memory, worker, cells)
    # From 0 two states and from 1 one: 2 x 10 us + 3 us. The four rows come from three tasks: 4 us of gathering.
    assert moves(memory, 2, "A1 B1 C1 D1") == pytest.approx(20 + 3 + 4)
    assert moves(memory, 0, "A2 B2 C2 D2") == pytest.approx(10 + 4)  # a whole batch moves as it lies
    assert moves(memory, 0, "A3 B3 C3 D3") == 0
    assert (memory.gathers, memory.copied) == (1, 7)


def test_a_request_that_ended_is_forgotten():
    memory = CellMemory()
    moves(memory, 0, "A0")
    memory.forget(REQUESTS["A"])
    with pytest.raises(KeyError):
        moves(memory, 0, "A1")


class Fixed:
    def __init__(self, seconds):
        self.seconds = seconds

    def latency(self, node, batch, length):
        return self.seconds


def serve(model: CellModel, at, lengths, workers, copying, max_tasks=5):
    count = len(at)
    outputs = [max(1, length // 2) for length in lengths]
    arrivals = Arrivals([model.name] * count, at, [math.inf] * count, [float(n) for n in lengths], outputs)
    times = {model.name: NodeTimes(model.graph, Fixed(1e-3), copying)}
    policy = CellularBatching([model], workers, max_tasks, strict=True)
    return run(policy, arrivals, times, workers, record=True, open_from=open_from({model.name: model}))


loads = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=12)


def expected_s(records, rows_s, transfer_s, state_s):
    """Return for each task what it pays, from the definition: compare every row with the task that ran its cell before.

    This is written another way than the module: it looks the earlier task up in the whole record."""
    paid = []
    ran = [{(r.id, cell) for r, cell in zip(one.task.requests, one.task.cells, strict=True)} for one in records]
    for record in records:
        rows = list(zip(record.task.requests, record.task.cells, strict=True))
        sources = []
        for request, cell in rows:
            if cell:
                (source,) = [number for number, cells in enumerate(ran) if (request.id, cell - 1) in cells]
                sources.append(source)
        others = {records[source].worker for source in sources} - {record.worker}
        far = sum(records[source].worker != record.worker for source in sources)
        kept = len(set(sources)) == 1 and {r.id for r, _ in rows} == {r.id for r in records[sources[0]].task.requests}
        kept = kept and len(sources) == len(rows)
        gathers = bool(sources) and not kept
        paid.append(len(rows) * rows_s * gathers + len(others) * transfer_s + far * state_s)
    return paid


@given(loads, st.integers(1, 3), st.sampled_from([lstm("net", 3), seq2seq("net", 4, 2)]), st.integers(1, 5))
def test_every_task_takes_its_cells_and_what_its_states_cost(load, workers, model, max_tasks):
    load = sorted(load)
    at, lengths = [1e-3 * t for t, _ in load], [n for _, n in load]
    outcome = serve(model, at, lengths, workers, Copying(1e-4, 8000, 1e-5, 8e8), max_tasks)
    took = [record.ended - record.started for record in outcome.ran]
    extra = expected_s(outcome.ran, 1e-4, 1e-5, 1e-5)
    assert took == pytest.approx([1e-3 + seconds for seconds in extra])
    assert outcome.cell_memory.copied == 0 or workers > 1


@given(loads, st.integers(1, 3))
def test_copies_that_cost_nothing_change_nothing(load, workers):
    load = sorted(load)
    at, lengths = [1e-3 * t for t, _ in load], [n for _, n in load]
    free = serve(lstm("net", 3), at, lengths, workers, Copying(0.0, 8000, 0.0, math.inf))
    plain = serve(lstm("net", 3), at, lengths, workers, None)
    assert free.finished == plain.finished and plain.cell_memory.gathers == 0
