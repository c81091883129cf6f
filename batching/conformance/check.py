"""Check a policy against all rules of its contract, and report the first that it breaks with the shortest history."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from headrace.batching.conformance import long_runs
from headrace.batching.conformance.bench import MODELS, Bench, bench_for
from headrace.batching.conformance.histories import MAX_EVENTS, History, random_history
from headrace.batching.conformance.instruments import Broken, CallTooLong, Instruments, unlike
from headrace.batching.conformance.play import play
from headrace.batching.conformance.shrink import shrink, simpler_histories
from headrace.batching.errors import UsageError, one_line
from headrace.batching.policy import CELL_ORDER, COST, NO_ERRORS, NODE_ORDER, RETURNS, RULES, SAME_ANSWERS, Policy, Rule
from headrace.batching.registry import PolicySettings

EXAMPLES = 100  # histories
TWICE_EVERY = 4  # histories of which one is also played twice, and once watched for clocks
LARGEST = 4  # batch that histories are made for where a policy does not tell its own


@dataclass(frozen=True, slots=True)
class Conformance:
    """The findings of a check.

    Args:
        policy: The policy's name.
        passed: The rules that were checked and kept.
        broken: The rule that was broken, with the shortest history found; None if all were kept.
        histories: How many random histories were played.
        seed: What they were made from."""

    policy: str
    passed: tuple[Rule, ...]
    broken: Broken | None
    histories: int
    seed: int


def check_policy(
    settings: PolicySettings, examples: int = EXAMPLES, seed: int = 0, instruments: Instruments | None = None
) -> Conformance:
    """Check the policy that these settings make. Raises UsageError if they make none."""
    return check_bench(bench_for(settings), examples, seed, instruments)


def check_bench(
    bench: Bench, examples: int = EXAMPLES, seed: int = 0, instruments: Instruments | None = None
) -> Conformance:
    """Check the policy of a bench with this many random histories, then with long runs.

    The result depends on the bench and the seed alone, except for the rule on the cost of calls."""
    lent = instruments or Instruments()
    largest = _largest_batches(bench, lent)

    def played(history: History) -> Broken | None:
        return play(bench, history, lent).broken

    def spied(history: History) -> Broken | None:
        return play(bench, history, lent, spying=True).broken

    def twice(history: History) -> Broken | None:
        first, second = play(bench, history, lent), play(bench, history, lent)
        return first.broken or second.broken or unlike(SAME_ANSWERS, first.timeline, second.timeline)

    for number in range(examples):
        size = 4 + number * (MAX_EVENTS - 4) // max(1, examples - 1)
        history = random_history(Random(f"{seed} {number}"), largest, size)
        checks: list[Callable[[History], Broken | None]] = [played]
        if number % TWICE_EVERY == 0:
            checks += [twice, spied]
        for check in checks:
            broken = check(history)
            if broken is not None:
                return Conformance(
                    bench.name, (), shrink(history, broken, check, simpler_histories)[1], number + 1, seed
                )
    for run in (long_runs.starves, long_runs.grows, *([long_runs.slows_down] if lent.cpu_s is not None else [])):
        broken = _long_run(run, bench, lent)
        if broken is not None:
            return Conformance(bench.name, (), broken, examples, seed)
    left_out = {NODE_ORDER} if bench.cells else {CELL_ORDER}
    if lent.cpu_s is None:
        left_out.add(COST)
    return Conformance(bench.name, tuple(rule for rule in RULES if rule not in left_out), None, examples, seed)


def _largest_batches(bench: Bench, lent: Instruments) -> dict[str, int]:
    """Return by model the largest batch that a policy tells, for histories with full batches."""
    found = dict.fromkeys(MODELS, LARGEST)
    try:
        with lent.around("largest_batch"):
            policy: Policy = bench.build(1)
            for model in MODELS:
                found[model] = max(1, int(policy.largest_batch(model)))
    except UsageError:
        raise
    except (Exception, CallTooLong):  # what is wrong, a history shows
        return dict.fromkeys(MODELS, LARGEST)
    return found


def _long_run(run: Callable[[Bench, Instruments], Broken | None], bench: Bench, lent: Instruments) -> Broken | None:
    what = f"{run.__name__.replace('_', ' ')}: a long run"
    try:
        return run(bench, lent)
    except CallTooLong:
        return Broken(RETURNS, f"a call of a long run ({run.__name__}) has not returned; make it end", (what,))
    except UsageError:
        raise
    except Exception as error:
        return Broken(NO_ERRORS, f"a call of a long run ({run.__name__}) raised {one_line(error)}", (what,))
