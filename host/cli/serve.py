"""`headrace serve`: networks behind the Open Inference Protocol."""

import contextlib
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.batching import POLICIES, UsageError
from headrace.batching.catalog import CELL_POLICIES
from headrace.host.cli import interrupt
from headrace.host.cli.build import Target, TargetOption, cached_xclbin, read_container
from headrace.host.cli.console import tell
from headrace.host.cli.options import (
    ImageCus,
    Json,
    MaxBatch,
    ProfileFiles,
    Whole,
    WindowMs,
    Workers,
    check_readable,
    command,
    defaults_of_file,
    parsed_workers,
    readable,
)
from headrace.sim.hardware.profiles import read_profile

SERVER_POLICIES = tuple(name for name in POLICIES if name not in CELL_POLICIES)
MAX_TOKEN = 4096  # bytes of its file


class Preprocess(StrEnum):
    CPU = "cpu"
    DPU = "dpu"


@command
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A torchvision network by name, or module:function; NAME=... names it for clients. Once a model; "
            "mobilenet_v3_small without."
        ),
    ] = None,
    weights: Annotated[
        list[str] | None, typer.Option(help="A state_dict file, once a model; fixed random weights without.")
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(help="3x299x299, say, once a model; what it says of itself if not given."),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            autocompletion=lambda: list(SERVER_POLICIES), help=f"Of all models: {', '.join(SERVER_POLICIES)}."
        ),
    ] = "preba",
    workers: Workers = None,
    whole: Whole = False,
    window_ms: WindowMs = 5.0,
    max_batch: MaxBatch = 32,
    profile_files: ProfileFiles = None,
    sla_ms: Annotated[
        float, typer.Option(min=0.001, help="Latency after which a request without a timeout is late.")
    ] = 100.0,
    drop_late: Annotated[
        bool, typer.Option("--drop-late", help="Answer requests that have not begun by their deadline with an error.")
    ] = False,
    max_queue: Annotated[
        int, typer.Option(min=1, max=65536, help="Inputs in flight, by model; what comes beyond is refused.")
    ] = 256,
    preprocess: Annotated[
        Preprocess, typer.Option(help="Where photos become tensors; what the DPU cannot take goes to the CPU.")
    ] = Preprocess.CPU,
    target: TargetOption = Target.SW_EMU,
    xclbin: Annotated[
        Path | None, typer.Option(callback=readable, help="The DPU's container, instead of building one.")
    ] = None,
    image_cus: ImageCus = 4,
    http: Annotated[str, typer.Option(help="HOST:PORT; port 0 takes any that is free.")] = "127.0.0.1:8000",
    grpc: Annotated[str, typer.Option(help="HOST:PORT.")] = "127.0.0.1:8001",
    metrics: Annotated[str, typer.Option(help="HOST:PORT.")] = "127.0.0.1:8002",
    token_file: Annotated[
        Path | None,
        typer.Option(callback=readable, help="Serve only who brings the token in this file: Authorization: Bearer."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Serve other machines without a token.")] = False,
    shared_memory: Annotated[
        bool,
        typer.Option(
            "--shared-memory",
            help="Clients may name files of /dev/shm to hold inputs and outputs: let in only those that may read all "
            "that this user may read there.",
        ),
    ] = False,
    max_body_mib: Annotated[int, typer.Option(min=1, max=2047, help="Largest request.")] = 64,
    max_bodies_mib: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="All HTTP requests together that are here at a time.")
    ] = 1024,
    max_connections: Annotated[
        int, typer.Option(min=1, max=100_000, help="HTTP connections, and gRPC calls at a time.")
    ] = 1024,
    max_megapixels: Annotated[int, typer.Option(min=1, max=1000, help="Of a photo.")] = 100,
    drain_s: Annotated[
        float, typer.Option(min=0, max=3600, help="At the end, how long to wait for requests that are in flight.")
    ] = 30.0,
    config: Annotated[
        Path | None,
        typer.Option(
            callback=defaults_of_file, is_eager=True, help="A TOML file with settings named as these options."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve networks to clients of the Open Inference Protocol (KServe, Triton), over HTTP and gRPC.

    Ends at SIGTERM or Ctrl-C, when all that was let in is answered; a second one ends it at once."""
    # Both libraries read these as they are loaded. gRPC need not prepare for forks: workers are programs of their own.
    os.environ["OPENCV_IO_MAX_IMAGE_PIXELS"] = str(max_megapixels * 10**6)
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    for option, paths in (("--weights", map(Path, filter(None, weights or ()))), ("--profile", profile_files or ())):
        for path in paths:
            check_readable(option, path)
    if policy not in SERVER_POLICIES:
        raise UsageError(f"--policy: there is no {policy!r} here; choose from {', '.join(SERVER_POLICIES)}")
    if xclbin is not None:
        read_container("--xclbin", xclbin)
        if preprocess is Preprocess.CPU:
            raise UsageError("--xclbin is the DPU's: give --preprocess dpu too, or leave it out")
    worker_count, npus = parsed_workers(workers)
    named = _named(model or ["mobilenet_v3_small"])
    for option, given in (("--weights", weights), ("--input-shape", input_shape)):
        if given and len(given) != len(named):
            raise UsageError(f"{option}: {len(given)} for {len(named)} models; give one for each, or none")
    token = _token(token_file)

    from headrace.host.live.hardware import Network
    from headrace.host.server.http1 import Limits
    from headrace.host.server.serve import Address, ServeOptions
    from headrace.host.server.serve import serve as run
    from headrace.host.workers.models import load_model

    options = ServeOptions(
        policy=policy,
        http=Address.parsed("--http", http),
        grpc=Address.parsed("--grpc", grpc),
        metrics=Address.parsed("--metrics", metrics),
        sla_s=sla_ms / 1e3,
        max_queue=max_queue,
        profiles=[read_profile(path) for path in profile_files or ()],
        workers=worker_count,
        npus=npus,
        whole=whole,
        window_s=window_ms / 1e3,
        max_batch=max_batch,
        drop_late=drop_late,
        token=token,
        insecure=insecure,
        limits=Limits(max_body_mib << 20, max_bodies_mib << 20, max_connections),
        drain_s=drain_s,
        shared_memory=shared_memory,
    )
    with contextlib.redirect_stdout(sys.stderr):  # a user's network may print
        networks = []
        for number, (name, source) in enumerate(named.items()):
            file = (weights[number] or None) if weights else None
            shape = input_shape[number] if input_shape else None
            if len(named) > 1:  # of several models one may be left to itself
                shape = shape or None
            networks.append(Network(name, source, load_model(source, file, shape), file, shape))
    if preprocess is Preprocess.DPU:
        from dataclasses import replace

        options = replace(options, xclbin=xclbin or cached_xclbin(target, image_cus))

    def on_ready(ports: Mapping[str, str]) -> None:
        if as_json:
            import json

            print(json.dumps({"models": list(named), **ports}), flush=True)
        else:
            tell(f"serving {', '.join(named)}: HTTP {ports['http']}, gRPC {ports['grpc']}, metrics {ports['metrics']}")

    if not run(options, networks, tell, on_ready, interrupt.end):
        tell(f"requests were still in flight {drain_s:g} s after the end was asked for, and were cut")
        raise typer.Exit(1)


def _named(models: list[str]) -> dict[str, str]:
    """Sources by name. Raises UsageError."""
    found: dict[str, str] = {}
    for text in models:
        name, _, source = text.rpartition("=")
        name = name or source
        if not source or "/" in name or name in found:
            raise UsageError(f"--model {text!r}: give each model a name of its own, without /, as in NAME=resnet50")
        found[name] = source
    return found


def _token(path: Path | None) -> str | None:
    """Raises UsageError."""
    if path is None:
        return None
    with path.open("rb") as file:
        raw = file.read(MAX_TOKEN + 1).strip()
    if not raw or len(raw) > MAX_TOKEN or not raw.isascii() or not raw.decode().isprintable() or b" " in raw:
        raise UsageError(f"--token-file {path}: write one line of 1 to {MAX_TOKEN} printable characters into it")
    return raw.decode()
