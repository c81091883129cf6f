"""Report the simulated parts of the demo as JSON, sentences, tables and parts of the picture."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from headrace.host.demo.report.live import late_shares, percent, policies_strip, print_line, shown
from headrace.host.demo.report.picture import Bars, Strip
from headrace.host.demo.report.tables import Table, number
from headrace.host.demo.runs.simulated import LOADED, MEASURED, Load, Server, Simulated
from headrace.host.demo.runs.slices import SpeechOnSlices
from headrace.sim.experiments.preba.conditions import CPU_CORES
from headrace.sim.system.dpu_server import CLOCK_HZ

SIMULATED_NOTE = "Simulated: nothing in this part was run. Do not compare its times with those of the live runs."


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
        "cores_rps": simulated.cpu_rps,
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
    """Return a sentence for each load that says what the simulation shows, and those of `server_lines`."""
    live, loaded = simulated.loads
    medians = ", ".join(f"{each.result['latency_ms']['p50']:.1f} ms with {each.name}" for each in live.servers)
    full = f"the {CPU_CORES} cores" if simulated.full == "cores" else "the slices"
    return [
        f"Simulated, at the {live.rate_rps:.{_digits(live.rate_rps)}f} {simulated.what}/s of the live run, the median "
        f"latency is {medians}.",
        f"Simulated, {loaded.faster:,.{_digits(loaded.faster)}f} times as fast, at {loaded.rate_rps:,.0f}/s or "
        f"{LOADED:.0%} of the rate that {full} sustain: {'; '.join(_served(each) for each in loaded.servers)}.",
        *server_lines(simulated),
    ]


def server_lines(simulated: Simulated) -> list[str]:
    """Return lines that compare the cores and the cost of a server with a DPU and of one without."""
    cpu, dpu = simulated.by_name(MEASURED), simulated.by_name("dpu")
    what, rate = simulated.what, simulated.loaded.rate_rps
    return [
        f"Cores, simulated: at {rate:,.0f} {what}/s the CPU has {cpu.busy_cores:.0f} of {CPU_CORES} cores busy, or "
        f"{dpu.busy_cores:.0f} with a DPU. That frees {cpu.busy_cores - dpu.busy_cores:.0f} cores.",
        f"Cost, simulated: a million {what} cost {_usd(cpu):.3f} $ without a DPU and {_usd(dpu):.3f} $ with one, "
        "without a price for the freed cores.",
    ]


def _usd(server: Server) -> float:
    """Return the dollars for a million requests."""
    return 1e6 / float(server.result["cost"]["requests_per_usd"])


def _served(server: Server) -> str:
    rate, p99 = server.result["throughput_rps"], server.result["latency_ms"]["p99"]
    busy = f"{server.busy_cores:.0f} cores busy"
    if server.limited_by is None:
        return f"{server.name} {rate:,.0f}/s, 99 % within {p99:.1f} ms, {busy}"
    return f"{server.name} no more than {rate:,.0f}/s, because {server.limited_by!r} is full, {busy}"


def _digits(rate: float) -> int:
    return 0 if rate >= 10 else 1


def server_strip(simulated: Simulated) -> Strip:
    """Return the part of the picture that compares a server with a DPU and one without."""
    servers = {"cpu": simulated.by_name(MEASURED), "dpu": simulated.by_name("dpu")}
    cores = {name: server.busy_cores for name, server in servers.items()}
    p99 = {
        name: None if server.limited_by else float(server.result["latency_ms"]["p99"])
        for name, server in servers.items()
    }
    usd = {name: _usd(server) for name, server in servers.items()}
    return Strip(
        f"Simulated: {' and '.join(simulated.models)}, {simulated.loaded.rate_rps:,.0f} {simulated.what}/s on an A100 "
        f"in 7 slices with {CPU_CORES} cores",
        (
            Bars("cores busy", cores, {name: shown(value) for name, value in cores.items()}),
            Bars("99th percentile, ms", p99, {name: _latency(servers[name]) for name in servers}),
            Bars(f"$ for a million {simulated.what}", usd, {name: f"{value:.3f}" for name, value in usd.items()}),
        ),
        simulated=True,
    )


def _latency(server: Server) -> str:
    return f"grows: {server.limited_by} is full" if server.limited_by else shown(server.result["latency_ms"]["p99"])


def simulated_lines(simulated: Simulated) -> list[str]:
    """Return what the simulated server is, and where its costs come from."""
    what = simulated.what
    lines = [
        f"{' and '.join(simulated.models)} on {simulated.server}; DPU of {simulated.cus} at {CLOCK_HZ / 1e6:.0f} MHz; "
        f"each of the {what} takes {simulated.core_ms:.2f} ms on a core, as measured here."
    ]
    if simulated.clocks_from:
        sources = ", ".join(f"{count} by {source}" for source, count in simulated.clocks_from.items())
        lines.append(f"Clocks of the {what}: {sources}.")
    if simulated.for_cpu:
        lines.append(f"The DPU does not take {simulated.for_cpu} of the {what}; they go on from there to the CPU.")
    return lines


def left_out(reason: str) -> str:
    return f"The simulated part is left out: {reason}."


def print_simulated(simulated: Simulated | str, console: Console) -> None:
    """Print the simulated part, or the reason why it is left out."""
    if isinstance(simulated, str):
        print_line(console, left_out(simulated))
        return
    simulated_table(simulated).print(console)
    for sentence in (*simulated_lines(simulated), *simulated_shows(simulated), SIMULATED_NOTE):
        print_line(console, sentence)


def simulated_table(simulated: Simulated) -> Table:
    """Return a row for each load and server."""
    headings = (
        "preprocessing",
        "asked/s",
        "done/s",
        "p50 ms",
        "p99",
        "busy cores",
        "J each",
        "$/million",
        "full",
    )
    groups = [[_row(load, server) for server in load.servers] for load in simulated.loads]
    return Table(f"Simulated, not run: {simulated.server}", headings, groups, (0, len(headings) - 1))


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
        number(_usd(server), 3),
        server.limited_by or "",
    ]


# ---- speech on the slices ----


def speech_json(speech: SpeechOnSlices) -> dict[str, Any]:
    return {
        "note": SIMULATED_NOTE,
        "network": speech.network,
        "gpu": speech.gpu,
        "slices": speech.slices,
        "rate_rps": speech.rate_rps,
        "sla_ms": speech.slo_s * 1e3,
        "shows": speech_line(speech),
        "runs": [
            {"policy": name, "settings": speech.settings[name], **result} for name, result in speech.results.items()
        ],
    }


def speech_line(speech: SpeechOnSlices) -> str:
    """Return a line that compares the late requests of the policies."""
    late = late_shares({name: result["sla_violation_rate"] for name, result in speech.results.items()}, speech.slo_s)
    return f"Speech, simulated: at {speech.rate_rps:.0f} clips/s of all lengths on {speech.slices} slices, {late}."


def speech_strip(speech: SpeechOnSlices) -> Strip:
    latencies = {name: result["latency_ms"] for name, result in speech.results.items()}
    return policies_strip(
        f"Simulated: {speech.network}, {speech.rate_rps:.0f} clips of speech/s of all lengths on an A100 in "
        f"{speech.slices} slices",
        {name: latency["mean"] for name, latency in latencies.items()},
        {name: latency["p99"] for name, latency in latencies.items()},
        {name: result["sla_violation_rate"] for name, result in speech.results.items()},
        speech.slo_s,
        simulated=True,
    )


def speech_table(speech: SpeechOnSlices) -> Table:
    rows = [
        [
            name,
            number(speech.rate_rps),
            number(result["throughput_rps"]),
            *(number(result["latency_ms"][key]) for key in ("mean", "p50", "p99")),
            number(result["batch_size_mean"], 2),
            percent(result["sla_violation_rate"]),
        ]
        for name, result in speech.results.items()
    ]
    headings = ("policy", "asked/s", "done/s", "mean ms", "p50", "p99", "batch", "late")
    return Table(f"Simulated, not run: {speech.network}, speech on {speech.gpu} in slices", headings, [rows])
