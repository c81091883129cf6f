"""A guard against web pages that send requests to a server of this machine through its user's browser."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from headrace.batching import HeadraceError, UsageError

_NAME = re.compile(r"[\w.-]{1,253}", re.ASCII)
MAX_ADDRESS = 64  # characters of an address in brackets
ANY = "*"  # this name accepts every Host


class Misdirected(HeadraceError):
    """The Host of the request is not a name of this server."""


class CrossSite(HeadraceError):
    """A web page of another site sent the request."""


class BrowserGuard:
    """Refuse requests that a browser sends for a page of another site.

    A site can map its own name to this machine's address (DNS rebinding), so that its page may read the answers. The
    Host must therefore be an address, `localhost`, or one of `names`.

    A page can also send requests without reading the answers. Browsers mark such requests by Origin and Sec-Fetch-Site.
    The content type is no such mark, because `curl --data` sends the content type of a form."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Store the names. Raises UsageError for a name that is no host name."""
        names = tuple(names)
        if wrong := [name for name in names if name != ANY and not _NAME.fullmatch(name)]:
            raise UsageError(f"--allow-host {wrong[0]!r}: give a name without scheme and port, or {ANY} for any")
        self._names = {name.lower().rstrip(".") for name in names}

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Check a request. The names of `headers` are in lower case, or their case does not matter.

        Raises Misdirected for a Host that this server does not have, CrossSite for a page of another site."""
        host = headers.get("host", "")
        if not self._is_known(host):
            raise Misdirected(
                f"{host[:200]!r} is not a name of this server; use its address, or start it with --allow-host"
            )
        if method == "GET":
            return
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] != host.lower():
            raise CrossSite(f"a page of {origin[:200]!r} may not use this server; start it with --token-file")
        if (site := headers.get("sec-fetch-site", "none")) not in ("none", "same-origin"):
            raise CrossSite(
                f"a page may not use this server with Sec-Fetch-Site {site[:200]!r}; start it with --token-file"
            )

    def _is_known(self, host: str) -> bool:
        if ANY in self._names or not host:  # HTTP/1.0 may lack a Host, but every browser sends one
            return True
        name = (host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]).lower().rstrip(".")
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        return len(name) <= MAX_ADDRESS and _is_address(name.removeprefix("[").removesuffix("]"))


@lru_cache(maxsize=256)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
