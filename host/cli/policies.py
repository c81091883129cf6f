"""`headrace policies`: which policies there are, and what each of them takes."""

import contextlib
import dataclasses
import sys
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace.batching.errors import UsageError
from headrace.batching.registry import PolicyEntry, find_policy, policy_names
from headrace.batching.settings import Setting
from headrace.host.cli.console import out, show, show_json
from headrace.host.cli.options import Json, command

TASKS = {
    "graph": "whole graphs",
    "nodes": "runs of nodes, which may end at any node",
    "cells": "cells of recurrent networks",
}


@command
def policies(
    name: Annotated[
        str | None,
        typer.Argument(help="Explain this policy; module:Class, too.", autocompletion=policy_names, metavar="[NAME]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """List all policies, or explain one: its settings, where it comes from, and an example."""
    with contextlib.redirect_stdout(sys.stderr):  # a user's module may print; stdout belongs to the result
        entry = None if name is None else find_policy(name, "policy")
        listed = [] if entry is not None else [_found(each) for each in policy_names()]
    if entry is not None:
        show_json(_explained(entry)) if as_json else _show(entry)
        return
    if as_json:
        show_json([{"name": name, "summary": summary, "package": package} for name, summary, package in listed])
        return
    table = Table("policy", "what it does", "package", box=None, pad_edge=False)
    for row in listed:
        table.add_row(*(text or "" for text in row))
    out.print(table)


def _found(name: str) -> tuple[str, str, str | None]:
    """Return a policy's name, summary and package. A package that cannot be imported hides no other policy."""
    try:
        entry = find_policy(name)
    except UsageError as error:
        return name, f"cannot be used: {error}", None
    return name, entry.summary, entry.package


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
    show(f"Check it: headrace check-policy {entry.name}")


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
    return f"headrace simulate {model} --rate-rps 100 --policy {entry.name}{given}"
