"""This module has what the options of all commands share: help in groups, and checks of values before any work."""

import contextlib
import errno
import math
import os
import stat
import tempfile
from collections.abc import Callable, Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from headrace.batching import UsageError
from headrace.sim.text_files import read_toml

SETTINGS_TABLES = "headrace.tables"
HELP_ALL = "headrace.help_all"
GIVEN = "headrace.given"  # settings of the command line or of a file, by name
POLICY_TABLE = "headrace.policy"  # settings in the table [policy] of a file that are no options
MAX_TOKEN = 4096  # bytes of its file


def _print_help_all(ctx: typer.Context, asked: bool) -> None:
    if asked:
        ctx.meta[HELP_ALL] = True
        print(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", is_eager=True, callback=_print_help_all, help="Show all options, and exit."),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]

# Of what sweeps: `reproduce`, `plan` and `simulate --grid`.
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Simulate on a Ray cluster: local (started for this alone), auto, or HOST:PORT of its head.",
        metavar="ADDRESS",
    ),
]

# Of `serve`, where it starts a fleet.
FLEET = "Fleet, on a Ray cluster"
ServeRay = Annotated[
    str | None,
    typer.Option(
        "--ray",
        rich_help_panel=FLEET,
        help="Serve by replicas on the nodes of this Ray cluster: local, auto, or HOST:PORT of its head.",
        metavar="ADDRESS",
    ),
]
Replicas = Annotated[int | None, typer.Option(min=1, max=1000, rich_help_panel=FLEET, help="How many [1].")]
ReplicaResources = Annotated[
    str | None,
    typer.Option(
        "--resources",
        rich_help_panel=FLEET,
        help="What each takes of its node, as Ray counts it: GPU=1, or mig-1g.5gb=1,fpga=1 [CPU=1].",
    ),
]
AgainKib = Annotated[
    int | None,
    typer.Option(
        min=16,
        max=1 << 17,
        rich_help_panel=FLEET,
        help="Requests up to this are kept until they are answered, to be sent again where a replica is lost [1024].",
    ),
]
Update = Annotated[
    bool,
    typer.Option(
        "--update",
        rich_help_panel=FLEET,
        help="Tell the fleet with this --http to start its replicas anew, one after the other; with other options "
        "than it has, by those.",
    ),
]

# Of what serves live: `demo` and `serve`.
Workers = Annotated[
    str | None,
    typer.Option(help="A number of workers (one per MIG device or core by default), or npu:N simulated NPUs."),
]
Whole = Annotated[
    bool, typer.Option("--whole", help="Under policies that schedule nodes, keep the networks in one piece.")
]
WindowMs = Annotated[float, typer.Option(min=0, help="Window of the graph policy.")]
MaxBatch = Annotated[int, typer.Option(min=1, max=1024, help="Largest batch to profile, and of graph and others.")]
ProfileFiles = Annotated[
    list[Path] | None, typer.Option("--profile", help="From `headrace profile`, once a model; measured without.")
]
AllowNonfinite = Annotated[
    bool, typer.Option("--allow-nonfinite-weights", help="Take weights that are NaN or infinite.")
]
ReadMemory = Annotated[
    int,
    typer.Option(
        "--read-memory-mib",
        min=64,
        max=1 << 24,
        help="Memory that reading a .pt2 or weights may take, beside 4 times the file's size.",
    ),
]
ImageCus = Annotated[int, typer.Option(min=1, max=16)]
MelCus = Annotated[int, typer.Option(min=1, max=16, help="Of audio CU A: WAV files to log-mel bands.")]
NormCus = Annotated[int, typer.Option(min=1, max=16, help="Of audio CU B: log-mel bands to tensors.")]


class DamagedName(StrEnum):
    STRICT = "strict"
    LENIENT = "lenient"


class ResamplerName(StrEnum):
    FIR = "fir"
    SOXR = "soxr"


class NormalizeOver(StrEnum):
    NEMO = "nemo"
    ALL = "all"


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
        help="Emulation containers on the device of this process or, after `headrace xrt-env`, through the real XRT.",
        show_default=False,
    ),
]
# Of what the CPU makes of photos: `preprocess image` and `serve`.
MaxMegapixels = Annotated[
    int, typer.Option(min=1, max=1000, help="Of a photo that the CPU decodes; looked up in its header before.")
]
LaunchOption = Annotated[
    LaunchName,
    typer.Option("--launch", help="Start an image unit for each photo, or once for as many as come."),
]
OnDamaged = Annotated[
    DamagedName,
    typer.Option(help="A damaged photo is an error, or, lenient, taken with pixels that are made up, and marked."),
]

# Of what the CPU makes of sounds: `preprocess audio` and `serve`.
ResamplerOption = Annotated[
    ResamplerName | None,
    typer.Option(
        "--resampler",
        help="What the CPU resamples sounds with: fir, the DPU's own filter, gives what the DPU gives; soxr differs "
        "above 0.9 of the band [fir, or as the model says].",
        show_default=False,
    ),
]

Orient = Annotated[bool, typer.Option("--orient", help="Turn photos as their Exif orientation says.")]


class Command(TyperCommand):
    """Its help lists options under their `rich_help_panel`, in plain text; numbers must be finite."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        params = self.get_params(ctx)
        shown = [param for param in params if ctx.meta.get(HELP_ALL) or not getattr(param, "advanced", False)]
        for param in shown:
            usual = "Arguments" if param.param_type_name == "argument" else "Options"
            if (record := param.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)
        if len(shown) < len(params):
            formatter.write_paragraph()
            formatter.write_text(f"{len(params) - len(shown)} more options are shown by --help-all.")

    def invoke(self, ctx: Any) -> Any:
        for param in self.params:
            check_finite(param.opts[0], ctx.params.get(param.name))
        return super().invoke(ctx)


def command(function: Callable[..., None]) -> TyperCommand:
    """Makes a function the command of its name."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=Command)(function)
    return typer.main.get_command(app)


def check_finite(option: str, value: Any) -> None:
    """Raises UsageError for nan and inf, which no range of numbers keeps out."""
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, float) and not math.isfinite(each):
            raise UsageError(f"{option} {each}: give a finite number")


def why_unreadable(path: Path) -> str | None:
    """Return the reason why a file cannot be read, or None. A file that is not regular, such as a pipe, is refused,
    because reading it might never end."""
    try:
        if (reason := _irregular(path.stat().st_mode)) is None:
            path.open("rb").close()
        return reason
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name, from a settings file
        return getattr(error, "strerror", None) or str(error)


def _irregular(mode: int) -> str | None:
    return None if stat.S_ISREG(mode) else os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "Not a regular file"


def check_readable(option: str, path: Path) -> None:
    """Raises UsageError unless this is a file that can be read."""
    if (reason := why_unreadable(path)) is not None:
        raise UsageError(f"{option} {path}: {reason}; name a file that can be read")


def check_writable(option: str, path: Path) -> None:
    """Raises UsageError unless this file can be written: by opening it, for permissions do not tell all. Nothing is
    left behind."""
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
    """Callback of an option that names a file to write, in a folder that is made if there is none."""
    if path is not None:
        with contextlib.suppress(OSError):  # the check tells of the file why it cannot be
            path.parent.mkdir(parents=True, exist_ok=True)
        check_writable(param.opts[0], path)
    return path


def make_folder(option: str, path: Path) -> None:
    """Raises UsageError unless this is, or can be made, a folder that files can be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        reason = os.strerror(errno.ENOTDIR) if isinstance(error, FileExistsError) else error.strerror
        raise UsageError(f"{option} {path}: {reason}; name a folder that can be written") from error


def readable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Callback of an option that names a file to read."""
    if path is not None:
        check_readable(param.opts[0], path)
    return path


def on_command_line(ctx: typer.Context, name: str) -> bool:
    """Whether an option stands there, and not in a file of settings or nowhere."""
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
    """Callback, to be eager, of an option that names a TOML file with settings for the others: a key is an option's
    name without its dashes, its value what the command line would have, or a list where an option may come several
    times. The command line goes before the file, and alone has those named in `without`. Under the name `tables` the
    file may have a list of tables, which the context's `meta` then has as SETTINGS_TABLES. Raises UsageError."""
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
    if tables in settings:
        found = settings.pop(tables)
        if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
            raise UsageError(f"{where}: {tables} is {found!r}; give tables, each under [[{tables}]]")
        ctx.meta[SETTINGS_TABLES] = found
    if isinstance(of_policy := settings.get("policy"), dict):
        del settings["policy"]
        for key, value in of_policy.items():
            name = "policy" if key == "name" else key.replace("_", "-")
            if name in known:
                settings[name] = value
            else:
                ctx.meta.setdefault(POLICY_TABLE, {})[key.replace("-", "_")] = value
    for key, value in settings.items():
        option = known.get(key) or known.get(key.replace("_", "-"))
        if option is None:
            raise UsageError(f"{where}: there is no setting {key!r}; known are {', '.join(sorted(known))}")
        ctx.default_map[option.name] = _as_given(f"{where}: {key}", option, value)
    return path


def _as_given(what: str, option: Any, value: Any) -> Any:
    """A setting as the command line would give it."""
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
    """Callback of an option that names a folder to read from."""
    if path is not None:
        try:
            os.scandir(path).close()
        except OSError as error:
            raise UsageError(f"{param.opts[0]} {path}: {error.strerror}; name a folder that can be read") from error
    return path


def writable(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Callback of an option that names a file to write."""
    if path is not None:
        check_writable(param.opts[0], path)
    return path


def bearer_token(option: str, path: Path | None) -> str | None:
    """The token in a file; None without one. Raises UsageError."""
    if path is None:
        return None
    with path.open("rb") as file:
        raw = file.read(MAX_TOKEN + 1).strip()
    if not raw or len(raw) > MAX_TOKEN or not raw.isascii() or not raw.decode().isprintable() or b" " in raw:
        raise UsageError(f"{option} {path}: write one line of 1 to {MAX_TOKEN} printable characters into it")
    return raw.decode()
