"""The command `headrace bench`, an open-loop load generator for servers of the Open Inference Protocol."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from headrace.batching import UsageError
from headrace.host.cli.console import out, show_json, tell, warn, working
from headrace.host.cli.options import HelpAll, Json, bearer_token, check_readable, command, readable, writable
from headrace.host.cli.setting_options import group_options

if TYPE_CHECKING:
    from headrace.host.bench.client import Target

PORTS = {"http": 8000, "https": 8000, "grpc": 8001, "grpcs": 8001}
MAX_RATES = 64
MAX_NAMES = 20  # model names that an error lists
REQUESTS = 1000  # requests of a run, if neither --requests nor --duration-s is given


@command
def bench(
    url: Annotated[
        str,
        typer.Argument(help="The server's address: http://HOST:PORT or grpc://HOST:PORT, or https or grpcs with TLS."),
    ],
    model: Annotated[str | None, typer.Option(help="Name of the model [the server's only model].")] = None,
    rate_rps: Annotated[
        str | None,
        typer.Option(help="Mean arrival rate (requests/s). Several rates, by comma, give one run each [100]."),
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(
            help="poisson; bursts (1.8 and 0.2 times the rate in turn, each for 1 s on average); or a CSV file as for "
            "`headrace simulate --replay`."
        ),
    ] = "poisson",
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=4096,
            help="Number of requests that are in flight at all times, in place of a rate. This measures capacity.",
        ),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, max=10_000_000, help="Number of requests of each run [1000].")
    ] = None,
    duration_s: Annotated[
        float | None, typer.Option(min=0.001, max=86400, help="Length of each run (s), in place of --requests.")
    ] = None,
    input: Annotated[
        Path | None, typer.Option(help="An image or audio file to send, or a folder of them [random tensors].")
    ] = None,
    open_size: Annotated[
        int,
        typer.Option(min=1, max=1 << 24, help="Size of each dimension of a random tensor that the model leaves open."),
    ] = 1,
    classes: Annotated[
        int,
        typer.Option(min=0, max=1000, help="Ask for this number of best labels, in place of the output tensors."),
    ] = 0,
    shared_memory: Annotated[
        bool,
        typer.Option(
            "--shared-memory",
            help="Send tensors through shared memory. The server must run on this machine with --shared-memory.",
        ),
    ] = False,
    timeout_ms: Annotated[
        float | None, typer.Option(min=0.001, max=1e9, help="The parameter `timeout` of every request (ms).")
    ] = None,
    wait_s: Annotated[
        float, typer.Option(min=0, max=3600, help="Longest wait (s) for answers after the last request.")
    ] = 10.0,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Number of processes that send requests.")] = 1,
    connections: Annotated[
        int,
        typer.Option(
            min=1, max=65536, help="Largest number of HTTP connections. A request that finds none free waits for one."
        ),
    ] = 1000,
    token_file: Annotated[
        Path | None,
        typer.Option(callback=readable, help="Send the token in this file, as Authorization: Bearer TOKEN."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(callback=readable, help="PEM file of certificates to trust, in place of this machine's."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrivals and of random tensors.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(callback=writable, help="Write a plot of latency by load to this PNG, SVG or PDF file."),
    ] = None,
    as_json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """Send requests to a server of the Open Inference Protocol (KServe, Triton) and measure its latency.

    Requests leave at times that are planned before the run, however slow the server is. Latency counts from these
    times. The results also tell how late the client sent requests.

    Each request ends in one of six ways: ok, shed (the server has too many requests), late (its timeout has passed),
    unavailable, error, or unanswered. Unanswered means that the connection was lost, or that no answer came in time."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # otherwise gRPC repeats on stderr what its errors say
    rates = _rates(rate_rps)
    _exclude(("--concurrency", concurrency), ("--rate-rps", rate_rps))
    _exclude(("--concurrency", concurrency), ("--requests", requests))
    _exclude(("--requests", requests), ("--duration-s", duration_s))
    trace = None if arrivals in ("poisson", "bursts") else Path(arrivals)
    if trace is not None:
        if not trace.suffix:
            raise UsageError(f"--arrivals: there is no {arrivals!r}; give poisson, bursts, or a CSV file")
        check_readable("--arrivals", trace)
        for other in (("--rate-rps", rate_rps), ("--concurrency", concurrency), ("--duration-s", duration_s)):
            _exclude(("--arrivals with a file", trace), other)
    if input is not None and not input.is_dir():
        check_readable("--input", input)
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot {plot}: name a file that ends in .png, .svg or .pdf")
    target = target_of(url, bearer_token("--token-file", token_file), ca_file)

    from headrace.host.bench.client import RequestOptions
    from headrace.host.bench.inputs import file_inputs, random_inputs
    from headrace.host.bench.plan import planned, replayed, requests_in
    from headrace.host.bench.report import draw, notes, result, table
    from headrace.host.bench.run import Answers, ClosedLoop, OpenLoop, Plan, check, run
    from headrace.host.bench.shared_memory import in_shared_memory

    plans: list[tuple[str, float | None, Plan]] = []
    if concurrency is not None:
        plans.append((f"{concurrency} at a time", None, ClosedLoop(concurrency, duration_s or 10.0, wait_s)))
    elif trace is None:
        for rate in rates:
            count = requests_in(duration_s, rate) if duration_s is not None else requests or REQUESTS
            plans.append((f"{rate:g} requests/s", rate, OpenLoop(planned(arrivals, rate, count, seed), wait_s)))
    model = model or _only_model(target)
    if trace is not None:
        plans.append((str(trace), None, OpenLoop(replayed(trace, model, requests), wait_s)))
    metadata = target.metadata(model)
    tensors = random_inputs(metadata, open_size, seed) if input is None else file_inputs(metadata, input)
    asked = RequestOptions(0 if timeout_ms is None else max(1, round(timeout_ms * 1e3)), classes)
    with contextlib.ExitStack() as stack:
        messages = (
            stack.enter_context(in_shared_memory(target, metadata, tensors, asked))
            if shared_memory
            else [target.message(metadata, each, asked) for each in tensors]
        )
        check(target, messages[0])
        runs, all_answers, found = list[dict[str, Any]](), list[Answers](), list[str]()
        for what, asked_rps, plan in plans:
            with working(f"{what}, about {plan.length_s:.0f} s"):
                before = target.statistics(model)
                answers = run(target, plan, messages, processes=processes, connections=connections)
                after = target.statistics(model)
            timeout_s = None if timeout_ms is None else timeout_ms / 1e3
            runs.append(result(answers, rate_rps=asked_rps, timeout_s=timeout_s, before=before, after=after, seed=seed))
            all_answers.append(answers)
            found += [f"{what}: {note}" for note in notes(runs[-1], answers)]
    for note in found:
        warn(note)
    title = f"{model} at {url}, {arrivals if concurrency is None else f'{concurrency} at a time'}, seed {seed}"
    if plot is not None:
        draw(plot, title, runs, all_answers)
        tell(f"wrote {plot}")
    if as_json:
        show_json({"url": url, "model": model, "runs": runs, "warnings": found})
    else:
        out.print(table(title, runs))


def _only_model(target: "Target") -> str:
    """Return the server's only model. Raises Unreachable, and UsageError if it has none or several."""
    names = target.models()
    if len(names) != 1:
        shown = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
        raise UsageError(f"the server has {shown or 'no model that is ready'}: choose one with --model")
    return names[0]


def _exclude(first: tuple[str, object], second: tuple[str, object]) -> None:
    """Raise UsageError if both options are given."""
    if first[1] is not None and second[1] is not None:
        raise UsageError(f"{first[0]} and {second[0]} exclude each other: give one of them")


def _rates(text: str | None) -> list[float]:
    """Return the rates (requests/s) of --rate-rps. Raises UsageError."""
    try:
        found = [float(part) for part in ("100" if text is None else text).split(",")]
    except ValueError:
        found = []
    if not found or len(found) > MAX_RATES or not all(0 < rate < 1e7 for rate in found):
        raise UsageError(f"--rate-rps {text!r}: give 1 to {MAX_RATES} rates above 0, as in 100,200,400")
    return found


def target_of(url: str, token: str | None, authorities: Path | None = None) -> "Target":
    """Return the client of the server at `url`. `authorities` is a file of certificates to trust. Raises UsageError."""
    wanted = UsageError(f"{url!r}: give http://HOST:PORT or grpc://HOST:PORT, or https or grpcs in place of these")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wanted from None
    if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
        raise wanted
    from headrace.host.bench.client import Secure

    secure = Secure(authorities) if parts.scheme in ("https", "grpcs") else None
    if secure is None and authorities is not None:
        raise UsageError(f"--ca-file is for https and grpcs, but the URL is {url!r}: leave out --ca-file")
    if secure is not None:
        secure.context()
    where = (parts.hostname, port or PORTS[parts.scheme], token, secure)
    if parts.scheme in ("http", "https"):
        from headrace.host.bench.http_client import HttpTarget

        return HttpTarget(*where)
    from headrace.host.bench.grpc_client import GrpcTarget

    return GrpcTarget(*where)


group_options(
    bench,
    {
        "Load": ["model", "rate_rps", "arrivals", "concurrency", "requests", "duration_s", "timeout_ms", "seed"],
        "Inputs and outputs": ["input", "open_size", "classes", "shared_memory"],
        "Connection": ["token_file", "ca_file", "connections", "processes", "wait_s"],
    },
    first=(
        "url",
        "model",
        "rate_rps",
        "arrivals",
        "concurrency",
        "requests",
        "duration_s",
        "timeout_ms",
        "seed",
        "input",
        "classes",
        "shared_memory",
        "token_file",
        "plot",
        "as_json",
        "help_all",
        "help",
    ),
)
