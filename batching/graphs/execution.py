"""Durations and boundaries of tasks on hardware with known node latencies.

Both drivers need this. The simulator advances its clock by it. A worker that stands in for hardware computes its
waiting times and the boundary at which it was interrupted.

Boundaries of a preemptible task count node executions from its start. In graph order they equal node numbers. A run
that meets an encoder or decoder section [first, after) repeats it. There, boundary b >= first stands before node first
+ (b - first) mod (after - first).

Durations come from prefix sums. A run of any number of nodes costs one look-up. The boundary that follows a point in
time costs one binary search.
"""

from bisect import bisect_left
from typing import Final

from headrace.batching.graphs.model_graph import Length, ModelGraph, NodeKind
from headrace.batching.policy import LatencyModel
from headrace.batching.request import UNTIL_END, Request, Task

_LENGTHS = 1 << 24  # larger than any number of input steps, so that batch and length make one key


def steps(input_len: float) -> int:
    """Return the number of encoder steps of an input: its length, rounded, and at least 1."""
    whole = int(input_len)
    return max(1, whole if whole == input_len else round(input_len))  # `round` is slow, and most lengths are whole


class Sections:
    """The encoder or decoder section that a run meets first, for each node at which the run can start.

    Each attribute below is a list by node number.

    Attributes:
        first: The first node of the section; the number of nodes if there is no section.
        after: The node after the last node of the section; the number of nodes if there is no section.
        encodes: Whether the section is the encoder.
        decodes: Whether the section is the decoder.
    """

    def __init__(self, graph: ModelGraph) -> None:
        self.nodes: int = len(graph.nodes)
        self.first: list[int] = [self.nodes] * self.nodes
        self.after: list[int] = [self.nodes] * self.nodes
        self.encodes: list[bool] = [False] * self.nodes
        self.decodes: list[bool] = [False] * self.nodes
        for kind in (NodeKind.DECODER, NodeKind.ENCODER):  # the encoder is met first, so it overwrites
            section = graph.section(kind)
            for start in range(section.stop):
                self.first[start] = section.start
                self.after[start] = section.stop
                self.encodes[start] = kind is NodeKind.ENCODER
                self.decodes[start] = kind is NodeKind.DECODER
        self.encoder: range = graph.section(NodeKind.ENCODER)
        self.decoder: range = graph.section(NodeKind.DECODER)
        self.any: bool = len(self.encoder) > 0 or len(self.decoder) > 0


class Copying:
    """The cost of bringing the states of a batch of cells together, on hardware that runs chains of cells.

    Args:
        gather_row_s: The time (s) for each row of a batch whose states are gathered into contiguous memory.
        state_bytes: The size (bytes) of the state that a cell hands to the next one.
        transfer_s: The time (s) to set up a copy between two workers.
        bytes_s: The rate (bytes/s) of such a copy.
    """

    def __init__(self, gather_row_s: float, state_bytes: int, transfer_s: float, bytes_s: float) -> None:
        self.gather_row_s: Final[float] = gather_row_s
        self.state_bytes: Final[int] = state_bytes
        self.transfer_s: Final[float] = transfer_s
        self.bytes_s: Final[float] = bytes_s


class NodeTimes:
    """The latencies of a graph's nodes on one kind of hardware, in sums. Times are in seconds, lengths in the model's
    unit.

    With `joined`, a batch joins its inputs without padding. Its `length` is then the mean of its inputs, not the
    longest. With `copying`, the nodes are the cells of a network of chains, and the simulator adds what their states
    cost to bring together (sim/cell_memory.py)."""

    def __init__(
        self, graph: ModelGraph, latency: LatencyModel, copying: Copying | None = None, joined: bool = False
    ) -> None:
        self.graph = graph
        self.joined: Final[bool] = joined
        self.copying: Final[Copying | None] = copying
        self.sections = Sections(graph)
        self._latency = latency
        self._nodes: int = len(graph.nodes)
        self._sums: dict[int, list[float]] = {}
        self._last_key: int = -1  # key of the last answer, because most calls repeat the batch of the call before
        self._last_sums: list[float] = []
        # The latency of a node without operators may depend on the length, because the graph does not show its work.
        self.by_length: bool = any(
            not node.operators or any(isinstance(dim, Length) for op in node.operators for dim in (op.m, op.k, op.n))
            for node in graph.nodes
        )
        # Whether the time of the whole graph is the same for all lengths.
        self.plain: bool = not (self.by_length or self.sections.any)

    def sums(self, batch: int, length: float) -> list[float]:
        """Return prefix sums of node times (s): `sums[i]` is the time of nodes 0 to i - 1, each run once.

        Args:
            batch: The number of requests.
            length: The longest input of the batch.
        """
        whole = steps(length) if self.by_length else 1
        key = batch * _LENGTHS + whole
        if key == self._last_key:
            return self._last_sums
        sums = self._sums.get(key)
        if sums is None:
            total = 0.0
            sums = [0.0]
            for node in range(self._nodes):
                total += self._latency.latency(node, batch, float(whole))
                sums.append(total)
            self._sums[key] = sums
        self._last_key = key
        self._last_sums = sums
        return sums

    def duration(self, batch: int, length: float, start: int, stop: int) -> float:
        """Return the time (s) of a preemptible run from node `start` to boundary `stop`."""
        sums = self.sums(batch, length)
        after = self.sections.after[start]
        if stop <= after:
            return sums[stop] - sums[start]
        first = self.sections.first[start]
        width = after - first
        rounds = (stop - first) // width
        rest = (stop - first) % width
        return rounds * (sums[after] - sums[first]) + (sums[first + rest] - sums[start])

    def boundary(self, batch: int, length: float, start: int, stop: int, elapsed: float) -> int:
        """Return the first boundary after `start` that the run reaches `elapsed` seconds after its start, or later.

        Args:
            batch: The number of requests.
            length: The longest input of the batch.
            start: The first node of the run.
            stop: The boundary at which the run ends. It is the result if the run has ended by then.
            elapsed: Time since the start of the run (s).
        """
        if self.duration(batch, length, start, stop) <= elapsed:
            return stop
        sums = self.sums(batch, length)
        after = self.sections.after[start]
        if elapsed <= sums[after] - sums[start]:
            low = start + 1
            high = after
            while low < high:  # this is exact, because `duration` computes the same difference
                middle = (low + high) // 2
                if sums[middle] - sums[start] < elapsed:
                    low = middle + 1
                else:
                    high = middle
            return low
        first = self.sections.first[start]
        round_s = sums[after] - sums[first]
        since_first = elapsed + sums[start] - sums[first]
        rounds = int(since_first / round_s)
        rest = since_first - rounds * round_s
        reached = first + rounds * (after - first) + bisect_left(sums, rest + sums[first], first, after) - first
        # The sums above and those of `duration` round differently. The next two loops make the answer exact.
        while reached > start + 1 and self.duration(batch, length, start, reached - 1) >= elapsed:
            reached -= 1
        while self.duration(batch, length, start, reached) < elapsed:
            reached += 1
        return reached

    def whole(self, batch: int, input_len: float, output_len: int) -> float:
        """Return the time (s) of the whole graph for a batch with this longest input and this longest output."""
        sums = self.sums(batch, input_len)
        encoder, decoder = self.sections.encoder, self.sections.decoder
        total = sums[self._nodes]
        if len(encoder) > 0:
            total += (steps(input_len) - 1) * (sums[encoder.stop] - sums[encoder.start])
        if len(decoder) > 0:
            total += (output_len - 1) * (sums[decoder.stop] - sums[decoder.start])
        return total

    def whole_task(self, task: Task) -> float:
        """Return the time (s) of a whole-graph task, padded to its longest input and output, or to its graph's
        length, or with joined inputs."""
        if self.plain:
            return self.sums(len(task.requests), 1.0)[self._nodes]
        input_len = max(1.0, task.padded_to)
        output_len = 1
        tokens = 0.0
        for request in task.requests:
            input_len = max(input_len, request.input_len)
            output_len = max(output_len, request.output_len)
            tokens += request.input_len
        if self.joined:
            input_len = tokens / len(task.requests)
        return self.whole(len(task.requests), input_len, output_len)

    def task_length(self, task: Task) -> float:
        """Return the input length to which a sub-batch is padded; 1 if no latency depends on it."""
        length = 1.0
        if self.by_length:
            for request in task.requests:
                length = max(length, request.input_len)
        return length


class Decoding:
    """Counts the decoder steps of each request, so that a driver knows which outputs have ended."""

    def __init__(self) -> None:
        self._done: dict[int, int] = {}

    def stop(self, task: Task, sections: Sections) -> int:
        """Return the boundary at which a preemptible task ends if nothing interrupts it.

        That is `task.stop`, or the end of the first output if it comes earlier."""
        if not sections.decodes[task.start]:
            return task.stop
        known = self._done
        left = UNTIL_END
        for request in task.requests:
            number = request.id
            left = min(left, request.output_len - known.get(number, 0))
        first = sections.first[task.start]
        return min(task.stop, first + left * (sections.after[task.start] - first))

    def end(self, task: Task, stop: int, sections: Sections) -> Task:
        """Return the task as it ended at boundary `stop`, with the requests whose output ended there."""
        if not sections.decodes[task.start]:
            return task if stop == task.stop else task.ended_at(stop)
        first = sections.first[task.start]
        rounds = max(0, stop - first) // (sections.after[task.start] - first)
        if rounds == 0:
            return task.ended_at(stop)
        ended: list[Request] = []
        known = self._done
        for request in task.requests:
            number = request.id
            done = rounds + known.get(number, 0)
            if done < request.output_len:
                known[number] = done
            else:
                ended.append(request)
                known.pop(number, 0)
        return task.ended_at(stop, tuple(ended))

    def forget(self, request: Request) -> None:
        """Forget the steps of a request that was given up, or that begins anew because its worker was lost."""
        self._done.pop(request.id, None)
