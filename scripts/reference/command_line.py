"""Pages of the commands: usage and options, from the commands themselves."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from headrace.batching.settings import FORMER, option
from headrace.host.cli.main import COMMANDS, app
from headrace.host.cli.options import ARGUMENTS, HELP_ALL, OTHERS, OWN_DEFAULT, VALUE_NAMES
from reference.markdown import marked, named, table, unit

WORDS = {
    "INTEGER": "whole number",
    "FLOAT": "number",
    "TEXT": "text",
    "PATH": "path",
    "FILE": "path",
    "BOOLEAN": "yes or no",
}
EXTRAS = re.compile(r"\s*\[((?:default: |required|[\d.-]+<=x|x[<>]=)[^\[\]]*)\]\.?$")


def command_and_context(path: tuple[str, ...]) -> tuple[Any, Any]:
    """Return a command or subcommand, and a context in which its help can be read."""
    found: Any = typer.main.get_command(app)
    context = typer.Context(found, info_name="headrace")
    for name in path:
        found = found.get_command(context, name)
        context = typer.Context(found, info_name=name, parent=context)
    context.meta[HELP_ALL] = True
    return found, context


def _value(shown: str) -> str:
    """Return the words for a value as the help shows it: "a whole number" for INTEGER, the choices of <cpu|raise>."""
    kinds = []
    for each in re.findall(r"<[^<>]*>|\S+", shown):
        bare = each.removesuffix("...").strip("<>").removeprefix("list[").removesuffix("]").removesuffix(" range")
        kind = VALUE_NAMES.get(bare.lower(), bare)
        if "|" in bare:
            kinds.append(", ".join(f"`{choice}`" for choice in bare.split("|")))
        elif re.fullmatch(r"(INTEGER|FLOAT)(,(INTEGER|FLOAT))+", kind):
            kinds.append(f"{kind.count(',') + 1} numbers by comma")
        elif re.fullmatch(r"int(,int)+", kind):
            kinds.append(f"{kind.count(',') + 1} whole numbers")
        elif several := re.fullmatch(r"(\w+)\[,\.\.\.\]?", kind):
            kinds.append(f"{WORDS.get(several[1], f'`{several[1]}`')}, or several by comma")
        else:
            kinds.append(WORDS.get(kind, f"`{kind}`"))
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} {kinds[0]}s" if len(set(kinds)) == 1 else ", ".join(kinds)


def argument_name(param: Any) -> str:
    """Return the name of an argument, in capital letters."""
    return str(param.metavar or param.name).strip("[]{}").upper()


def _row(param: Any, context: Any) -> tuple[str, str, str, str] | None:
    """Return the row of a parameter: its names, its value, its default, and what it means."""
    record = param.get_help_record(context)
    if record is None:
        return None
    text = OWN_DEFAULT.sub("[default: ", " ".join(record[1].split()))
    default, notes = "", []
    while found := EXTRAS.search(text):
        text = text[: found.start()].strip()
        for extra in found[1].split("; "):
            if extra.startswith("default: "):
                default = extra.removeprefix("default: ")
            elif extra == "required":
                default = extra
            else:
                notes.append(extra.replace("<=x<=", " to ").replace("x>=", "at least "))
    is_argument = param.param_type_name == "argument"
    former = {option(each) for each in FORMER}
    names = [argument_name(param)] if is_argument else [*param.opts, *param.secondary_opts]
    names = [f"`{name}`" for name in names if name not in former]
    value = (
        ""
        if getattr(param, "is_flag", False) or getattr(param, "count", False)
        else _value(param.display_type_rich(ctx=context))
    )
    if value in ("number", "whole number", "text") and (stated := unit(param.opts[0])):
        notes.insert(0, stated)
    if getattr(param, "multiple", False) or getattr(param, "nargs", 1) == -1:
        notes.append("several times" if not is_argument else "one or more")
    value = ", ".join(filter(None, (value, *notes)))
    text = text if not text or text.endswith(".") else f"{text}."
    if re.fullmatch(r"[\w.:/,<>*+-]*\d[\w.:/,<>*+-]*|[a-z_]+", default) and default != "required":
        default = f"`{default}`"
    return ", ".join(names), value, default, text


def groups(path: tuple[str, ...]) -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    """Yield the headings of a command's help with the rows below them."""
    found, context = command_and_context(path)
    rows: dict[str, list[tuple[str, str, str, str]]] = {}
    for param in found.get_params(context):
        if param.name == "help":
            continue
        usual = ARGUMENTS if param.param_type_name == "argument" else OTHERS
        if (row := _row(param, context)) is not None:
            rows.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append(row)
    for last in (OTHERS,):
        if last in rows:
            rows[last] = rows.pop(last)
    if ARGUMENTS in rows:
        rows = {ARGUMENTS: rows.pop(ARGUMENTS), **rows}
    yield from rows.items()


def usage(*path: str) -> str:
    """Return the usage line of a command, and what its help says first."""
    found = command_and_context(path)[0]
    words = ["headrace", *path]
    if any(param.param_type_name == "option" for param in found.params):
        words.append("[OPTIONS]")
    for param in found.params:
        if param.param_type_name == "argument":
            name = argument_name(param) + (" ..." if param.nargs == -1 else "")
            words.append(name if param.required else f"[{name}]")
    if hasattr(found, "list_commands"):
        words.append("COMMAND")
    paragraphs = [" ".join(part.split()) for part in (found.help or "").split("\n\n")]
    return "```text\n" + " ".join(words) + "\n```\n\n" + marked("\n\n".join(paragraphs)) + "\n"


def options(*path: str) -> str:
    """Return the options of a command in tables, by group."""
    parts = []
    found = list(groups(path))
    for heading, rows in found:
        if len(found) > 1 or heading == ARGUMENTS:
            parts.append(f"### {marked(heading)}\n")
        cells = ((named(names.replace(", ", "<br>"), *rest), text) for names, *rest, text in rows)
        parts.append(table(("argument" if heading == ARGUMENTS else "option", "meaning"), cells))
    return "\n".join(parts)


def commands() -> str:
    """Return a table of all commands."""
    return table(
        ("command", "what it does"), ((f"[`headrace {name}`]({name}.md)", text) for name, text in COMMANDS.items())
    )


GENERATORS = {"usage": usage, "options": options, "commands": commands}
