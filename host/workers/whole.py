"""The main of a worker process: one network on one slice, `python -m headrace.host.workers.whole FD SETTINGS`.

It talks over an inherited socket, a line of JSON each way, numbers only; tensors stay in the shared arena. It answers

    {"task": 7, "slots": [3, 5]}  with  {"task": 7, "gather_s": ..., "execute_s": ...}  or  {"task": 7, "error": ...}

and ends when the socket closes, which is also how it notices that its parent is gone. SIGINT is the parent's business.
"""

import contextlib
import json
import mmap
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.host.memory.slots import SlotLayout


@dataclass(frozen=True, slots=True)
class Settings:
    """What the parent tells a worker at its start. `device` is a torch device; `threads` are for one operator."""

    model: str
    weights: str | None
    device: str
    threads: int
    max_batch: int
    arena_fd: int
    layout: SlotLayout


class Executor(Protocol):
    """Runs one task as its message says; returns what the answer says of it, with `gather_s` and `execute_s`."""

    def run(self, task: dict[str, Any]) -> dict[str, Any]: ...


class TorchExecutor:
    def __init__(self, settings: Settings) -> None:
        import torch  # here: other executors do without it

        from headrace.host.workers.models import load_model

        torch.set_num_threads(settings.threads)
        memory = mmap.mmap(settings.arena_fd, settings.layout.size)
        inputs, self._outputs = settings.layout.views(memory)
        self._inputs = [torch.from_numpy(array) for array in inputs]
        self._torch = torch
        self._device = torch.device(settings.device)
        self._max_batch = settings.max_batch
        self._module = load_model(settings.model, settings.weights).module.to(self._device)
        dtype = self._inputs[0].dtype
        if dtype != torch.float32:
            self._module = self._module.to(dtype)
        shape = (settings.max_batch, *settings.layout.input_shape)
        self._batch = torch.zeros(shape, dtype=dtype, pin_memory=self._device.type == "cuda")
        for size in (1, settings.max_batch):  # the first run of a shape is slow and must not be a request's
            self._forward(size)

    def _forward(self, size: int) -> Any:
        with self._torch.inference_mode():
            output = self._module(self._batch[:size].to(self._device, non_blocking=True))
            return output.to("cpu", self._torch.float32).numpy()

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        slots = task["slots"]
        if not 1 <= len(slots) <= self._max_batch:
            raise ValueError(f"a batch of {len(slots)} was sent to a worker that takes 1 to {self._max_batch}")
        started = time.perf_counter()
        for row, slot in enumerate(slots):
            self._batch[row].copy_(self._inputs[slot])
        gathered = time.perf_counter()
        output = self._forward(len(slots))
        for row, slot in enumerate(slots):
            self._outputs[slot][...] = output[row]
        return {"gather_s": gathered - started, "execute_s": time.perf_counter() - gathered}


def serve(channel: socket.socket, executor: Executor) -> None:
    """Answer tasks until the channel closes. An exception of the network is answered, and the worker lives on."""
    # Two files: one for both would drop, when it is written, what it has read of tasks that are sent ahead.
    with channel.makefile("r", encoding="utf-8") as lines, channel.makefile("w", encoding="utf-8") as answers:
        _send(answers, {"ready": True})
        for line in lines:
            task = json.loads(line)
            try:
                _send(answers, {"task": task["task"], **executor.run(task)})
            except Exception as error:
                _send(answers, {"task": task["task"], "error": f"{type(error).__name__}: {error}"})


def _send(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def work(arguments: Sequence[str], executor: Callable[[dict[str, Any]], Executor]) -> None:
    """The life of a worker process: make its executor from the settings, and answer tasks until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(arguments[0]))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(channel, executor(json.loads(arguments[1])))


def _executor(body: dict[str, Any]) -> Executor:
    layout = body.pop("layout")
    layout = SlotLayout(**layout | {key: tuple(layout[key]) for key in ("input_shape", "output_shape")})
    return TorchExecutor(Settings(**body, layout=layout))


if __name__ == "__main__":
    work(sys.argv[1:], _executor)
