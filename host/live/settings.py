"""The settings of a live runtime.

Rule: the values are checked here, once. Other modules of the runtime take them as they are.
"""

import math
from dataclasses import dataclass

from headrace.batching import UsageError


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """How long a runtime waits for workers, how often it tries a request again, and what it does with late requests.

    Attributes:
        task_timeout_s: Longest time of one task, in seconds above 0. A worker that needs longer is killed.
        outage_s: Longest time without any worker in service, in seconds above 0. After it, requests get `NoWorker`.
        attempts: How many workers one request may kill, 1 or more. With the last of them the request fails.
        drop_late: Drop a request that has not begun by `Policy.latest_start`. Its caller gets `TooLate`.
        keep_awake: Keep the cores of the machine from sleeping while the runtime is open, where the system allows it.

    Raises:
        UsageError: A value is out of its range.
    """

    task_timeout_s: float = 30.0
    outage_s: float = 30.0
    attempts: int = 2
    drop_late: bool = False
    keep_awake: bool = False

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(f"attempts is {self.attempts}; give 1 or more")
        for name in ("task_timeout_s", "outage_s"):
            seconds = getattr(self, name)
            if not 0 < seconds < math.inf:
                raise UsageError(f"{name} is {seconds}; give a number of seconds above 0")
