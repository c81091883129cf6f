"""The fleet of `headrace serve --ray`: its options, and the options of a server that a fleet does not take."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import typer

from headrace.batching import UsageError
from headrace.host.cli import interrupt
from headrace.host.cli.console import tell
from headrace.host.cli.options import as_arguments, on_command_line
from headrace.host.fleet.resources import DEFAULT, parsed_resources

if TYPE_CHECKING:
    from headrace.host.server.serve import ServeOptions

FLEET_OPTIONS: Final = ("ray", "replicas", "resources", "again_kib", "update")
PORTS: Final = ("http", "grpc", "metrics")
# The front also takes these options. A running fleet keeps them.
FRONT: Final = (
    "token_file",
    "tls_cert",
    "tls_key",
    "insecure",
    "drain_s",
    "max_head_kib",
    "max_connections",
    "client_timeout_s",
)
# With these options, clients would change only the replica that their request reaches.
OF_ONE: Final = {
    "repository": "clients would load models into one replica only",
    "shared_memory": "clients would register regions with one replica only",
    "trace": "the replicas of a node would write one file",
}
AGAIN_KIB: Final = 1024  # default of --again-kib


def check_fleet(ctx: typer.Context) -> None:
    """Raise UsageError for options that cannot be combined."""
    given = ctx.params
    if given["ray"] is None:
        for name in FLEET_OPTIONS[1:]:
            if given[name] not in (None, False):
                raise UsageError(f"{_option(name)} is for a fleet: give --ray ADDRESS too, or leave it out")
        return
    for name, why in OF_ONE.items():
        if given[name]:
            raise UsageError(f"{_option(name)} is not for a fleet: {why}; leave it out")
    if given["access_log"] == "-":
        raise UsageError(
            "--access-log -: a fleet's replicas have no terminal; name a file, which each node then writes"
        )
    parsed_resources(given["resources"] or DEFAULT)
    if given["update"]:
        for name in ("replicas", "resources", "again_kib"):
            if given[name] is not None:
                raise UsageError(
                    f"{_option(name)}: an update cannot change this; leave it out, or stop the fleet and start it again"
                )


def run_fleet(ctx: typer.Context, options: "ServeOptions", ray: str, models: list[str], as_json: bool) -> None:
    """Start a fleet and serve until its end, or ask a running fleet to update. Raises UsageError and HeadraceError."""
    given = ctx.params
    arguments = as_arguments(ctx, (*FLEET_OPTIONS, *PORTS, *FRONT, "as_json"))
    front = {_option(name): _text(given[name]) for name in FRONT}
    own = [f"{option}={value}" for option, value in front.items() if value is not None and option != "--insecure"]
    if given["insecure"]:
        own.append("--insecure")
    if given["update"]:
        from headrace.host.fleet.control import Update, ask

        if not arguments:
            front = {_option(name): front[_option(name)] for name in FRONT if on_command_line(ctx, name)}
        ask(options.http, Update((*own, *arguments) if arguments else None, os.getcwd(), front), tell)
        return

    from headrace.host.fleet.fleet import FleetOptions, serve_fleet

    fleet = FleetOptions(
        address=ray,
        replicas=given["replicas"] or 1,
        resources=parsed_resources(given["resources"] or DEFAULT),
        http=options.http,
        grpc=options.grpc,
        metrics=options.metrics,
        arguments=(*own, *arguments),
        folder=os.getcwd(),
        front=front,
        again=(given["again_kib"] or AGAIN_KIB) << 10,
        drain_s=options.drain_s,
        limits=options.limits,
        token=options.access.token,
        guard=options.access.guard,
        certificate=given["tls_cert"],
        key=given["tls_key"],
    )
    stdout = sys.stdout

    def on_ready(found: Mapping[str, Any]) -> None:
        if as_json:
            import json

            print(json.dumps({"models": models, **found}), flush=True, file=stdout)
        else:
            tell(
                f"serving {', '.join(models)} by {fleet.replicas} replicas: HTTP {found['http']}, "
                f"gRPC {found['grpc']}, metrics {found['metrics']}"
            )

    if not serve_fleet(fleet, tell, on_ready, interrupt.end):
        tell(f"requests were still in flight {options.drain_s:g} s after the stop request, and were cut off")
        raise typer.Exit(1)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(value: object) -> str | None:
    """Return an option's value as text, or None if it is not given. Paths hold on every node, as on this machine."""
    return None if value is None or value is False else str(value)
