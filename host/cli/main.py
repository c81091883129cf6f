"""The `headrace` command: prose and progress on stderr, results on stdout; exit 0, 1 (ran and failed), 2 (usage)."""

import sys

import typer

from headrace.batching import HeadraceError, UsageError
from headrace.host.cli import preprocess
from headrace.host.cli.build import build
from headrace.host.cli.console import err
from headrace.host.cli.demo import demo
from headrace.host.cli.profile import profile
from headrace.host.cli.reproduce import reproduce
from headrace.host.cli.simulate import simulate
from headrace.host.cli.smdp import smdp

app = typer.Typer(
    name="headrace",
    help="FPGA preprocessing units, slice-aware batching and simulation for inference servers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(preprocess.app, name="preprocess")
for command in (build, demo, profile, reproduce, simulate, smdp):
    app.command()(command)


def main() -> None:
    """Entry point: turns Headrace's errors into a message and an exit status."""
    try:
        app(standalone_mode=True)
    except UsageError as error:
        err.print(f"headrace: {error}", soft_wrap=True, highlight=False, markup=False)
        sys.exit(2)
    except HeadraceError as error:
        err.print(f"headrace: {error}", soft_wrap=True, highlight=False, markup=False)
        sys.exit(1)
    except SystemExit as end:
        if end.code == 130:  # typer's answer to Ctrl-C; it says nothing
            err.print("headrace: interrupted")
        raise
