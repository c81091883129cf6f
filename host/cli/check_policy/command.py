"""`headrace check-policy`: the rules that every policy keeps, checked with random histories."""

import contextlib
import dataclasses
import sys
from typing import Annotated

import typer

from headrace.batching.conformance import Conformance
from headrace.batching.conformance.check import EXAMPLES
from headrace.batching.registry import PolicyEntry, PolicySettings, entries_named, policy_names, step_policy_entry
from headrace.batching.settings import parse_assignments, read_settings
from headrace.batching.steps.registry import STEPS, step_policy_names
from headrace.host.cli.check_policy.process import check_in_process
from headrace.host.cli.console import show, show_json, working
from headrace.host.cli.options import Json, command


@command
def check_policy(
    name: Annotated[
        str,
        typer.Argument(
            help="A policy that `headrace policies` lists, or module:Class.",
            autocompletion=lambda: list(dict.fromkeys([*policy_names(), *step_policy_names()])),
            metavar="NAME",
        ),
    ],
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the policy; `headrace policies NAME` lists them."
        ),
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Check the policy of models that decode, where two have this name.")
    ] = False,
    examples: Annotated[int, typer.Option(min=1, max=100_000, help="How many random histories to play.")] = EXAMPLES,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the histories.")] = 0,
    as_json: Json = False,
) -> None:
    """Check that a policy keeps the rules of the contract between policies and drivers.

    Random histories of requests, withdrawals and lost workers are played against it. Against a policy of models that
    decode, steps are played. If it breaks a rule, the shortest history found is printed, and the exit status is 1."""
    given = parse_assignments(assignments or ())
    with contextlib.redirect_stdout(sys.stderr):  # a user's module may print; stdout belongs to the result
        entry = step_policy_entry(name, "policy") if steps else entries_named(name, "policy")[0]
        settings = read_settings(entry.cls, given, what=f"policy {name}")
    with working(f"checking {name}"):
        found = check_in_process(name, given, examples, seed, steps=entry.tasks == STEPS)
    if as_json:
        show_json(_as_json(entry, settings, found))
    else:
        _show(name, found)
    if found.broken is not None:
        raise typer.Exit(1)


def _as_json(entry: PolicyEntry, settings: PolicySettings, found: Conformance) -> dict[str, object]:
    broken = found.broken
    return {
        "policy": entry.name,
        "source": entry.source,
        "tasks": entry.tasks,
        "settings": {each.name: getattr(settings, each.name) for each in entry.settings},
        "seed": found.seed,
        "histories": found.histories,
        "passed": [dataclasses.asdict(rule) for rule in found.passed],
        "broken": None
        if broken is None
        else {
            "rule": dataclasses.asdict(broken.rule),
            "message": broken.message,
            "events": broken.events,
            "timeline": list(broken.timeline),
        },
    }


def _show(name: str, found: Conformance) -> None:
    broken = found.broken
    if broken is None:
        show(f"{name} keeps all {len(found.passed)} rules in {found.histories} histories, seed {found.seed}:")
        for rule in found.passed:
            show(f"  {rule.name:<18}{rule.sentence}")
        return
    show(f"{name} breaks the rule {broken.rule.name}: {broken.rule.sentence}")
    show(f"  in {broken.rule.source}")
    show(f"What is wrong: {broken.message}")
    if broken.timeline:
        show(f"The shortest history found, of history {found.histories} with seed {found.seed}:")
        for line in broken.timeline:
            show(f"  {line}")
