"""A step model that keeps its core busy for a known time.

A request of STEPS tokens takes as long as one of `benchmarks.networks:timed`."""

import time

import torch

from benchmarks.networks import ALPHA_S, TAU0_S
from headrace.batching import NodeKind
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.steps import Step

STEPS = 4


def step_s(batch: int) -> float:
    """Return the time of a step (s)."""
    return (ALPHA_S * batch + TAU0_S) / STEPS


class TimedStep(torch.nn.Module):
    def forward(
        self, tokens: torch.Tensor, state: dict[str, torch.Tensor], lengths: dict[str, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], None]:
        end = time.monotonic() + step_s(len(tokens))
        while time.monotonic() < end:
            pass
        return {"h": state["h"] + 1}, None


class TimedSteps:
    states = (TensorSpec("h", "float32", (1,)),)
    vocabulary = 2

    def __init__(self) -> None:
        self.steps = (Step("step", NodeKind.ENCODER, TimedStep()),)


def timed_steps() -> TimedSteps:
    return TimedSteps()
