"""The way to a service that both clients share: TLS, client certificate and token."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import grpc

from ps2stream.client.targets import split_target
from ps2stream.errors import invalid
from ps2stream.security import is_loopback

SYSTEM = "system"
"""The value of `tls_ca` that stands for the authorities that this machine trusts."""
File = str | os.PathLike[str]


class ChannelAccess(NamedTuple):
    """Where the dispatchers are; the credentials of the channels to them, None for plaintext; the
    metadata that goes with every call; and whether to ask where all dispatchers are."""

    targets: tuple[str, ...]
    credentials: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...]
    discover: bool = False


def access(
    target: str,
    token: str | None = None,
    tls_ca: File | None = None,
    tls_cert: File | None = None,
    tls_key: File | None = None,
    discover: bool = False,
) -> ChannelAccess:
    """Returns the access to `target` with this token and these PEM files; `tls_ca` or a client
    certificate asks for TLS. Raises InvalidArgument, never showing the token, for what cannot be
    used and for a token that would travel to another machine in plaintext."""
    targets = split_target(target)
    if token is not None and not isinstance(token, str):
        raise invalid("token", f"expected a string, got {type(token).__name__}")
    if (tls_cert is None) != (tls_key is None):
        raise invalid("tls_cert", "must be set together with tls_key")
    credentials = None
    if tls_ca is not None or tls_cert is not None:
        credentials = grpc.ssl_channel_credentials(
            None if tls_ca in (None, SYSTEM) else _read_file("tls_ca", tls_ca),
            _read_file("tls_key", tls_key),
            _read_file("tls_cert", tls_cert),
        )
    if not token:
        return ChannelAccess(targets, credentials, (), discover)
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise invalid("token", "has characters that no token has")
    if credentials is None and not all(map(is_local, targets)):
        raise invalid("token", f"would travel in plaintext to {target}; give tls_ca")
    metadata = (("authorization", f"Bearer {token}"),)
    return ChannelAccess(targets, credentials, metadata, discover)


def is_local(target: str) -> bool:
    """Returns whether only this machine has the dispatcher at an address."""
    if target.startswith("unix:"):
        return True
    try:
        return is_loopback(target.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False


def _read_file(name: str, path: File | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise invalid(name, f"{path}: {error.strerror}") from None
