"""The server's certificate and key, from PEM files to what each transport takes."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from headrace.batching import UsageError


@dataclass(frozen=True, slots=True)
class Tls:
    """`context` is for HTTP; gRPC makes its own of the files' contents."""

    context: ssl.SSLContext
    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, certificate: Path, key: Path) -> "Tls":
        """Of a chain of certificates, the server's first, and its key without a password. Raises UsageError."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)  # TLS 1.2 and later
        try:
            context.load_cert_chain(certificate, key, _no_password)
            return cls(context, certificate.read_bytes(), key.read_bytes())
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise UsageError(f"--tls-key {key} is not the key of --tls-cert {certificate}; give its own") from None
            wrong = f"--tls-key {key}" if _is_certificate(certificate) else f"--tls-cert {certificate}"
            raise UsageError(f"{wrong}: {error.reason or error}; give a file in PEM format") from None

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials([(self.key, self.certificate)])


def _no_password() -> str:
    raise UsageError("--tls-key is protected by a password; give a file that is not")


def _is_certificate(file: Path) -> bool:
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        return False
    return True
