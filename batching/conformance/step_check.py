"""Check a step policy against all rules of its contract, and report the first that it breaks.

The rules stand in batching/steps/policy.py. Random histories come first, then long runs.
"""

import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from headrace.batching.conformance.check import EXAMPLES, TWICE_EVERY, Conformance
from headrace.batching.conformance.instruments import Broken, CallTooLong, Instruments, unlike
from headrace.batching.conformance.shrink import shrink
from headrace.batching.conformance.step_histories import (
    MAX_EVENTS,
    StepHistory,
    random_step_history,
    simpler_step_histories,
)
from headrace.batching.conformance.step_play import Replica, StepBench, play_steps
from headrace.batching.errors import PolicyError, UsageError, one_line
from headrace.batching.steps.policy import (
    FORGETS,
    NO_ERRORS,
    NO_STARVATION,
    REPEATS,
    RETURNS,
    RULES,
    SAME_ANSWERS,
)
from headrace.batching.steps.registry import StepPolicySettings, step_policy_name
from headrace.batching.steps.request import StepRequest

BLOCKS, BLOCK_SIZE = 40, 16  # of long runs: some short requests, or a long one beside few
LONG, SHORT = (400, 60), (30, 4)  # tokens of a prompt and an output
KEPT_WAITING: Final = 30  # requests beside the one that must end
STEPS: Final = 3000  # within which it must end; they last three minutes
LEFT: Final = 1000  # requests that come and go
KEPT: Final = 100  # of them that a policy may keep


def check_step_policy(
    settings: StepPolicySettings, examples: int = EXAMPLES, seed: int = 0, instruments: Instruments | None = None
) -> Conformance:
    """Check the step policy that these settings make. Raises UsageError if they make none.

    The result depends on the settings and the seed alone."""
    lent = instruments or Instruments()
    bench = StepBench(step_policy_name(settings), settings.build)

    def played(history: StepHistory) -> Broken | None:
        return play_steps(bench, history, lent).broken

    def spied(history: StepHistory) -> Broken | None:
        return play_steps(bench, history, lent, spying=True).broken

    def twice(history: StepHistory) -> Broken | None:
        first, second = play_steps(bench, history, lent), play_steps(bench, history, lent)
        return first.broken or second.broken or unlike(SAME_ANSWERS, first.timeline, second.timeline, sys.maxsize)

    def again(history: StepHistory) -> Broken | None:
        repeated, asked = play_steps(bench, history, lent), play_steps(bench, history, lent, once=True)
        if (broken := repeated.broken or asked.broken) is not None or repeated.ended == asked.ended:
            return broken
        return twice(history) or Broken(
            REPEATS,
            "requests end at other times if the policy is asked before every repetition; allow only as many as it "
            "would answer again",
            tuple(repeated.timeline),
            len(history.events),
        )

    for number in range(examples):
        history = random_step_history(Random(f"{seed} steps {number}"), 4 + number * (MAX_EVENTS - 4) // examples)
        checks: list[Callable[[StepHistory], Broken | None]] = [played, again]
        if number % TWICE_EVERY == 0:
            checks += [twice, spied]
        for check in checks:
            broken = check(history)
            if broken is not None:
                shortest = shrink(history, broken, check, simpler_step_histories)[1]
                return Conformance(bench.name, (), shortest, number + 1, seed)
    for run in (starves, keeps):
        broken = _long_run(run, bench, lent)
        if broken is not None:
            return Conformance(bench.name, (), broken, examples, seed)
    return Conformance(bench.name, RULES, None, examples, seed)


def starves(bench: StepBench, instruments: Instruments) -> Broken | None:
    """Tell whether a request never ends while a stream of others comes.

    The one is longer than the others or shorter, and they have targets while it has none."""
    for one, others in ((LONG, SHORT), (SHORT, LONG)):
        replica = Replica(bench, BLOCKS, BLOCK_SIZE, instruments, False, False)
        replica.begin()
        numbers = iter(range(1, sys.maxsize))

        def another(of: tuple[int, int] = others, to: Replica = replica, ids: Iterator[int] = numbers) -> None:
            to.submit(StepRequest(next(ids), to.now, *of, first_token_by=to.now + 0.5, tpot_s=0.1))

        for _ in range(KEPT_WAITING // 2):
            another()
        if not replica.submit(StepRequest(0, replica.now, *one)):
            continue  # a step of the policy cannot hold its prompt
        for _ in range(STEPS):
            while len(replica.flight) < KEPT_WAITING:
                another()
            replica.step(1)
            if 0 not in replica.flight:
                break
        else:
            return Broken(
                NO_STARVATION,
                f"a request of {one[0]} + {one[1]} tokens has not ended after {STEPS} steps, while others of "
                f"{others[0]} + {others[1]} tokens came; let it go before others that came later, at least in the end",
                (),
            )
    return None


def keeps(bench: StepBench, instruments: Instruments) -> Broken | None:
    """Tell whether a policy keeps requests that were withdrawn or have ended."""
    replica = Replica(bench, BLOCKS, BLOCK_SIZE, instruments, False, False)
    replica.begin()
    requests = [StepRequest(number, 0.0, 8, 2, first_token_by=1.0 + number) for number in range(LEFT)]
    before = max(sys.getrefcount(request) for request in requests)
    for place in range(LEFT):
        taken = replica.submit(requests[place])
        if taken and place % 2:
            replica.withdraw(place)
        elif place % 20 == 0:
            replica.step(1)
    while replica.flight:
        replica.step(STEPS)
    kept = sum(sys.getrefcount(request) > before for request in requests)
    if kept <= KEPT:
        return None
    return Broken(FORGETS, f"of {LEFT} requests that have left, the policy keeps {kept}; drop what has left", ())


def _long_run(
    run: Callable[[StepBench, Instruments], Broken | None], bench: StepBench, lent: Instruments
) -> Broken | None:
    by_name = {rule.name: rule for rule in RULES}
    what = f"a long run ({run.__name__})"
    try:
        return run(bench, lent)
    except CallTooLong:
        return Broken(RETURNS, f"a call of {what} has not returned; make it end", ())
    except PolicyError as error:
        return Broken(by_name[error.rule], f"in {what}: {error}", ())
    except UsageError:
        raise
    except Exception as error:
        return Broken(NO_ERRORS, f"a call of {what} raised {one_line(error)}", ())
