"""Candidates of which only the tensors are known: a function of a module, a URL, and the emulated DPU.

A function and a URL get the bytes of a file. They answer one tensor, or several tensors by name.
"""

import asyncio
import io
import json
import multiprocessing
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol

import numpy as np

from headrace.batching import HeadraceError, UsageError
from headrace.batching.errors import one_line
from headrace.batching.named import own
from headrace.host.compare.stages import Tensors
from headrace.host.compare.values import CandidateError, as_tensors
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.specs import AudioSpec

MAX_ANSWER: Final = 1 << 30  # bytes
START_S: Final = 120.0  # for a module to be imported; torch takes seconds on a busy machine
PROGRAM: Final = (
    "import sys; from headrace.host.compare.candidates.opaque import serve; serve(int(sys.argv[1]), sys.argv[2])"
)
NPY, NPZ = b"\x93NUMPY", b"PK"
DATATYPES: Final = {  # of the Open Inference Protocol
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}


class Opaque(Protocol):
    """A candidate of which only the tensors are known."""

    versions: Mapping[str, str]

    def tensors(self, data: bytes) -> tuple[Tensors, str | None]:
        """Return the tensors of a file, and a note or None. A tensor without a name has the name "".

        Raises CandidateError."""
        ...

    def close(self) -> None: ...


# ---- A function ----


class Function:
    """A function `module:name` in a process of its own, so that a crash or an endless loop ends one file alone.

    A process that was ended starts anew for the next file."""

    def __init__(self, name: str, timeout_s: float) -> None:
        """Start the process and import the module.

        Raises UsageError if the module or the function is not there."""
        self.versions: Mapping[str, str] = {}
        self._name = name
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        arguments = (str(theirs.fileno()), self._name)
        # A user's module may print. stdout belongs to the result, so its prints go to stderr.
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2
        )
        self._connection = ours
        theirs.close()
        try:
            error = self._answer(START_S)
        except (CandidateError, EOFError, OSError) as failed:
            self._end()
            raise UsageError(f"--candidate {self._name!r}: its module ends the process, or never ends") from failed
        if error is not None:
            self._end()
            raise UsageError(error)

    def tensors(self, data: bytes) -> tuple[Tensors, str | None]:
        if self._process is None:
            self._start()
        try:
            self._connection.send_bytes(data)
            kind, value = self._answer(self._timeout_s)
        except (EOFError, OSError):
            self._end()
            raise CandidateError(f"{self._name} ended its process; run it alone on this file") from None
        if kind == "error":
            raise CandidateError(f"{self._name}: {value}")
        return value, None

    def _answer(self, timeout_s: float) -> Any:
        if not self._connection.poll(timeout_s):
            self._end()
            raise CandidateError(
                f"{self._name} took more than {timeout_s:g} s; give --timeout-s a larger number, or make it quicker"
            )
        return self._connection.recv()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._connection.close()
            self._process = None

    def close(self) -> None:
        self._end()


def serve(descriptor: int, name: str) -> None:
    """Answer the tensors of each file that comes, until the other side closes. This is the process of a function."""
    connection = Connection(descriptor)
    try:
        function = own("--candidate", name, "headrace.compare")
        if not callable(function):
            raise UsageError(
                f"--candidate {name!r} is {type(function).__name__}; name a function of the bytes of a file"
            )
        connection.send(None)
    except HeadraceError as error:
        connection.send(str(error))
        return
    while True:
        try:
            data = connection.recv_bytes()
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            answer = "tensors", as_tensors(function(data))
        except CandidateError as error:
            answer = "error", str(error)
        except (Exception, SystemExit) as error:
            answer = "error", one_line(error)
        connection.send(answer)


# ---- A URL ----


class Url:
    """A URL that takes the bytes of a file by POST and answers .npy, .npz or JSON of the Open Inference Protocol."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.versions: Mapping[str, str] = {}
        self._url = url
        self._timeout_s = timeout_s

    def tensors(self, data: bytes) -> tuple[Tensors, str | None]:
        headers = {"Content-Type": "application/octet-stream"}
        return of_body(exchanged(self._url, data, headers, self._timeout_s)[0]), None

    def close(self) -> None: ...


def exchanged(
    url: str, data: bytes | None, headers: Mapping[str, str], timeout_s: float
) -> tuple[bytes, Mapping[str, str]]:
    """Return the body and the headers of the answer to a POST, or to a GET without data. Raises CandidateError."""
    request = urllib.request.Request(url, data, dict(headers), method="GET" if data is None else "POST")
    late = f"{url} took more than {timeout_s:g} s; give --timeout-s a larger number, or make it quicker"
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            body = answer.read(MAX_ANSWER + 1)
    except urllib.error.HTTPError as error:
        text = " ".join(error.read(300).decode(errors="replace").split())
        raise CandidateError(f"{url} answers {error.code} {error.reason}: {text}") from error
    except TimeoutError as error:
        raise CandidateError(late) from error
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, socket.timeout | TimeoutError):
            raise CandidateError(late) from error
        raise CandidateError(f"{url}: {reason}; start the server, or name another URL") from error
    if len(body) > MAX_ANSWER:
        raise CandidateError(f"{url} answers more than {MAX_ANSWER >> 20} MiB; answer one file's tensors")
    return body, answer.headers


def of_body(body: bytes) -> Tensors:
    """Return the tensors of an answer: a .npy file, a .npz file, or JSON with `outputs`. Raises CandidateError."""
    try:
        if body.startswith(NPY):
            return as_tensors(np.load(io.BytesIO(body), allow_pickle=False))
        if body.startswith(NPZ):
            with np.load(io.BytesIO(body), allow_pickle=False) as found:
                return as_tensors({name: found[name] for name in found.files})
        if body.lstrip().startswith(b"{"):
            outputs = json.loads(body)["outputs"]
            return {
                each["name"]: np.array(each["data"], DATATYPES[each["datatype"]]).reshape(each["shape"])
                for each in outputs
            }
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise CandidateError(f"its answer cannot be read ({one_line(error)}); answer a .npy or .npz file") from error
    raise CandidateError(
        f"its answer begins with {body[:12]!r}; answer a .npy file, a .npz file, or JSON of the Open Inference Protocol"
    )


# ---- The emulated DPU ----


class EmulatedDpu:
    """Headrace's DPU as software (sw_emu) or as a simulated circuit (hw_emu)."""

    def __init__(self, target: str, spec: ProcessorSpec | AudioSpec) -> None:
        """Build the container, which takes about a minute the first time. Raises UsageError."""
        from headrace.bitstreams.cache import build
        from headrace.host.dpu.driver import Dpu

        of_images, of_audio = (1, 0) if isinstance(spec, ProcessorSpec) else (0, 1)
        xclbin = build(target=target, image_cus=of_images, mel_cus=of_audio, norm_cus=of_audio)
        self.versions: Mapping[str, str] = {"target": target}
        self._loop = asyncio.Runner()
        self._dpu: Any = self._loop.run(_entered(Dpu(xclbin, spec)))

    def tensors(self, data: bytes) -> tuple[Tensors, str | None]:
        try:
            done = self._loop.run(self._dpu.process(data))
        except HeadraceError as error:
            raise CandidateError(str(error)) from error
        note = (
            f"the CPU did it: {done.refused or done.dpu_status or done.out_of_service}" if done.unit == "cpu" else None
        )
        return done.tensors, note

    def close(self) -> None:
        self._loop.run(self._dpu.__aexit__(None, None, None))
        self._loop.close()


async def _entered(dpu: Any) -> Any:
    return await dpu.__aenter__()
