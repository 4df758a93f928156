"""The way of a benchmark's clients to the service that they measure."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import grpc

MESSAGE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class ServiceAccess:
    """The endpoint of a dispatcher, and the token and the CA file of a service with TLS. Without
    them the connection is plaintext."""

    target: str
    token: str = ""
    tls_ca: Path | None = None

    def open_channel(self) -> grpc.Channel:
        """Returns a new channel to the endpoint; the token goes with every call."""
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES)]
        if self.tls_ca is None:
            return grpc.insecure_channel(self.target, options)
        credentials = grpc.ssl_channel_credentials(self.tls_ca.read_bytes())
        if self.token:
            token = grpc.access_token_call_credentials(self.token)
            credentials = grpc.composite_channel_credentials(credentials, token)
        return grpc.secure_channel(self.target, credentials, options)
