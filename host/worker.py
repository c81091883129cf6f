"""The main of a worker process: one network on one slice, `python -m headrace.host.worker FD SETTINGS`.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.host.arena import SlotLayout


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
    """Runs one batch that lies in the arena's slots; returns (gather_s, execute_s)."""

    def run(self, slots: Sequence[int]) -> tuple[float, float]: ...


class TorchExecutor:
    def __init__(self, settings: Settings) -> None:
        import torch  # here: other executors do without it

        from headrace.host.models import load_model

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

    def run(self, slots: Sequence[int]) -> tuple[float, float]:
        if not 1 <= len(slots) <= self._max_batch:
            raise ValueError(f"a batch of {len(slots)} was sent to a worker that takes 1 to {self._max_batch}")
        started = time.perf_counter()
        for row, slot in enumerate(slots):
            self._batch[row].copy_(self._inputs[slot])
        gathered = time.perf_counter()
        output = self._forward(len(slots))
        for row, slot in enumerate(slots):
            self._outputs[slot][...] = output[row]
        return gathered - started, time.perf_counter() - gathered


def serve(channel: socket.socket, executor: Executor) -> None:
    """Answer tasks until the channel closes. An exception of the network is answered, and the worker lives on."""
    with channel.makefile("rw", encoding="utf-8") as lines:
        _send(lines, {"ready": True})
        for line in lines:
            task = json.loads(line)
            try:
                gather_s, execute_s = executor.run(task["slots"])
                _send(lines, {"task": task["task"], "gather_s": gather_s, "execute_s": execute_s})
            except Exception as error:
                _send(lines, {"task": task["task"], "error": f"{type(error).__name__}: {error}"})


def _send(lines: Any, message: dict[str, Any]) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()


def main(arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    body = json.loads(arguments[1])
    layout = body.pop("layout")
    layout = SlotLayout(**layout | {key: tuple(layout[key]) for key in ("input_shape", "output_shape")})
    settings = Settings(**body, layout=layout)
    channel = socket.socket(fileno=int(arguments[0]))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
        serve(channel, TorchExecutor(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
