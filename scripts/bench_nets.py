"""The networks that bench_runtime.py serves in real worker processes: `timed` keeps its core busy for as long as a GPU
takes that the SMDP paper measured; `empty_small` and `empty_image` take no time at all."""

import time

import torch

ALPHA_S, TAU0_S = 0.3051e-3, 1.052e-3  # tau(b) = ALPHA b + TAU0: SMDP (ICC 2023), Section V, GoogLeNet on a P4


class Timed(torch.nn.Module):
    input_shape = (1,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        end = time.monotonic() + ALPHA_S * len(x) + TAU0_S
        while time.monotonic() < end:
            pass
        return x


class Empty(torch.nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.input_shape = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :1]


def timed() -> torch.nn.Module:
    return Timed()


def empty_small() -> torch.nn.Module:
    return Empty((1,))


def empty_image() -> torch.nn.Module:
    return Empty((3, 224, 224))
