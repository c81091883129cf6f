"""This module serves the front end over HTTP, in OpenAI's protocol."""

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from aiohttp import web

from headrace.batching import HeadraceError, UsageError
from headrace.batching.errors import BadInput, CorruptInput, one_line
from headrace.host.adapters.render.admission import Admission, AdmissionSettings, Turns
from headrace.host.adapters.render.chat import Answer, error_of, read_chat
from headrace.host.adapters.render.engine import Engine, EngineGone, EngineRefused
from headrace.host.adapters.render.front import Front, Limits, together
from headrace.host.adapters.render.media import NOUNS
from headrace.host.adapters.render.speech import Prompted
from headrace.host.adapters.render.transcription import (
    TRANSCRIBE,
    TRANSLATE,
    answer_of,
    delta_of,
    done_of,
    read_transcription,
)
from headrace.host.network.access import Access
from headrace.host.network.browsers import CrossSite, Misdirected

BODY_S: Final = 60.0  # longest time in which a request arrives
DRAIN_S: Final = 30.0  # longest wait at the end for requests in flight

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The settings of a front end.

    Attributes:
        engine: Address of the engine.
        engine_token: Its API key, or None.
        model: Folder of the model that the engine serves.
        xclbin: Container of the DPU, or None for the CPU.
        host, port: Where it listens. Port 0 takes a free port.
        access: The clients that it serves.
        max_body_bytes: Largest request.
        timeout_s: Longest time without a byte from the engine.
        limits: The limits of a chat.
        admission: How prompts wait for the engine. None passes each on at once.
    """

    engine: str
    model: Path
    xclbin: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    engine_token: str | None = None
    access: Access = field(default_factory=Access)
    max_body_bytes: int = 256 << 20
    timeout_s: float = 300.0
    limits: Limits = field(default_factory=Limits)
    admission: AdmissionSettings | None = None


def serve(options: RenderOptions, on_ready: Callable[[str, int, Front], None]) -> None:
    """Serve until SIGTERM or SIGINT. `on_ready` gets the host, the port and the front end.

    Raises:
        UsageError: The engine or the model does not fit, or the address is taken.
        EngineGone, EngineRefused: The engine does not answer, or refuses.
    """
    asyncio.run(_serve(options, on_ready))


async def _serve(options: RenderOptions, on_ready: Callable[[str, int, Front], None]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with running(options) as (host, port, front):
        on_ready(host, port, front)
        await ended.wait()


@asynccontextmanager
async def running(options: RenderOptions) -> AsyncIterator[tuple[str, int, Front]]:
    """Serve within the context, which gives the host, the port and the front end. Raises what `serve` raises."""
    async with (
        Engine(options.engine, options.timeout_s, options.engine_token) as engine,
        Front(engine, options.model, options.xclbin, options.limits) as front,
        AsyncExitStack() as stack,
    ):
        admission = None
        if options.admission is not None:
            made = await Admission.measured(engine, options.admission, front.measured_prompts())
            admission = await stack.enter_async_context(made)
        runner = web.AppRunner(
            Api(front, engine, options, admission).app(),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=DRAIN_S,
            keepalive_timeout=75,
        )
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, options.host, options.port).start()
            except OSError as error:
                told = f"--http {options.host}:{options.port}: {error.strerror}; choose another port"
                raise UsageError(told) from error
            host, port = runner.addresses[0][:2]
            yield host, port, front
        finally:
            await runner.cleanup()


class NoSuchModel(HeadraceError):
    """A request asks for another model than that of the engine."""


class Late(HeadraceError):
    """A request does not arrive in time."""


class Api:
    """The endpoints."""

    def __init__(self, front: Front, engine: Engine, options: RenderOptions, admission: Admission | None) -> None:
        self._front = front
        self._admission = admission
        self._engine = engine
        self._options = options
        self._guard = options.access.guard
        self._answered: dict[int, int] = {}

    def app(self) -> web.Application:
        """Return the application, whose errors have OpenAI's form."""
        app = web.Application(client_max_size=self._options.max_body_bytes, middlewares=[self._guarded])
        app.router.add_post("/v1/chat/completions", self._chat)
        for path, task in (("transcriptions", TRANSCRIBE), ("translations", TRANSLATE)):
            app.router.add_post(f"/v1/audio/{path}", partial(self._speech, task))
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        try:
            if self._guard is not None:
                self._guard.check(request.method, request.headers)
            response: web.StreamResponse = await (handler if self._allows(request) else _without_token)(request)
        except web.HTTPRequestEntityTooLarge:
            response = _error(413, f"the request has more than {self._options.max_body_bytes} bytes; send less")
        except web.HTTPException as error:
            response = _error(error.status, f"{request.method} {request.path}: {error.reason}")
        except HeadraceError as error:
            response = _error(_status(error), str(error))
        except Exception:  # a fault of the front end itself
            _log.exception("%s %s", request.method, request.path)
            response = _error(500, "the front end failed; its log has the reason")
        self._answered[response.status] = self._answered.get(response.status, 0) + 1
        return response

    def _allows(self, request: web.Request) -> bool:
        """Tell whether a request has the token, or needs none."""
        return request.path == "/health" or self._options.access.authorized(request.headers.get("Authorization"))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await _arrived(request.read())
        source: Engine | Turns = self._engine if self._admission is None else self._admission.turns()
        chat = await asyncio.to_thread(read_chat, body)
        del body
        self._check_model(chat.model)
        asked = chat
        if self._admission is not None and not chat.stream:
            asked = replace(chat, stream=True, include_usage=True)  # the first token tells that a place is free
        prompt = await self._front.prompt(asked)
        answer = Answer(self._front.model, chat.token_ids)
        if not chat.stream:
            return web.json_response(answer.whole(await source.generate(prompt)), dumps=_text)
        parts = source.stream(prompt)
        return await _streamed(request, (event async for part in parts for event in answer.chunks(part)), parts)

    async def _speech(self, task: str, request: web.Request) -> web.StreamResponse:
        wanted = read_transcription(_fields(await _arrived(request.post())), task)
        self._check_model(wanted.model)
        prompted = await self._front.transcription(wanted)
        if wanted.stream:
            pieces = self._spoken(prompted)
            return await _streamed(request, pieces, pieces)
        texts = await together([self._engine.generate(prompt) for prompt in prompted.prompts])
        text = prompted.joint.join(each["choices"][0]["text"] for each in texts)
        if wanted.response_format == "text":
            return web.Response(text=text)
        return web.json_response(answer_of(text, task, prompted.seconds), dumps=_text)

    async def _spoken(self, prompted: Prompted) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of a streamed transcription. The engine answers one prompt after another."""
        whole = ""
        for number, prompt in enumerate(prompted.prompts):
            texts = [prompted.joint] if number else []
            async with aclosing(self._engine.stream(prompt)) as parts:
                async for part in parts:
                    texts += [choice["text"] for choice in part["choices"]]
                    if text := "".join(texts):
                        yield delta_of(text)
                        whole += text
                    texts.clear()
        yield done_of(whole)

    def _check_model(self, asked: str | None) -> None:
        if asked not in (None, self._front.model):
            raise NoSuchModel(f"there is no model {asked!r}; ask for {self._front.model!r}")

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": await self._engine.models()}, dumps=_text)

    async def _health(self, request: web.Request) -> web.Response:
        """Answer 200 if the engine works, and 503 otherwise."""
        return web.Response(status=200 if await self._engine.healthy() else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        """Answer the counts in Prometheus's form."""
        lines = []
        for kind, noun in NOUNS.items():
            name = f"headrace_render_{noun}_total"
            medium = self._front.media.get(kind)
            made = Counter[str]() if medium is None else medium.made
            lines.append(f"# HELP {name} {noun.capitalize()} whose features were made, by the unit that made them.")
            lines.append(f"# TYPE {name} counter")
            lines += [f'{name}{{unit="{unit}"}} {made[unit]}' for unit in ("dpu", "cpu")]
        lines.append("# HELP headrace_render_answers_total Answers to clients, by their status.")
        lines.append("# TYPE headrace_render_answers_total counter")
        lines += [
            f'headrace_render_answers_total{{status="{status}"}} {count}'
            for status, count in sorted(self._answered.items())
        ]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")


async def _without_token(request: web.Request) -> web.Response:
    return _error(401, "the token is missing or wrong; send Authorization: Bearer TOKEN")


async def _arrived(work: Awaitable[T]) -> T:
    """Return what a client sends. Raises Late if it takes too long."""
    try:
        async with asyncio.timeout(BODY_S):
            return await work
    except TimeoutError:
        raise Late(f"the request did not arrive within {BODY_S:g} s") from None


def _fields(form: Mapping[str, Any]) -> dict[str, str | bytes]:
    """Return the fields of a form, with the bytes of files."""
    return {key: value.file.read() if isinstance(value, web.FileField) else value for key, value in form.items()}


async def _streamed(
    request: web.Request, events: AsyncGenerator[dict[str, Any]], work: AsyncGenerator[dict[str, Any]]
) -> web.StreamResponse:
    """Send an answer as it comes. An error before its first event has a status, and a later one is an event.

    At the end the work is closed, by which the engine ends what is left of it."""
    try:
        first = await anext(events)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        try:
            await _send(response, first)
            async for event in events:
                await _send(response, event)
            await response.write(b"data: [DONE]\n\n")
        except HeadraceError as error:
            await _send(response, error_of(one_line(error), _kind(_status(error)), _status(error)))
        except ConnectionError:
            pass  # the client has left, and the engine ends its work
    finally:
        await events.aclose()
        await work.aclose()
    with suppress(ConnectionError):
        await response.write_eof()
    return response


async def _send(response: web.StreamResponse, *events: dict[str, Any]) -> None:
    for event in events:
        await response.write(b"data: " + orjson.dumps(event) + b"\n\n")


def _status(error: HeadraceError) -> int:
    match error:
        case NoSuchModel():
            return 404
        case Late():
            return 408
        case EngineRefused(status=status):
            return status
        case EngineGone():
            return 503
        case Misdirected():
            return 421
        case CrossSite():
            return 403
        case BadInput() | CorruptInput() | UsageError():
            return 400
    return 503


def _kind(status: int) -> str:
    return "invalid_request_error" if 400 <= status < 500 else "server_error"


def _error(status: int, message: str) -> web.Response:
    return web.json_response(error_of(message, _kind(status), status), status=status, dumps=_text)


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()
