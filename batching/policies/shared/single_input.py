"""The time of one request alone, for all policies that predict.

The estimate counts static nodes once, encoder nodes times the length of the input, and decoder nodes times
`dec_timesteps`. Each node counts with its latency at batch 1. All requests are assumed to have `dec_timesteps` output
steps, because only the run shows the true number.

Source: LazyBatching (Choi, Kim, Rhu, HPCA 2021), Section IV-C, Algorithm 1.
"""

from collections.abc import Mapping

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.request import Request


def assumed_steps(times: Mapping[str, NodeTimes], dec_timesteps: Mapping[str, int] | None) -> dict[str, int]:
    """Return the number of decoder steps that is assumed for each model. It is 1 for a model without a decoder.

    Raises:
        UsageError: A model with a decoder is missing in `dec_timesteps`, or a number is below 1.
    """
    steps_by_model: dict[str, int] = {}
    given = dec_timesteps or {}
    for model, known in times.items():
        if len(known.sections.decoder) > 0 and model not in given:
            raise UsageError(f"model {model!r} has a decoder: give its dec_timesteps")
        steps_by_model[model] = given.get(model, 1)
        if steps_by_model[model] < 1:
            raise UsageError(f"dec_timesteps is {steps_by_model[model]}: give 1 or more")
    return steps_by_model


class SingleInputTimes:
    """The single-input times of one model.

    Args:
        times: The model's node latencies.
        dec_timesteps: The number of decoder steps that is assumed for every output.
    """

    def __init__(self, times: NodeTimes, dec_timesteps: int) -> None:
        self._times = times
        self.dec_timesteps: int = dec_timesteps
        self._plain_s: float = times.whole(1, 1.0, dec_timesteps) if times.plain else 0.0
        self._by_steps: dict[int, float] = {}

    def estimate(self, request: Request) -> float:
        """Return the time (s) that the request is assumed to take alone."""
        if self._times.plain:
            return self._plain_s
        length = steps(request.input_len)
        alone_s = self._by_steps.get(length)
        if alone_s is None:
            alone_s = self._times.whole(1, float(length), self.dec_timesteps)
            self._by_steps[length] = alone_s
        return alone_s
