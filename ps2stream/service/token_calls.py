"""The calls of ps2stream.v1.Admin that create, list and revoke tokens."""

from __future__ import annotations

import os
from collections.abc import Callable

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Violation,
    invalid,
)
from ps2stream.limits import REQUEST_BYTES
from ps2stream.protocol import tokens
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.tokens import Token, TokensReply
from ps2stream.security import TENANT, AccessScope
from ps2stream.service.auth import CallGuard
from ps2stream.service.calls import parse, wait
from ps2stream.service.open_calls import OpenCall
from ps2stream.v1 import admin_pb2

Call = Callable[[bytes, OpenCall], bytes]
SCOPES = {
    admin_pb2.SCOPE_PUBLISH: AccessScope.PUBLISH,
    admin_pb2.SCOPE_SUBSCRIBE: AccessScope.SUBSCRIBE,
    admin_pb2.SCOPE_WITHDRAW: AccessScope.WITHDRAW,
    admin_pb2.SCOPE_ADMIN: AccessScope.ADMIN,
}


class TokenCalls:
    """The calls about tokens. Changes take effect here at once, at other dispatchers within
    seconds."""

    def __init__(self, gateway: DispatcherGateway, guard: CallGuard) -> None:
        self._gateway = gateway
        self._guard = guard
        self.calls: dict[str, Call] = {
            "CreateToken": self._create_token,
            "ListTokens": self._list_tokens,
            "RevokeToken": self._revoke_token,
        }

    def _create_token(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(admin_pb2.CreateTokenRequest, data, REQUEST_BYTES, "request_bytes")
        self._require_auth()
        now = self._gateway.clock_ms()
        bad = []
        if request.tenant and not TENANT.fullmatch(request.tenant):
            bad.append(Violation("tenant", f"{request.tenant!r} does not match {TENANT.pattern}"))
        if not request.scopes or any(scope not in SCOPES for scope in request.scopes):
            bad.append(Violation("scopes", "expected one or more of publish, subscribe, admin"))
        if request.expires_ms and request.expires_ms <= now:
            bad.append(Violation("expires_ms", f"{request.expires_ms} is not in the future"))
        if bad:
            raise InvalidArgument(bad)
        scopes = frozenset(SCOPES[scope] for scope in request.scopes)
        random = os.urandom(tokens.ID_BYTES + tokens.SECRET_BYTES)
        made = tokens.make(random, request.tenant, scopes, now, request.expires_ms)
        self._apply_reply(wait(self._gateway.tokens(add=tokens.encode([made.token])), call), "")
        answer = admin_pb2.CreateTokenResponse(token=_token_to_proto(made.token), secret=made.text)
        return answer.SerializeToString()

    def _list_tokens(self, data: bytes, call: OpenCall) -> bytes:
        parse(admin_pb2.ListTokensRequest, data, REQUEST_BYTES, "request_bytes")
        reply = wait(self._gateway.tokens(), call)
        held = tokens.decode(reply.tokens.tobytes())
        return admin_pb2.ListTokensResponse(tokens=map(_token_to_proto, held)).SerializeToString()

    def _revoke_token(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(admin_pb2.RevokeTokenRequest, data, REQUEST_BYTES, "request_bytes")
        self._require_auth()
        if not request.id:
            raise invalid("id", "is missing")
        self._apply_reply(wait(self._gateway.tokens(drop=request.id), call), request.id)
        return admin_pb2.RevokeTokenResponse().SerializeToString()

    def _require_auth(self) -> None:
        # Whoever reaches an open service could make tokens for the day when it is no longer open.
        if not self._guard.requires_identity:
            raise FailedPrecondition("the service does not require tokens (auth is off)")

    def _apply_reply(self, reply: TokensReply, id: str) -> None:
        match reply.status:
            case UpdateStatus.NOT_FOUND:
                raise NotFound(f"there is no token {id!r}")
            case UpdateStatus.RESOURCE_EXHAUSTED:
                raise ResourceExhausted(
                    f"there are {tokens.MAX_TOKENS} tokens, the limit (tokens); revoke some", 0
                )
            case UpdateStatus.OK:
                self._guard.refresh()
            case _:
                raise Unavailable("the tokens could not be written; nothing was changed")


def _token_to_proto(token: Token) -> admin_pb2.Token:
    names = {scope: number for number, scope in SCOPES.items()}
    return admin_pb2.Token(
        id=token.id,
        tenant=token.tenant,
        scopes=sorted(names[scope] for scope in token.scopes),
        created_ms=token.created_ms,
        expires_ms=token.expires_ms,
    )
