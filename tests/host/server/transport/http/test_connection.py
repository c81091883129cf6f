"""Test connections that stall, at exact instants of virtual time. Every wait ends, and the server notices at once
when a client leaves."""

import asyncio
import math

import pytest
from http_serving import LOOK_S, gone, serve

from headrace.host.server.protocol.limits import BYTES_PER_S, IDLE_S, Limits
from headrace.host.server.transport.http.connection import LINGER_S, SWEEP_S, Response

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CLIENT_S = Limits().client_s


def clock():
    return asyncio.get_running_loop().time()


def swept(due):
    """Return the instant of the first sweep after `due`."""
    return SWEEP_S * (math.floor(due / SWEEP_S) + 1)


async def rest(reader):
    """Return the bytes until the server ends the connection, and the instant of that end."""
    return await reader.read(), clock()


async def drip(reader, write, every_s, first=0.0):
    """Call `write` at `first` and every `every_s` seconds until the server ends the connection. Return the `rest`."""
    await asyncio.sleep(first)
    reading = asyncio.create_task(rest(reader))
    while not reading.done():
        write()
        await asyncio.sleep(every_s)
    return await reading


async def echo(request):
    return Response(200, [request.body])


# ---- requests that do not come ----


@pytest.mark.parametrize("sent", [HEAD, HEAD + b"Content-Length: 5\r\n\r\nab"])
def test_a_request_that_does_not_come_to_its_end_is_told_and_closed(sent):
    head = sent.partition(b"\r\n\r\n")[0]
    body_began = 0.0 if head == sent else (len(head) + 3) / 8

    async def body(server, connect):
        reader, writer = await connect()
        for byte in sent:
            writer.write(bytes([byte]))
            await asyncio.sleep(1 / 8)
        answer, at = await rest(reader)
        assert answer.startswith(b"HTTP/1.1 408 ") and at == swept(body_began + CLIENT_S)

    serve(echo, body)


@pytest.mark.parametrize("first", [0.0, 100.0])
def test_a_byte_now_and_then_gives_a_head_no_more_time(first):
    """The time of the first head begins with the connection, and that of a later head with its first byte."""

    async def body(server, connect):
        reader, writer = await connect()
        if first:
            writer.write(HEAD + b"Content-Length: 0\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        answer, at = await drip(reader, lambda: writer.write(b"x"), 1.0, first)
        assert answer.startswith(b"HTTP/1.1 408 ") and at == swept(first + CLIENT_S)

    serve(echo, body)


def test_a_body_may_take_as_long_as_its_size_allows_and_no_longer():
    size, piece = 10_000_000, BYTES_PER_S // 2

    async def length(request):
        return Response(200, [b"%d" % len(request.body)])

    async def body(server, connect):
        reader, writer = await connect()
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(0, size, 2 * piece):  # for 100 s
            writer.write(bytes(2 * piece))
            await asyncio.sleep(1.0)
        assert (await reader.readuntil(b"%d" % size)).startswith(b"HTTP/1.1 200 ")

        # At half the speed, n pieces are here from n - 3/4 s on. They are enough until CLIENT_S + n / 2.
        began = clock()
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        answer, at = await drip(reader, lambda: writer.write(bytes(piece)), 1.0, 0.25)
        assert answer.startswith(b"HTTP/1.1 408 ") and at == began + swept(2 * CLIENT_S + 0.5)

    serve(length, body)


def test_a_connection_that_says_nothing_is_closed():
    async def body(server, connect):
        reader, _ = await connect()
        assert await rest(reader) == (b"", swept(CLIENT_S))

    serve(echo, body)


def test_a_connection_without_requests_is_closed():
    async def body(server, connect):
        reader, writer = await connect()
        for at in (0.0, 100.0):
            await asyncio.sleep(at - clock())
            writer.write(HEAD + b"Content-Length: 2\r\n\r\nab")
            assert (await reader.readuntil(b"ab")).startswith(b"HTTP/1.1 200 ")
        assert await rest(reader) == (b"", swept(100.0 + IDLE_S))

    serve(echo, body)


def test_who_has_been_idle_longest_makes_room_and_nobody_else():
    """A thousand silent connections do not keep other clients out. Connections with a request are not closed."""
    go = asyncio.Event()

    async def wait(request):
        await go.wait()
        return Response(200, [request.body])

    async def body(server, connect):
        ask = HEAD + b"Content-Length: 2\r\n\r\nab"
        clients = []
        for number in range(4):
            clients.append(await connect())
            await asyncio.sleep(1.0)
            assert len(server.connections) == number + 1
        clients[0][1].write(ask)  # the oldest is at work, and the second has sent a part
        clients[1][1].write(HEAD)
        await asyncio.sleep(1.0)
        newcomers = [await connect(), await connect()]
        for _, writer in newcomers:
            writer.write(ask)
        await asyncio.sleep(0.25)
        assert [await asyncio.wait_for(reader.read(1), 0.25) for reader, _ in clients[2:]] == [b"", b""]
        for _ in range(2):  # the one that is refused is not idle either
            reader, _ = await connect()
            assert (await reader.read()).startswith(b"HTTP/1.1 503 "), "nobody is idle"
        go.set()
        for reader, _ in (clients[0], *newcomers):
            assert (await reader.readuntil(b"ab")).startswith(b"HTTP/1.1 200 ")
        clients[1][1].write(b"Content-Length: 2\r\n\r\nab")
        assert (await clients[1][0].readuntil(b"ab")).startswith(b"HTTP/1.1 200 ")

    serve(wait, body, Limits(connections=4))


# ---- answers that are not taken ----


@pytest.mark.parametrize("more", [b"", b"connection: close\r\n"])
def test_a_client_that_does_not_read_its_answer_is_cut_after_the_time_that_its_size_allows(more):
    async def large(request):
        return Response(200, [bytes(20_000_000)])

    async def body(server, connect):
        reader, writer = await connect()
        writer.transport.pause_reading()
        writer.write(HEAD + more + b"Content-Length: 0\r\n\r\n")
        at = await gone(server)
        writer.transport.resume_reading()
        answer = await reader.read()  # as much as the socket held
        whole = 20_000_000 + len(b"HTTP/1.1 200 OK\r\ncontent-length: 20000000\r\n\r\n" + more)
        assert len(answer) < 1_000_000 and answer.partition(b"\r\n\r\n")[0].endswith(more.strip())
        assert 0 <= at - swept(CLIENT_S + (whole - len(answer)) / BYTES_PER_S) <= LOOK_S

    serve(large, body)


@pytest.mark.parametrize("length", [0, 3])
@pytest.mark.parametrize("options", [b"close", b"Keep-Alive, Close"])
def test_a_connection_is_closed_after_an_answer_if_the_client_asks_for_it(length, options):
    async def body(server, connect):
        reader, writer = await connect()
        writer.write(HEAD + b"Connection: %s\r\nContent-Length: %d\r\n\r\n" % (options, length) + bytes(length))
        answer, at = await rest(reader)
        assert answer.startswith(b"HTTP/1.1 200 ") and b"\r\nconnection: close\r\n" in answer and at == 0.0

    serve(echo, body)


def test_a_client_that_goes_on_sending_what_is_refused_may_read_why_and_is_cut():
    async def body(server, connect):
        reader, writer = await connect()
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (Limits().body + 1))
        answer, at = await rest(reader)
        assert answer.startswith(b"HTTP/1.1 413 ") and at == 0.0
        while clock() < LINGER_S:
            writer.write(bytes(100_000))
            await asyncio.sleep(0.25)
            assert len(server.connections) == 1
        assert 0 <= await gone(server) - swept(LINGER_S) <= LOOK_S

    serve(echo, body)


# ---- the ends ----


def test_a_client_that_goes_cancels_what_it_asked_for():
    ended = []

    async def forever(request):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append((len(request.body), clock()))

    async def body(server, connect):
        _, writer = await connect()
        writer.write(HEAD + b"Content-Length: 3\r\n\r\nabc" + HEAD)  # with the begin of the next one behind it
        await asyncio.sleep(3600.0)
        assert server.bodies == 3 and not ended
        writer.close()
        assert await gone(server) <= 3600.0 + LOOK_S

    serve(forever, body)
    assert ended == [(3, 3600.0)]


@pytest.mark.parametrize("bound_s", [10.0, 4.0])
def test_a_stopping_server_answers_what_is_here_within_its_bound_and_closes_what_is_idle(bound_s):
    async def slow(request):
        await asyncio.sleep(8.0)
        return Response(200, [request.body])

    async def body(server, connect):
        reader, writer = await connect()
        idle, _ = await connect()
        writer.write(HEAD + b"Content-Length: 3\r\n\r\nabc")
        await asyncio.sleep(1.0)
        stopping = asyncio.create_task(server.stop(bound_s))
        assert await rest(idle) == (b"", 1.0)
        answer, at = await rest(reader)
        if bound_s < 7.0:
            assert answer == b"" and at == pytest.approx(1.0 + bound_s, abs=0.011)
        else:
            assert answer.startswith(b"HTTP/1.1 200 ") and b"connection: close" in answer and answer.endswith(b"abc")
            assert at == 8.0
        await stopping
        assert clock() == pytest.approx(at, abs=0.011)  # it looks every 0.01 s

    serve(slow, body)
