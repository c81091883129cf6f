"""The `headrace` command: results on stdout, prose and progress on stderr; exit 0, 1 (ran and failed), 2 (bad usage).

A command lives in the module of its name, which is imported when the command is called for: so `headrace --help` is
quick, and a command runs without what only others need."""

import contextlib
import errno
import importlib
import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from headrace.host.cli import interrupt

COMMANDS = {  # what `headrace --help` says of each
    "bench": "Send a server requests at planned times, and tell how long it takes to answer.",
    "build": "Build an .xclbin container, list what is in one, or report the RTL's resources.",
    "check-policy": "Check that a policy keeps the rules of its contract.",
    "demo": "Photos through the DPU, batchers and a real network, live, compared.",
    "device": "The device process that XRT's own emulation starts.",
    "plan": "The cheapest GPU partition, preprocessing and policy that meet a target.",
    "policies": "List the batching policies, or explain one.",
    "preprocess": "Run files through the DPU.",
    "profile": "Measure a network's latency by batch size and find its knee.",
    "reproduce": "Run a paper's evaluation again.",
    "serve": "Serve networks to clients of the Open Inference Protocol, over HTTP and gRPC.",
    "simulate": "Simulate one run: arrivals, a policy, and a model of the hardware.",
    "smdp": "The optimal batch for every queue length.",
    "xrt-env": "What programs with the real XRT need to use a container.",
}
EXTRAS = {  # module: what it is, its extra
    "cv2": ("OpenCV", "image"),
    "simplejpeg": ("simplejpeg", "image"),
    "pyarrow": ("pyarrow", "sweeps"),
    "matplotlib": ("Matplotlib", "sweeps"),
    "torch": ("PyTorch", "torch"),
    "torchvision": ("torchvision", "torch"),
    "uvloop": ("uvloop", "server"),
    "httptools": ("httptools", "server"),
    "grpc": ("gRPC", "server"),
    "tritonclient": ("tritonclient", "server"),
    "prometheus_client": ("prometheus-client", "server"),
}


class Commands(TyperGroup):
    """The commands by name, none of them loaded before it is called for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return getattr(
            importlib.import_module(f"headrace.host.cli.{cmd_name.replace('-', '_')}"), cmd_name.replace("-", "_")
        )

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=Commands,
    help="FPGA preprocessing units, slice-aware batching and simulation for inference servers.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if not asked:
        return
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    print(f"headrace {version('headrace')}\nPython {python_version()}")
    try:
        print(f"PyTorch {version('torch')}")
    except PackageNotFoundError:
        print("no PyTorch: what needs it is refused")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Versions, and exit.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, show_default=False, help="Log on stderr what is done; twice, in detail."
        ),
    ] = 0,
) -> None:
    from headrace.host.cli.console import err, log

    log(verbose)
    if ctx.invoked_subcommand is None:
        err.print(ctx.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Entry point: turns every error into a message and an exit status."""
    _open_standard_descriptors()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where a shell has closed it
        stream.reconfigure(errors="backslashreplace")  # names of files need not be text
    try:
        with interrupt.bounded():
            status = app(prog_name="headrace", standalone_mode=False) or 0
            if sys.stdout is not None:
                sys.stdout.flush()
    except BaseException as error:
        status = _failed(error)
    if status == interrupt.STATUS:  # of a KeyboardInterrupt, which typer makes an exit status
        _say("interrupted")
        interrupt.end()
    sys.exit(status)


def _open_standard_descriptors() -> None:
    """Open those of the descriptors 0 to 2 that whoever started this has closed.

    Otherwise a socket or a file would get such a number, and what is printed would go there."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the system gives the lowest number that is free, which is this one


def _failed(error: BaseException) -> int:
    """The exit status of what went wrong, once the user has been told; faults of our own are raised again."""
    from headrace.batching import HeadraceError, UsageError

    logging.getLogger("headrace").debug("where it went wrong:", exc_info=error)
    match error:
        case KeyboardInterrupt():
            return interrupt.STATUS
        case TyperException():
            where = getattr(error, "ctx", None)
            hint = f"; see {where.command_path} --help" if where else ""
            _say(_one_line(error.format_message()).rstrip(".") + hint)
            return error.exit_code
        case UsageError():
            _say(_one_line(str(error)))
            return 2
        case HeadraceError():
            _say(str(error))
            return 1
        case ModuleNotFoundError(name=str(name)) if name in EXTRAS:
            what, extra = EXTRAS[name]
            _say(f"this needs {what}: pip install 'headrace[{extra}]'")
            return 2
        case MemoryError():
            _say("out of memory; ask for less at a time")
            return 1
        case BrokenPipeError():  # who read our output has seen enough
            _drop_output()
            return 1
        case OSError():  # a full disk, say
            _drop_output()
            reason = error.strerror or str(error)
            if error.errno in (errno.EMFILE, errno.ENFILE):
                reason += "; raise the limit of open files with `ulimit -n`"
            _say(f"{error.filename}: {reason}" if error.filename else reason)
            return 1
    raise error


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _say(text: str) -> None:
    from headrace.host.cli.console import tell

    tell(f"headrace: {text}")


def _drop_output() -> None:
    """Discard what is still buffered for stdout. Python would write it at its end, and fail again."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError):  # a stream within Python has no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
