"""The BatchTable of LazyBatching: a stack of sub-batches of one model.

Source: LazyBatching (Choi, Kim, Rhu, HPCA 2021), Section IV-B, Fig. 10.

Rules:

1. The sub-batch on top of the stack runs.
2. A new sub-batch is pushed on top and begins at node 0.
3. If the two topmost sub-batches stand at the same node, they are merged.
4. A request leaves the encoder after its own number of steps. It waits at the node after the encoder for the
sub-batches above it.

So the stack is ordered by progress, with the furthest sub-batch at the bottom. The top can always catch up with the
sub-batch below.

Encoder and decoder nodes have the same weights in every step. So two requests in different steps can merge when they
stand at the same node of the section. With `equal_timesteps` they merge only if they are also in the same step, as if
the section were unrolled. The paper does not say which of the two it means.

This file knows only order and position. lazy.py decides which requests enter, and when.
"""

from collections.abc import Sequence

from headrace.batching.graphs.execution import Sections, steps
from headrace.batching.request import UNTIL_END, Request


class SubBatch:
    """Requests that stand at the same node.

    Args:
        requests: The requests.
        node: The next node to run.
        clock: The number of steps that were run of the section around `node`.
        joined: `joined[i]` is the clock's value when requests[i] entered the section. The request has run clock -
            joined[i] steps. The list is empty in a graph without sections.
        sections: The sections of the graph.
    """

    def __init__(
        self, requests: tuple[Request, ...], node: int, clock: int, joined: list[int], sections: Sections
    ) -> None:
        self.requests: tuple[Request, ...] = requests
        self.node: int = node
        self.clock: int = clock
        self.joined: list[int] = joined
        self.sections: Sections = sections
        self.longest: float = max([request.input_len for request in requests], default=1.0)  # the longest input
        # The clock's values when the first and the last request leave the encoder, if that lies ahead.
        self.leave: int = UNTIL_END
        self.last: int = 0
        self.youngest: int = max(joined, default=0)  # the clock's value when the last request entered the section
        if sections.encodes[node]:
            self._set_leave()

    def _set_leave(self) -> None:
        first = UNTIL_END
        last = 0
        for place, request in enumerate(self.requests):
            leave = self.joined[place] + steps(request.input_len)
            first = min(first, leave)
            last = max(last, leave)
        self.leave = first
        self.last = last

    def steps_left(self, dec_timesteps: int) -> int:
        """Return how many steps the section around `node`, or the next one, still takes; 0 if none lies ahead.

        Outputs are assumed to have `dec_timesteps` steps. A longer one takes at least one step more."""
        if self.sections.encodes[self.node]:
            return self.last - self.clock
        if self.sections.decodes[self.node]:
            return max(1, self.youngest + dec_timesteps - self.clock)
        return 0

    def merge(self, other: "SubBatch") -> None:
        """Add the requests of `other`, which stands at the same node."""
        self.requests = self.requests + other.requests
        self.longest = max(self.longest, other.longest)
        if not self.joined:
            return
        shift = self.clock - other.clock
        self.joined = self.joined + [joined + shift for joined in other.joined]
        self.leave = min(self.leave, other.leave + shift)
        self.last = max(self.last, other.last + shift)
        self.youngest = max(self.youngest, other.youngest + shift)

    def split(self, out: list[bool]) -> tuple[Request, ...]:
        """Remove and return the requests that are marked in `out`."""
        gone: list[Request] = []
        stay: list[Request] = []
        joined: list[int] = []
        for place, request in enumerate(self.requests):
            if out[place]:
                gone.append(request)
            else:
                stay.append(request)
                joined.append(self.joined[place])
        self.requests = tuple(stay)
        self.joined = joined
        self.longest = max([request.input_len for request in stay], default=1.0)
        self.youngest = max(joined, default=0)
        if self.sections.encodes[self.node]:
            self._set_leave()
        return tuple(gone)

    def copy(self) -> "SubBatch":
        """Return an independent copy."""
        return SubBatch(self.requests, self.node, self.clock, self.joined.copy(), self.sections)


class BatchTable:
    """The stack of sub-batches of one worker and one model.

    Args:
        sections: The sections of the model's graph.
        equal_timesteps: Whether sub-batches merge only in the same step of a section.
    """

    def __init__(self, sections: Sections, equal_timesteps: bool = False) -> None:
        self.sections: Sections = sections
        self.equal_timesteps: bool = equal_timesteps
        self.stack: list[SubBatch] = []  # the last one is the top
        self.size: int = 0  # requests in all sub-batches
        self.merged: bool = False  # whether the last push or advance merged the top with the sub-batch below

    def copy(self) -> "BatchTable":
        """Return an independent copy."""
        table = BatchTable(self.sections, self.equal_timesteps)
        table.stack = [sub_batch.copy() for sub_batch in self.stack]
        table.size = self.size
        return table

    def push(self, requests: tuple[Request, ...]) -> None:
        """Push a new sub-batch of these requests, at node 0."""
        joined = [0] * len(requests) if self.sections.any else []
        self.stack.append(SubBatch(requests, 0, 0, joined, self.sections))
        self.size += len(requests)
        self.merged = False
        self._merge_top()

    def next_stop(self, outputs_known: bool = False) -> int:
        """Return the boundary up to which the top may run without a decision.

        That is the first of three: the end of the graph, the node of the sub-batch below, or the step in which the
        first request leaves its section. The last one is known for a decoder only if `outputs_known`, which holds for
        an oracle."""
        top = self.stack[-1]
        sections = self.sections
        first, after = sections.first[top.node], sections.after[top.node]
        width = after - first
        if width == 0:
            stop = sections.nodes
        elif not sections.decodes[top.node]:
            stop = first + (top.leave - top.clock) * width
        elif outputs_known:
            left = UNTIL_END
            for request, joined in zip(top.requests, top.joined, strict=True):
                left = min(left, joined + request.output_len)
            stop = first + (left - top.clock) * width
        else:
            stop = UNTIL_END
        if len(self.stack) > 1:
            meet = self.stack[-2].node
            if self.equal_timesteps:
                if meet < after:
                    stop = min(stop, meet + (self.stack[-2].clock - top.clock) * width)
            elif top.node < meet < after:
                stop = min(stop, meet)
            elif first <= meet <= top.node:  # both repeat the section, so they meet in the next step
                stop = min(stop, meet + width)
        return stop

    def outputs_complete(self, stop: int) -> tuple[Request, ...]:
        """Return the requests of the top whose output is complete when the top has run to boundary `stop`.

        Only an oracle may ask, because this reads the true lengths of the outputs."""
        top = self.stack[-1]
        first = self.sections.first[top.node]
        if not self.sections.decodes[top.node] or stop < first:
            return ()
        clock = top.clock + (stop - first) // (self.sections.after[top.node] - first)
        pairs = zip(top.requests, top.joined, strict=True)
        return tuple([request for request, joined in pairs if joined + request.output_len <= clock])

    def advance(self, stop: int, ended: Sequence[Request]) -> Sequence[Request]:
        """Record that the top ran up to boundary `stop`, and return the requests that have now run the whole graph.

        Args:
            stop: The boundary that the top reached.
            ended: The requests whose output was complete there.
        """
        top = self.stack[-1]
        sections = self.sections
        first, after = sections.first[top.node], sections.after[top.node]
        width = after - first
        finished: Sequence[Request] = ()
        self.merged = False
        if stop < first or width == 0:
            top.node = stop
            if stop == sections.nodes:
                self.stack.pop()
                finished = top.requests
        else:
            decodes = sections.decodes[top.node]
            top.clock += (stop - first) // width
            top.node = first + (stop - first) % width
            if decodes and ended:
                if len(ended) == len(top.requests):
                    finished = self._leave([True] * len(ended), after)
                else:
                    ids = {request.id for request in ended}
                    finished = self._leave([request.id in ids for request in top.requests], after)
            elif not decodes and top.clock >= top.leave:
                left = [top.clock >= top.joined[p] + steps(r.input_len) for p, r in enumerate(top.requests)]
                finished = self._leave(left, after)
        self.size -= len(finished)
        self._merge_top()
        return finished

    def _leave(self, out: list[bool], after: int) -> Sequence[Request]:
        """Move the marked requests of the top to the node after their section. Return those that have run the whole
        graph."""
        gone = self.stack[-1].split(out)
        if not self.stack[-1].requests:
            self.stack.pop()
        if after == self.sections.nodes:
            return gone
        ahead = SubBatch(gone, after, 0, [0] * len(gone), self.sections)
        place = len(self.stack)
        while place > 0 and self.stack[place - 1].node < after:
            place -= 1
        if place > 0 and self._together(self.stack[place - 1], ahead):
            self.stack[place - 1].merge(ahead)
            self.merged = place == len(self.stack)
        else:
            self.stack.insert(place, ahead)
        return ()

    def _together(self, one: SubBatch, other: SubBatch) -> bool:
        """Return whether two sub-batches stand where they can be merged."""
        return one.node == other.node and (not self.equal_timesteps or one.clock == other.clock)

    def _merge_top(self) -> None:
        while len(self.stack) > 1 and self._together(self.stack[-1], self.stack[-2]):
            top = self.stack.pop()
            self.stack[-1].merge(top)
            self.merged = True
