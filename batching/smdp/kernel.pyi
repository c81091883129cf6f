import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

def poisson(means: Floats, pmf: Floats, first: Indices, last: Indices) -> None: ...
def iterate(
    base: Floats,
    slope: Floats,
    sojourn: Floats,
    arrivals: Floats,
    first: Indices,
    last: Indices,
    s_max: int,
    overflow_cost: float,
    policy: Indices,
    values: Floats,
    visits: Floats,
    reference: int,
    improve: bool,
    most: int,
) -> tuple[float, int, int]: ...
