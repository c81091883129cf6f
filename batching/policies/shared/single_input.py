"""How long a request takes alone: LazyBatching's Algorithm 1, for all policies that predict.

Static nodes once, encoder nodes times the input's length, decoder nodes times `dec_timesteps`, each at batch 1. The
last is assumed for every request, as only the run itself will tell."""

from collections.abc import Mapping

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.request import Request


def assumed_steps(times: Mapping[str, NodeTimes], dec_timesteps: Mapping[str, int] | None) -> dict[str, int]:
    """`dec_timesteps` of every model, 1 for those without a decoder. Raises UsageError."""
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
    """Of one model, from latencies at batch 1."""

    def __init__(self, times: NodeTimes, dec_timesteps: int) -> None:
        self._times = times
        self._dec_timesteps = dec_timesteps
        self._plain_s: float = times.whole(1, 1.0, dec_timesteps) if times.plain else 0.0
        self._by_steps: dict[int, float] = {}

    def estimate(self, request: Request) -> float:
        """Seconds."""
        if self._times.plain:
            return self._plain_s
        length = steps(request.input_len)
        alone_s = self._by_steps.get(length)
        if alone_s is None:
            alone_s = self._times.whole(1, float(length), self._dec_timesteps)
            self._by_steps[length] = alone_s
        return alone_s
