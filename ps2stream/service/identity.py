"""The identities of callers: the bearer of a token, or the owner of a client certificate."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import Unauthenticated, Unavailable
from ps2stream.protocol import tokens
from ps2stream.protocol.tokens import TokenIndex
from ps2stream.security import AccessScope, PortSecurity

TOKENS_S = 1.0
"""How long a request for the tokens waits for its answer."""
STALE_S = 60.0
"""A dispatcher that has not received the tokens for this long cannot know what was revoked."""
_NOBODY = "send a token (authorization: Bearer ...) or a known certificate"
Metadata = Iterable[tuple[str, str | bytes]]


class CallerIdentity(NamedTuple):
    """An identity. The token is "" for a client certificate, and for anyone when no identity is
    required."""

    tenant: str = ""
    scopes: frozenset[AccessScope] = frozenset(AccessScope)
    token: str = ""


class KnownIdentities:
    """The tokens as the gateway last reported them, and the certificates that are known."""

    def __init__(self, security: PortSecurity, gateway: DispatcherGateway) -> None:
        self._security = security
        self._gateway = gateway
        self._table = TokenIndex()
        self._read_ms = 0
        self._refreshing = threading.Lock()  # so that no older answer comes after a newer one

    def __len__(self) -> int:
        return len(self._table) + len(self._security.identities)

    def refresh(self) -> None:
        """Fetches the tokens from the gateway."""
        with self._refreshing:
            requested_ms = self._gateway.clock_ms()
            try:
                reply = self._gateway.tokens().result(TOKENS_S)
            except TimeoutError:
                return  # the next refresh comes soon; STALE_S bounds how long this may go on
            self._table = TokenIndex(tokens.decode(reply.tokens.tobytes()))
            self._read_ms = requested_ms

    def by_token(self, metadata: Metadata) -> CallerIdentity | None:
        """Returns the bearer of the token that was sent, or None when none was sent and a
        certificate may identify the caller. Raises Unauthenticated."""
        sent = [value for key, value in metadata if key == "authorization"]
        if not sent and self._security.identities:
            return None
        if not sent:
            raise Unauthenticated(_NOBODY)
        kind, _, text = str(sent[0]).partition(" ")
        found = self._table.bearer(text.strip()) if kind.lower() == "bearer" else None
        if len(sent) > 1 or found is None:
            raise Unauthenticated("the token is not known")
        self.check(found.id)
        return CallerIdentity(found.tenant, found.scopes, found.id)

    def check(self, id: str) -> None:
        """Raises Unauthenticated for a token that is no longer valid, and Unavailable when that is
        not known."""
        now = self._gateway.clock_ms()
        found = self._table.get(id)
        if found is None:
            raise Unauthenticated("the token has been revoked")
        if found.expired(now):
            raise Unauthenticated("the token has expired")
        if now - self._read_ms > 1000 * STALE_S:
            raise Unavailable(f"tokens could not be checked for {STALE_S:g} s; try again")

    def by_certificate(self, shown: Mapping[str, Sequence[bytes]]) -> CallerIdentity:
        """Returns the owner of the certificate that is shown, by gRPC's names of its parts. Its
        SPIFFE id counts, or its common name when it has none. Raises Unauthenticated."""
        alternative = (_decode_text(v) for v in shown.get("x509_subject_alternative_name", ()))
        names = [name for name in alternative if name.startswith("spiffe://")]
        if not names:
            common = (_decode_text(v) for v in shown.get("x509_common_name", ()))
            names = [name for name in common if not name.startswith("spiffe://")]
        identity = self._security.identities.get(names[0]) if len(names) == 1 else None
        if identity is None:
            raise Unauthenticated(_NOBODY)
        return CallerIdentity(identity.tenant, identity.scopes)


def _decode_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
