"""This module says which clients a server serves."""

import hmac
from dataclasses import dataclass

from headrace.batching import UsageError
from headrace.host.network.address import Address
from headrace.host.network.browsers import BrowserGuard


@dataclass(frozen=True, slots=True)
class Access:
    """Say which clients a server serves.

    Attributes:
        token: The token that requests must have. Without one every client that reaches the server is served.
        insecure: Serve other machines without a token.
        hosts: Names of this server for its `BrowserGuard`. It guards a server without `token` and `insecure`.

    Raises UsageError for a name that is no host name.
    """

    token: str | None = None
    insecure: bool = False
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        BrowserGuard(self.hosts)  # checks the names, even if no guard is needed

    @property
    def guard(self) -> BrowserGuard | None:
        """Return the guard of the HTTP ports, or None if any page may send requests."""
        return None if self.token is not None or self.insecure else BrowserGuard(self.hosts)

    def authorized(self, authorization: str | None) -> bool:
        """Return whether the header `Authorization` has the token, if there is one.

        The scheme ignores case (RFC 9110, section 11.1)."""
        if self.token is None:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        return (
            hmac.compare_digest(token.lstrip(" ").encode(errors="surrogateescape"), self.token.encode())
            and scheme.lower() == "bearer"
        )

    def check(self, option: str, address: Address) -> None:
        """Check that other machines reach `address` only with a token or with `insecure`.

        `option` names the address in the error. Raises UsageError."""
        if self.token is None and not self.insecure and not address.is_loopback():
            raise UsageError(
                f"{option} {address} is reached from other machines; give --token-file FILE, or --insecure to "
                "serve every client"
            )
