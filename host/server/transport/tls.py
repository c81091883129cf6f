"""The certificate and key of the server, from PEM files to the forms that each transport needs."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from headrace.batching import UsageError


@dataclass(frozen=True, slots=True)
class Tls:
    """Hold the certificate and key. `context` is for HTTP. gRPC makes its own from the contents of the files."""

    context: ssl.SSLContext
    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, certificate: Path, key: Path) -> "Tls":
        """Read a chain of certificates, the server's first, and its key without a password. Raises UsageError."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)  # TLS 1.2 and later
        try:
            context.load_cert_chain(certificate, key, _no_password)
            return cls(context, certificate.read_bytes(), key.read_bytes())
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise UsageError(
                    f"--tls-key {key} does not belong to --tls-cert {certificate}; give the key of that certificate"
                ) from None
            wrong = f"--tls-key {key}" if _is_certificate(certificate) else f"--tls-cert {certificate}"
            raise UsageError(f"{wrong}: {error.reason or error}; give a file in PEM format") from None

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials for gRPC."""
        return grpc.ssl_server_credentials([(self.key, self.certificate)])


def _no_password() -> str:
    raise UsageError("--tls-key is protected by a password; give a key without a password")


def _is_certificate(file: Path) -> bool:
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        return False
    return True
