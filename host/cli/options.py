"""The options that several commands share, their help in groups, and checks of values before any work begins."""

import contextlib
import errno
import inspect
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.models import ParameterInfo

from headrace.batching import UsageError
from headrace.batching.settings import FORMER, option
from headrace.sim.text_files import read_toml

# Keys of a context's `meta`.
SETTINGS_TABLES = "headrace.tables"  # the list of tables of a settings file
HELP_ALL = "headrace.help_all"  # whether the help shows all options
GIVEN = "headrace.given"  # settings of the command line or of a file, by name
FILE_SETTINGS = "headrace.settings"  # settings of models and policies in a file, by name
MAX_TOKEN = 4096  # bytes of a token file
ARGUMENTS, OTHERS = "Arguments", "Options"  # headings of parameters that have none
VALUE_NAMES = {"int": "INTEGER", "float": "FLOAT", "str": "TEXT", "path": "PATH"}  # in the help, by Typer's names
FORMER_OPTION = re.compile(rf", ({'|'.join(map(option, FORMER))})(?![\w-])")  # which the help does not show
OWN_DEFAULT = re.compile(r"\[(?=[^][,][^][]*\]\.)")  # of a default that a help text states: "Number of workers [4]."


def _print_help_all(ctx: typer.Context, asked: bool) -> None:
    if asked:
        ctx.meta[HELP_ALL] = True
        print(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", is_eager=True, callback=_print_help_all, help="Show all options, and exit."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the results on stdout as JSON.")]

# For the commands that sweep: `reproduce`, `plan` and `simulate --grid`.
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Simulate on a Ray cluster: local (a cluster for this command alone), auto, or HOST:PORT of its head.",
        metavar="ADDRESS",
    ),
]

# For `serve` if it starts a fleet.
FLEET = "Fleet on a Ray cluster"
ServeRay = Annotated[
    str | None,
    typer.Option(
        "--ray",
        rich_help_panel=FLEET,
        help="Serve by replicas on the nodes of this Ray cluster: local, auto, or HOST:PORT of its head.",
        metavar="ADDRESS",
    ),
]
Replicas = Annotated[int | None, typer.Option(min=1, max=1000, rich_help_panel=FLEET, help="Number of replicas [1].")]
ReplicaResources = Annotated[
    str | None,
    typer.Option(
        "--resources",
        rich_help_panel=FLEET,
        help="Resources of its node that each replica takes, as Ray counts them: GPU=1, or mig-1g.5gb=1,fpga=1 "
        "[CPU=1].",
    ),
]
AgainKib = Annotated[
    int | None,
    typer.Option(
        min=16,
        max=1 << 17,
        rich_help_panel=FLEET,
        help="Largest request (KiB) that is kept until it is answered. It is sent again if its replica is lost [1024].",
    ),
]
Update = Annotated[
    bool,
    typer.Option(
        "--update",
        rich_help_panel=FLEET,
        help="Restart the replicas of the fleet with this --http, one after another. They get the other options given "
        "here, or keep theirs if none is given.",
    ),
]

# For the commands that serve live: `demo` and `serve`.
ProfileFiles = Annotated[
    list[Path] | None,
    typer.Option("--profile", help="A profile from `headrace profile`, once for each model [measured at the start]."),
]
ImageCus = Annotated[int, typer.Option(min=1, max=16, help="Number of image CUs, from JPEG files to tensors.")]
MelCus = Annotated[int, typer.Option(min=1, max=16, help="Number of audio CUs A, from WAV files to log-mel bands.")]
NormCus = Annotated[int, typer.Option(min=1, max=16, help="Number of audio CUs B, from log-mel bands to tensors.")]


class DamagedName(StrEnum):
    STRICT = "strict"
    LENIENT = "lenient"


class ResamplerName(StrEnum):
    FIR = "fir"
    SOXR = "soxr"


class NormalizeOver(StrEnum):
    NEMO = "nemo"
    ALL = "all"


class GrpcFrontName(StrEnum):
    """Values of `GrpcFront`, named here so that the command line imports no gRPC."""

    AUTO = "auto"
    NATIVE = "native"
    AIO = "aio"


class LaunchName(StrEnum):
    SINGLE = "single"
    QUEUE = "queue"


class XrtName(StrEnum):
    EMULATION = "emulation"
    REAL = "real"


XrtOption = Annotated[
    XrtName | None,
    typer.Option(
        "--xrt",
        help="The XRT that runs emulation containers: the emulation in this process, or, after `headrace xrt-env`, "
        "the real XRT [emulation].",
        show_default=False,
    ),
]
# For the commands whose CPU path decodes images: `preprocess image` and `serve`.
MaxMegapixels = Annotated[
    int,
    typer.Option(
        min=1,
        max=1000,
        help="Largest image (megapixels) that the CPU decodes. Its header is read before it is decoded.",
    ),
]
LaunchOption = Annotated[
    LaunchName,
    typer.Option("--launch", help="Start an image CU for each image (single), or once for a queue of images (queue)."),
]
OnDamaged = Annotated[
    DamagedName,
    typer.Option(help="Refuse damaged images (strict), or fill in the missing pixels and mark the result (lenient)."),
]

# For the commands whose CPU path takes audio: `preprocess audio` and `serve`.
ResamplerOption = Annotated[
    ResamplerName | None,
    typer.Option(
        "--resampler",
        help="The CPU's resampler. fir is the DPU's filter and gives the same samples; soxr differs above 0.9 of the "
        "band [fir, or the model's own].",
        show_default=False,
    ),
]

Orient = Annotated[bool, typer.Option("--orient", help="Turn images as their Exif orientation says.")]


class Command(TyperCommand):
    """A command whose help lists the options by group, in plain text, and whose numbers must be finite.

    The group of an option is its `rich_help_panel`. An option that has `advanced` set is shown by --help-all alone."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        params = self.get_params(ctx)
        shown = [param for param in params if ctx.meta.get(HELP_ALL) or not getattr(param, "advanced", False)]
        for param in shown:
            usual = ARGUMENTS if param.param_type_name == "argument" else OTHERS
            if (record := param.get_help_record(ctx)) is not None:
                names, text = FORMER_OPTION.sub("", record[0]), record[1]
                row = (re.sub(r"<([^<>]*)>(\.\.\.)?", _value_name, names), OWN_DEFAULT.sub("[default: ", text))
                groups.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append(row)
        if OTHERS in groups:  # options without a heading come last
            groups[OTHERS] = groups.pop(OTHERS)
        if ARGUMENTS in groups:
            groups = {ARGUMENTS: groups[ARGUMENTS], **groups}
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)
        if len(shown) < len(params):
            formatter.write_paragraph()
            formatter.write_text(f"--help-all shows {len(params) - len(shown)} more options.")

    def invoke(self, ctx: Any) -> Any:
        for param in self.params:
            check_finite(param.opts[0], ctx.params.get(param.name))
        return super().invoke(ctx)


def _value_name(found: re.Match[str]) -> str:
    """Return the name of an option's value in the help: "INTEGER" for "<int range>", for instance."""
    kinds = found[1].removeprefix("list[").removesuffix("]").split(",")
    return " ".join(VALUE_NAMES.get(kind.removesuffix(" range").lower(), f"<{kind}>") for kind in kinds)


def command(function: Callable[..., None]) -> TyperCommand:
    """Return the command that a function is, with the function's name.

    Typer's own check of file permissions is left out, because the checks below say what to change."""
    for parameter in inspect.signature(function).parameters.values():
        for about in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(about, ParameterInfo):
                about.readable = False
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=Command)(function)
    return typer.main.get_command(app)


def check_finite(option: str, value: Any) -> None:
    """Raise UsageError if a number is nan or infinite. Ranges of options do not refuse these."""
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, float) and not math.isfinite(each):
            raise UsageError(f"{option} {each}: give a finite number")


def why_unreadable(path: Path) -> str | None:
    """Return the reason why a file cannot be read, or None if it can.

    A file that is not regular, such as a pipe, cannot: reading it might never end."""
    try:
        if (reason := _irregular(path.stat().st_mode)) is None:
            path.open("rb").close()
        return reason
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name, from a settings file
        return getattr(error, "strerror", None) or str(error)


def _irregular(mode: int) -> str | None:
    return None if stat.S_ISREG(mode) else os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "Not a regular file"


def check_readable(option: str, path: Path) -> None:
    """Raise UsageError unless `path` is a file that can be read."""
    if (reason := why_unreadable(path)) is not None:
        raise UsageError(f"{option} {path}: {reason}; name a file that can be read")


def check_writable(option: str, path: Path) -> None:
    """Raise UsageError unless the file can be written.

    The check opens the file, because permissions do not tell everything, and leaves no new file."""
    try:
        present = path.exists()
        reason = _irregular(path.stat().st_mode) if present else None
        if reason is None:
            path.open("ab").close()
            if not present:
                path.unlink()
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise UsageError(f"{option} {path}: {reason}; name a file that can be written, in a folder that exists")


def creatable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Check an option that names a file to write, and make the file's folder if it is missing. This is a callback."""
    if path is not None:
        with contextlib.suppress(OSError):  # the check below says why the file cannot be written
            path.parent.mkdir(parents=True, exist_ok=True)
        check_writable(param.opts[0], path)
    return path


def make_folder(option: str, path: Path) -> None:
    """Make a folder if it is missing. Raises UsageError unless files can then be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        reason = os.strerror(errno.ENOTDIR) if isinstance(error, FileExistsError) else error.strerror
        raise UsageError(f"{option} {path}: {reason}; name a folder that can be written") from error


def readable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Check an option that names a file to read. This is a callback."""
    if path is not None:
        check_readable(param.opts[0], path)
    return path


def on_command_line(ctx: typer.Context, name: str) -> bool:
    """Tell whether an option is given on the command line, and not by a settings file or by its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def as_arguments(ctx: typer.Context, without: Collection[str]) -> list[str]:
    """Return the options of the command line, except those in `without`, for another process with this command."""
    found = []
    for param in ctx.command.params:
        name = str(param.name)
        if name in without or not on_command_line(ctx, name):
            continue
        value = ctx.params[name] if name in ctx.params else ctx.meta[GIVEN][name]
        if getattr(param, "is_flag", False):
            found.append((param.opts if value else param.secondary_opts)[0])
        else:
            found += [f"{param.opts[0]}={each}" for each in (value if isinstance(value, list | tuple) else [value])]
    return found


def defaults_of_file(
    ctx: typer.Context,
    param: typer.CallbackParam,
    path: Path | None,
    tables: str | None = None,
    without: Collection[str] = (),
) -> Path | None:
    """Read the TOML file that an option names as defaults of the other options. This is an eager callback.

    A key is an option's name without its dashes. A value is the text, number or truth value of the option, or a list
    if the option may be given several times. The command line takes precedence over the file. A table [policy] may
    have settings of policies, and its key `name` names the policy. The context's `meta` then has the settings of
    models and policies as FILE_SETTINGS.

    Args:
        tables: The key of a list of tables, which the context's `meta` then has as SETTINGS_TABLES.
        without: The options that only the command line may give.

    Raises UsageError."""
    if path is None:
        return None
    where = f"{param.opts[0]} {path}"
    check_readable(param.opts[0], path)
    settings = read_toml(where, path)
    known = {
        name.removeprefix("--"): option
        for option in ctx.command.params
        if option.name not in ("help", "help_all", param.name, *without)
        for name in option.opts
    }
    ctx.default_map = {}
    of_classes = ctx.meta.setdefault(FILE_SETTINGS, {})  # settings that options derive from
    if tables in settings:
        found = settings.pop(tables)
        if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
            raise UsageError(f"{where}: {tables} is {found!r}; give tables, each under [[{tables}]]")
        ctx.meta[SETTINGS_TABLES] = found
    if isinstance(of_policy := settings.get("policy"), dict):
        del settings["policy"]
        for key, value in of_policy.items():
            name = "policy" if key == "name" else key.replace("_", "-")
            if name in {each.replace("_", "-") for each in settings}:
                raise UsageError(f"{where}: {name} is given twice, once of them in [policy]; give it once")
            if name in known:
                settings[name] = value
            else:
                of_classes[name.replace("-", "_")] = value
    for key, value in settings.items():
        option = known.get(key) or known.get(key.replace("_", "-"))
        if option is None:
            raise UsageError(f"{where}: there is no setting {key!r}; known are {', '.join(sorted(known))}")
        if option.expose_value:
            ctx.default_map[option.name] = _as_given(f"{where}: {key}", option, value)
        else:
            of_classes[option.name] = value
    return path


def _as_given(what: str, option: Any, value: Any) -> Any:
    """Return a value of a settings file in the form that the command line gives it. Raises UsageError."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{what} is {value!r}; give true or false")
        return value
    values = value if option.multiple and isinstance(value, list) else [value]
    if not all(type(each) in (str, int, float) for each in values):
        kind = "a text or a number, or a list of these" if option.multiple else "a text or a number"
        raise UsageError(f"{what} is {value!r}; give {kind}")
    texts = [str(each) for each in values]
    return texts if option.multiple else texts[0]


def readable_folder(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Check an option that names a folder to read from. This is a callback."""
    if path is not None:
        try:
            os.scandir(path).close()
        except OSError as error:
            raise UsageError(f"{param.opts[0]} {path}: {error.strerror}; name a folder that can be read") from error
    return path


def writable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Check an option that names a file to write. This is a callback."""
    if path is not None:
        check_writable(param.opts[0], path)
    return path


TokenFile = Annotated[
    Path | None,
    typer.Option(callback=readable, help="File with a token that clients must send as Authorization: Bearer TOKEN."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Serve other machines without a token.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        help="A host name by which browsers and proxies may reach a server without a token, or * for any. "
        "Addresses and localhost are always allowed."
    ),
]


def bearer_token(option: str, path: Path | None) -> str | None:
    """Return the token in a file, or None if no file is given. Raises UsageError."""
    if path is None:
        return None
    with path.open("rb") as file:
        raw = file.read(MAX_TOKEN + 1).strip()
    if not raw or len(raw) > MAX_TOKEN or not raw.isascii() or not raw.decode().isprintable() or b" " in raw:
        raise UsageError(f"{option} {path}: write one line of 1 to {MAX_TOKEN} printable characters into it")
    return raw.decode()
