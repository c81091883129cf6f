"""The rows of the study, which its tables read. Errors are shares; a ratio is measured by modelled."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Modelled:
    """The slice model against measured kernels of a size.

    Attributes:
        gpu: The GPU's name.
        kernel: "product", or a kind of attention.
        size: The size, in rows of a product or in keys of attention; "all" for every size.
        half: "fitted" or "held out".
        kernels: How many were compared.
        error: The median of |modelled / measured - 1|.
        before: The same with the constants of A100's slices.
        ratio, p10, p90: The median, and the 10th and 90th percentiles, of measured by modelled.
    """

    gpu: str
    kernel: str
    size: str
    half: str
    kernels: int
    error: float
    before: float
    ratio: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Interpolation between the neighbours of measured kernels that are left out, along one axis.

    `lines` and `logarithms` are medians of |interpolated / measured - 1|, and `p90` is the 90th percentile of what the
    tables use, which `used` names."""

    gpu: str
    kernel: str
    axis: str
    kernels: int
    lines: float
    logarithms: float
    used: str
    p90: float


@dataclass(frozen=True, slots=True)
class Share:
    """Where the time of a network's kernels comes from, at batch 1 and its usual length, on a GPU with tables."""

    gpu: str
    network: str
    length: float
    batch: int
    seconds: float
    tables: float
    bytes: float
    modelled: float
