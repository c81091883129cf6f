"""The command `headrace serve`, which serves networks to clients of the Open Inference Protocol."""

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.batching import UsageError, policy_names
from headrace.batching.settings import option as option_name
from headrace.batching.settings import settings_of
from headrace.host.cli import interrupt
from headrace.host.cli.build import Target, TargetOption, cached_xclbin, read_container
from headrace.host.cli.console import tell, told_in_background
from headrace.host.cli.options import (
    FILE_SETTINGS,
    SETTINGS_TABLES,
    AgainKib,
    AllowHost,
    DamagedName,
    GrpcFrontName,
    HelpAll,
    ImageCus,
    Insecure,
    Json,
    LaunchName,
    LaunchOption,
    MaxMegapixels,
    MelCus,
    NormCus,
    OnDamaged,
    Orient,
    ProfileFiles,
    ReplicaResources,
    Replicas,
    ResamplerOption,
    ServeRay,
    TokenFile,
    Update,
    bearer_token,
    check_readable,
    command,
    defaults_of_file,
    readable,
    readable_folder,
    writable,
)
from headrace.host.cli.serve.fleet import FLEET_OPTIONS, check_fleet, run_fleet
from headrace.host.cli.setting_options import (
    Assignments,
    Choice,
    add_policy_settings,
    add_settings,
    check_assignments,
    group_options,
    help_text,
    with_assignments,
)
from headrace.host.cli.setting_options import given as given_options
from headrace.host.server.settings import (
    ModelSettings,
    name_of,
    settings_of_policies,
    source_of,
    with_settings,
)
from headrace.sim.hardware.profiles import read_profile

# Settings of models that are options, and those that may be given for each model.
SEVERAL = {"policy", "slo_ms", "preprocess", "processor", "engine", "resize", "crop", "mean", "std"}
OF_MODELS = SEVERAL | {
    "workers",
    "whole",
    "max_batch",
    "drop_late",
    "max_queue",
    "allow_nonfinite_weights",
    "read_memory_mib",
}


def _settings_file(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Read the settings file of --config. This is a callback."""
    return defaults_of_file(ctx, param, path, tables="models", without=FLEET_OPTIONS)


@command
def serve(
    ctx: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A torchvision network by name, efficientnet_lite0 (with published weights), module:function, "
            "FILE.pt2 of torch.export, its folder (as in ./vit), a step model, or tensors, which returns its inputs; "
            "once for each model. NAME=... names it for clients [mobilenet_v3_small]."
        ),
    ] = None,
    weights: Annotated[
        list[str] | None, typer.Option(help="A state_dict file, once for each model [fixed random weights].")
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(
            help="Shape of the input, as in 3x299x299, once for each model [the shape that the network states]."
        ),
    ] = None,
    assignments: Assignments = None,
    profile_files: ProfileFiles = None,
    target: TargetOption = Target.SW_EMU,
    xclbin: Annotated[Path | None, typer.Option(callback=readable, help="The DPU's container [one is built].")] = None,
    image_cus: ImageCus = 4,
    mel_cus: MelCus = 1,
    norm_cus: NormCus = 1,
    repository: Annotated[
        Path | None,
        typer.Option(
            callback=readable_folder,
            help="Folder of models, as NAME.toml or NAME.pt2, that clients may load and unload.",
        ),
    ] = None,
    http: Annotated[
        str, typer.Option(help="HOST:PORT of the HTTP server and its live page. Port 0 takes a free port.")
    ] = "127.0.0.1:8000",
    grpc: Annotated[
        str, typer.Option(help="HOST:PORT of the gRPC server. Port 0 takes a free port.")
    ] = "127.0.0.1:8001",
    metrics: Annotated[
        str, typer.Option(help="HOST:PORT of the metrics, at /metrics. Port 0 takes a free port.")
    ] = "127.0.0.1:8002",
    token_file: TokenFile = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(callback=readable, help="PEM file of certificates, the server's first. All ports then use TLS."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(callback=readable, help="PEM file of the certificate's key.")] = None,
    insecure: Insecure = False,
    allow_host: AllowHost = None,
    keep_awake: Annotated[
        bool,
        typer.Option(
            "--keep-awake",
            help="Keep idle cores awake. Answers come sooner, but all cores take their full power. This needs root.",
        ),
    ] = False,
    shared_memory: Annotated[
        bool,
        typer.Option(
            "--shared-memory",
            help="Let clients name files of /dev/shm for inputs and outputs. They can then read all files there that "
            "this user can read.",
        ),
    ] = False,
    max_body_mib: Annotated[int, typer.Option(min=1, max=2047, help="Largest request (MiB).")] = 64,
    max_bodies_mib: Annotated[
        int,
        typer.Option(min=1, max=1 << 20, help="Memory (MiB) for all requests at a time, for each of HTTP and gRPC."),
    ] = 1024,
    max_head_kib: Annotated[
        int, typer.Option(min=1, max=1024, help="Largest request line and headers of a request (KiB).")
    ] = 32,
    max_json_kib: Annotated[
        int,
        typer.Option(
            min=1,
            max=1 << 20,
            help="Largest JSON part of a request (KiB). The server serves nothing else while it reads JSON.",
        ),
    ] = 8 << 10,
    max_elements: Annotated[int, typer.Option(min=1, max=1 << 40, help="Largest number of elements of a tensor.")] = 1
    << 28,
    max_answer_mib: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="Largest sum of a request's outputs (MiB).")
    ] = 64,
    max_request_megapixels: Annotated[
        int,
        typer.Option(
            min=1,
            max=1 << 20,
            help="Largest sum of a request's images (megapixels). --max-megapixels limits each of them.",
        ),
    ] = 500,
    max_connections: Annotated[
        int,
        typer.Option(
            min=1, max=100_000, help="Largest number of HTTP connections, of gRPC connections, and of gRPC calls."
        ),
    ] = 1024,
    client_timeout_s: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600, help="Longest time (s) without progress while a request arrives or an answer leaves."
        ),
    ] = 15.0,
    max_megapixels: MaxMegapixels = 100,
    damaged: OnDamaged = DamagedName.STRICT,
    orient: Orient = False,
    resampler: ResamplerOption = None,
    launch: LaunchOption = LaunchName.SINGLE,
    grpc_front: Annotated[
        GrpcFrontName,
        typer.Option(
            help="What carries gRPC's bytes: the extension in C++ (native), grpc.aio (aio), or the extension where it "
            "is installed (auto)."
        ),
    ] = GrpcFrontName.AUTO,
    drain_s: Annotated[
        float, typer.Option(min=0, max=3600, help="Longest wait (s) at the end for requests in flight.")
    ] = 30.0,
    access_log: Annotated[
        str | None, typer.Option(help="File to which a JSON line is appended for each request, or - for stdout.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            callback=writable, help="File to which a Perfetto trace of the last 200,000 events is written at the end."
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            help="Collector of OpenTelemetry spans, as in http://127.0.0.1:4317, or https://HOST:PORT with TLS."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            callback=_settings_file,
            is_eager=True,
            help="A TOML file with settings. Its keys are named as the options. Models may be tables [[models]].",
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

    At SIGTERM or Ctrl-C the server accepts no more requests, answers those in flight, and ends. A second signal ends it
    at once."""
    # gRPC reads this when it is imported. It need not prepare for forks, because workers are other programs.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    check_fleet(ctx)
    typed = given_options(ctx)
    of_models = {name: typed.pop(name) for name in OF_MODELS if name in typed}
    of_policies = with_assignments(typed, assignments)
    of_file = ctx.meta.get(FILE_SETTINGS, {})
    tables = ctx.meta.get(SETTINGS_TABLES)
    if tables is not None and model:
        raise UsageError("--model and tables [[models]] of --config: give the models in one of these places")
    base, settings = _of_all_models(
        {name: value for name, value in of_file.items() if name not in (*of_models, *of_policies)},
        f"--config {config}",
        of_models,
        len(tables or model or [""]),
    )
    if tables is not None:
        for option, given in (("--weights", weights), ("--input-shape", input_shape), ("--profile", profile_files)):
            if given:
                raise UsageError(f"{option}: with tables [[models]], say it in the model's table")
        settings = [_of_table(own, table, f"--config {config}") for own, table in zip(settings, tables, strict=True)]
    else:
        settings = _of_options(settings, model or ["mobilenet_v3_small"], weights, input_shape)
        settings = _with_profiles(settings, profile_files or ())
    check_assignments(assignments, [own.policy for own in settings])
    settings = [_with_policy_settings(own, of_policies) for own in settings]
    base = _with_policy_settings(base, of_policies)
    names = [own.name for own in settings]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--model: two are named {twice[0]!r}; give each model its own name, as in NAME=resnet50")
    for own in settings:
        for option, path in (("--weights", own.weights), ("--profile", own.profile)):
            if path is not None:
                check_readable(option, path)
    if otlp is not None and not re.fullmatch(r"https?://[^/\s]+/?", otlp):
        raise UsageError(f"--otlp {otlp!r}: give http://HOST:PORT, or https://HOST:PORT")
    if xclbin is not None:
        read_container("--xclbin", xclbin)
        if repository is None and all(own.preprocess == "cpu" for own in settings):
            raise UsageError("--xclbin is for the DPU: give --preprocess dpu too, or leave it out")
    if launch is LaunchName.QUEUE and repository is None and all(own.preprocess == "cpu" for own in settings):
        raise UsageError("--launch is for the DPU: give --preprocess dpu too, or leave it out")

    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key: give both, or none")

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # otherwise gRPC writes texts of clients to stderr unchanged
    import uvloop  # noqa: F401  first: if the server's extra is missing, the error names it, and not OpenCV alone

    from headrace.host.dpu.preprocessor import Launch
    from headrace.host.dpu.specs import Damaged
    from headrace.host.network.access import Access
    from headrace.host.network.address import Address
    from headrace.host.server.protocol.limits import Limits
    from headrace.host.server.repository import Repository
    from headrace.host.server.serve import ServeOptions
    from headrace.host.server.serve import serve as run
    from headrace.host.server.transport.grpc.fronts import GrpcFront
    from headrace.host.server.transport.tls import Tls

    options = ServeOptions(
        http=Address.parsed("--http", http),
        grpc=Address.parsed("--grpc", grpc),
        metrics=Address.parsed("--metrics", metrics),
        container=lambda: xclbin or cached_xclbin(target, image_cus, mel_cus, norm_cus),
        repository=None if repository is None else Repository(repository, base),
        access=Access(bearer_token("--token-file", token_file), insecure, tuple(allow_host or ())),
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
        grpc_front=GrpcFront(grpc_front.value),
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
            tell(f"requests were still in flight {drain_s:g} s after the stop request, and were cut off")
    if not drained:
        raise typer.Exit(1)


def _of_all_models(
    of_file: Mapping[str, Any], file: str, typed: Mapping[str, Any], models: int
) -> tuple[ModelSettings, list[ModelSettings]]:
    """Return the settings that hold for any model, and those of each model, from a file and from the command line.

    A list of a setting in SEVERAL has a value for each model, or one for all. Raises UsageError."""
    known = {each.name: each for each in settings_of(ModelSettings)}
    lists = {
        name: value
        for name, value in {**of_file, **typed}.items()
        if name in SEVERAL and isinstance(value, list) and not (known[name].many and _are_numbers(value))
    }
    for name, values in lists.items():
        if len(values) not in (1, models):
            raise UsageError(
                f"{option_name(name)}: {len(values)} for {models} models; give one for all, or one for each"
            )

    def with_given(base: ModelSettings, number: int | None) -> ModelSettings:
        """Return settings with what is given for one model, or for all if there is no number."""

        def chosen(given: Mapping[str, Any]) -> dict[str, Any]:
            values = {}
            for name, value in given.items():
                if name not in lists:
                    values[name] = value
                elif len(lists[name]) == 1:
                    values[name] = lists[name][0]
                elif number is not None:
                    values[name] = lists[name][number]
            return values

        read = {name: known[name].read(value, option_name(name)) for name, value in chosen(typed).items()}
        return replace(with_settings(base, chosen(of_file), file), **read)

    usual = ModelSettings()
    return with_given(usual, None), [with_given(usual, number) for number in range(models)]


def _are_numbers(values: list[Any]) -> bool:
    """Tell whether a list of a file is one value of a setting that has several numbers, such as `mean`."""
    return all(type(each) in (int, float) for each in values)


def _with_policy_settings(own: ModelSettings, values: Mapping[str, Any]) -> ModelSettings:
    """Return the settings with those of policies that the model's table leaves out. Raises UsageError."""
    known = settings_of_policies(own.policy)
    read = {name: known[name].read(value, option_name(name)) for name, value in values.items() if name in known}
    return own.with_policy_values({**read, **dict(own.policy_values)})


def _of_options(
    settings: Sequence[ModelSettings],
    models: Sequence[str],
    weights: Sequence[str] | None,
    input_shape: Sequence[str] | None,
) -> list[ModelSettings]:
    """Return the settings of the models that --model names. Raises UsageError."""
    for option, given in (("--weights", weights), ("--input-shape", input_shape)):
        if given and len(given) != len(models):
            raise UsageError(f"{option}: {len(given)} for {len(models)} models; give one for each, or none")
    found = []
    for number, (own, text) in enumerate(zip(settings, models, strict=True)):
        name, _, source = text.rpartition("=")
        file = Path(weights[number]) if weights and weights[number] else None
        shape = input_shape[number] if input_shape else None
        if len(models) > 1:  # with several models, an empty text leaves one model its own shape
            shape = shape or None
        name = name or name_of(source)
        found.append(replace(own, name=name, source=source_of(source), weights=file, input_shape=shape))
    return found


def _of_table(own: ModelSettings, table: Any, where: str) -> ModelSettings:
    """Return the settings of the model that a table [[models]] describes. Raises UsageError."""
    if not isinstance(table, dict) or not isinstance(table.get("source"), str):
        raise UsageError(f'{where}: a table of [[models]] has no source; give it, as in source = "resnet50"')
    return with_settings(replace(own, name=name_of(table["source"])), table, where)


def _with_profiles(settings: Sequence[ModelSettings], files: Sequence[Path]) -> list[ModelSettings]:
    """Return the settings with the profile of each model, found by its name or source. Raises UsageError."""
    found = {}
    for file in files:
        check_readable("--profile", file)
        of = read_profile(file).model
        fits = [own for own in settings if of in (own.name, own.source)]
        if not fits:
            raise UsageError(f"--profile {file}: it is of {of!r}, and no model has this name; leave it out")
        found.update({own.name: file for own in fits})
    return [replace(own, profile=found.get(own.name)) for own in settings]


FOR_EACH = ", once for all models or for each"
(_policy,) = (each for each in settings_of(ModelSettings) if each.name == "policy")
_choice = Choice("policy", help_text(_policy, FOR_EACH), tuple(policy_names()))  # the shell completes its values
add_settings(serve, {"Policy": [_choice]}, several=FOR_EACH)
add_settings(serve, {"Models": [ModelSettings]}, only=SEVERAL - {"policy"}, several=FOR_EACH)
add_settings(serve, {"Models": [ModelSettings]}, only=OF_MODELS - SEVERAL)
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
            "processor",
            "engine",
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
            "grpc_front",
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
