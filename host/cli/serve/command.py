"""`headrace serve`: networks behind the Open Inference Protocol."""

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.batching import UsageError, policy_names
from headrace.batching.settings import option as option_name
from headrace.host.cli import interrupt
from headrace.host.cli.build import Target, TargetOption, cached_xclbin, read_container
from headrace.host.cli.console import tell, told_in_background
from headrace.host.cli.options import (
    POLICY_TABLE,
    SETTINGS_TABLES,
    AgainKib,
    AllowNonfinite,
    DamagedName,
    HelpAll,
    ImageCus,
    Json,
    LaunchName,
    LaunchOption,
    MaxBatch,
    MaxMegapixels,
    MelCus,
    NormCus,
    OnDamaged,
    Orient,
    ProfileFiles,
    ReadMemory,
    ReplicaResources,
    Replicas,
    ResamplerOption,
    ServeRay,
    Update,
    Whole,
    Workers,
    bearer_token,
    check_readable,
    command,
    defaults_of_file,
    readable,
    readable_folder,
    writable,
)
from headrace.host.cli.serve.fleet import FLEET_OPTIONS, check_fleet, run_fleet
from headrace.host.cli.setting_options import add_policy_settings, check_assignments, group_options, with_assignments
from headrace.host.cli.setting_options import given as given_options
from headrace.host.server.settings import ModelSettings, settings_of_policies, with_settings
from headrace.host.workers.networks.foreign.rules import MEMORY_MIB
from headrace.sim.hardware.profiles import read_profile


class Preprocess(StrEnum):
    CPU = "cpu"
    DPU = "dpu"


def _settings_file(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    return defaults_of_file(ctx, param, path, tables="models", without=FLEET_OPTIONS)


@command
def serve(
    ctx: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A torchvision network by name, module:function, FILE.pt2 of torch.export, or a step model; NAME=... "
            "names it for clients. Once a model; mobilenet_v3_small without."
        ),
    ] = None,
    weights: Annotated[
        list[str] | None, typer.Option(help="A state_dict file, once a model; fixed random weights without.")
    ] = None,
    allow_nonfinite_weights: AllowNonfinite = False,
    read_memory_mib: ReadMemory = MEMORY_MIB,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(help="3x299x299, say, once a model; what it says of itself if not given."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=policy_names,
            help=f"Once for all models, or once for each: {', '.join(policy_names())}, or module:Class; preba "
            "without. Models of one policy "
            "share their workers.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of the policy, as in coverage=0.95; `headrace policies NAME` lists them.",
        ),
    ] = None,
    workers: Workers = None,
    whole: Whole = False,
    max_batch: MaxBatch = 32,
    profile_files: ProfileFiles = None,
    slo_ms: Annotated[
        list[float] | None,
        typer.Option(
            "--slo-ms",
            "--sla-ms",
            min=0.001,
            help="Latency after which a request without a timeout is late, once or for each; 100 without.",
        ),
    ] = None,
    drop_late: Annotated[
        bool,
        typer.Option("--drop-late", help="Answer what has not begun in time for its deadline with an error."),
    ] = False,
    max_queue: Annotated[
        int, typer.Option(min=1, max=65536, help="Inputs in flight, by model; what comes beyond is refused.")
    ] = 256,
    resize: Annotated[
        list[int] | None,
        typer.Option(min=1, max=65535, help="Resize the shorter side of photos to this, once or for each model."),
    ] = None,
    crop: Annotated[
        list[int] | None,
        typer.Option(min=1, max=65535, help="Crop photos to this square, the network's input, once or for each model."),
    ] = None,
    mean: Annotated[
        list[str] | None,
        typer.Option(help="Subtract R,G,B from pixels of 0 to 1, as in 0.5,0.5,0.5, once or for each model."),
    ] = None,
    std: Annotated[list[str] | None, typer.Option(help="Then divide by R,G,B, once or for each model.")] = None,
    preprocess: Annotated[
        list[Preprocess] | None,
        typer.Option(
            help="Where photos and sounds become tensors, once or for each; what the DPU cannot take goes to the CPU; "
            "cpu without."
        ),
    ] = None,
    target: TargetOption = Target.SW_EMU,
    xclbin: Annotated[
        Path | None, typer.Option(callback=readable, help="The DPU's container, instead of building one.")
    ] = None,
    image_cus: ImageCus = 4,
    mel_cus: MelCus = 1,
    norm_cus: NormCus = 1,
    repository: Annotated[
        Path | None,
        typer.Option(
            callback=readable_folder,
            help="Let clients load and unload models: those in this folder, as NAME.toml or NAME.pt2.",
        ),
    ] = None,
    http: Annotated[str, typer.Option(help="HOST:PORT; port 0 takes any that is free.")] = "127.0.0.1:8000",
    grpc: Annotated[str, typer.Option(help="HOST:PORT.")] = "127.0.0.1:8001",
    metrics: Annotated[str, typer.Option(help="HOST:PORT.")] = "127.0.0.1:8002",
    token_file: Annotated[
        Path | None,
        typer.Option(callback=readable, help="Serve only who brings the token in this file: Authorization: Bearer."),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(callback=readable, help="A PEM file of certificates, the server's first: all ports are TLS."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(callback=readable, help="The certificate's key, a PEM file.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Serve other machines without a token.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A host name by which browsers and proxies reach a server without a token; * for any. Addresses and "
            "localhost need none."
        ),
    ] = None,
    keep_awake: Annotated[
        bool,
        typer.Option(
            "--keep-awake", help="Idle cores do not sleep: answers come sooner, at the power of all cores (as root)."
        ),
    ] = False,
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
        int, typer.Option(min=1, max=1 << 20, help="All requests together that are here at a time, by transport.")
    ] = 1024,
    max_head_kib: Annotated[int, typer.Option(min=1, max=1024, help="Largest head of a request.")] = 32,
    max_json_kib: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="Most JSON in a request; nothing else is served while it is read.")
    ] = 8 << 10,
    max_elements: Annotated[int, typer.Option(min=1, max=1 << 40, help="Of a tensor.")] = 1 << 28,
    max_answer_mib: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="Largest outputs of a request together.")
    ] = 64,
    max_request_megapixels: Annotated[
        int,
        typer.Option(
            min=1, max=1 << 20, help="Most megapixels of a request's photos together; --max-megapixels bounds each."
        ),
    ] = 500,
    max_connections: Annotated[
        int, typer.Option(min=1, max=100_000, help="Of HTTP; of gRPC connections, and calls at a time.")
    ] = 1024,
    client_timeout_s: Annotated[
        float, typer.Option(min=0.1, max=3600, help="How long a request may stall on its way in, or an answer out.")
    ] = 15.0,
    max_megapixels: MaxMegapixels = 100,
    damaged: OnDamaged = DamagedName.STRICT,
    orient: Orient = False,
    resampler: ResamplerOption = None,
    launch: LaunchOption = LaunchName.SINGLE,
    drain_s: Annotated[
        float, typer.Option(min=0, max=3600, help="At the end, how long to wait for requests that are in flight.")
    ] = 30.0,
    access_log: Annotated[
        str | None, typer.Option(help="Append a JSON line for each request to this file; - is stdout.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(callback=writable, help="Write a Perfetto trace at the end: the last 200,000 events.")
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(help="Send OpenTelemetry spans to this collector: http://127.0.0.1:4317, or https:// with TLS."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            callback=_settings_file,
            is_eager=True,
            help="A TOML file with settings named as these options, and a table [[models]] for each model.",
        ),
    ] = None,
    ray: ServeRay = None,
    replicas: Replicas = None,
    resources: ReplicaResources = None,
    again_kib: AgainKib = None,
    update: Update = False,
    as_json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """Serve networks to clients of the Open Inference Protocol (KServe, Triton), over HTTP and gRPC.

    Ends at SIGTERM or Ctrl-C, when all that was let in is answered; a second one ends it at once."""
    # Read as it is loaded. gRPC need not prepare for forks: workers are programs of their own.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    check_fleet(ctx)
    base = ModelSettings(
        workers=workers,
        whole=whole,
        max_batch=max_batch,
        drop_late=drop_late,
        max_queue=max_queue,
        allow_nonfinite_weights=allow_nonfinite_weights,
        read_memory_mib=read_memory_mib,
    )
    named = {**given_options(ctx), **ctx.meta.get(POLICY_TABLE, {})}
    of_policies = with_assignments(named, assignments)
    tables = ctx.meta.get(SETTINGS_TABLES)
    if tables is not None and model:
        raise UsageError("--model and tables [[models]] of --config: give the models in one of these places")
    count = len(tables or model or [""])
    every = {
        "policy": _each("--policy", policy, count),
        "slo-ms": _each("--slo-ms", slo_ms, count),
        "preprocess": _each("--preprocess", preprocess and [each.value for each in preprocess], count),
        "resize": _each("--resize", resize, count),
        "crop": _each("--crop", crop, count),
        "mean": _each("--mean", mean, count),
        "std": _each("--std", std, count),
    }
    settings = [
        with_settings(base, {key: values[number] for key, values in every.items() if values}, "the options")
        for number in range(count)
    ]
    settings = [_with_policy_settings(own, of_policies) for own in settings]
    base = _with_policy_settings(base, of_policies)
    if tables is not None:
        for option, given in (("--weights", weights), ("--input-shape", input_shape), ("--profile", profile_files)):
            if given:
                raise UsageError(f"{option}: with tables [[models]], say it in the model's table")
        settings = [_of_table(own, table, f"--config {config}") for own, table in zip(settings, tables, strict=True)]
    else:
        settings = _of_options(settings, model or ["mobilenet_v3_small"], weights, input_shape)
        settings = _with_profiles(settings, profile_files or ())
    check_assignments(assignments, [own.policy for own in settings])
    names = [own.name for own in settings]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--model: two are named {twice[0]!r}; give each model a name of its own, as in NAME=resnet50")
    for own in settings:
        for option, path in (("--weights", own.weights), ("--profile", own.profile)):
            if path is not None:
                check_readable(option, path)
    if otlp is not None and not re.fullmatch(r"https?://[^/\s]+/?", otlp):
        raise UsageError(f"--otlp {otlp!r}: give http://HOST:PORT, or https://HOST:PORT")
    if xclbin is not None:
        read_container("--xclbin", xclbin)
        if repository is None and all(own.preprocess == "cpu" for own in settings):
            raise UsageError("--xclbin is the DPU's: give --preprocess dpu too, or leave it out")
    if launch is LaunchName.QUEUE and repository is None and all(own.preprocess == "cpu" for own in settings):
        raise UsageError("--launch is the DPU's: give --preprocess dpu too, or leave it out")

    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key: give both, or none")

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else gRPC writes on stderr what any client sends, as it is
    import uvloop  # noqa: F401  first: whoever is without the extra is told of all of it, not of OpenCV alone

    from headrace.host.dpu.preprocessor import Launch
    from headrace.host.dpu.specs import Damaged
    from headrace.host.server.protocol.limits import Limits
    from headrace.host.server.repository import Repository
    from headrace.host.server.serve import Address, ServeOptions
    from headrace.host.server.serve import serve as run
    from headrace.host.server.transport.tls import Tls

    options = ServeOptions(
        http=Address.parsed("--http", http),
        grpc=Address.parsed("--grpc", grpc),
        metrics=Address.parsed("--metrics", metrics),
        container=lambda: xclbin or cached_xclbin(target, image_cus, mel_cus, norm_cus),
        repository=None if repository is None else Repository(repository, base),
        token=bearer_token("--token-file", token_file),
        insecure=insecure,
        hosts=tuple(allow_host or ()),
        limits=Limits(
            body=max_body_mib << 20,
            bodies=max_bodies_mib << 20,
            head=max_head_kib << 10,
            json=max_json_kib << 10,
            elements=max_elements,
            answer=max_answer_mib << 20,
            megapixels=max_request_megapixels,
            connections=max_connections,
            client_s=client_timeout_s,
        ),
        max_megapixels=max_megapixels,
        damaged=Damaged(damaged.value),
        orient=orient,
        resampler=None if resampler is None else resampler.value,
        launch=Launch(launch.value),
        drain_s=drain_s,
        shared_memory=shared_memory,
        keep_awake=keep_awake,
        access_log=access_log,
        trace=trace,
        otlp=otlp,
        tls=Tls.read(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
    )
    if ray is not None:
        run_fleet(ctx, options, ray, names, as_json)
        return
    stdout = sys.stdout

    def on_ready(ports: Mapping[str, str]) -> None:
        if as_json:
            import json

            print(json.dumps({"models": names, **ports}), flush=True, file=stdout)
        else:
            tell(f"serving {', '.join(names)}: HTTP {ports['http']}, gRPC {ports['grpc']}, metrics {ports['metrics']}")

    with told_in_background():
        with contextlib.redirect_stdout(sys.stderr):  # a user's network may print
            drained = run(options, settings, tell, on_ready, interrupt.end)
        if not drained:
            tell(f"requests were still in flight {drain_s:g} s after the end was asked for, and were cut")
    if not drained:
        raise typer.Exit(1)


def _each(option: str, given: Sequence[Any] | None, count: int) -> Sequence[Any]:
    """Return a value for each model, of an option that is given once for all or once for each; [] if not given."""
    if given and len(given) not in (1, count):
        raise UsageError(f"{option}: {len(given)} for {count} models; give one for all, or one for each")
    return [] if not given else list(given) * count if len(given) == 1 else given


def _with_policy_settings(own: ModelSettings, values: Mapping[str, Any]) -> ModelSettings:
    """Return the settings with those of policies that are given for all models. Raises UsageError."""
    known = settings_of_policies(own.policy)
    for name in values:
        if name not in known:
            raise UsageError(
                f"--set {name}: policy {own.policy} has no setting {name!r}; see `headrace policies {own.policy}`"
            )
    return own.with_policy_values({name: known[name].read(value, option_name(name)) for name, value in values.items()})


def _of_options(
    settings: Sequence[ModelSettings],
    models: Sequence[str],
    weights: Sequence[str] | None,
    input_shape: Sequence[str] | None,
) -> list[ModelSettings]:
    """Raises UsageError."""
    for option, given in (("--weights", weights), ("--input-shape", input_shape)):
        if given and len(given) != len(models):
            raise UsageError(f"{option}: {len(given)} for {len(models)} models; give one for each, or none")
    found = []
    for number, (own, text) in enumerate(zip(settings, models, strict=True)):
        name, _, source = text.rpartition("=")
        file = Path(weights[number]) if weights and weights[number] else None
        shape = input_shape[number] if input_shape else None
        if len(models) > 1:  # of several models one may be left to itself
            shape = shape or None
        name = name or (Path(source).stem if source.endswith(".pt2") else source)
        found.append(replace(own, name=name, source=source, weights=file, input_shape=shape))
    return found


def _of_table(own: ModelSettings, table: Any, where: str) -> ModelSettings:
    """Raises UsageError."""
    if not isinstance(table, dict) or not isinstance(table.get("source"), str):
        raise UsageError(f'{where}: a table of [[models]] has no source; give it, as in source = "resnet50"')
    return with_settings(replace(own, name=table["source"]), table, where)


def _with_profiles(settings: Sequence[ModelSettings], files: Sequence[Path]) -> list[ModelSettings]:
    """Profiles find their models by name or source. Raises UsageError."""
    found = {}
    for file in files:
        check_readable("--profile", file)
        of = read_profile(file).model
        fits = [own for own in settings if of in (own.name, own.source)]
        if not fits:
            raise UsageError(f"--profile {file}: it is of {of!r}, and no model is; leave it out")
        found.update({own.name: file for own in fits})
    return [replace(own, profile=found.get(own.name)) for own in settings]


add_policy_settings(serve)
group_options(
    serve,
    {
        "Models": [
            "model",
            "weights",
            "input_shape",
            "profile_files",
            "repository",
            "resize",
            "crop",
            "mean",
            "std",
            "allow_nonfinite_weights",
            "read_memory_mib",
            "workers",
            "whole",
            "max_queue",
            "max_batch",
        ],
        "Policy": ["policy", "assignments", "slo_ms", "drop_late"],
        "Preprocessing": [
            "preprocess",
            "target",
            "xclbin",
            "image_cus",
            "mel_cus",
            "norm_cus",
            "max_megapixels",
            "damaged",
            "orient",
            "resampler",
            "launch",
        ],
        "Addresses and security": [
            "http",
            "grpc",
            "metrics",
            "token_file",
            "tls_cert",
            "tls_key",
            "insecure",
            "allow_host",
            "shared_memory",
        ],
        "Limits": [
            "max_body_mib",
            "max_bodies_mib",
            "max_head_kib",
            "max_json_kib",
            "max_elements",
            "max_answer_mib",
            "max_request_megapixels",
            "max_connections",
            "client_timeout_s",
            "drain_s",
        ],
        "Observation": ["access_log", "trace", "otlp", "keep_awake"],
    },
    first=(
        "model",
        "weights",
        "profile_files",
        "repository",
        "workers",
        "max_batch",
        "max_queue",
        "policy",
        "assignments",
        "slo_ms",
        "drop_late",
        "preprocess",
        "target",
        "xclbin",
        "image_cus",
        "http",
        "grpc",
        "metrics",
        "token_file",
        "tls_cert",
        "tls_key",
        "config",
        "ray",
        "as_json",
        "help_all",
        "help",
    ),
)
