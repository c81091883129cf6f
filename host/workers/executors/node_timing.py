"""A worker that times its nodes.

It runs a task as the executor of nodes does, and reads the clock at every boundary at which the task may be
interrupted. The answer is these times, float64: `time.monotonic()` before the first node, after each node, and at the
end.
"""

import time
from collections.abc import Sequence

import numpy as np

from headrace.host.workers.executors.nodes import NodeExecutor, node_executor
from headrace.host.workers.executors.serving import Interrupts, TaskRecord, work
from headrace.host.workers.messages import read_nodes


class TimingExecutor(NodeExecutor):
    def run(self, message: memoryview, interrupts: Interrupts) -> TaskRecord:
        model, task, slots = read_nodes(message)
        times: list[float] = []

        def look() -> bool:
            times.append(time.monotonic())
            return interrupts.interrupt_sent()

        ran = self.networks[model].run(task, slots, look)
        return TaskRecord(ran.gathered, np.array([ran.gathered, *times, time.monotonic()]).tobytes())


def main(arguments: Sequence[str]) -> None:
    work(arguments, lambda body, at: node_executor(TimingExecutor, body, at))
