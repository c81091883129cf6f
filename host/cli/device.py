"""`headrace device`: the process that XRT's emulation starts as its device."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from headrace.batching import UsageError
from headrace.host.cli.options import command


@command
def device(
    unpacked: Annotated[
        Path | None, typer.Argument(help="hw_emu: the folder that the shim unpacked the container's BITSTREAM into.")
    ] = None,
    run_limit_s: Annotated[float, typer.Option(min=0.001, help="A run that takes longer is ended.")] = 120.0,
    log: Annotated[Path | None, typer.Option(help="Where failures are told; standard error without.")] = None,
    debug: Annotated[bool, typer.Option("-debug", hidden=True)] = False,
    ppid: Annotated[int | None, typer.Option("-ppid", hidden=True)] = None,
    port: Annotated[int | None, typer.Option("-port", hidden=True)] = None,
) -> None:
    """Be the device behind XRT's sw_emu and hw_emu, which start this command themselves: see `headrace xrt-env`."""
    from headrace.host.xrt.shim.process import DeviceError, main

    logging.basicConfig(filename=log, format="headrace device: %(message)s", force=True)
    try:
        main(run_limit_s, unpacked)
    except DeviceError as error:
        raise UsageError(str(error)) from error
