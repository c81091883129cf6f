"""Options of the command line that are made from settings (batching/settings.py).

A setting stands once, in its class. A command that takes the setting gets an option with its name, help and range.
`given(ctx)` then has the value by the setting's name. `--help-all` alone shows the options of advanced settings.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from headrace.batching import UsageError
from headrace.batching.registry import PolicyEntry, find_policy, usable_policies, usable_step_policies
from headrace.batching.settings import FORMER, Setting, option, parse_assignments, settings_of
from headrace.host.cli.options import GIVEN, command

POLICY_SETTINGS = "Settings of policies (also as --set NAME=VALUE)"
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        rich_help_panel="Policy",
        metavar="NAME=VALUE",
        help="A setting of the policy, as in coverage=0.95. `headrace policies NAME` lists them.",
    ),
]


@dataclass(frozen=True, slots=True)
class Choice:
    """An option that chooses a class of settings, such as `--policy`."""

    name: str
    help: str
    values: tuple[str, ...] = ()
    metavar: str = "NAME"


def add_settings(
    taken_by: TyperCommand,
    panels: Mapping[str, Iterable[type | Choice]],
    without: Iterable[str] = (),
    only: Iterable[str] | None = None,
    several: str = "",
) -> None:
    """Add options for settings to a command, in front of its own options.

    Args:
        panels: Classes of settings and choices, by heading of the help.
        without: Names of settings that get no option.
        only: Names of the settings that get an option. None stands for all.
        several: If the options may be given several times, words for the help that say so."""
    wanted: dict[str, _NewOption] = {}
    others: dict[str, list[str]] = {}
    for old, new in FORMER.items():
        others.setdefault(new, []).append(option(old))
    skipped, chosen = set(without), None if only is None else set(only)
    for panel, members in panels.items():
        for member in members:
            found = [member] if isinstance(member, Choice) else settings_of(member)
            for each in found:
                if each.name not in wanted and each.name not in skipped and (chosen is None or each.name in chosen):
                    wanted[each.name] = _NewOption(each, panel, tuple(others.get(each.name, ())), several=several)
    taken_by.params[:0] = _options(list(wanted.values()))


def add_policy_settings(taken_by: TyperCommand, steps: bool = False) -> None:
    """Add an option for each setting of each known policy. They are shown by `--help-all`.

    With `steps`, the policies of models that decode count, too."""
    present = {param.name for param in taken_by.params}
    by_name: dict[str, tuple[Setting, list[str]]] = {}
    for entry in (*usable_policies(), *(usable_step_policies() if steps else ())):
        for each in entry.settings:
            if each.name not in present:
                names = by_name.setdefault(each.name, (each, []))[1]
                names += [entry.name] if entry.name not in names else []
    taken_by.params += _options(
        [
            _NewOption(each, POLICY_SETTINGS, text=f"{', '.join(policies)}: {help_text(each)}", advanced=True)
            for each, policies in by_name.values()
        ]
    )


def group_options(taken_by: TyperCommand, panels: Mapping[str, Iterable[str]], first: Iterable[str]) -> None:
    """Group a command's options in its help. Without `--help-all`, the help shows only the `first` options.

    Args:
        panels: Names of parameters by heading, in the order of the help. Other parameters keep their heading.
        first: Names of the parameters that the help always shows."""
    shown = set(first)
    headings = {name: panel for panel, names in panels.items() for name in names}
    for param in taken_by.params:
        if (panel := headings.get(str(param.name))) is not None:
            param.rich_help_panel = panel  # type: ignore[attr-defined]
        if param.name not in shown:
            param.advanced = True  # type: ignore[attr-defined]
    order = {panel: number for number, panel in enumerate(panels)}
    places = {name: number for number, name in enumerate(headings)}

    def place(param: Any) -> tuple[int, int]:
        panel = getattr(param, "rich_help_panel", None) or ""
        return order.get(panel, len(order)), places.get(str(param.name), len(places))

    taken_by.params.sort(key=place)


def mark_advanced(taken_by: TyperCommand, *names: str) -> None:
    """Let `--help-all` alone show these options of a command."""
    for param in taken_by.params:
        if param.name in names:
            param.advanced = True  # type: ignore[attr-defined]


def given(ctx: Any) -> dict[str, Any]:
    """Return the settings that the command line gives, by name, as texts or truth values."""
    return dict(ctx.meta.get(GIVEN, {}))


def with_assignments(given: Mapping[str, Any], texts: Iterable[str] | None) -> dict[str, Any]:
    """Return the settings with those of `--set NAME=VALUE`. Raises UsageError for one that is given twice."""
    found = parse_assignments(texts or ())
    if both := sorted(set(found) & set(given)):
        raise UsageError(f"--set {both[0]} and {option(both[0])} say the same; give one of them")
    return {**given, **found}


def check_assignments(
    texts: Iterable[str] | None, policies: Iterable[str], find: Callable[[str], PolicyEntry] = find_policy
) -> None:
    """Raise UsageError for a setting of `--set` that none of the policies has. `find` finds a policy by its name."""
    names = list(dict.fromkeys(policies))
    known = {each.name for name in names for each in find(name).settings}
    for name in parse_assignments(texts or ()):
        if name not in known:
            has = "has" if len(names) == 1 else "have"
            raise UsageError(
                f"--set {name}: {' and '.join(names)} {has} no setting {name!r}; known are "
                f"{', '.join(sorted(known)) or 'none'}"
            )


def help_text(setting: Setting, several: str = "") -> str:
    """Return a setting's help, with its choices and its default. `several` says that it may be given several times."""
    text = setting.help.rstrip(".")
    if setting.choices:
        text += f" ({', '.join(setting.choices)})"
    text += several
    default = setting.default
    shown = f"{default:g}" if isinstance(default, float) else "yes" if default is True else default
    return text + ("." if default is None or default is False or default == "" else f" [{shown}].")


@dataclass(frozen=True, slots=True)
class _NewOption:
    """An option to make: for a setting or a choice, under a heading, with other names."""

    of: Setting | Choice
    panel: str
    others: tuple[str, ...] = ()
    text: str | None = None
    advanced: bool = False
    several: str = ""


def _options(wanted: Iterable[_NewOption]) -> list[Any]:
    """Return options as Typer makes them: all at once, because each call of Typer takes a millisecond."""

    def takes(**values: Any) -> None:
        """Stand for a command, so that Typer makes its options."""

    parameters = [_parameter(each) for each in wanted]
    takes.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    takes.__annotations__ = {each.name: each.annotation for each in parameters}
    made = {param.name: param for param in command(takes).params}
    found: list[Any] = []
    for each in wanted:
        option_made: Any = made[each.of.name]
        option_made.callback = _keep  # here, because Typer reads a callback's signature anew for each option
        option_made.advanced = each.advanced or (isinstance(each.of, Setting) and each.of.advanced)
        found.append(option_made)
    return found


def _keep(ctx: Any, param: Any, value: Any) -> None:
    """Keep a value that the command line gives."""
    source = ctx.get_parameter_source(str(param.name))
    if value is not None and source is not None and source.name == "COMMANDLINE":
        ctx.meta.setdefault(GIVEN, {})[param.name] = value


def _parameter(wanted: _NewOption) -> inspect.Parameter:
    each = wanted.of
    kind: type = str
    names, values = (
        [option(each.name), *wanted.others],
        tuple(each.values if isinstance(each, Choice) else each.choices),
    )
    if isinstance(each, Choice):
        text, metavar = each.help, each.metavar
    else:
        kind = bool if each.kind is bool else str
        if kind is bool:
            names = [f"{option(each.name)}/--no-{each.name.replace('_', '-')}"]
        text = help_text(each, wanted.several)
        metavar = ",".join([{int: "INTEGER", float: "FLOAT", Path: "FILE"}.get(each.kind, "TEXT")] * (each.count or 1))
    described = typer.Option(
        *names,
        help=wanted.text or text,
        metavar=None if kind is bool else metavar,
        rich_help_panel=wanted.panel,
        expose_value=False,
        show_default=False,
        autocompletion=(lambda: list(values)) if values else None,
    )
    hint = Annotated[(list[kind] if wanted.several else kind) | None, described]  # type: ignore[valid-type]
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
