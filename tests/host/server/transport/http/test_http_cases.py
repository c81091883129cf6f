"""Test HTTP/1.1 by cases from RFC 9110 and RFC 9112. Bytes after an answer show that the client sees its end in the
right place."""

import asyncio
import gzip
import http.client
import io
import zlib

import httptools
import pytest
import virtual_time
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import BadInput
from headrace.host.server.protocol import codings
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.transport.http.chunks import BadChunk, Chunks
from headrace.host.server.transport.http.connection import HttpServer, Response
from headrace.host.server.transport.http.endpoints import refusal

LIMITS = Limits(body=100_000, bodies=300_000)
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def post(*fields, body=b"", version=b"1.1"):
    head = [b"POST /there?now HTTP/%s" % version, *([b"Host: a"] if version == b"1.1" else []), *fields]
    return b"\r\n".join([*head, b"", b""]) + body


def sized(*fields, body):
    return post(b"Content-Length: %d" % len(body), *fields, body=body)


def chunked(*pieces, end=b"0\r\n\r\n", fields=()):
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return post(b"Transfer-Encoding: chunked", *fields, body=body + end)


async def tell(request):
    """Answer with the request as the handler sees it."""
    told = f"{request.method} {request.target} {request.headers.get('host')} ".encode() + bytes(request.body)
    return Response(200, [told])


def exchange(sent, handler=tell):
    """Return (interim answers, answers with status, headers and content) until the server closes."""

    async def run():
        server = HttpServer(handler, refusal, LIMITS)
        address = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        raw = await reader.read()
        writer.close()
        while server.connections:
            await asyncio.sleep(1 / 64)
        assert server.bodies == 0
        await server.stop(1)
        return raw

    return read(virtual_time.run(run()), [b"HEAD" if b"HEAD" in line else b"GET" for line in requests_of(sent)])


def requests_of(sent):
    return [line for line in sent.split(b"\r\n") if b" HTTP/1." in line]


class _Stream(io.BytesIO):
    """Hold bytes of a server for `http.client`. It stays open after an answer."""

    def makefile(self, mode):
        return self

    def close(self):
        pass


def read(raw, methods):
    """Read answers as a client that knows the methods of its requests."""
    stream, answers = _Stream(raw), []
    for method in methods:
        answer = http.client.HTTPResponse(stream, method=method.decode())
        answer.begin()
        content = answer.read()
        answers.append((answer.status, {name.lower(): value for name, value in answer.getheaders()}, content))
        if answers[-1][1].get("connection") == "close":
            break
    assert stream.read() == b""
    return [100] * raw.count(b"HTTP/1.1 100 Continue\r\n\r\n"), answers


GZIPPED = gzip.compress(b"abc" * 100)
ANSWERED = {
    "a body with its length": (sized(body=b"abc"), b"POST /there?now a abc"),
    "no body": (post(), b"POST /there?now a "),
    "empty lines before a request": (b"\r\n\r\n" + sized(body=b"abc"), b"POST /there?now a abc"),
    "a whole URL, whose host counts": (b"GET http://b:80/x/y?z HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /x/y?z b:80 "),
    "a whole URL without a path": (b"GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / b "),
    "a method in general": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", b"OPTIONS * a "),
    "an empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", b"GET /  "),
    "a Host that is an IPv6 address": (b"GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", b"GET / [::1]:8000 "),
    "chunks": (chunked(b"abc", b"defg" * 9), b"POST /there?now a abc" + b"defg" * 9),
    "chunks of nothing": (chunked(), b"POST /there?now a "),
    "chunks with extensions": (
        post(b"Transfer-Encoding: Chunked", body=b'3 ; a=1;b="x"\r\nabc\r\n000;last\r\n\r\n'),
        b"POST /there?now a abc",
    ),
    "chunks with trailers": (chunked(b"abc", end=b"0\r\nDigest: x\r\nMore: y\r\n\r\n"), b"POST /there?now a abc"),
    "as many chunks as a body may have bytes": (
        chunked(*[b"12345"] * 20_000),
        b"POST /there?now a " + b"12345" * 20_000,
    ),
    "an upgrade that is not taken": (
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET / a ",
    ),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_a_request_is_answered_and_the_next_one_too(name):
    sent, content = ANSWERED[name]
    interim, answers = exchange(sent + LAST)
    assert interim == [] and [(status, found) for status, _, found in answers] == [
        (200, content),
        (200, b"GET /last a "),
    ]


@pytest.mark.parametrize("name", ANSWERED)
def test_a_request_may_come_byte_by_byte(name):
    sent, content = ANSWERED[name]

    async def run():
        server = HttpServer(tell, refusal, LIMITS)
        address = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*address)
        for byte in sent[:2000]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        writer.write(sent[2000:] + LAST)
        raw = await reader.read()
        writer.close()
        await server.stop(1)
        return raw

    _, answers = read(virtual_time.run(run()), [b"GET", b"GET"])
    assert [found for _, _, found in answers] == [content, b"GET /last a "]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
        (b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (sized(b"Content-Encoding: gzip", b"Content-Encoding: deflate", body=GZIPPED), 400),
        (post(b"Expect: 200-ok", b"Content-Length: 3", body=b"abc"), 417),
        (post(b"Transfer-Encoding: chunked", b"Content-Length: 3", body=b"0\r\n\r\n"), 400),
        (post(b"Content-Length: 3", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", version=b"1.0", body=b"0\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 501),
        (post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"x\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"-1\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"0x3\r\nabc\r\n0\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"3\nabc\r\n0\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"3\r\nabcd\r\n0\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"3;" + b"x" * 2000), 400),
        (post(b"Transfer-Encoding: chunked", body=b"0\r\n" + b"a: b\r\n" * 2000), 400),
        (post(b"Transfer-Encoding: chunked", body=b"0\r\nDigest: \0\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"0\r\n\0\r\n\r\n"), 400),
        (post(b"Transfer-Encoding: chunked", body=b"0\r\nno field\r\n\r\n"), 400),
        (chunked(b"x" * 60_000, b"x" * 60_000), 413),
        (post(b"Transfer-Encoding: chunked", body=b"fffffffffffff\r\n" + b"x" * 110_000), 413),
        (post(b"Content-Length: 100001"), 413),
    ],
)
def test_what_has_no_clear_end_is_refused_and_the_connection_closed(sent, status):
    _, (answer,) = exchange(sent)
    assert answer[0] == status and answer[1]["connection"] == "close" and b'"error"' in answer[2]


def test_the_answer_to_a_head_has_all_but_its_content():
    """This also holds for a refusal, because otherwise the client would misread the next answer."""
    _, answers = exchange(b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n" + LAST)
    (_, by_head, nothing), (_, by_get, content), _ = answers
    assert nothing == b"" and content == b"GET /x a " and by_head == by_get
    _, (refused,) = exchange(b"HEAD /x HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n")
    assert refused[0] == 413 and refused[2] == b"" and int(refused[1]["content-length"]) > 0
    _, (refused,) = exchange(b"HEAD /x HTTP/1.1\r\n\r\n")
    assert refused[0] == 400 and refused[2] == b""


def test_a_body_is_asked_for_by_a_client_of_1_1_that_has_not_sent_it():
    async def run(sent, rest):
        server = HttpServer(tell, refusal, LIMITS)
        address = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        await asyncio.sleep(1.0)
        writer.write(rest + LAST)
        raw = await reader.read()
        writer.close()
        await server.stop(1)
        return read(raw, [b"GET", b"GET"])[0]

    def interim(sent, rest):
        return virtual_time.run(run(sent, rest))

    assert interim(post(b"Expect: 100-continue", b"Content-Length: 3"), b"abc") == [100]
    assert interim(post(b"Expect: 100-Continue", b"Transfer-Encoding: chunked"), b"3\r\nabc\r\n0\r\n\r\n") == [100]
    assert interim(post(b"Expect: 100-continue", b"Content-Length: 3", body=b"a"), b"bc") == []
    assert interim(post(b"Expect: 100-continue", b"Content-Length: 0"), b"") == []
    old = [b"Expect: 100-continue", b"Connection: keep-alive", b"Content-Length: 3"]
    assert interim(post(*old, version=b"1.0"), b"abc") == []


def test_a_connection_of_1_0_ends_after_its_answer_unless_it_asks_for_more():
    request = b"GET / HTTP/1.0\r\n%s\r\n"
    _, (answer,) = exchange(request % b"")
    assert answer[1]["connection"] == "close"
    _, answers = exchange(request % b"Connection: Keep-Alive\r\n" + LAST)
    assert [headers["connection"] for _, headers, _ in answers] == ["keep-alive", "close"]


def test_an_answer_has_room_or_another_says_so():
    """Answers count together with bodies until the client has received them. A small answer always has room."""

    async def answer(request):
        return Response(200, [bytes(int(request.headers["size"]))])

    for size, status in ((LIMITS.bodies - 90_000, 200), (LIMITS.bodies - 89_999, 503), (60_000, 200)):
        last = LAST.replace(b"Host", b"Size: 1\r\nHost")
        _, answers = exchange(sized(b"Size: %d" % size, body=b"x" * 90_000) + last, answer)
        assert [found for found, _, _ in answers] == [status, 200]
        assert status == 200 or b"the server has no room for the answer" in answers[0][2]


# ---- chunks ----


def by_llhttp(body):
    """Return the body that llhttp finds after a head, or None if it refuses it or waits for more."""

    class Found:
        body = b""
        ended = False

        def on_body(self, piece):
            self.body += piece

        def on_message_complete(self):
            self.ended = True

    found = Found()
    parser = httptools.HttpRequestParser(found)
    parser.feed_data(post(b"Transfer-Encoding: chunked", b"Connection: close"))
    try:
        parser.feed_data(body)
    except httptools.HttpParserError:
        if not found.ended:  # else what follows the last request of the connection is refused
            return None
    return found.body if found.ended else None


def by_us(body, cuts):
    chunks, at = Chunks(), 0
    try:
        for end in [*sorted(cut % (len(body) + 1) for cut in cuts), len(body)]:
            while at < end and not chunks.ended:
                at += chunks.feed(memoryview(body)[at:end])
    except BadChunk:
        return None
    return bytes(chunks.body) if chunks.ended else None


PIECE = st.sampled_from(
    [b"0", b"3", b"a", b"F", b"1f", b"\r\n", b"\r", b"\n", b";", b"x=y", b'="q"', b" ", b"abc", b"abcdefghij"]
) | st.binary(max_size=3)
BODY = st.lists(PIECE, max_size=12).map(b"".join)
CHUNKED = st.lists(st.binary(min_size=1, max_size=40), max_size=4).map(
    lambda pieces: b"".join(b"%X\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
)


@given(CHUNKED | BODY, st.lists(st.integers(0, 200), max_size=4))
def test_chunks_are_what_llhttp_says_or_refused(body, cuts):
    """The result does not depend on where the bytes are split. llhttp accepts more bodies, so only accepted ones are
    compared."""
    found = by_us(body, cuts)
    assert found == by_us(body, [])
    if found is not None:
        assert found == by_llhttp(body)


@given(CHUNKED, st.integers(0, 300), st.integers(0, 255))
def test_a_changed_byte_gives_no_other_body_than_llhttp_finds(body, at, byte):
    body = bytearray(body)
    body[at % len(body)] = byte
    found = by_us(bytes(body), [])
    assert found is None or found == by_llhttp(bytes(body))


# ---- codings ----


def decoded(body, coding, max_taken=10_000_000):
    taken = 0

    def reserve(size):
        nonlocal taken
        taken += size
        if taken > max_taken:
            raise OverflowError(taken)

    return asyncio.run(codings.decoded(memoryview(body), coding, reserve))


TEXTS = [b"", b"abc", b"abc" * 30_000, bytes(5_000_000), bytes(range(256)) * 3000]


@pytest.mark.parametrize("text", TEXTS, ids=[str(len(text)) for text in TEXTS])
def test_what_is_compressed_comes_out_as_it_was(text):
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    half = len(text) // 2
    for body, coding in (
        (gzip.compress(text), "gzip"),
        (gzip.compress(text), " X-GZIP"),
        (zlib.compress(text), "deflate"),
        (raw.compress(text) + raw.flush(), "Deflate"),
        (text, "identity"),
        (text, ""),
        (gzip.compress(text[:half]) + gzip.compress(text[half:]), "gzip"),
    ):
        assert decoded(body, coding) == text


@pytest.mark.parametrize(
    ("body", "coding", "error"),
    [
        (GZIPPED[:-1], "gzip", "cut off"),
        (b"", "gzip", "cut off"),
        (GZIPPED[:20] + bytes([GZIPPED[20] ^ 1]) + GZIPPED[21:], "gzip", "does not match|cut off"),
        (GZIPPED + b"more", "gzip", "does not match|cut off"),
        (zlib.compress(b"abc") + b"more", "deflate", "4 bytes follow"),
        (b"abc", "gzip", "does not match its Content-Encoding"),
        (b"abc", "br", "send gzip, deflate or identity"),
        (GZIPPED, "gzip, gzip", "send gzip, deflate or identity"),
    ],
)
def test_what_is_damaged_or_unknown_is_told(body, coding, error):
    with pytest.raises((BadInput, codings.UnknownCoding), match=error):
        decoded(body, coding)


def test_a_small_body_does_not_become_a_large_one():
    bomb = gzip.compress(bytes(1 << 30), 1)
    with pytest.raises(OverflowError) as caught:
        decoded(bomb, "gzip")
    assert caught.value.args[0] <= 10_000_000 + codings.STEP


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate, br", "gzip"),
        ("GZip;q=0.5,deflate", "deflate"),
        ("deflate;q=1.0, gzip;q=1.0", "gzip"),
        ("*", "gzip"),
        ("*;q=0.1", "gzip"),
        ("br", ""),
        ("identity", ""),
        ("gzip;q=0", ""),
        ("gzip;q=0, *", "deflate"),
        ("*;q=0", ""),
        ("identity, gzip;q=0.5", ""),
        ("identity;q=0.5, gzip", "gzip"),
        ("gzip;q=x", ""),
        ("", ""),
        ("x-gzip", "gzip"),
    ],
)
def test_the_coding_of_an_answer_is_what_the_client_prefers(accept, coding):
    assert codings.accepted(accept) == coding


@pytest.mark.parametrize("coding", codings.CODINGS)
@pytest.mark.parametrize("text", TEXTS, ids=[str(len(text)) for text in TEXTS])
def test_what_this_server_compresses_it_can_read(text, coding):
    parts = [text[:7], memoryview(text)[7:]]
    assert decoded(asyncio.run(codings.encoded(parts, coding)), coding) == text


def test_an_answer_is_compressed_for_a_client_that_accepts_it_where_that_is_worth_it():
    text = b"abc" * 20_000

    async def answer(request):
        return Response(200, [text[:15]] if request.target == "/short" else [text[:100], memoryview(text)[100:]])

    def found(accept, path=b"/"):
        _, answers = exchange(
            b"GET %s HTTP/1.1\r\nHost: a\r\nAccept-Encoding: %s\r\n\r\n" % (path, accept) + LAST, answer
        )
        return answers[0]

    for accept, undo in ((b"gzip", gzip.decompress), (b"deflate", zlib.decompress)):
        _, headers, content = found(accept)
        assert headers["content-encoding"] == accept.decode() and headers["vary"] == "accept-encoding"
        assert undo(content) == text and len(content) < 1000
    _, headers, content = found(b"br")
    assert "content-encoding" not in headers and headers["vary"] == "accept-encoding" and content == text
    _, headers, content = found(b"gzip", b"/short")
    assert "content-encoding" not in headers and content == text[:15]
