"""This module is a client of a vLLM server that takes tokens and features in place of text and images.

vLLM offers these calls with its option `--enable-scale-out`.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final

import aiohttp

from headrace.batching import HeadraceError
from headrace.host.adapters.render.request import Prompt

START_S: Final = 10.0  # longest time for a connection
GENERATE: Final = "/inference/v1/generate"
JSON: Final = {"Content-Type": "application/json"}
MAX_EVENT: Final = 8 << 20  # bytes of an event of a stream


class EngineGone(HeadraceError):
    """The engine does not answer, or it left in the middle of an answer."""


class EngineRefused(HeadraceError):
    """The engine answered with an error. `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """A connection to an engine. Use it as an async context manager."""

    def __init__(self, url: str, timeout_s: float, token: str | None = None) -> None:
        """Store the address of the engine.

        Args:
            url: As in http://127.0.0.1:8000.
            timeout_s: Longest time without a byte of an answer.
            token: The engine's API key, or None.
        """
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def __aenter__(self) -> "Engine":
        limits = aiohttp.ClientTimeout(total=None, sock_connect=START_S, sock_read=self.timeout_s)
        self._session = aiohttp.ClientSession(
            timeout=limits, headers=self._headers, connector=aiohttp.TCPConnector(limit=0)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def models(self) -> list[dict[str, Any]]:
        """Return what the engine says about its models."""
        return list((await self._json("GET", "/v1/models"))["data"])

    async def healthy(self) -> bool:
        """Tell whether the engine is there and says that it works."""
        try:
            async with self._session.get(f"{self.url}/health") as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def rendered(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tokens and features that the engine itself makes of a chat.

        Raises EngineRefused, with the status 404 if the engine has no such call, and EngineGone."""
        return await self._json("POST", "/v1/chat/completions/render", [json.dumps(body).encode()])

    async def rendered_speech(self, model: str, language: str, data: bytes) -> dict[str, Any]:
        """Return the tokens and features that the engine makes of a sound for a transcription.

        Raises EngineRefused, with the status 404 if the engine has not Headrace's plugin, and EngineGone."""
        form = aiohttp.FormData({"model": model, "language": language})
        form.add_field("file", data, filename="sample.wav", content_type="audio/wav")
        return await self._answer("POST", "/v1/audio/transcriptions/render", form, {})

    async def generate(self, prompt: Prompt) -> dict[str, Any]:
        """Return the whole answer to a prompt. Raises EngineRefused and EngineGone."""
        return await self._json("POST", GENERATE, prompt.pieces)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[dict[str, Any]]:
        """Yield the parts of an answer as they come, for a prompt with `stream`. Raises EngineRefused and EngineGone.

        The engine ends its work when the iterator is closed."""
        try:
            async with self._session.post(f"{self.url}{GENERATE}", data=_sent(prompt.pieces), headers=JSON) as response:
                if response.status != 200:
                    raise EngineRefused(response.status, _message(response.status, await response.text()))
                async for event in _events(response.content):
                    if event == b"[DONE]":
                        return
                    part = json.loads(event)
                    if "error" in part:
                        raise EngineRefused(int(part["error"].get("code") or 500), str(part["error"].get("message")))
                    yield part
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineGone(self._gone(error)) from error
        raise EngineGone(f"the engine at {self.url} ended its answer in the middle; send the request again")

    async def _json(self, method: str, path: str, pieces: Sequence[bytes] = ()) -> dict[str, Any]:
        return await self._answer(method, path, _sent(pieces) if pieces else None, JSON)

    async def _answer(self, method: str, path: str, data: Any, headers: Mapping[str, str]) -> dict[str, Any]:
        try:
            async with self._session.request(method, f"{self.url}{path}", data=data, headers=headers) as response:
                text = await response.text()
                if response.status != 200:
                    raise EngineRefused(response.status, _message(response.status, text))
                return dict(json.loads(text))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineGone(self._gone(error)) from error
        except ValueError as error:
            raise EngineRefused(502, f"the engine at {self.url} answered {path} with no JSON") from error

    def _gone(self, error: BaseException) -> str:
        why = str(error) or type(error).__name__
        return f"the engine at {self.url} does not answer ({why}); start it, or send the request again later"


async def _sent(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of a body, which aiohttp sends one after another."""
    for piece in pieces:
        yield piece


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event."""
    held = bytearray()
    async for piece in content.iter_any():
        held += piece
        while (end := held.find(b"\n\n")) >= 0:
            event = bytes(held[:end])
            del held[: end + 2]
            if event.startswith(b"data:"):
                yield event.removeprefix(b"data:").strip()
        if len(held) > MAX_EVENT:
            raise EngineRefused(502, f"the engine sent an event of more than {MAX_EVENT} bytes")


def _message(status: int, text: str) -> str:
    """Return the message within an error of the engine."""
    try:
        error = json.loads(text)
        found = error.get("error", error)
        return str(found.get("message", found) if isinstance(found, dict) else found)
    except (ValueError, AttributeError):
        return f"the engine answered with the status {status}"
