"""Find step models by name, and check the rules that every step model keeps.

A step model says how long a step takes (`StepLatencyModel`, batching/steps/policy.py). Where one is expected, it can be
named in one of three ways:

- the path of a CSV file of measured step times (measured_steps.py), which ends in .csv
- the name of an entry point in the group `headrace.step_models` of an installed package
- `module:name`, where Python finds the module, or where it lies in the current folder

An entry point or `module:name` stands for an object with a method `seconds`, or for a class or function without
arguments that makes one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from headrace.batching.errors import LONGEST_NAME, UsageError, one_line
from headrace.batching.named import installed, is_own, own
from headrace.batching.policy import Rule
from headrace.batching.steps.policy import StepLatencyModel
from headrace.sim.decoding.measured_steps import MeasuredSteps

GROUP: Final = "headrace.step_models"  # the group of entry points
STEPS: Final = 200  # that a check plays
_MAX_CHUNK, _MAX_CONTEXT, _MAX_REQUESTS = 2048, 8192, 256

Arguments = tuple[list[tuple[int, int]], int, int]  # the arguments of `seconds`


def _rule(name: str, sentence: str) -> Rule:
    return Rule(name, sentence, "batching/steps/policy.py, StepLatencyModel")


METHOD: Final = _rule("method", "The model has a method `seconds`, which raises no error for any step.")
TIME: Final = _rule("time", "Every duration is a finite number of 0 s or more.")
WORK: Final = _rule("work", "A step with a chunk or a request that decodes takes more than 0 s.")
SAME: Final = _rule("same-answers", "The same step takes the same time, whatever was asked between.")
ARGUMENTS: Final = _rule("arguments", "The model changes no argument.")
RULES: Final = (METHOD, TIME, WORK, SAME, ARGUMENTS)


@dataclass(frozen=True, slots=True)
class StepModelCheck:
    """The findings of `check_step_model`.

    Attributes:
        steps: How many steps were asked for.
        broken: The name of the rule that was broken; None if all were kept.
        message: What is wrong, with the step; empty if nothing is.
    """

    steps: int
    broken: str | None = None
    message: str = ""


def check_step_model(model: StepLatencyModel, steps: int = STEPS, seed: int = 0) -> StepModelCheck:
    """Check the rules that every step model keeps, with random steps of a server.

    `seconds` raises no error, and returns a finite number of 0 or more. A step with work takes more than 0. The same
    step always takes the same time. No argument is changed.

    Args:
        model: The step model.
        steps: How many random steps are asked for.
        seed: The steps are a function of it.
    """
    seconds = getattr(model, "seconds", None)
    if not callable(seconds) or isinstance(model, type):
        return StepModelCheck(0, METHOD.name, f"{_named(model)} has no method seconds; add it")
    first: list[float] = []
    asked = list(_steps(steps, seed))
    for number, step in enumerate([*asked, *asked]):
        broken = _broken(seconds, step, first[number - len(asked)] if number >= len(asked) else None)
        if isinstance(broken, StepModelCheck):
            return broken
        first.append(broken)
    return StepModelCheck(len(asked))


def _steps(count: int, seed: int) -> Iterator[Arguments]:
    random = Random(f"{seed} steps")
    yield [(1, 0)], 0, 0
    yield [], 1, 1
    for _ in range(count - 2):
        chunks = [
            (random.randint(1, _MAX_CHUNK), random.choice((0, random.randint(1, _MAX_CONTEXT))))
            for _ in range(random.choice((0, 0, 1, 2, 5)))
        ]
        requests = random.randint(0 if chunks else 1, _MAX_REQUESTS)
        yield chunks, requests, sum(random.randint(1, _MAX_CONTEXT) for _ in range(requests))


def _broken(seconds: Callable[..., Any], step: Arguments, before: float | None) -> StepModelCheck | float:
    """Return the duration of a step, or the rule that it breaks."""
    chunks, requests, context = step
    given = list(chunks)
    what = f"seconds({given}, {requests}, {context})"
    try:
        found = seconds(given, requests, context)
    except Exception as error:
        return StepModelCheck(0, METHOD.name, f"{what} raised {one_line(error)}; let it return a time")
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < math.inf:
        return StepModelCheck(
            0, TIME.name, f"{what} is {str(found)[:LONGEST_NAME]}; return a number of seconds, 0 or more"
        )
    if found == 0:
        return StepModelCheck(0, WORK.name, f"{what} is 0; return a time above 0")
    if before is not None and found != before:
        return StepModelCheck(0, SAME.name, f"{what} is {before}, and {found} later; decide by the arguments alone")
    if given != chunks:
        return StepModelCheck(0, ARGUMENTS.name, f"{what} changed its list to {given}; leave it as it is")
    return float(found)


def find_step_model(name: str, where: str = "--step-model") -> StepLatencyModel:
    """Return the step model of a name. The head of this file lists the kinds of names.

    The model is checked (`check_step_model`). Raises UsageError that begins with `where`."""
    if name.lower().endswith(".csv"):
        return MeasuredSteps.read(name)
    if not is_own(name, GROUP):
        known = "".join(f"{each}, " for each in installed(GROUP))
        raise UsageError(
            f"{where} {name[:LONGEST_NAME]!r}: there is no such step model; choose {known}a CSV file of step times, or "
            "module:name"
        )
    found = own(where, name, GROUP)
    if isinstance(found, type) or (callable(found) and not hasattr(found, "seconds")):
        try:
            found = found()
        except Exception as error:
            raise UsageError(f"{where} {name}: it cannot be made without arguments: {one_line(error)}") from error
    if (check := check_step_model(found)).broken is not None:
        raise UsageError(f"{where} {name} breaks the rule {check.broken}: {check.message}")
    model: StepLatencyModel = found
    return model


def _named(model: object) -> str:
    return f"{model!r}"[:LONGEST_NAME]
