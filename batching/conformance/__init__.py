"""Property tests of the policy contracts as a library, for built-in policies and for those of users.

`check_policy` plays random histories of events against a policy and checks every rule of batching/policy.py.
`check_step_policy` does the same for policies of models that decode (batching/steps/policy.py). When a rule is broken,
the history is made as short as possible and reported as a timeline. Everything is derived from a seed. The library
reads no clock: a caller that wants the rules about time gives it one (`Instruments`).
"""

from headrace.batching.conformance.bench import Bench, bench_for
from headrace.batching.conformance.check import Conformance, check_bench, check_policy
from headrace.batching.conformance.histories import Event, History, random_history
from headrace.batching.conformance.instruments import Broken, CallTooLong, Instruments
from headrace.batching.conformance.play import Played, play
from headrace.batching.conformance.step_check import check_step_policy

__all__ = [
    "Bench",
    "Broken",
    "CallTooLong",
    "Conformance",
    "Event",
    "History",
    "Instruments",
    "Played",
    "bench_for",
    "check_bench",
    "check_policy",
    "check_step_policy",
    "play",
    "random_history",
]
