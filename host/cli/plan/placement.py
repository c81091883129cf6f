"""The output of `headrace plan` for several models: a table, JSON, and a picture of the servers and their slices."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from headrace.host.cli.console import out, show
from headrace.host.cli.plan.answer import give
from headrace.host.cli.plan.search import described
from headrace.sim.hardware.gpu.mig import MEMORY_SLICES, gpu_named, placed
from headrace.sim.planner import commands, search
from headrace.sim.planner.placement import Piece, Placed, PlacedServer, Placement, place
from headrace.sim.planner.planning import of_plan, settings
from headrace.sim.planner.search import Answer
from headrace.sim.planner.target import Target
from headrace.sim.planner.trials import FRESH, Run
from headrace.sim.system.cost import YEARS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FITS = 11  # characters that fit into the picture's smallest slice


def placed_models(targets: Sequence[Target], run: Run, out_folder: Path | None, as_json: bool) -> None:
    """Search for the plan and print it, and write plan.json and plan.png to `out_folder`.

    Raises UsageError and HeadraceError."""
    answer = place(targets, run)
    own = answer.own
    picture = (lambda path: draw(path, targets, own)) if isinstance(own, Placement) else None
    give(_body(answer), lambda: _print(answer), picture, out_folder, as_json)


def _parts(names: Sequence[str]) -> str:
    """Return slices in the form of `headrace simulate --partition`."""
    return ",".join(f"{name}:{count}" for name, count in Counter(names).items())


def _commands(server: PlacedServer, piece: Piece) -> dict[str, str | None]:
    """Return the commands that simulate and serve a model on its slices of a server."""
    scenario = piece.candidate.scenario(piece.target, piece.measured.requests)
    serve, note = commands.serve(scenario)
    if serve is not None and len(server.pieces) > 1:
        others = (
            "the GPU also has slices for other models: start this server where it sees only its own, as in a container "
            "with these MIG devices"
        )
        note = others if note is None else f"{others}; {note}"
    return {"simulate": commands.command(scenario), "serve": serve, "serve_note": note}


def _cut(server: PlacedServer) -> str:
    """Return the command that partitions a server's GPU."""
    hardware = replace(server.pieces[0].candidate.hardware, partition=_parts(server.plan.partition))
    return commands.mig(server.pieces[0].target.on(hardware))


def _of_piece(number: int, server: PlacedServer, piece: Piece) -> dict[str, Any]:
    """Return a model's slices of a server, as JSON."""
    measured, fresh = piece.measured, piece.quantile_ms
    return {
        "server": number,
        "slices": piece.slices,
        "rate_rps": piece.target.rate_rps,
        **settings(piece.candidate),
        "latency_ms": measured.latency_ms,
        "quantile_ms": measured.quantile_ms,
        "confirmed_ms": dict(zip(("mean", "low", "high"), fresh, strict=True)),
        "slo_ms": piece.target.slo_ms,
        "binds": piece.binds,
        "used": piece.used,
        "most_rps": piece.max_rps,
        **_commands(server, piece),
    }


def _of_own(placement: Placement) -> dict[str, Any]:
    """Return a placement with own slices for each model, as JSON."""
    models: dict[str, list[dict[str, Any]]] = {}
    room = placement.headroom
    for number, server in enumerate(placement.servers):
        for piece in server.pieces:
            models.setdefault(piece.target.model, []).append(_of_piece(number, server, piece))
    return {
        "slices": "own",
        "gpus": len(placement.servers),
        "partition": [_parts(server.plan.partition) for server in placement.servers],
        "servers": [
            {
                "cpus": server.plan.cpus,
                "card": server.plan.card,
                "used": server.used,
                "cost_usd": server.cost_usd,
                "power_w": server.power_w,
                "mig": _cut(server),
                "idle_slices": [name for name, option in server.plan.slices if option is None],
            }
            for server in placement.servers
        ],
        "cost_usd": placement.cost_usd,
        "power_w": placement.power_w,
        "gap": placement.gap,
        "binds": placement.binds,
        "used": placement.used,
        "models": models,
        "headroom": {
            "factor": room.factor,
            "part": room.binds,
            "model" if isinstance(room.of, str) else "server": room.of,
        },
    }


def _of_shared(answer: Answer) -> dict[str, Any]:
    """Return a plan with all models on all slices, as JSON."""
    value, low, high = answer.quantile_ms
    return {
        "slices": "shared",
        **of_plan(answer.target, answer.best),
        "confirmed_ms": {"quantile": answer.target.quantile, "mean": value, "low": low, "high": high},
    }


def _body(answer: Placed) -> dict[str, Any]:
    own = None if isinstance(answer.own, str) else _of_own(answer.own)
    shared = None if isinstance(answer.shared, str) else _of_shared(answer.shared)
    both = [each for each in ((shared, own) if answer.shared_wins else (own, shared)) if each is not None]
    return {
        "best": both[0],
        "runners_up": [*both[1:], *map(_of_own, answer.runners_up)],
        "refused": {
            name: why for name, why in (("own", answer.own), ("shared", answer.shared)) if isinstance(why, str)
        },
        "next": None
        if answer.next_usd is None
        else {
            "rate_rps": {target.model: search.NEXT * target.rate_rps for target in answer.targets},
            "more_usd": answer.next_usd,
            "by": "allocation, not simulated",
            "partition": [_parts(server.partition) for server in answer.next_servers],
        },
        "simulated": answer.simulated,
    }


def _print(answer: Placed) -> None:
    one = answer.targets[0]
    if isinstance(answer.own, Placement):
        _print_own(answer.targets, answer.own)
    if isinstance(answer.shared, Answer):
        best = answer.shared.best
        hardware, measured = best.candidate.hardware, best.measured
        show(
            f"All models on all slices: {hardware.servers} x {hardware.partition}, {hardware.preprocess}, "
            f"{described(best.candidate)}: {measured.quantile_ms:.3g} ms of {answer.shared.target.slo_ms:g}, "
            f"{measured.cost_usd:,.0f} $, {measured.power_w:.0f} W"
            f"{'; this is the best plan.' if answer.shared_wins else '.'}"
        )
    for name, why in (("Slices of their own", answer.own), ("All models on all slices", answer.shared)):
        if isinstance(why, str):
            show(f"{name}: {why}.")
    for placement in answer.runners_up:
        ways = {
            piece.candidate.hardware.preprocess.partition(":")[0]
            for server in placement.servers
            for piece in server.pieces
        }
        show(
            f"With {' and '.join(sorted(ways))}: {len(placement.servers)} GPUs, {placement.cost_usd:,.0f} $, "
            f"{placement.power_w:.0f} W, also confirmed with fresh seeds."
        )
    if answer.next_usd is None:
        show(f"With every rate a tenth higher, --gpus {one.gpus} is too few for slices of their own.")
    else:
        show(
            f"With every rate a tenth higher, slices of their own cost {answer.next_usd:,.0f} $ more, on "
            f"{len(answer.next_servers)} GPUs (from the capacity of slices, not simulated)."
        )
    if answer.shared_wins:
        assert isinstance(answer.shared, Answer)
        note = _show_commands(of_plan(answer.shared.target, answer.shared.best))
        if note is not None:
            show(f"To serve there: {note}.")
    elif isinstance(answer.own, Placement):
        notes = set()
        for number, server in enumerate(answer.own.servers):
            show(f"GPU {number + 1}:")
            show(_cut(server))
            for piece in server.pieces:
                notes.add(_show_commands(_commands(server, piece)))
        for note in sorted(notes - {None}, key=str):
            show(f"To serve there: {note}.")


def _show_commands(told: Mapping[str, Any]) -> str | None:
    """Print the commands of a plan. Returns the note on the command that serves it, or None."""
    for name in ("simulate", "mig", "serve"):
        if name in told:
            show(told[name] or f"there is no command that serves it: {told['serve_note']}")
    return told["serve_note"] if told["serve"] else None


def _print_own(targets: Sequence[Target], placement: Placement) -> None:
    asked = ", ".join(f"{each.model} {each.rate_rps:g}/s in {each.slo_ms:g} ms" for each in targets)
    title = f"{targets[0].gpu}, {100 * targets[0].quantile:g} %: {asked}"
    table = Table(title=title, title_justify="left")
    right = ("GPU", "/s", "ms", "high", "up to /s", "W")
    for heading in ("GPU", "slices", "model", "/s", "preprocess", "policy", "ms", "high", "up to /s", "binds", "W"):
        table.add_column(heading, justify="right" if heading in right else "left")
    for number, server in enumerate(placement.servers):
        for first, piece in enumerate(server.pieces):
            mean, _, high = piece.quantile_ms
            table.add_row(
                str(number + 1) if not first else "",
                piece.candidate.hardware.partition,
                piece.target.model,
                f"{piece.target.rate_rps:.0f}",
                piece.candidate.hardware.preprocess,
                described(piece.candidate),
                f"{mean:.3g}",
                f"{high:.3g}",
                f"{piece.max_rps:.0f}",
                piece.binds,
                f"{server.power_w:.0f}" if not first else "",
            )
        idle = Counter(name for name, option in server.plan.slices if option is None)
        for name, count in idle.items():
            table.add_row("", f"{name}:{count}", "idle")
        table.add_section()
    out.print(table)
    used = ", ".join(f"{part} {100 * share:.0f} %" for part, share in placement.used.items())
    show(
        f"{len(placement.servers)} GPUs, {placement.cost_usd:,.0f} $ in {YEARS:g} years, {placement.power_w:.0f} W. "
        f"Every row is confirmed with {FRESH} fresh seeds; high is the end of the 95 % interval. "
        f"Highest use of each part: {used}. {_room(placement)} "
        + (
            "By the capacity and power of slices, nothing cheaper holds these rates."
            if placement.gap < 1e-4
            else f"A plan up to {100 * placement.gap:.2g} % better may exist: the program was not solved to the end."
        )
    )


def _room(placement: Placement) -> str:
    """Say how far all rates may grow on the same slices, and what then limits them."""
    room = placement.headroom
    match room.binds:
        case "slices":
            ends = f"the slices of {room.of} are full"
            if placement.binds != "slices":
                ends += f" ({placement.binds} binds)"
        case part:
            assert isinstance(room.of, int)
            ends = f"{part} of GPU {room.of + 1}'s server binds"
    return f"On the same slices all rates may grow {room.factor:.2f} times; then {ends}."


def draw(path: Path, targets: Sequence[Target], placement: Placement) -> None:
    """Draw each server as a row: its GPU's instances by the memory slices that they take, filled by their use."""
    from headrace.sim.plot_style import picture

    picture(_drawn)(path, targets, placement)


def _drawn(targets: Sequence[Target], placement: Placement) -> "Figure":
    from matplotlib.patches import Rectangle

    from headrace.sim.plot_style import SMALL_PT, figure, headed, others, theme

    gpu = gpu_named(targets[0].gpu)
    fills = dict(zip((target.model for target in targets), others(len(targets)), strict=True))
    rows = len(placement.servers)
    drawn, ((axes,),) = figure(1, 1, 1.2 + 1.0 * rows)
    for number, server in enumerate(placement.servers):
        instances = placed(gpu, [gpu.profiles[name] for name in server.plan.partition])
        preprocess = _prepared(server)
        for instance, (name, option), rate in zip(instances, server.plan.slices, server.plan.rates_rps, strict=True):
            left, width = instance.place + 0.03, instance.profile.memory_slices - 0.06
            axes.add_patch(Rectangle((left, number - 0.42), width, 0.84, fc=theme().band, ec=theme().muted))
            words = f"{name}\nidle"
            if option is not None:
                busy = rate / option.capacity_rps
                axes.add_patch(Rectangle((left, number - 0.42), width * busy, 0.84, fc=fills[option.model], alpha=0.45))
                words = (
                    f"{name}\n{_short(option.model)}\n{rate:.0f} of\n{option.capacity_rps:.0f}/s\n"
                    f"{preprocess[option.model, name, option.way]}"
                )
            middle = instance.place + instance.profile.memory_slices / 2
            axes.text(middle, number, words, ha="center", va="center", fontsize=SMALL_PT)
        parts = f"{server.plan.cpus} CPU{'s' * (server.plan.cpus > 1)}{', a card' * server.plan.card}"
        cores = f"CPU busy {100 * server.used['cpu']:.0f} %\nGPU {100 * server.used['gpu']:.0f} %"
        text = f"{parts}\n{cores}\n{server.power_w:.0f} W"
        axes.text(MEMORY_SLICES + 0.1, number, text, va="center", fontsize=SMALL_PT)
    asked = ",\n".join(f"{each.model} {each.rate_rps:g}/s in {each.slo_ms:g} ms" for each in targets)
    axes.set(
        xlim=(0, MEMORY_SLICES + 1.2),
        ylim=(rows - 0.5, -0.5),
        xticks=range(MEMORY_SLICES + 1),
        yticks=range(rows),
        yticklabels=[f"GPU {number + 1}" for number in range(rows)],
        xlabel="memory slices of the GPU; colour: rate by capacity",
    )
    axes.grid(visible=False)
    headed(
        drawn,
        f"{gpu.name}, {100 * targets[0].quantile:g} %: {asked}\n{placement.cost_usd:,.0f} $ in {YEARS:g} years, "
        f"{placement.power_w:.0f} W",
    )
    return drawn


def _short(model: str) -> str:
    """Return a name that fits into a slice."""
    return model if len(model) <= FITS else f"{model[: FITS - 1]}."


def _prepared(server: PlacedServer) -> Mapping[tuple[str, str, str], str]:
    """Return the preprocessing of each piece, by model, profile and way to preprocess."""
    found = {}
    for piece in server.pieces:
        hardware = piece.candidate.hardware
        profile, way = hardware.partition.partition(":")[0], hardware.preprocess.partition(":")[0]
        found[piece.target.model, profile, way] = hardware.preprocess
    return found
