"""Connections that stall: every wait has an end, and a client that goes is seen at once."""

import asyncio

import pytest

from headrace.host.server import http1
from headrace.host.server.http import refusal
from headrace.host.server.http1 import HttpServer, Response
from headrace.host.server.limits import Limits

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for name, value in (("IDLE_S", 0.6), ("LINGER_S", 0.3), ("SWEEP_S", 0.05), ("BYTES_PER_S", 1e9)):
        monkeypatch.setattr(http1, name, value)


def serve(handler, body):
    """`body(server, reader, writer)` with a connection; then no connection and no byte of a body may be left."""

    async def run():
        server = HttpServer(handler, refusal, Limits(client_s=0.3))
        host, port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(host, port)
        async with asyncio.timeout(10):
            await body(server, reader, writer)
            writer.close()
            while server.connections:
                await asyncio.sleep(0.01)
        assert server.bodies == 0
        await server.stop(1)

    asyncio.run(run())


async def echo(request):
    return Response(200, [request.body])


@pytest.mark.parametrize("sent", [HEAD, HEAD + b"Content-Length: 5\r\n\r\nab"])
def test_a_request_that_does_not_come_to_its_end_is_told_and_closed(sent):
    async def body(server, reader, writer):
        for byte in sent[:-1]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.001)
        writer.write(sent[-1:])
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")

    serve(echo, body)


def test_a_byte_now_and_then_gives_a_head_no_more_time():
    async def body(server, reader, writer):
        for _ in range(30):
            writer.write(b"x")
            await asyncio.sleep(0.05)
            if reader.at_eof() or not server.connections:
                break
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")

    serve(echo, body)


def test_a_connection_without_requests_is_closed():
    async def body(server, reader, writer):
        writer.write(HEAD + b"Content-Length: 2\r\n\r\nab")
        assert (await reader.readuntil(b"ab")).startswith(b"HTTP/1.1 200 ")
        assert await reader.read() == b""

    serve(echo, body)


def test_a_client_that_does_not_read_its_answer_is_cut():
    async def body(server, reader, writer):
        writer.transport.pause_reading()
        writer.write(HEAD + b"Content-Length: 0\r\n\r\n")
        while not server.connections:
            await asyncio.sleep(0.01)
        while server.connections:
            await asyncio.sleep(0.01)

    async def large(request):
        return Response(200, [bytes(50_000_000)])

    serve(large, body)


def test_a_client_that_goes_cancels_what_it_asked_for():
    ended = []

    async def forever(request):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(len(request.body))

    async def body(server, reader, writer):
        writer.write(HEAD + b"Content-Length: 3\r\n\r\nabc" + HEAD)  # with the begin of the next one behind it
        await asyncio.sleep(0.1)
        assert server.bodies == 3 and not ended
        writer.close()
        while server.connections:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)

    serve(forever, body)
    assert ended == [3]


def test_a_stopping_server_answers_what_is_here_and_closes_what_is_idle():
    async def body(server, reader, writer):
        idle, _ = await asyncio.open_connection(*writer.get_extra_info("peername"))
        writer.write(HEAD + b"Content-Length: 3\r\n\r\nabc")
        await asyncio.sleep(0.05)
        stopping = asyncio.create_task(server.stop(2))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ") and b"connection: close" in answer and answer.endswith(b"abc")
        assert await idle.read() == b""
        await stopping

    async def slow(request):
        await asyncio.sleep(0.2)
        return Response(200, [request.body])

    serve(slow, body)
