"""Tables about a running server: its metrics, its calls and limits, and the status of every error."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.batching.docstrings import docstrings
from headrace.host.dpu.units.status import Status
from headrace.host.server import rows as rows_module
from headrace.host.server.observe.metrics import Metrics
from headrace.host.server.observe.watch import Snapshot
from headrace.host.server.protocol import limits, messages, shared_memory
from headrace.host.server.protocol.messages import _OUTCOMES, CANCELLED, DATATYPES, INTERNAL, OK, Outcome
from headrace.host.server.transport.grpc import endpoints
from reference.markdown import table

ROOT = Path(__file__).resolve().parents[2]
HTTP = ROOT / "host" / "server" / "transport" / "http"


def _families() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Yield the name, the type, the labels and the meaning of each metric."""
    nothing = Snapshot([], 0, [], {}, {}, {}, {}, {}, {}, 0)
    made = Metrics(lambda: nothing)
    for collector in made._registry._collector_to_names:
        families: list[Any] = list(made.collect()) if collector is made else [collector]
        for family in families:
            name = getattr(family, "name", None) or family._name
            kind = getattr(family, "type", None) or family._type
            text = getattr(family, "documentation", None) or family._documentation
            yield name, kind, tuple(family._labelnames), text


def metrics() -> str:
    """Return a table of all metrics of a server."""
    rows = []
    for name, kind, labels, text in _families():
        shown = f"`{name}{'_total' if kind == 'counter' else ''}`"
        unit = "s" if name.endswith("_seconds") else ""
        rows.append((shown, kind, ", ".join(f"`{label}`" for label in labels), unit, text))
    return table(("metric", "type", "labels", "unit", "meaning"), rows)


def _sentence(error: type[BaseException]) -> str:
    if error is MemoryError:
        return "The server is short of memory."
    return " ".join(docstrings(error)[1].split("\n\n")[0].split())  # a compiled class has none of its own


def outcomes() -> str:
    """Return a table of the outcomes of requests, with the status that each transport answers."""
    rows = [
        ("", "The request was answered.", OK),
        *((each.__name__, _sentence(each), found) for each, found in _OUTCOMES),
    ]
    rows += [
        ("any other error", "The network raised an error, or the server has a bug. The log has the reason.", INTERNAL),
        ("", "The client left before the answer. The status is only recorded.", CANCELLED),
    ]

    def row(error: str, text: str, found: Outcome) -> tuple[str, ...]:
        return f"`{found.name}`", str(found.http), found.grpc, f"`{error}`" if error.isidentifier() else error, text

    return table(("outcome", "HTTP", "gRPC", "error", "when"), (row(*each) for each in rows))


def refusals() -> str:
    """Return a table of the statuses with which the HTTP server refuses a request that it does not read to its end."""
    found: dict[int, dict[str, None]] = {}
    for path in sorted(HTTP.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and len(node.args) == 2
                and _name(node.func) in ("Refused", "_refuse", "refusal")
            ):
                status, text = node.args
                if isinstance(status, ast.Constant):
                    found.setdefault(status.value, {})[_text(text)] = None
    rows = []
    for status, texts in sorted(found.items()):
        rows += [(str(status), text) for text in texts]
    return table(("status", "text of the error"), rows)


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "..." for each in node.values)
    return "..."


def unit_statuses() -> str:
    """Return a table of the status codes of the compute units."""
    return table(("code", "name", "meaning"), ((str(each.value), f"`{each.name}`", each.reason) for each in Status))


def grpc_calls() -> str:
    """Return a table of the calls of the gRPC service, with those that this server answers."""
    tensors = {"ModelInfer", "ModelStreamInfer"}
    rows = []
    for method in endpoints.pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
        served = method.name in tensors or hasattr(endpoints._Calls, method.name)
        rows.append((f"`{method.name}`", "yes" if served else "no: UNIMPLEMENTED"))
    return table(("call", "served"), rows)


def datatypes() -> str:
    """Return a table of the datatypes of tensors."""
    rows = [(f"`{name}`", f"`{dtype}`") for name, dtype in DATATYPES.items()]
    return table(("datatype", "numpy"), [*rows, ("`BYTES`", "an array of byte strings")])


def fixed_limits() -> str:
    """Return the limits that no option changes."""
    rows = [
        ("time without a request on a connection", f"{limits.IDLE_S:g} s", "the connection is closed"),
        ("rate at which a client sends or receives", f"{limits.BYTES_PER_S // 1000} kB/s", "the connection is closed"),
        ("dimensions of a tensor", str(messages.MAX_RANK), "400"),
        ("inputs, outputs and parameters, each", str(messages.MAX_FIELDS), "400"),
        ("elements of a `BYTES` tensor, or of a `BOOL` tensor in JSON", str(messages.MAX_OBJECTS), "400"),
        ("numbers of an output in JSON, or of an input in `contents`", str(messages.MAX_NUMBERS), "400"),
        ("labels of a `classification`", str(messages.MAX_CLASSES), "400"),
        ("requests and unread answers of a gRPC stream, each", str(endpoints.STREAM_AHEAD), "the stream waits"),
        ("registered regions of shared memory", str(shared_memory.MAX_REGIONS), "400"),
        ("nodes of the trees of a request", str(rows_module.LONGEST_TREE), "400"),
    ]
    return table(("what", "limit", "beyond it"), rows)


GENERATORS = {
    "metrics": metrics,
    "outcomes": outcomes,
    "refusals": refusals,
    "unit-statuses": unit_statuses,
    "grpc-calls": grpc_calls,
    "datatypes": datatypes,
    "fixed-limits": fixed_limits,
}
