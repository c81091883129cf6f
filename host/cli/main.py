"""The `headrace` command and its exit status: 0, 1 (ran and failed) or 2 (bad usage).

Results go to stdout; prose and progress go to stderr. Each command has a module of its name. The module is imported
when the command is used. So `headrace --help` is quick, and a command runs without packages that only others need."""

import contextlib
import errno
import gc
import importlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from headrace.host.cli import interrupt

COMMANDS = {  # the line of each command in `headrace --help`
    "bench": "Send requests to a server at planned times, and measure its latency.",
    "build": "Build an .xclbin container, list what is in one, or report the resources of the RTL.",
    "check-policy": "Check that a policy keeps the rules of its contract.",
    "compare": "Say where the tensors of a front end differ from those of transformers.",
    "demo": "Run images or audio through the DPU, batching policies and a network, and compare them.",
    "device": "Run as the device process of XRT's emulation. XRT starts this command itself.",
    "plan": "Find the cheapest GPU partition, preprocessing and policy that meet a target latency.",
    "policies": "List the batching policies, or explain one.",
    "preprocess": "Turn image or audio files into tensors on the DPU.",
    "profile": "Measure a network's latency by batch size, and find the knee of its throughput.",
    "render": "Make tokens and features of images in front of vLLM, with the protocol of OpenAI.",
    "reproduce": "Repeat the evaluation of a paper, or a study of this project.",
    "serve": "Serve networks over HTTP and gRPC, with the Open Inference Protocol.",
    "simulate": "Simulate a run: arrivals, a policy, and a model of the hardware.",
    "smdp": "Compute the optimal batch size for every queue length.",
    "xrt-env": "Write the environment in which programs with the real XRT use a container.",
}
EXTRAS = {  # the library's name and the extra that installs it, by module
    "cv2": ("OpenCV", "image"),
    "simplejpeg": ("simplejpeg", "image"),
    "PIL": ("Pillow", "image"),
    "pyarrow": ("pyarrow", "sweeps"),
    "matplotlib": ("Matplotlib", "sweeps"),
    "librosa": ("librosa", "libraries"),
    "resampy": ("resampy", "libraries"),
    "torch": ("PyTorch", "torch"),
    "torchvision": ("torchvision", "torch"),
    "transformers": ("transformers", "compare"),
    "aiohttp": ("aiohttp", "render"),
    "msgpack": ("msgpack", "render"),
    "uvloop": ("uvloop", "server"),
    "httptools": ("httptools", "server"),
    "grpc": ("gRPC", "server"),
    "tritonclient": ("tritonclient", "server"),
    "prometheus_client": ("prometheus-client", "server"),
}


class Commands(TyperGroup):
    """The commands by name. A command's module is imported when the command is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        for param in found:
            if "process_value" not in vars(param):
                param.process_value = _unchecked_if_no_text(param)
        return found

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        collects = gc.isenabled()
        gc.disable()  # an import makes many objects and hardly any garbage
        try:
            return getattr(importlib.import_module(f"headrace.host.cli.{name}"), name)
        finally:
            if collects:
                gc.enable()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _unchecked_if_no_text(param: Any) -> Callable[[Any, Any], Any]:
    """Return a `process_value` for an option that leaves out Typer's check where no text was given.

    A flag, a count and an absent value need no check. Typer would import pydantic for it, which takes a tenth of the
    time of `--help`."""
    checked = param.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        if value is None or isinstance(value, int):
            return value if param.callback is None else param.callback(ctx, param, value)
        return checked(ctx, value)

    return process_value


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
        print("PyTorch is not installed; commands that need it refuse to run")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show versions, and exit.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Log actions on stderr. Give it twice for details.",
        ),
    ] = 0,
) -> None:
    from headrace.host.cli.console import err, log

    log(verbose)
    if ctx.invoked_subcommand is None:
        err.print(ctx.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Run the command line, and turn every error into a message and an exit status. This is the entry point."""
    _open_standard_descriptors()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # a stream is None if the shell has closed it
        stream.reconfigure(errors="backslashreplace")  # names of files need not be text
    try:
        with interrupt.bounded():
            status = app(prog_name="headrace", standalone_mode=False) or 0
            if sys.stdout is not None:
                sys.stdout.flush()
    except BaseException as error:
        status = _failed(error)
    if status == interrupt.STATUS:  # typer turns a KeyboardInterrupt into this status
        _say("interrupted")
        interrupt.end()
    sys.exit(status)


def _open_standard_descriptors() -> None:
    """Open the descriptors 0 to 2, if the parent process has closed them.

    Otherwise a socket or a file would get such a number, and prints would go there."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the system gives the lowest free number, which is this one


def _failed(error: BaseException) -> int:
    """Tell the user what went wrong, and return the exit status. An unexpected error is raised again."""
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
        case BrokenPipeError():  # the reader of our output has closed it
            _drop_output()
            return 1
        case OSError():  # such as a full disk
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
    """Discard the buffered output for stdout. Python would write it at its end, and fail again."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError):  # a stream inside Python has no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
