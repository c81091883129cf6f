"""Report the simulated part of the demo as JSON, as sentences and as a table."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.host.demo.report.live import number, print_line
from headrace.host.demo.runs.simulated import LOADED, Load, Server, Simulated
from headrace.sim.system.dpu_server import CLOCK_HZ

SIMULATED_NOTE = (
    "Simulated: nothing in this part was run. It takes the inputs, arrivals and policy of the live runs; do not "
    "compare its times with theirs."
)


def simulated_json(simulated: Simulated | str) -> dict[str, Any]:
    """Return the simulated part, or the reason why it is left out."""
    if isinstance(simulated, str):
        return {"left_out": simulated}
    return {
        "note": SIMULATED_NOTE,
        "server": simulated.server,
        "models": list(simulated.models),
        "policy": simulated.policy,
        "dpu": {
            "cus": simulated.cus,
            "clock_mhz": CLOCK_HZ / 1e6,
            "clocks_from": dict(simulated.clocks_from),
            "for_cpu": simulated.for_cpu,
        },
        "core_ms_measured": simulated.core_ms,
        "slices_rps": simulated.capacity_rps,
        "shows": simulated_shows(simulated),
        "loads": [
            {
                "rate_rps": load.rate_rps,
                "times_as_fast": load.faster,
                "runs": [_server_json(server) for server in load.servers],
            }
            for load in simulated.loads
        ],
    }


def _server_json(server: Server) -> Mapping[str, Any]:
    return {
        "name": server.name,
        "preprocess": server.preprocess,
        "busy_cores": server.busy_cores,
        "limited_by": server.limited_by,
        **server.result,
    }


def simulated_shows(simulated: Simulated) -> list[str]:
    """Return a sentence for each load that says what the simulation shows."""
    live, loaded = simulated.loads
    medians = ", ".join(f"{each.result['latency_ms']['p50']:.1f} ms with {each.name}" for each in live.servers)
    return [
        f"Simulated, at the {live.rate_rps:.{_digits(live.rate_rps)}f} {simulated.what}/s of the live run, the median "
        f"latency is {medians}.",
        f"Simulated, {loaded.faster:,.{_digits(loaded.faster)}f} times as fast, at {loaded.rate_rps:,.0f}/s or "
        f"{LOADED:.0%} of the rate that the slices sustain: {'; '.join(_served(each) for each in loaded.servers)}.",
    ]


def _served(server: Server) -> str:
    rate, p99 = server.result["throughput_rps"], server.result["latency_ms"]["p99"]
    busy = f"{server.busy_cores:.0f} cores busy"
    if server.limited_by is None:
        return f"{server.name} {rate:,.0f}/s, 99 % within {p99:.1f} ms, {busy}"
    return f"{server.name} no more than {rate:,.0f}/s, because {server.limited_by!r} is full, {busy}"


def _digits(rate: float) -> int:
    return 0 if rate >= 10 else 1


def print_simulated(simulated: Simulated | str, console: Console) -> None:
    """Print the simulated part, or the reason why it is left out."""
    if isinstance(simulated, str):
        print_line(console, f"The simulated part is left out: {simulated}.")
        return
    what = simulated.what
    console.print(_results(simulated))
    print_line(
        console,
        f"{' and '.join(simulated.models)} on {simulated.server}; DPU of {simulated.cus} at {CLOCK_HZ / 1e6:.0f} MHz; "
        f"each of the {what} takes {simulated.core_ms:.2f} ms on a core, as measured here.",
    )
    if simulated.clocks_from:
        sources = ", ".join(f"{count} by {source}" for source, count in simulated.clocks_from.items())
        print_line(console, f"Clocks of the {what}: {sources}.")
    if simulated.for_cpu:
        print_line(
            console, f"The DPU does not take {simulated.for_cpu} of the {what}; they go on from there to the CPU."
        )
    for sentence in (*simulated_shows(simulated), SIMULATED_NOTE):
        print_line(console, sentence)


def _results(simulated: Simulated) -> Table:
    table = Table(title=f"Simulated, not run: {simulated.server}", title_justify="left")
    headings = ("preprocessing", "asked/s", "done/s", "p50 ms", "p99", "busy cores", "J each", "limited by")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in (headings[0], headings[-1]) else "right", no_wrap=True)
    for load in simulated.loads:
        for server in load.servers:
            table.add_row(*_row(load, server))
        table.add_section()
    return table


def _row(load: Load, server: Server) -> list[str]:
    """Return the cells of a server. If its queue grows, its latencies say only how long the run was, so the row has
    none."""
    latencies = [number(server.result["latency_ms"][key]) for key in ("p50", "p99")]
    return [
        server.name,
        f"{load.rate_rps:,.1f}",
        f"{server.result['throughput_rps']:,.1f}",
        *(latencies if server.limited_by is None else ["grows", "grows"]),
        number(server.busy_cores),
        number(server.result["energy_per_request_j"], 4),
        server.limited_by or "",
    ]
