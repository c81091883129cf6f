import numpy as np
from numpy.typing import NDArray

def poisson(
    means: NDArray[np.float64], pmf: NDArray[np.float64], first: NDArray[np.intp], last: NDArray[np.intp]
) -> None: ...
def iterate(
    base: NDArray[np.float64],
    slope: NDArray[np.float64],
    sojourn: NDArray[np.float64],
    arrivals: NDArray[np.float64],
    first: NDArray[np.intp],
    last: NDArray[np.intp],
    s_max: int,
    overflow_cost: float,
    policy: NDArray[np.intp],
    values: NDArray[np.float64],
    visits: NDArray[np.float64],
    reference: int,
    improve: bool,
    max_evaluations: int,
) -> tuple[float, int, int]: ...
