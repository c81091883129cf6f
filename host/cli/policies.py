"""`headrace policies`: which policies there are, and what each of them takes."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace.batching.errors import UsageError
from headrace.batching.registry import PolicyEntry, entries_named, find_policy, policy_names, step_policy_entry
from headrace.batching.settings import Setting
from headrace.batching.steps.registry import STEPS, step_policy_names
from headrace.host.cli.console import out, show, show_json
from headrace.host.cli.options import Json, command

TASKS = {
    "graph": "whole graphs",
    "nodes": "runs of nodes, which may end at any node",
    "cells": "cells of recurrent networks",
    "steps": "steps of a model that decodes",
}


@command
def policies(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Explain this policy; module:Class, too.",
            autocompletion=lambda: list(dict.fromkeys([*policy_names(), *step_policy_names()])),
            metavar="[NAME]",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List all policies, or explain one: its settings, where it comes from, and an example.

    Some names stand for two policies: one for networks, and one for models that decode."""
    with contextlib.redirect_stdout(sys.stderr):  # a user's module may print; stdout belongs to the result
        entries = [] if name is None else entries_named(name, "policy")
        listed = [] if entries else [_found(each) for each in policy_names()]
        of_steps = [] if entries else [_found(each, step_policy_entry) for each in step_policy_names()]
    if entries:
        if as_json:
            further = {"of_steps": _explained(entries[1])} if len(entries) > 1 else {}
            show_json({**_explained(entries[0]), **further})
            return
        for number, entry in enumerate(entries):
            if number:
                show("")
            _show(entry)
        return
    if as_json:
        keys = ("name", "summary", "package", "tasks")
        show_json([dict(zip(keys, row, strict=True)) for row in (*listed, *of_steps)])
        return
    for heading, found in (("policy", listed), ("for models that decode", of_steps)):
        table = Table(heading, "what it does", "package", box=None, pad_edge=False)
        for row in found:
            table.add_row(*(text or "" for text in row[:3]))
        out.print(table)
        show("")


def _found(name: str, find: Callable[[str], PolicyEntry] = find_policy) -> tuple[str, str, str | None, str | None]:
    """Return a policy's name, summary, package and tasks. A package that cannot be imported hides no other policy."""
    try:
        return _row(find(name))
    except UsageError as error:
        return name, f"cannot be used: {error}", None, None


def _row(entry: PolicyEntry) -> tuple[str, str, str | None, str | None]:
    return entry.name, entry.summary, entry.package, entry.tasks


def _explained(entry: PolicyEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "summary": entry.summary,
        "paper": entry.paper,
        "source": entry.source,
        "package": entry.package,
        "tasks": entry.tasks,
        "limits_from_profile": entry.limits_from_profile,
        "settings": [
            {**dataclasses.asdict(each), "kind": each.kind.__name__, "allowed": each.allowed()}
            for each in entry.settings
        ],
        "example": _example(entry),
    }


def _show(entry: PolicyEntry) -> None:
    show(f"{entry.name}: {entry.summary}")
    show(f"Its tasks are {TASKS[entry.tasks]}.")
    if entry.paper:
        show(f"Source: {entry.paper}")
    show(f"Class: {entry.source}" + (f", in package {entry.package}" if entry.package else ""))
    show("")
    if entry.settings:
        table = Table("setting", "type", "range", "default", "what it does", box=None, pad_edge=False)
        for each in entry.settings:
            table.add_row(each.name, _type(each), each.allowed().removeprefix("give "), _default(each), each.help)
        out.print(table)
    else:
        show("It has no settings.")
    show("")
    show(f"Example: {_example(entry)}")
    both = entry.tasks == STEPS and entry.name in policy_names()
    show(f"Check it: headrace check-policy {entry.name}" + (" --steps" if both else ""))


def _type(setting: Setting) -> str:
    name = setting.kind.__name__
    return f"list of {name}" if setting.many else name


def _default(setting: Setting) -> str:
    default = setting.default
    if default is None:
        return "-"
    return (
        f"{default:g}"
        if isinstance(default, float)
        else str(default).lower()
        if default in (True, False)
        else str(default)
    )


def _example(entry: PolicyEntry) -> str:
    """Return a command that simulates the policy, with one of its settings."""
    model = "--accelerator v100 --model lstm" if entry.tasks == "cells" else "--model resnet50"
    given = next((f" --set {each.name}={_default(each)}" for each in entry.settings if each.default is not None), "")
    if entry.tasks == STEPS:
        return f"headrace simulate --model llama-3.1-8b --accelerator h100 --rate-rps 2 --policy {entry.name}{given}"
    return f"headrace simulate {model} --rate-rps 100 --policy {entry.name}{given}"
