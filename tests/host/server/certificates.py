"""Certificates and keys of a server for tests."""

from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)


def write_certificates(folder: Path) -> Path:
    """Write a server's `cert.pem` and `key.pem`, `ca.pem` which signed it, and files that do not go with them. Return
    the folder."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    issued, other = ca.issue_cert("127.0.0.1", "localhost"), ca.issue_cert("127.0.0.1")
    for part in issued.cert_chain_pems:
        part.write_to_path(folder / "cert.pem", append=True)
    issued.private_key_pem.write_to_path(folder / "key.pem")
    other.private_key_pem.write_to_path(folder / "other.pem")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (folder / "encrypted.pem").write_bytes(encrypted)
    (folder / "none.pem").write_text("nothing")
    return folder
