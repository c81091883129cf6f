"""This module has the addresses at which a server listens."""

import ipaddress
import socket
from dataclasses import dataclass

from headrace.batching import UsageError


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    @classmethod
    def parsed(cls, option: str, text: str) -> "Address":
        """Parse HOST:PORT. `option` names the option in errors. Raises UsageError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
            raise UsageError(f"{option} {text!r}: give HOST:PORT, such as 127.0.0.1:8000; port 0 takes any free port")
        return cls(host, int(port))

    def is_loopback(self) -> bool:
        """Return whether only this machine reaches the address. Raises UsageError for an unknown host name."""
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise UsageError(f"{self.host}: {error.strerror}; give an address of this machine") from None
        return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in addresses)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
