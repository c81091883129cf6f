"""The rows of the jobs, which the plots read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """The costs of a policy at a load. The optimal policy depends on `w2`; the others do not and have None there.

    `size` is the batch of a static policy or the Q of a control limit. `departs` is the least probability, over all Q,
    of a decision other than the control-limit policy's. `actions` are those of the first states. `visited` is the
    number of states up to the last that is visited."""

    rho: float
    policy: str
    size: int | None
    w2: float | None
    latency_ms: float
    power_w: float
    requests_per_j: float
    control_limit: int | None = None
    departs: float = 0.0
    visited: int = 0
    actions: tuple[int, ...] = ()

    def cost(self, w2: float) -> float:
        return self.latency_ms + w2 * self.power_w


@dataclass(frozen=True, slots=True)
class Truncation:
    """One solution of the truncated process. `overflow` is the share of time in S_o, and `waits` says that it never
    leaves S_o."""

    overflow_cost: float
    s_max: int
    method: str
    iterations: int
    g: float
    delta: float
    control_limit: int | None
    overflow: float
    waits: bool

    @property
    def lost(self) -> bool:
        """Return whether most of the time is spent in S_o. The answer is then one of the truncation, and not of the
        queue."""
        return self.overflow > 0.5


@dataclass(frozen=True, slots=True)
class Cost:
    """Average costs of Fig. 5 in ms, None where unstable.

    The savings are those of the optimum over the best of the drawn policies, and over the best of work-conserving and
    all 32 static ones."""

    rho: float
    w2: float
    optimal: float
    work_conserving: float
    static_8: float | None
    static_16: float | None
    static_32: float | None
    saving_percent: float
    saving_over_all_percent: float


@dataclass(frozen=True, slots=True)
class Bounded:
    """The least power within a bound on the mean latency, by a single policy and by a mixture of two.

    `share` is that of time under the policy with less power. `chance` is that of its choice at each visit to `state`.
    """

    rho: float
    bound_ms: float
    single_ms: float
    single_w: float
    mixture_ms: float
    mixture_w: float
    share: float
    state: int
    chance: float

    @property
    def excess_percent(self) -> float:
        """Return by how many percent the single policy needs more power."""
        return 100 * (self.single_w / self.mixture_w - 1)
