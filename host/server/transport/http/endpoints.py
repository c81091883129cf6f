"""The Open Inference Protocol v2 over HTTP. Requests are JSON, and tensors may follow it as bytes (Triton's binary
tensor data)."""

import base64
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from headrace.batching import BadInput, HeadraceError, UnknownModel
from headrace.host.live.results import Overloaded
from headrace.host.memory.slots import MIN_BYTES
from headrace.host.memory.sources import FilledSlot, Tensor
from headrace.host.network.browsers import BrowserGuard
from headrace.host.server import describe
from headrace.host.server.observe.metrics import CONTENT_TYPE
from headrace.host.server.observe.watch import RequestTrace
from headrace.host.server.protocol import codings
from headrace.host.server.protocol.descriptions import (
    MAX_BYTES,
    MAX_KEPT,
    Description,
    Descriptions,
    InputDescription,
    OutputDescription,
    bound,
    check_new,
    key_of,
    place_of,
)
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import (
    BYTES,
    MAX_CLASSES,
    MAX_NUMBERS,
    MAX_RANK,
    VERSION,
    InferRequest,
    Output,
    RequestedOutput,
    TooLarge,
    Unauthorized,
    bytes_tensor,
    checked_shape,
    client_text,
    from_raw,
    from_slot,
    outcome,
    to_raw,
)
from headrace.host.server.protocol.shared_memory import Regions, Shared
from headrace.host.server.rows import kind_of
from headrace.host.server.service import Service
from headrace.host.server.transport.http import page
from headrace.host.server.transport.http.body_slots import BodySlot, BodySlots
from headrace.host.server.transport.http.connection import Request, Response
from headrace.host.server.transport.http.heads import Head, Refused
from headrace.host.server.transport.http.json_body import Body, fields_of, tensor

HEADER_LENGTH = "inference-header-content-length"
RETRY_AFTER_S = 1
MODELS = ("v2", "models")
# These paths need no token: health checks have none, and the page asks its user for it.
NEED_NO_TOKEN = (("v2", "health", "live"), ("v2", "health", "ready"), ("",))
MAX_KEPT_PATH = 256  # bytes of a path
JSON_CONTENT = {"content-type": "application/json"}

_log = logging.getLogger(__name__)


class NoSuchPath(UnknownModel):
    """The server does not have this path."""


class HttpApi:
    """Handle the requests of the HTTP port.

    Without `regions` there is no shared memory. Without a `guard` pages of other sites may send requests."""

    def __init__(
        self, service: Service, limits: Limits, regions: Regions | None, guard: BrowserGuard | None = None
    ) -> None:
        self._service = service
        self._limits = limits
        self._regions = regions
        self._guard = guard
        self._descriptions = Descriptions()
        self._slots = BodySlots(service, min(limits.head, MAX_BYTES))

    def place(self, head: Head) -> BodySlot | None:
        """Return a slot for the tensor at the end of a body, before it arrives. Return None if it needs none."""
        said = head.headers.get(HEADER_LENGTH)
        if said is None or head.length is None or head.length < MIN_BYTES or "content-encoding" in head.headers:
            return None
        path = _path(head.target.partition("?")[0])
        is_infer = len(path) >= 4 and path[:2] == MODELS and path[-1] == "infer" and head.method == "POST"
        if not is_infer or not self._service.authorized(head.headers.get("authorization")):
            return None
        return self._slots.find(path[2], said, head.length)

    async def handle(self, request: Request) -> Response:
        """Return the response to a request. Errors become error responses."""
        try:
            path = _path(request.target.partition("?")[0])
            try:
                if self._guard is not None:
                    self._guard.check(request.method, request.headers)
                if path not in NEED_NO_TOKEN:
                    check_token(self._service, request)
            except HeadraceError:
                with self._service.counted(_trace(request, "")):
                    raise
            if len(path) == 4 and path[3] == "infer" and path[:2] == MODELS and request.method == "POST":
                return await self._infer(request, path[2], "")  # most requests, so the other paths come after it
            return await self._route(request, path)
        except Exception as error:
            return error_response(error)

    async def _fields(self, request: Request) -> dict[str, Any]:
        """Return the fields of a JSON body, or {} without a body. Raises BadInput, TooLarge, Overloaded and
        UnknownCoding."""
        body = await self._content(request)
        return Body(body, self._limits.json).fields if body else {}

    async def _content(self, request: Request) -> memoryview:
        """Return the body without its Content-Encoding. Raises BadInput, TooLarge, Overloaded and UnknownCoding."""
        try:
            return await codings.decoded(request.body, request.headers.get("content-encoding", ""), request.reserve)
        except Refused as refused:
            status, text = refused.args
            raise TooLarge(text) if status == 413 else Overloaded(text) from None

    async def _route(self, request: Request, path: Sequence[str]) -> Response:
        service = self._service
        match list(path):
            case ["v2"]:
                content: Any = describe.server_metadata(self._regions is not None)
            case ["v2", "health", "live"]:
                return Response(200 if service.live else 503)
            case ["v2", "health", "ready"]:
                return Response(200 if service.ready else 503)
            case [""]:
                return page.RESPONSE if request.method == "GET" else _method_not_allowed("GET")
            case ["status"]:
                content = page.status(service, request.target.partition("?")[2])
            case ["photo", name]:
                return await self._image(request, name)
            case ["v2", "models", "stats"]:
                content = describe.model_statistics(service, list(service.models.values()))
            case ["v2", "repository", "index"]:
                return await self._index(request)
            case ["v2", "systemsharedmemory", "region", name, what]:
                return await self._shared_memory(request, what, name)
            case ["v2", "systemsharedmemory", what]:
                return await self._shared_memory(request, what, "")
            case ["v2", "repository", "models", name, "load" | "unload" as what]:
                return await self._change(request, name, what)
            case ["v2", "models", name, "versions", version, *rest] if len(rest) < 2:
                return await self._model(request, name, version, *rest)
            case ["v2", "models", name, *rest] if len(rest) < 2:
                return await self._model(request, name, "", *rest)
            case _:
                raise NoSuchPath(f"this server has no path {request.target.partition('?')[0][:200]}")
        return as_json(content) if request.method == "GET" else _method_not_allowed("GET")

    async def _model(self, request: Request, name: str, version: str, what: str = "") -> Response:
        service = self._service
        if what == "infer":
            return (
                await self._infer(request, name, version) if request.method == "POST" else _method_not_allowed("POST")
            )
        model = service.model(name, version)
        match what:
            case "":
                content = describe.model_metadata(model)
            case "ready":
                return Response(200 if model.ready and not service.draining else 503)
            case "config":
                content = describe.model_config(model)
            case "stats":
                content = describe.model_statistics(service, [model])
            case _:
                raise NoSuchPath(f"a model has no path {what[:200]!r}; use infer, ready, config or stats")
        return as_json(content) if request.method == "GET" else _method_not_allowed("GET")

    async def _index(self, request: Request) -> Response:
        if request.method != "POST":
            return _method_not_allowed("POST")
        fields = await self._fields(request)
        return as_json(describe.repository_index(self._service, fields.get("ready") is True))

    async def _shared_memory(self, request: Request, what: str, name: str) -> Response:
        if self._regions is None:
            raise NoSuchPath("this server does not use shared memory; start it with --shared-memory")
        if (method := "GET" if what == "status" else "POST") != request.method:
            return _method_not_allowed(method)
        match what:
            case "status":
                return as_json(self._regions.status(name))
            case "register":
                fields = await self._fields(request)
                size = _number(fields, "byte_size")
                if size is None:
                    raise BadInput(f"shared memory region {name!r} has no byte_size; give its size in bytes")
                self._regions.register(
                    name, _text(fields, "key", f"shared memory region {name!r}"), _number(fields, "offset") or 0, size
                )
            case "unregister":
                self._regions.unregister(name)
            case _:
                raise NoSuchPath(f"shared memory has no path {what[:200]!r}; use status, register or unregister")
        return Response(200)

    async def _change(self, request: Request, name: str, what: str) -> Response:
        if request.method != "POST":
            return _method_not_allowed("POST")
        fields = await self._fields(request)
        if what == "unload":
            await self._service.unload(name)
        elif fields.get("parameters"):
            raise BadInput("the settings of a model come from its repository; leave out the parameters")
        else:
            await self._service.load(name)
        return as_json({})

    async def _image(self, request: Request, name: str) -> Response:
        if request.method != "POST":
            return _method_not_allowed("POST")
        return as_json(await page.image(self._service, _trace(request, name), bytes(await self._content(request))))

    async def _infer(self, request: Request, name: str, version: str) -> Response:
        service = self._service
        with service.counted(_trace(request, name)) as trace:
            service.model(name, version)  # checks the name before the body is read
            is_coded = "content-encoding" in request.headers
            body = await self._content(request) if is_coded else request.body
            length = request.headers.get(HEADER_LENGTH)
            if length is None and (kind := kind_of(bytes(body[:12]))) is not None:  # only a file, as curl sends it
                inference = InferRequest(name, {kind: bytes_tensor(kind, (1,), [bytes(body)])}, version=version)
            else:
                inference = infer_request(
                    name, version, body, length, self._limits, self._regions, self._descriptions, request.tensor
                )
            outputs = await service.infer(inference, trace)
            # Most clients list every coding that they know, but compression hardly makes tensors smaller. So tensors
            # are compressed only for a client that lists exactly one coding.
            compressible = "," not in request.headers.get("accept-encoding", "")
            return infer_response(inference, outputs, trace.marks, compressible=compressible)


class MetricsApi:
    """Handle the requests of the metrics port."""

    def __init__(self, service: Service, guard: BrowserGuard | None = None) -> None:
        self._service = service
        self._guard = guard

    async def handle(self, request: Request) -> Response:
        """Return the response to a request. Errors become error responses."""
        try:
            if self._guard is not None:
                self._guard.check(request.method, request.headers)
            check_token(self._service, request)
            if request.target.partition("?")[0] != "/metrics":
                raise NoSuchPath("this port has only the path /metrics")
            return Response(200, [self._service.metrics.text()], {"content-type": CONTENT_TYPE})
        except Exception as error:
            return error_response(error)


def _path(target: str) -> tuple[str, ...]:
    """Return the decoded parts of a path. The last ones are remembered, unless they are long."""
    return _remembered_path(target) if len(target) <= MAX_KEPT_PATH else _parts(target)


def _parts(target: str) -> tuple[str, ...]:
    return tuple(unquote(part) for part in target.strip("/").split("/"))


_remembered_path = lru_cache(maxsize=MAX_KEPT)(_parts)


def _trace(request: Request, model: str) -> RequestTrace:
    return RequestTrace(model, "http", request.peer, request.headers.get("traceparent", ""))


def check_token(service: Service, request: Request) -> None:
    """Raise Unauthorized unless the request has the token."""
    if not service.authorized(request.headers.get("authorization")):
        raise Unauthorized("send the header Authorization: Bearer TOKEN with this server's token")


def error_response(error: Exception) -> Response:
    """Return the response for an error. Internal errors are also written to the log."""
    text = client_text(error)
    if text is None:
        _log.error("a request failed because of an internal error", exc_info=error)
    result = outcome(error)
    response = refusal(result.http, text or "the server failed; its log has the reason")
    # This header distinguishes the reasons of a 503: too many requests, or no worker.
    return Response(response.status, response.parts, {**response.headers, "headrace-outcome": result.name})


def refusal(status: int, text: str) -> Response:
    """Return an error response with this status and text."""
    headers = dict(JSON_CONTENT)
    if status == 503:
        headers["retry-after"] = str(RETRY_AFTER_S)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status == 415:
        headers["accept-encoding"] = ", ".join(codings.CODINGS)
    return Response(status, [orjson.dumps({"error": text})], headers)


def as_json(value: Any) -> Response:
    return Response(200, [orjson.dumps(value)], JSON_CONTENT)


def _method_not_allowed(allowed: str) -> Response:
    response = refusal(405, f"this path does not have the method; use {allowed}")
    methods = "GET, HEAD" if allowed == "GET" else allowed
    return Response(405, response.parts, {**response.headers, "allow": methods})


# ---- requests ----


def infer_request(
    model: str,
    version: str,
    body: memoryview,
    length: str | None,
    limits: Limits,
    regions: Regions | None,
    descriptions: Descriptions,
    filled: FilledSlot | None = None,
) -> InferRequest:
    """Return the inference request in a body. `length` is the number of bytes of its JSON; None means the whole body.

    With a `filled` slot the body is the JSON alone, and what follows it is in the slot.

    Raises BadInput and UnknownRegion."""
    if filled is not None:
        header, binary = body, filled.view()
    elif length is None:
        header, binary = body, memoryview(b"")
    elif not length.isdecimal() or len(length) > 18 or int(length) > len(body):
        raise BadInput(
            f"Inference-Header-Content-Length must be a whole number of at most {len(body)}, the length of the body"
        )
    else:
        header, binary = body[: int(length)], body[int(length) :]
    key = key_of(header, model, version)
    description = descriptions.find(key)
    if description is None:
        description = _described(model, version, Body(header, limits.json), limits)
        descriptions.keep(key, description)
    at = 0

    def taken(described: InputDescription) -> Tensor:
        nonlocal at
        assert described.size is not None
        end = at + described.size
        if end > len(binary):
            raise BadInput(
                f"input {described.name!r} has a binary_data_size of {described.size}, but only {len(binary) - at} "
                "bytes are left"
            )
        raw, at = binary[at:end], end
        if filled is not None and described.size == len(filled):
            return from_slot(described.name, described.datatype, described.shape, filled)
        return from_raw(described.name, described.datatype, described.shape, raw)

    request = bound(description, Shared(regions), taken)
    if at != len(binary):
        raise BadInput(f"{len(binary) - at} bytes of the body belong to no input; check each binary_data_size")
    return request


def _described(model: str, version: str, json: Body, limits: Limits) -> Description:
    """Return the description in JSON. Raises BadInput."""
    inputs = list[InputDescription]()
    for entry in json.objects("inputs"):
        name = _text(entry, "name", "an input")
        check_new(name, inputs)
        shape = checked_shape(name, _shape(entry.get("shape")), limits.elements)
        own = _parameters(entry)
        place, size, array = place_of(name, own), None, None
        if place is None and (size := _number(own, "binary_data_size")) is None:
            array = tensor(name, entry.get("datatype"), shape, entry.get("data"))
            if own.get("base64") is True:
                array = _from_base64(name, array)
        inputs.append(InputDescription(name, entry.get("datatype"), shape, place, array, size))
    parameters = _parameters(json.fields)
    all_binary = parameters.get("binary_data_output") is True
    outputs = []
    for entry in json.objects("outputs"):
        own = _parameters(entry)
        is_binary = own.get("binary_data", all_binary) is True
        classes = _number(own, "classification") or 0
        if classes > MAX_CLASSES:
            raise BadInput(f"the request asks for a classification of {classes}; ask for at most {MAX_CLASSES} labels")
        output = _text(entry, "name", "an output")
        outputs.append(OutputDescription(RequestedOutput(output, classes, is_binary), place_of(output, own)))
    id = json.fields.get("id", "")
    if not isinstance(id, str):
        raise BadInput("the id must be a string")
    request = InferRequest(
        model,
        {},
        (),
        version,
        id,
        timeout_us=_number(parameters, "timeout") or 0,
        priority=_number(parameters, "priority") or 0,
        max_tokens=_number(parameters, "max_tokens") or 0,
        binary=all_binary,
    )
    return Description(request, inputs, outputs, repeats=all(each.array is None for each in inputs))


def _parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    parameters = fields.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, simdjson.Object):
        raise BadInput("parameters must be an object")
    return fields_of(parameters, "parameters")


def _from_base64(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return a tensor of BYTES with each string decoded from base64. Raises BadInput."""
    try:
        files = [base64.b64decode(text, validate=True) for text in array.ravel()]
    except (ValueError, TypeError):  # TypeError: an element is a number
        raise BadInput(
            f"input {name!r}: its data are not base64, although its parameter says so; give strings of base64"
        ) from None
    return bytes_tensor(name, array.shape, files)


def _shape(value: Any) -> Any:
    return list(islice(value, MAX_RANK + 1)) if isinstance(value, simdjson.Array) else value


def _text(fields: Mapping[str, Any], key: str, what: str) -> str:
    text = fields.get(key)
    if not isinstance(text, str) or not text:
        raise BadInput(f"{what} has no {key}; give it as a string")
    return text


def _number(parameters: Mapping[str, Any], key: str) -> int | None:
    number = parameters.get(key)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**62:
        raise BadInput(f"the parameter {key} must be a whole number of 0 or more")
    return number


# ---- answers ----


def infer_response(
    request: InferRequest, outputs: Sequence[Output], parameters: Mapping[str, str], *, compressible: bool
) -> Response:
    """Return the response with all outputs. `compressible` says whether binary tensors may be compressed.

    Raises BadInput for too many numbers, and HeadraceError for numbers that JSON cannot hold."""
    described: list[dict[str, Any]] = []
    parts: list[bytes | memoryview] = []
    for output in outputs:
        entry: dict[str, Any] = {
            "name": output.requested.name,
            "datatype": output.datatype,
            "shape": output.shape,
        }
        if output.array is None:
            assert output.requested.window is not None
            entry["parameters"] = output.requested.window.described(output.written)
        elif output.requested.binary:
            raw = to_raw(output.array)
            entry["parameters"] = {"binary_data_size": len(raw)}
            parts.append(raw)
        else:
            entry["data"] = _plain(output.datatype, output.array)
        described.append(entry)
    answer: dict[str, Any] = {"model_name": request.model, "model_version": VERSION, "outputs": described}
    if request.id:
        answer["id"] = request.id
    if parameters:
        answer["parameters"] = parameters
    header = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    if not parts:
        return Response(200, [header], JSON_CONTENT)
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(header))}
    return Response(200, [header, *parts], headers, compressible)


def _plain(datatype: str, array: NDArray[Any]) -> NDArray[Any] | list[str]:
    """Return all elements in their order. Raises HeadraceError for numbers that JSON cannot hold."""
    flat = array.ravel()
    if flat.size > MAX_NUMBERS:
        raise BadInput(f"an output has {flat.size} numbers; ask for more than {MAX_NUMBERS} as binary data")
    if datatype == BYTES:
        return [element.decode("utf-8", "replace") for element in flat]
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise HeadraceError("an output holds NaN or infinity, which JSON cannot express; ask for binary data")
    return flat
