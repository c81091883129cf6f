"""The Python reference: signatures and docstrings of the public names, from their sources.

The sources are read as text, because compiled modules keep neither signatures nor docstrings."""

import ast
import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import headrace
from headrace.batching.policies import BUILT_IN
from headrace.batching.request import REASONS
from headrace.batching.settings import settings_of
from reference.markdown import marked, table
from reference.settings import of_class

ROOT = Path(__file__).resolve().parents[2]
FRONT_DOOR = ROOT / "headrace" / "__init__.py"
SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Source", "Example", "Yields")
WIDTH = 100
RESULTS = ("Result", "Sweep", "Planned", "Comparison", "Server")  # classes whose objects only functions make
OPERATORS = ("ended_at", "lost", "fetch_images", "process_image")  # methods that drivers or transformers alone call


@cache
def groups() -> dict[str, dict[str, tuple[str, str]]]:
    """Return, by group, the module and the comment of each public name, as headrace/__init__.py has them."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    group = ""
    text = FRONT_DOOR.read_text("utf-8")
    for line in text[text.index("_PLACES = {") : text.index("\n}\n")].splitlines()[1:]:
        if heading := re.fullmatch(r"\s+# (.*)", line):
            group = heading[1]
        elif entry := re.fullmatch(r'\s+"(\w+)": "([\w.]+)",\s+# (.*)', line):
            found.setdefault(group, {})[entry[1]] = entry[2], entry[3]
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))


def _definition(module: str, name: str) -> ast.stmt | None:
    """Return the class, function or assignment of a name."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


# ---- signatures ----


def _parameters(arguments: ast.arguments, module: str, *, method: bool) -> list[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    words = [_parameter(each, value, module) for each, value in zip(positional, defaults, strict=True)]
    if method and words and words[0] in ("self", "cls"):
        words = words[1:]
    if arguments.vararg:
        words.append(f"*{_parameter(arguments.vararg, None, module)}")
    elif arguments.kwonlyargs:
        words.append("*")
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    words += [_parameter(each, value, module) for each, value in named]
    if arguments.kwarg:
        words.append(f"**{_parameter(arguments.kwarg, None, module)}")
    return words


def _parameter(argument: ast.arg, value: ast.expr | None, module: str) -> str:
    kind = "" if argument.annotation is None else f": {_annotation(argument.annotation)}"
    return f"{argument.arg}{kind}" + ("" if value is None else f" = {_value(value, module)}")


def _value(value: ast.expr, module: str) -> str:
    """Return a default as code. A constant of the module is shown by its value, if that is short."""
    if isinstance(value, ast.Name):
        found = getattr(import_module(f"headrace.{module}"), value.id, None)
        if isinstance(found, str | int | float | tuple):
            return repr(found)
    return ast.unparse(value).replace("float('inf')", "inf").replace("math.inf", "inf")


def _annotation(node: ast.expr) -> str:
    return ast.unparse(node).replace("'", "").replace('"', "")


def _call(name: str, words: list[str], returns: str) -> str:
    """Return a signature as code, in several lines if it is long."""
    words = [word if '"' in word else word.replace("'", '"') for word in words]
    line = f"{name}({', '.join(words)}){returns}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"
    return f"<!-- not run: a signature -->\n```python\n{line}\n```\n"


def _signature(shown: str, node: ast.FunctionDef | ast.AsyncFunctionDef, module: str, *, method: bool = False) -> str:
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {_annotation(node.returns)}"
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    return _call(f"{prefix}{shown}", _parameters(node.args, module, method=method), returns)


def _fields(node: ast.ClassDef, module: str) -> list[tuple[str, str, str]]:
    """Return the name, the type and the default of each field of a dataclass."""
    found = []
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            value = each.value
            keywords = {one.arg: one.value for one in value.keywords} if isinstance(value, ast.Call) else {}
            value = keywords.get("default", value)
            if "default_factory" in keywords:
                made = ast.unparse(keywords["default_factory"])
                default = {"dict": "{}", "list": "[]"}.get(made, f"{made}()")
            else:
                default = "" if value is None else _value(value, module)
            found.append((each.target.id, _annotation(each.annotation), default))
    return found


def _arguments(fields: list[tuple[str, str, str]]) -> list[str]:
    return [f"{name}: {kind}" + (f" = {default}" if default else "") for name, kind, default in fields]


def _settings_arguments(cls: Any, own: Mapping[str, str]) -> list[str]:
    """Return the arguments of a class of settings, those of its bases included. `own` has its own annotations."""
    known = {each.name: each for each in settings_of(cls)}
    words, by_name = [], []
    for each in dataclasses.fields(cls):
        kind = own.get(each.name) or known[each.name].kind.__name__ + " | None" * known[each.name].optional
        (by_name if each.kw_only else words).append(f"{each.name}: {kind} = {each.default!r}")
    return [*words, *(["*", *by_name] if by_name else [])]


# ---- docstrings ----


def prose(docstring: str) -> str:
    """Return a docstring as Markdown: sections become bold words, and their entries lists."""
    parts: list[str] = []
    for part in re.split(r"\n\n+(?=\S)", docstring.strip()):
        lines = part.split("\n")
        section = lines[0].removesuffix(":")
        if section in SECTIONS and lines[0].endswith(":") and len(lines) > 1:
            parts.append(f"**{section}**\n\n{_entries(lines[1:], section)}")
        elif len(lines) > 1 and re.fullmatch(r"-+", lines[1]):
            parts.append(f"**{lines[0]}**\n\n" + "\n".join(lines[2:]).strip())
        else:
            parts.append(_joined(part))
    return marked("\n\n".join(parts)) + "\n"


def _entries(lines: list[str], section: str) -> str:
    """Return the entries of a section, such as "name: What it is.", as a list."""
    entries: list[str] = []
    for line in lines:
        if not line.startswith("     ") or not entries:
            entries.append(line.strip())
        else:
            entries[-1] += f" {line.strip()}"
    if section in ("Returns", "Yields", "Source", "Example"):
        return " ".join(entries)
    return "\n".join(re.sub(r"^([\w., *]+?): ", lambda found: f"- `{found[1]}`: ", entry) for entry in entries)


def _joined(paragraph: str) -> str:
    """Return a paragraph on one line. Lists and examples of code keep their lines."""
    if re.search(r"^( {4}|- )", paragraph, re.MULTILINE):
        return paragraph
    return " ".join(paragraph.split())


# ---- entries ----


def _class(name: str, node: ast.ClassDef, module: str) -> Iterator[str]:
    decorators = [ast.unparse(each) for each in node.decorator_list]
    public = getattr(headrace, name)
    init = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    of_settings = "settings()" in decorators
    docstring = prose(ast.get_docstring(node) or "")
    if issubclass(public, enum.Enum):
        yield docstring
        yield f"Values: {', '.join(f'`{name}.{each.name}`' for each in public)}.\n"
        return
    if issubclass(public, Exception):
        yield docstring
        yield f"It is a subclass of `{public.__bases__[0].__name__}`.\n"
        return
    if name in RESULTS:
        yield docstring
        if fields := [] if name == "Server" else _fields(node, module):
            yield table(("field", "type"), ((f"`{field}`", f"`{kind}`") for field, kind, _ in fields))
    elif of_settings:
        own = {field: kind for field, kind, _ in _fields(node, module)}
        yield _call(f"headrace.{name}", _settings_arguments(public, own), "")
        yield docstring
        yield of_class(public)
    else:
        if any(each.startswith("dataclass") for each in decorators):
            yield _call(f"headrace.{name}", _arguments(_fields(node, module)), "")
        elif init is not None:
            yield _signature(f"headrace.{name}", init, module, method=True)
        yield docstring
    of_bases = [] if of_settings else _inherited(public)
    for each, place in [*((each, module) for each in node.body), *of_bases]:
        if (
            isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            and not each.name.startswith("_")
            and (each.name == "times" or not of_settings)
        ):
            yield from _method(name, each, place)


def _inherited(public: type) -> list[tuple[ast.stmt, str]]:
    """Return the statements of bases that are not public, and so have no entry of their own, with their modules."""
    found: list[tuple[ast.stmt, str]] = []
    for base in public.__mro__[1:]:
        package, _, module = base.__module__.partition(".")
        if package == "headrace" and base.__name__ not in headrace._PLACES:
            node = _definition(module, base.__name__)
            assert isinstance(node, ast.ClassDef)
            found += [(each, module) for each in node.body]
    return found


def _method(of: str, node: ast.FunctionDef | ast.AsyncFunctionDef, module: str) -> Iterator[str]:
    docstring = ast.get_docstring(node)
    decorators = [ast.unparse(each) for each in node.decorator_list]
    if docstring is None or node.name in OPERATORS:
        return
    if any(each in ("property", "cached_property") for each in decorators):
        yield f"#### `{of}.{node.name}`\n"
        yield f"A property{'' if node.returns is None else f' of type `{_annotation(node.returns)}`'}.\n"
    else:
        yield f"#### `{of}.{node.name}`\n"
        bound = "classmethod" not in decorators and "staticmethod" not in decorators
        owner = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", of).lower() if bound else of
        yield _signature(f"{owner}.{node.name}", node, module, method="staticmethod" not in decorators)
    yield prose(docstring)


def _entry(name: str, module: str, comment: str) -> Iterator[str]:
    yield f"### `headrace.{name}`\n"
    node = _definition(module, headrace._NAMES.get(name, name))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield _signature(f"headrace.{name}", node, module)
        yield prose(ast.get_docstring(node) or "")
    elif isinstance(node, ast.ClassDef):
        yield from _class(name, node, module)
    elif name == "REASONS":
        yield "The reasons for which a policy releases a task, as `Task.reason` has them.\n"
        yield reasons()
    else:
        yield f"A constant: {comment}.\n"


def names(*words: str) -> str:
    """Return a table of the public names of a group, with links to the entries."""
    seen: dict[str, int] = {}
    for each in groups().values():
        for name in each:
            seen[name] = sum(other.lower() == name.lower() for other in seen)  # as headings are numbered
    rows = []
    for name, (_, comment) in groups()[" ".join(words)].items():
        number = f"-{seen[name]}" if seen[name] else ""
        rows.append((f"[`{name}`](#headrace{name.lower()}{number})", comment))
    return table(("name", "what it is"), rows)


def reasons() -> str:
    """Return a table of the reasons of tasks, with the comments of batching/request.py."""
    text = (ROOT / "batching" / "request.py").read_text("utf-8")
    found = dict(re.findall(r'^\w+: Final = "(\w+)"  # (.*)$', text, re.MULTILINE))
    return table(("reason", "why the task left"), ((f"`{name}`", found[name]) for name in REASONS))


def api(*words: str) -> str:
    """Return the entries of a group: for each name its signature, its docstring, and its methods."""
    group = groups()[" ".join(words)]
    return "\n".join(part for name, (module, comment) in group.items() for part in _entry(name, module, comment))


def policy_classes() -> str:
    """Return a table of the classes in `headrace.policies`."""
    rows = []
    for name in BUILT_IN:
        cls = BUILT_IN[name].partition(":")[2]
        own = ", ".join(f"`{each.name}`" for each in settings_of(getattr(headrace.policies, cls)))
        rows.append((f"`{cls}`", f"[`{name}`](policies/{name}.md)", own or "none"))
    return table(("class", "policy", "settings"), rows)


GENERATORS = {"names": names, "api": api, "reasons": reasons, "policy-classes": policy_classes}
