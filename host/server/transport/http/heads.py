"""A parser of HTTP/1.1 request heads. It uses llhttp (httptools) and adds the checks that llhttp leaves to servers (RFC
9110, 9112)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import urlsplit

import httptools

# Fields that decide where a message ends or goes. Two different values are an attack or a mistake.
_ONCE = ("host", "inference-header-content-length", "content-encoding")
_METHOD = re.compile(rb"[A-Z]+ ")
_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d{0,5})?", re.ASCII)


MAX_REMEMBERED = 256
MAX_REMEMBERED_BYTES = 2048  # a longer head is not remembered


class Refused(Exception):
    """The server stops reading the request. The arguments are an HTTP status and an error text."""


@dataclass(frozen=True, slots=True)
class Head:
    """Hold the head of a request.

    Names in `headers` are in lower case. `length` is the number of bytes of the body, or None for a chunked body."""

    method: str
    target: str
    headers: Mapping[str, str]
    length: int | None
    keep_alive: bool
    old: bool  # HTTP/1.0
    awaits_continue: bool


class _Fields:
    """Collect the fields that llhttp finds in a head."""

    def __init__(self) -> None:
        self.target = ""
        self.headers: dict[str, str] = {}
        self.twice = ""

    def on_url(self, url: bytes) -> None:
        self.target += url.decode("latin-1")

    def on_header(self, raw_name: bytes, raw_value: bytes) -> None:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in self.headers:
            value = f"{self.headers[name]}, {value}"
            if name in _ONCE:
                self.twice = name
        self.headers[name] = value


def parsed(raw: bytes) -> Head:
    """Parse a head, including its empty line. Raises Refused.

    Clients repeat their heads, so the last ones are remembered."""
    return _remembered(raw) if len(raw) <= MAX_REMEMBERED_BYTES else _parsed(raw)


def _parsed(raw: bytes) -> Head:
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # a server may ignore an upgrade; this one continues with HTTP/1.1
    except httptools.HttpParserError as error:
        if isinstance(error, httptools.HttpParserInvalidMethodError) and _METHOD.match(raw):
            raise Refused(501, "this server does not support the method; use GET, HEAD or POST") from None
        raise Refused(400, f"the request's head is not HTTP/1.1: {error}") from None
    method, version, headers = parser.get_method().decode(), parser.get_http_version(), fields.headers
    if version not in ("1.0", "1.1"):
        raise Refused(400, f"the request has HTTP/{version}; send HTTP/1.1")
    if method == "CONNECT":
        raise Refused(501, "this server is not a proxy; use GET, HEAD or POST")
    if fields.twice:
        raise Refused(400, f"the request has the field {fields.twice} twice; send it once")
    old = version == "1.0"
    if not old and "host" not in headers:
        raise Refused(400, "the request has no Host; send HOST or HOST:PORT")
    target = _origin_form(fields.target, headers)
    if not _AUTHORITY.fullmatch(headers.get("host", "")):
        raise Refused(400, "the Host is invalid; send HOST or HOST:PORT")
    expects = headers.get("expect", "").lower()
    if expects not in ("", "100-continue") and not old:
        raise Refused(417, "this server supports only the expectation 100-continue")
    # The parser forgets the Connection field at the end of the message, and a message without a body has ended now.
    options = {option.strip() for option in headers.get("connection", "").lower().split(",")}
    keep_alive = "close" not in options and (not old or "keep-alive" in options)
    length, awaits_continue = _length(headers, old), expects == "100-continue" and not old
    return Head(method, target, MappingProxyType(headers), length, keep_alive, old, awaits_continue)


_remembered = lru_cache(maxsize=MAX_REMEMBERED)(_parsed)


def _origin_form(target: str, headers: dict[str, str]) -> str:
    """Return the path and query of a target. A target that is a whole URL, as proxies get it, sets the Host (RFC 9112,
    section 3.2.2)."""
    if target.startswith("/") or target == "*":
        return target
    try:
        url = urlsplit(target)
    except ValueError:
        url = urlsplit("")
    if url.scheme not in ("http", "https") or not url.netloc or "@" in url.netloc:
        raise Refused(400, "the request's target is neither a path nor an http URL")
    headers["host"] = url.netloc
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


def _length(headers: Mapping[str, str], old: bool) -> int | None:
    """Return the length of the body, or None for a chunked body (RFC 9112, section 6.3). Raises Refused."""
    coding = headers.get("transfer-encoding")
    if coding is None:
        return int(headers.get("content-length", 0))
    if old or "content-length" in headers:  # a proxy may see the end of the body at another place
        raise Refused(
            400, "the request has Transfer-Encoding with Content-Length or HTTP/1.0; send Content-Length alone"
        )
    if coding.strip().lower() != "chunked":
        raise Refused(501, "this server supports only the Transfer-Encoding chunked")
    return None
