"""The command `headrace xrt-env`, which writes the environment for programs that use the real XRT."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.batching import UsageError
from headrace.host.cli.build import read_container
from headrace.host.cli.console import out, tell
from headrace.host.cli.options import check_readable, command


@command
def xrt_env(
    container: Annotated[Path, typer.Argument(help="An .xclbin for sw_emu or hw_emu.")],
    folder: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
) -> None:
    """Write a folder with a setup.sh. After it is sourced, programs that use XRT find the emulated card."""
    from headrace.host.xrt.shim.environment import EMULATED, XrtMissing, write_environment

    check_readable("FILE", container)
    content = read_container("FILE", container)
    if content.mode not in EMULATED:
        raise UsageError(
            f"FILE {container} is for a card (mode {content.mode.name}); give a container for sw_emu or hw_emu"
        )
    try:
        setup = write_environment(content, folder)
    except (XrtMissing, OSError) as error:
        raise UsageError(f"-o {folder}: {error}") from error
    tell(f"wrote {folder}; run `. {setup}`, then start the program")
    out.print(str(setup), soft_wrap=True)
