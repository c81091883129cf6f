"""The rows of the study, which its tables read. Errors are shares; a ratio is predicted by measured."""

from dataclasses import dataclass

ALL, NO_DYNAMO = "all", "all but Dynamo"


@dataclass(frozen=True, slots=True)
class Predicted:
    """A measured row with what the closed loop predicts. Times are in milliseconds.

    Attributes:
        source: Who measured it (samples.py).
        backend, model, gpu, precision: Its class. `precision` is the file's name of it.
        prompt, output, requests, tp, ep: The load, and how many GPUs share the model and its experts.
        ttft_ms, tpot_ms: The measured times to the first token and for each further one.
        predicted_ttft_ms, predicted_tpot_ms: The predicted ones; 0 for a failure.
        failure: Why there is no prediction; empty if there is one.
        cause: The change of the model that the row is predicted with, of causes.py; empty for none.
        host_request_us: The host's time for each request of a step that it is predicted with.
    """

    source: str
    backend: str
    model: str
    gpu: str
    precision: str
    prompt: int
    output: int
    requests: int
    tp: int
    ep: int
    ttft_ms: float
    tpot_ms: float
    predicted_ttft_ms: float
    predicted_tpot_ms: float
    failure: str
    cause: str
    host_request_us: float

    @property
    def tokens_per_s(self) -> float:
        """Return the measured tokens a second of all requests together, without the first of each."""
        return 1e3 * self.requests / self.tpot_ms

    @property
    def tpot_ratio(self) -> float:
        return self.predicted_tpot_ms / self.tpot_ms

    @property
    def ttft_ratio(self) -> float:
        return self.predicted_ttft_ms / self.ttft_ms


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows of the file are left out, and why."""

    reason: str
    rows: int


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of a class of rows.

    Attributes:
        source, backend, model, gpu, precision: The class; ALL where it has several.
        rows: How many were predicted.
        failed: How many were not.
        tpot: The mean of |predicted / measured - 1| of the time for each further token.
        tpot_median: Its median.
        within: The share of rows within 10 %.
        ratio, p10, p90: The median, and the 10th and 90th percentiles, of predicted by measured.
        ttft: The mean error of the time to the first token.
        ttft_ratio: The median of predicted by measured of it.
        cause: What was changed in the model, or the name of it; empty for nothing. In the errors by rate, the rate.
    """

    source: str
    backend: str
    model: str
    gpu: str
    precision: str
    rows: int
    failed: int
    tpot: float
    tpot_median: float
    within: float
    ratio: float
    p10: float
    p90: float
    ttft: float
    ttft_ratio: float
    cause: str


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The errors of rows that are held out from the choice of the host's time (host_time.py).

    Attributes:
        backend: The server.
        rotation: By what rows are held out: model or GPU.
        held_out: The model or the GPU; ALL for the mean over all folds of the rotation.
        chosen_us: The time (us) for each request of a step that the other rows choose; empty for ALL.
        stable: Whether the times of the rotation's folds agree.
        rows, failed, tpot_before, tpot, tpot_median, within, ratio, p10, p90: As in Errors, with that time. The mean
            error `tpot_before` is without it.
    """

    backend: str
    rotation: str
    held_out: str
    chosen_us: float | str
    stable: bool
    rows: int
    failed: int
    tpot_before: float
    tpot: float
    tpot_median: float
    within: float
    ratio: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class GridPoint:
    """The mean error of the time per output token of one server's rows, with one time of the host."""

    backend: str
    host_request_us: float
    tpot: float
