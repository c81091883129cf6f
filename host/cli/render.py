"""The command `headrace render`, which makes tokens and features in front of an engine."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.batching import UsageError
from headrace.batching.registry import policy_settings
from headrace.batching.settings import parse_assignments
from headrace.host.cli.build import Target as DpuTarget
from headrace.host.cli.build import cached_xclbin, read_container
from headrace.host.cli.console import tell
from headrace.host.cli.options import (
    AllowHost,
    ImageCus,
    Insecure,
    Json,
    MaxMegapixels,
    TokenFile,
    bearer_token,
    command,
    readable,
    readable_folder,
)
from headrace.host.cli.setting_options import Assignments, check_assignments
from headrace.host.network.access import Access
from headrace.host.network.address import Address

if TYPE_CHECKING:
    from headrace.host.adapters.render.admission import AdmissionSettings
    from headrace.host.adapters.render.front import Front


@command
def render(
    engine: Annotated[
        str | None, typer.Option(help="Address of a vLLM server that runs with --enable-scale-out.", metavar="URL")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(callback=readable_folder, help="Folder of the model that the engine serves.", metavar="FOLDER"),
    ] = None,
    http: Annotated[str, typer.Option(help="HOST:PORT where it listens. Port 0 takes a free port.")] = "127.0.0.1:8080",
    target: Annotated[
        str, typer.Option(help="Where features are made: cpu, sw_emu or hw_emu (the emulated DPU).")
    ] = "cpu",
    xclbin: Annotated[
        Path | None, typer.Option(callback=readable, help="The DPU's container, in place of --target.")
    ] = None,
    image_cus: ImageCus = 4,
    max_images: Annotated[
        int, typer.Option(min=1, max=65536, help="Largest number of images and sounds of a chat.")
    ] = 256,
    max_megapixels: MaxMegapixels = 100,
    max_body_mib: Annotated[int, typer.Option(min=1, max=4096, help="Largest request (MiB).")] = 256,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, max=86400, help="Longest time (s) without a byte from the engine.")
    ] = 300.0,
    fetch_urls: Annotated[
        bool,
        typer.Option("--fetch-urls", help="Fetch files from the http URLs of clients, also from this network."),
    ] = False,
    token_file: TokenFile = None,
    insecure: Insecure = False,
    allow_host: AllowHost = None,
    engine_token_file: Annotated[
        Path | None, typer.Option(callback=readable, help="File with the engine's API key.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Policy that lets prompts go to the engine in batches [each goes at once].", metavar="NAME"),
    ] = None,
    assignments: Assignments = None,
    places: Annotated[
        int, typer.Option(min=1, max=64, help="With --policy: batches of which the engine has not begun all answers.")
    ] = 1,
    max_queue: Annotated[
        int, typer.Option(min=1, max=65536, help="With --policy: prompts that wait for the engine. More are refused.")
    ] = 256,
    slo_ms: Annotated[
        float | None, typer.Option(min=0.001, max=1e9, help="With --policy: target time to the first token (ms).")
    ] = None,
    drop_late: Annotated[
        bool, typer.Option("--drop-late", help="Refuse prompts that have not gone to the engine in time for --slo-ms.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve OpenAI's protocol in front of vLLM, and make tokens and features of images and sounds in its place.

    A model that chats serves chat completions. Whisper serves transcriptions and translations.

    At the start the engine renders a few images and sounds, too. The command ends with an error unless both make the
    same.

    At SIGTERM or Ctrl-C it accepts no more requests, answers those in flight, and ends."""
    if engine is None or model is None:
        raise UsageError(
            f"{'--engine' if engine is None else '--model'} is missing; give --engine URL and --model FOLDER"
        )
    if not engine.startswith(("http://", "https://")):
        raise UsageError(f"--engine {engine!r}: give http://HOST:PORT")
    address = Address.parsed("--http", http)
    access = Access(bearer_token("--token-file", token_file), insecure, tuple(allow_host or ()))
    access.check("--http", address)
    admission = _admission(policy, assignments, places, max_queue, slo_ms, drop_late)
    if target not in ("cpu", *DpuTarget):
        raise UsageError(f"--target {target!r}: give cpu, {' or '.join(DpuTarget)}")
    engine_token = bearer_token("--engine-token-file", engine_token_file)
    import aiohttp  # noqa: F401  first: the error names the extra if it is missing

    from headrace.host.adapters.render.front import Limits
    from headrace.host.adapters.render.server import RenderOptions, serve

    if xclbin is not None:
        read_container("--xclbin", xclbin)
    elif target != "cpu":
        xclbin = cached_xclbin(DpuTarget(target), image_cus=image_cus, mel_cus=1, norm_cus=1)
    limits = Limits(max_images, max_megapixels, fetch=fetch_urls)
    serve(
        RenderOptions(
            engine,
            model,
            xclbin,
            address.host,
            address.port,
            engine_token=engine_token,
            access=access,
            max_body_bytes=max_body_mib << 20,
            timeout_s=timeout_s,
            limits=limits,
            admission=admission,
        ),
        lambda host, port, front: _ready(f"http://{Address(host, port)}", front, as_json),
    )


def _admission(
    policy: str | None,
    assignments: list[str] | None,
    places: int,
    max_queue: int,
    slo_ms: float | None,
    drop_late: bool,
) -> "AdmissionSettings | None":
    """Return how prompts wait for the engine, or None if they do not. Raises UsageError."""
    if policy is None:
        if assignments or slo_ms is not None or drop_late:
            raise UsageError("--set, --slo-ms and --drop-late are for a policy; give --policy NAME")
        return None
    if drop_late and slo_ms is None:
        raise UsageError("--drop-late needs to know when a prompt is late; give --slo-ms")
    from headrace.host.adapters.render.admission import AdmissionSettings, check_policy

    check_policy(policy)
    check_assignments(assignments, [policy])
    due_s = math.inf if slo_ms is None else slo_ms / 1e3
    return AdmissionSettings(
        policy_settings(policy, parse_assignments(assignments or ())), places, max_queue, due_s, drop_late
    )


def _ready(address: str, front: "Front", as_json: bool) -> None:
    if as_json:
        print(json.dumps({"address": address, "model": front.model}), flush=True)
    tell(f"ready: {front.model} at {address}/v1")
