"""The messages between the runtime and a worker, over a socket that keeps message boundaries (SOCK_SEQPACKET).

To the worker goes a HEADER, followed for a TASK by the task of its kind. A worker runs its tasks in the order in which
they came, and several may wait in the socket. A word of shared memory (channel.py) ends a preemptible task early. WAKE
is for a worker that sleeps in place of hardware. FILES comes before the first task that uses those files of clients
(memory/files.py). A second message of this kind brings their descriptors. CLOSED names files that no task uses any
more.

From the worker come STARTING messages that say what it does, and one READY. Then comes an ANSWER for each task,
followed by the answer of its kind or by the text of an error. Tensors stay in shared memory: a message holds numbers.
Times are `time.monotonic()` seconds, which all processes of a machine share.
"""

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from headrace.batching import Request, Task

TASK, WAKE, FILES, CLOSED = 1, 2, 3, 4
HEADER = struct.Struct("<BQ")  # kind of message, number of the task
FILE = struct.Struct("<QQ")  # number of the file, bytes to map
MAX_FILES = 250  # of one message; Linux lets 253 descriptors pass

STARTING, READY, DONE, FAILED = 1, 2, 3, 4
ANSWER = struct.Struct("<BQddd")  # kind of message, number of the task, began, gathered, ended

MAX_MESSAGE = 1 << 16  # bytes; several fit into the send buffer that Linux gives a socket by default
MAX_TASK = MAX_MESSAGE - HEADER.size

# ---- Files ----


def write_files(files: Sequence[tuple[int, int]]) -> bytes:
    """Write the message that brings descriptors. `files` are their numbers and sizes, in the same order."""
    return HEADER.pack(FILES, len(files)) + b"".join(FILE.pack(number, size) for number, size in files)


def read_files(message: bytes) -> list[tuple[int, int]]:
    """Return the numbers and sizes of files."""
    _, count = HEADER.unpack_from(message)
    return [FILE.unpack_from(message, HEADER.size + place * FILE.size) for place in range(count)]


def write_closed(numbers: Sequence[int]) -> bytes:
    """Write the message that names files which no task uses any more."""
    return HEADER.pack(CLOSED, len(numbers)) + struct.pack(f"<{len(numbers)}Q", *numbers)


def read_closed(message: bytes) -> tuple[int, ...]:
    """Return the numbers of files."""
    _, count = HEADER.unpack_from(message)
    return struct.unpack_from(f"<{count}Q", message, HEADER.size)


# ---- Whole networks: a batch of slots ----

WHOLE = struct.Struct("<HH")  # number of the model, number of requests


def write_whole(model: int, slots: Sequence[int], lengths: Sequence[Sequence[int]] = ()) -> bytes:
    """Write a task. `lengths` holds, for each input with a variable dimension, its length for each request."""
    numbers = [*slots, *(length for of_input in lengths for length in of_input)]
    return WHOLE.pack(model, len(slots)) + struct.pack(f"<{len(numbers)}I", *numbers)


def read_whole(message: memoryview) -> tuple[int, list[int], list[list[int]]]:
    """Return the number of the model, the slots, and the lengths."""
    model, count = WHOLE.unpack_from(message)
    numbers = struct.unpack_from(f"<{(len(message) - WHOLE.size) // 4}I", message, WHOLE.size)
    slots, *lengths = ([*numbers[first : first + count]] for first in range(0, len(numbers), count))
    return model, slots, lengths


def answer_whole(nans: int, lengths: Sequence[int]) -> bytes:
    """Write an answer: the number of requests with NaN in an output, and the length of each variable output in this
    batch."""
    return struct.pack(f"<{1 + len(lengths)}I", nans, *lengths)


def whole_answer(answer: bytes) -> tuple[int, list[int]]:
    """Return the number of requests with NaN in an output, and the length of each variable output."""
    nans, *lengths = struct.unpack(f"<{len(answer) // 4}I", answer)
    return nans, lengths


# ---- Nodes: a sub-batch of slots and a run of consecutive nodes ----

NODES = struct.Struct("<HH?QQd")  # model, number of requests, preemptible, first node, last boundary, padded to
REQUEST = np.dtype([("id", "<u8"), ("slot", "<u4"), ("output_len", "<u4"), ("input_len", "<f8")])


def write_nodes(model: int, task: Task, slots: Sequence[int]) -> bytes:
    """Write a task. `slots` are those of its requests, in their order."""
    rows = [
        (request.id, slot, request.output_len, request.input_len)
        for request, slot in zip(task.requests, slots, strict=True)
    ]
    head = NODES.pack(model, len(rows), task.preemptible, task.start, task.stop, task.padded_to)
    return head + np.array(rows, REQUEST).tobytes()


def read_nodes(message: memoryview) -> tuple[int, Task, list[int]]:
    """Return the number of the model, the task, and the slots. The requests have ids and lengths, and times of 0."""
    model, count, preemptible, start, stop, padded_to = NODES.unpack_from(message)
    rows = np.frombuffer(message, REQUEST, count, NODES.size).tolist()
    requests = tuple(Request(id, "", 0.0, input_len=length, output_len=steps) for id, _, steps, length in rows)
    task = Task(0, "", requests, start, stop, preemptible, padded_to=padded_to)
    return model, task, [slot for _, slot, _, _ in rows]


NODES_ANSWER = struct.Struct("<QIHHH")  # boundary, NaNs, requests that ended, requests with lengths, lengths of each


def answer_nodes(task: Task, nans: int = 0, lengths: Mapping[int, Sequence[int]] = MappingProxyType({})) -> bytes:
    """Write an answer: the boundary that the task reached, and the requests that ended.

    Args:
        task: The task as it ended.
        nans: Number of its requests with NaN in an output.
        lengths: Lengths of the variable outputs that were written, by the request's place in the task.
    """
    ended = {request.id for request in task.ended}
    places = [place for place, request in enumerate(task.requests) if request.id in ended]
    each = len(next(iter(lengths.values()), ()))
    head = NODES_ANSWER.pack(task.stop, nans, len(places), len(lengths), each)
    numbers = [number for of_request in lengths.values() for number in of_request]
    return head + np.array([*places, *lengths], "<u2").tobytes() + np.array(numbers, "<u4").tobytes()


def nodes_answer(task: Task, answer: bytes) -> tuple[Task, int, dict[int, list[int]]]:
    """Return the task as it ended, the number of requests with NaN, and the lengths by the request's id."""
    stop, nans, ended, written, each = NODES_ANSWER.unpack_from(answer)
    places = np.frombuffer(answer, "<u2", ended + written, NODES_ANSWER.size).tolist()
    numbers = np.frombuffer(answer, "<u4", offset=NODES_ANSWER.size + 2 * len(places)).reshape(written, each).tolist()
    lengths = {task.requests[place].id: of for place, of in zip(places[ended:], numbers, strict=True)}
    return task.ended_at(stop, tuple(task.requests[place] for place in places[:ended])), nans, lengths


# ---- Cells: a batch of entries, each with a token, the row that it writes and the rows that it reads ----

CELLS = struct.Struct("<HHI")  # number of the network, number of the cell, number of entries


def write_cells(network: int, cell: int, tokens: Sequence[int], writes: Sequence[int], reads: Sequence[int]) -> bytes:
    """Write a batch of entries.

    Args:
        tokens: One for each entry. -1 means the token that the step before left in the row: a decoder's next step may
            be sent before that token is known. For a step that takes the whole input, the number of tokens in the row.
        writes: The row that each entry writes.
        reads: The rows of every entry's states, one entry after the other.
    """
    count = len(tokens)
    return CELLS.pack(network, cell, count) + struct.pack(f"<{count}i{count + len(reads)}I", *tokens, *writes, *reads)


def cells_answer(answer: bytes) -> tuple[int, ...]:
    """Return the tokens that the entries chose, if the cell chooses any."""
    return struct.unpack(f"<{len(answer) // 4}i", answer)
