"""Candidates that are models of a server of the Open Inference Protocol, such as `headrace serve` and Triton.

The model takes files in an input of the type BYTES, and answers tensors. They come as bytes, so their values and types
are those of the server.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.host.compare.candidates.opaque import DATATYPES, exchanged
from headrace.host.compare.stages import Tensors
from headrace.host.compare.values import CandidateError

GRPC: Final = "grpc://"
BYTES: Final = "BYTES"
LENGTH: Final = "Inference-Header-Content-Length"


def is_infer_url(named: str) -> bool:
    """Tell whether this is the URL of a model's inference over HTTP."""
    parts = urlsplit(named).path.split("/")
    return len(parts) >= 5 and parts[-1] == "infer" and "/v2/models/" in urlsplit(named).path


def check_grpc(named: str) -> None:
    """Raise UsageError unless this is grpc://HOST:PORT/NAME."""
    try:
        found = urlsplit(named)
        is_whole = bool(found.hostname and found.port and found.path.strip("/"))
    except ValueError:
        is_whole = False
    if not is_whole:
        raise UsageError(f"--candidate {named!r}: write grpc://HOST:PORT/NAME, with the name of the model")


class HttpModel:
    """A model over HTTP, by a URL that ends with /v2/models/NAME/infer."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.versions: Mapping[str, str] = {}
        self._url = url
        self._timeout_s = timeout_s
        self._input: tuple[str, list[int]] | None = None

    def tensors(self, data: bytes) -> tuple[Tensors, str | None]:
        if self._input is None:
            body, _ = exchanged(self._url.removesuffix("/infer"), None, {}, self._timeout_s)
            self._input = input_of(_read(body).get("inputs", ()), self._url)
        name, shape = self._input
        given = len(data).to_bytes(4, "little") + data
        entry = {"name": name, "datatype": BYTES, "shape": shape, "parameters": {"binary_data_size": len(given)}}
        head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
        headers = {"Content-Type": "application/octet-stream", LENGTH: str(len(head))}
        body, answered = exchanged(self._url, head + given, headers, self._timeout_s)
        return outputs_of(body, int(answered.get(LENGTH) or len(body))), None

    def close(self) -> None: ...


class GrpcModel:
    """A model over gRPC, by grpc://HOST:PORT/NAME."""

    def __init__(self, named: str, timeout_s: float) -> None:
        """Make the client, which connects with the first file. Raises UsageError if tritonclient is missing."""
        try:
            import tritonclient.grpc as library
        except ImportError as error:
            raise UsageError(f"--candidate {named}: it needs tritonclient; pip install 'headrace[server]'") from error
        self.versions: Mapping[str, str] = {}
        found = urlsplit(named)
        self._named, self._model, self._timeout_s = named, found.path.strip("/"), timeout_s
        self._library: Any = library
        self._client: Any = library.InferenceServerClient(found.netloc)
        self._input: tuple[str, list[int]] | None = None

    def tensors(self, data: bytes) -> tuple[Tensors, str | None]:
        from tritonclient.utils import InferenceServerException

        try:
            if self._input is None:
                metadata = self._client.get_model_metadata(self._model, client_timeout=self._timeout_s)
                inputs = [
                    {"name": each.name, "datatype": each.datatype, "shape": each.shape} for each in metadata.inputs
                ]
                self._input = input_of(inputs, self._named)
            name, shape = self._input
            given = self._library.InferInput(name, shape, BYTES)
            given.set_data_from_numpy(np.array([data], object).reshape(shape))
            answer = self._client.infer(self._model, [given], client_timeout=self._timeout_s)
        except InferenceServerException as error:
            raise CandidateError(f"{self._named}: {' '.join((error.message() or str(error)).split())}") from error
        return {each.name: answer.as_numpy(each.name) for each in answer.get_response().outputs}, None

    def close(self) -> None:
        self._client.close()


def input_of(inputs: Sequence[Mapping[str, Any]], named: str) -> tuple[str, list[int]]:
    """Return the name of the only input that takes files, and its shape for one file.

    Raises CandidateError if there is no such input."""
    found = [(str(each["name"]), [1] * len(each["shape"])) for each in inputs if each["datatype"] == BYTES]
    if len(found) != 1:
        raise CandidateError(f"{named}: the model has {len(found)} inputs for files; name one that has one")
    return found[0]


def outputs_of(body: bytes, head: int) -> Tensors:
    """Return the tensors of an answer whose first `head` bytes are JSON. Raises CandidateError."""
    made = {}
    place = head
    for each in _read(body[:head]).get("outputs", ()):
        try:
            name, kind, shape = str(each["name"]), np.dtype(DATATYPES[each["datatype"]]), each["shape"]
            size = each.get("parameters", {}).get("binary_data_size")
            if size is None:
                made[name] = np.array(each["data"], kind).reshape(shape)
                continue
            made[name] = np.frombuffer(body[place : place + size], kind).reshape(shape)
            place += size
        except (KeyError, TypeError, ValueError) as error:
            raise CandidateError(f"its answer cannot be read ({one_line(error)}); answer tensors of numbers") from error
    return made


def _read(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise CandidateError(f"its answer cannot be read ({one_line(error)}); name a model's URL") from error
    if not isinstance(found, dict):
        raise CandidateError("its answer is no JSON object; name a model's URL")
    return found
