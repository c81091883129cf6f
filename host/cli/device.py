"""The command `headrace device`, which XRT's own emulation starts as its device process."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from headrace.batching import UsageError
from headrace.host.cli.options import command


@command
def device(
    unpacked: Annotated[
        Path | None, typer.Argument(help="With hw_emu, the folder with the unpacked BITSTREAM of the container.")
    ] = None,
    run_limit_s: Annotated[float, typer.Option(min=0.001, help="Longest time of a run (s). A longer one is ended.")] = (
        120.0
    ),
    log: Annotated[Path | None, typer.Option(help="File for the log of failures [standard error].")] = None,
    debug: Annotated[bool, typer.Option("-debug", hidden=True)] = False,
    ppid: Annotated[int | None, typer.Option("-ppid", hidden=True)] = None,
    port: Annotated[int | None, typer.Option("-port", hidden=True)] = None,
) -> None:
    """Run as the device process of XRT's sw_emu and hw_emu.

    XRT starts this command itself. `headrace xrt-env` prepares a folder for that."""
    from headrace.host.xrt.shim.process import DeviceError, main

    logging.basicConfig(filename=log, format="headrace device: %(message)s", force=True)
    try:
        main(run_limit_s, unpacked)
    except DeviceError as error:
        raise UsageError(str(error)) from error
