"""The command `headrace build`: build a container, list what is in one, or report on the RTL units."""

import re
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from headrace.batching import UsageError
from headrace.bitstreams.cache import build as build_cached
from headrace.bitstreams.cache import build_container
from headrace.bitstreams.cache_folder import cache_folder
from headrace.bitstreams.configurations import FULL, package_of
from headrace.bitstreams.kernel import read_checked
from headrace.bitstreams.platforms import DEFAULT, Platform, platform
from headrace.bitstreams.xclbin import Xclbin, XclbinError
from headrace.host.cli.console import out, show, show_json, tell, working
from headrace.host.cli.options import Json, check_readable, check_writable, command

if TYPE_CHECKING:
    from headrace.bitstreams.hw.folder import Design


class Target(StrEnum):
    """The emulation targets of containers."""

    SW_EMU = "sw_emu"
    HW_EMU = "hw_emu"


class BuildTarget(StrEnum):
    """The targets of `headrace build`: those of containers, and a folder that Vitis builds for a card."""

    SW_EMU = "sw_emu"
    HW_EMU = "hw_emu"
    HW = "hw"


class KernelSource(StrEnum):
    """The sources that a card's kernels can be built from."""

    RTL = "rtl"
    HLS = "hls"


class RouteTarget(StrEnum):
    """The devices that `--route` places and routes for."""

    ECP5 = "ecp5"


TARGET_HELP = "sw_emu runs the units' C++, compiled by g++. hw_emu runs their RTL by Verilator, clock by clock."
TargetOption = Annotated[Target, typer.Option(help=f"How the DPU is emulated. {TARGET_HELP}")]


def cached_xclbin(target: Target, image_cus: int = 0, mel_cus: int = 0, norm_cus: int = 0) -> Path:
    """Return the container for these options, from the cache or newly built. Progress is shown.

    A kind of CU is left out if its number is 0."""
    with _building(target, image_cus, mel_cus, norm_cus):
        return build_cached(target=target.value, image_cus=image_cus, mel_cus=mel_cus, norm_cus=norm_cus)


def _building(target: Target, image_cus: int, mel_cus: int, norm_cus: int) -> AbstractContextManager[Any]:
    tool = "g++" if target is Target.SW_EMU else "Verilator and g++"
    counts = {"image": image_cus, "mel": mel_cus, "norm": norm_cus}
    units = " and ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return working(f"building {target.value} with {units} CUs ({tool}); this takes about a minute the first time")


def read_container(option: str, path: Path) -> Xclbin:
    """Return the container in a file. Raises UsageError, which names the option, if the file is damaged or is none."""
    try:
        return read_checked(path)
    except XclbinError as error:
        raise UsageError(f"{option} {error}; `headrace build -o FILE` writes one") from error


@command
def build(
    target: Annotated[
        BuildTarget,
        typer.Option(help=f"What to build. {TARGET_HELP} hw writes a folder from which Vitis builds for a card."),
    ] = BuildTarget.SW_EMU,
    image_cus: Annotated[int, typer.Option(min=0, max=16, help="Number of image CUs, from JPEG files to tensors.")] = 4,
    mel_cus: Annotated[
        int, typer.Option(min=0, max=16, help="Number of audio CUs A, from WAV files to log-mel bands.")
    ] = 1,
    norm_cus: Annotated[
        int, typer.Option(min=0, max=16, help="Number of audio CUs B, from log-mel bands to tensors.")
    ] = 1,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The .xclbin file to write, or the folder with --target hw.")
    ] = None,
    card: Annotated[str, typer.Option("--platform", help="The card: u50, u55c, u250 or u280.")] = DEFAULT,
    configuration: Annotated[
        str,
        typer.Option(help="What the image units take: full, or small (baseline files up to 2048 pixels wide)."),
    ] = FULL,
    kernel: Annotated[
        KernelSource | None,
        typer.Option(help="Source of the kernels with --target hw: SystemVerilog (rtl) or C++ (hls) [rtl]."),
    ] = None,
    slr: Annotated[
        list[str] | None,
        typer.Option(help="Die of a CU with --target hw, as in image_cu_1:2. Give it once for each CU."),
    ] = None,
    clock_mhz: Annotated[
        float | None, typer.Option(min=50, max=500, help="Clock (MHz) to ask Vitis for with --target hw [250].")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Also build the folder of --target hw. This needs v++ and vivado.")
    ] = False,
    info: Annotated[Path | None, typer.Option(help="List what is in this .xclbin instead of building one.")] = None,
    report: Annotated[
        bool,
        typer.Option("--report", help="Report resources and logic depth of the RTL units, as Yosys synthesises them."),
    ] = False,
    cycles_per_image: Annotated[
        int | None, typer.Option(min=1, help="Clocks of an image for --report [those of a photo of 500x375 pixels].")
    ] = None,
    route: Annotated[
        RouteTarget | None,
        typer.Option("--route", help="Place and route the RTL units, each alone, on a Lattice ECP5-85F by nextpnr."),
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(help="A module of the RTL for --route. Give it once for each [those that fit the device]."),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="A seed of the placer for --route. Give it once for each [two seeds]."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build an .xclbin container or the folder for one, list what is in one, or report on the RTL units."""
    from headrace.bitstreams.build import describe
    from headrace.bitstreams.hw.folder import CLOCK_MHZ, own_design
    from headrace.bitstreams.hw.run import implementation

    if (info is not None) + (output is not None) + report + (route is not None) != 1:
        raise UsageError(
            "give -o FILE to build a container, --info FILE to list one, --report for the resources of the RTL, or "
            "--route ecp5 for its clock on a device"
        )
    for option, values in (("--unit", unit), ("--seed", seed)):
        if values and route is None:
            raise UsageError(f"{option} is for --route ecp5: give this too, or leave out {option}")
    board = platform(card)
    package_of(configuration)  # a name that is none ends the command before anything is done
    for option, given in (("--kernel", kernel), ("--slr", slr), ("--clock-mhz", clock_mhz), ("--run", run or None)):
        if given is not None and (target is not BuildTarget.HW or output is None):
            raise UsageError(f"{option} is for --target hw -o FOLDER: give these too, or leave out {option}")
    if report:
        _report(cycles_per_image, as_json)
        return
    if route is not None:
        _route(unit or [], seed or [], configuration, as_json)
        return
    if info is not None:
        check_readable("--info", info)
        description = describe(read_container("--info", info))
        if (found := implementation(info, description["uuid"])) is not None:
            description["implementation"] = found
    elif target is BuildTarget.HW:
        assert output is not None
        design = own_design(
            board,
            (kernel or KernelSource.RTL).value,
            (image_cus, mel_cus, norm_cus),
            clock_mhz or CLOCK_MHZ,
            _dies(slr or []),
            configuration,
        )
        _hardware(output, board, design, run, as_json)
        return
    else:
        assert output is not None
        check_writable("-o", output)
        with _building(Target(target.value), image_cus, mel_cus, norm_cus):
            container = build_container(output, target.value, image_cus, mel_cus, norm_cus, card, configuration)
        description = describe(container)
        tell(f"wrote {output} ({output.stat().st_size / 1024:.0f} KiB)")
    if as_json:
        show_json(description)
    elif info is not None:
        _print_container(description)


def _dies(options: list[str]) -> dict[str, int]:
    """Return the die of each CU that --slr names. Raises UsageError."""
    dies: dict[str, int] = {}
    for option in options:
        unit, _, slr = option.partition(":")
        if not unit or not re.fullmatch("[0-9]{1,2}", slr) or unit in dies:
            raise UsageError(f"--slr {option}: give a unit and its die once, such as image_cu_1:2")
        dies[unit] = int(slr)
    return dies


def _hardware(folder: Path, board: Platform, design: "Design", run: bool, as_json: bool) -> None:
    from headrace.bitstreams.hw.folder import write_folder
    from headrace.bitstreams.hw.run import build_folder, check_tools

    if run:
        check_tools(board)  # a missing tool ends the command before anything is written
    write_folder(folder, design)
    tell(f"wrote {folder}: {design.kernel} for {board.name} at {design.clock_mhz:g} MHz; not built")
    built = build_folder(folder, board, tell) if run else None
    if as_json:
        show_json(
            {
                "folder": str(folder),
                "platform": board.platform,
                "kernel": design.kernel,
                "kernels": dict(design.cus),
                "clock_mhz": design.clock_mhz,
                "configuration": design.configuration,
                "built": run,
                "implementation": built,
            }
        )
    elif built is not None:
        _print_implementation(built)


def _print_implementation(found: dict[str, Any]) -> None:
    """Print clock, slack and resources from the vendor's reports. A value that they lack is printed as unknown."""
    clock, slack, used = (found.get(key) for key in ("clock_mhz", "slack_ns", "utilisation"))
    show(
        f"built: clock {'unknown' if clock is None else f'{clock:g} MHz'}, "
        f"worst slack {'unknown' if slack is None else f'{slack:g} ns'}"
    )
    for name, row in (used or {}).items():
        show(f"  {name}: {row['used']:g} ({row['per_cent']:g} % of the card)")


def _report(cycles_per_image: int | None, as_json: bool) -> None:
    from headrace.bitstreams.resources.report import CYCLES_PER_IMAGE
    from headrace.host.cli.resource_report import print_report, run_report

    resources = run_report(cache_folder(), cycles_per_image or CYCLES_PER_IMAGE)
    if as_json:
        show_json(resources)
    else:
        print_report(resources)
    if any(row["error"] for row in resources["units"]):
        raise typer.Exit(1)


def _route(units: list[str], seeds: list[int], configuration: str, as_json: bool) -> None:
    from headrace.host.cli.resource_report import print_routes, run_routes

    routes = run_routes(cache_folder(), units, seeds, configuration)
    if as_json:
        show_json(routes)
    else:
        print_routes(routes)
    if any(row["error"] for row in routes["units"]):
        raise typer.Exit(1)


def _print_container(description: dict[str, Any]) -> None:
    show(f"mode {description['mode']}, platform {description['platform']}, uuid {description['uuid']}")
    if (chosen := description["build"].get("configuration")) is not None:
        constants = ", ".join(f"{name} {value}" for name, value in chosen["constants"].items())
        show(f"image units: configuration {chosen['name']}: {constants}")
    for kernel in description["kernels"]:
        table = Table(title=f"kernel {kernel['name']} ({kernel['control_protocol']})", title_justify="left")
        for heading in ("#", "argument", "type", "offset", "bytes", "port"):
            table.add_column(heading)
        for arg in kernel["args"]:
            row = (arg["index"], arg["name"], arg["type"], f"0x{arg['offset']:03x}", arg["size"], arg["port"])
            table.add_row(*map(str, row))
        out.print(table)
        table = Table(title="compute units", title_justify="left")
        for heading in ("instance", "base address", "memory banks by argument"):
            table.add_column(heading)
        for instance in kernel["instances"]:
            banks = ", ".join(f"{name} {bank}" for name, bank in instance["banks"].items())
            table.add_row(instance["name"], f"0x{instance['base_address']:x}", banks)
        out.print(table)
    if "implementation" in description:
        _print_implementation(description["implementation"])
