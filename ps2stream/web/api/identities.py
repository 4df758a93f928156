"""The names of identities, and the keys by which their cursors are made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOCAL = "local"
"""The identity of a program that has no credential, and of all who use it."""


def name_token(token: str) -> str:
    """Returns the name of a token's bearer: 16 hexadecimal digits that do not reveal the token."""
    data = token.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=8, person=b"ps2s-caller").hexdigest()


def name_access(access: Mapping[str, Any]) -> str:
    """Returns the name of whoever has these parameters of a client: token or tls_cert."""
    if token := access.get("token"):
        return name_token(token)
    if certificate := access.get("tls_cert"):
        data = Path(certificate).read_bytes()
        return hashlib.blake2b(data, digest_size=8, person=b"ps2s-cert").hexdigest()
    return LOCAL


def derive_key(secret: str) -> bytes:
    """Returns the key of an identity's cursors: nobody without the secret knows it."""
    data = secret.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=32, person=b"ps2s-cursor-key").digest()
