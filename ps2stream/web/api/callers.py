"""Who asks: the identity of each request, and the client that acts for it.

The service decides what an identity may do. Here requests of one token share one connection, which
sends that token along. A request without a token is the map's own where the map is open to
everybody who reaches it, or where the browser has the map's key.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from ps2stream.client.async_client import AsyncClient
from ps2stream.errors import InvalidArgument, ResourceExhausted, Unauthenticated
from ps2stream.web.api.identities import derive_key, name_access, name_token
from ps2stream.web.gate import PageGate

MAX_CLIENTS = 64
"""Identities that have a connection at a time; the one that was idle longest goes first."""
_NOBODY = "send a token in the Authorization header (Bearer ...)"


@dataclasses.dataclass(slots=True)
class CallerClient:
    """The client of an identity, and how many requests use it now."""

    client: AsyncClient
    uses: int = 0


class Callers:
    """The identities that have asked, with a client each of the service at `target`. `access` are
    the parameters of the map's own client, by which `own` was made; `gate` knows who has the map's
    key."""

    def __init__(
        self, target: str, access: Mapping[str, Any], own: AsyncClient, gate: PageGate
    ) -> None:
        self._target = target
        self._access = dict(access)
        self._own = own
        self._gate = gate
        self._own_name = name_access(access)
        self._own_secret = str(access.get("token") or self._own_name)
        self._clients: OrderedDict[str, CallerClient] = OrderedDict()
        self._using: dict[int, CallerClient] = {}  # by request that is under way

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def cookie(self) -> str:
        """Name of the cookie that holds a token, with the port, as cookies do not tell ports
        apart."""
        return f"ps2stream-token-{self._gate.port}"

    def identify(self, request: web.Request) -> str:
        """Returns a stable name of the identity, from which its token cannot be found. Raises
        Unauthenticated for a request that has none."""
        token = self._find_token(request)
        return self._own_name if token is None else name_token(token)

    def find_key(self, request: web.Request) -> bytes:
        """Returns the key by which the cursors of the request's identity are made: nobody without
        the token knows it. Raises Unauthenticated as `identify`."""
        token = self._find_token(request)
        secret = self._own_secret if token is None else token
        return derive_key(secret)

    async def find_client(self, request: web.Request) -> AsyncClient:
        """Returns the client that acts for the request's identity, until the request has been
        answered. Raises Unauthenticated, and ResourceExhausted when MAX_CLIENTS are in use."""
        token = self._find_token(request)
        if token is None:
            return self._own
        entry = self._using.get(id(request))
        if entry is None:
            name = name_token(token)
            idle = self._make_room(name)
            try:
                entry = self._clients.get(name) or CallerClient(self._make_client(token))
                self._clients[name] = self._using[id(request)] = entry
                self._clients.move_to_end(name)
                entry.uses += 1
            finally:
                if idle is not None:
                    await idle.client.close()
        return entry.client

    def release(self, request: web.Request) -> None:
        """Notes that the request has been answered."""
        entry = self._using.pop(id(request), None)
        if entry is not None:
            entry.uses -= 1

    async def close(self) -> None:
        """Closes all clients but the map's own."""
        while self._clients:
            _, entry = self._clients.popitem()
            await entry.client.close()

    def _make_room(self, name: str) -> CallerClient | None:
        """Removes and returns the client that has been idle longest if there is no room for one
        more, None if there is."""
        if name in self._clients or len(self._clients) < MAX_CLIENTS:
            return None
        for other, entry in self._clients.items():
            if not entry.uses:
                del self._clients[other]
                return entry
        raise ResourceExhausted(
            f"{MAX_CLIENTS} identities have requests under way, the limit (identities)", 1000
        )

    def _make_client(self, token: str) -> AsyncClient:
        # A certificate of the map's own must not speak for somebody else.
        access = {k: v for k, v in self._access.items() if k not in ("tls_cert", "tls_key")}
        try:
            return AsyncClient(self._target, **access | {"token": token})
        except InvalidArgument as error:
            raise Unauthenticated(str(error)) from None

    def _find_token(self, request: web.Request) -> str | None:
        """Returns the token of the request, None for one that acts as the map itself."""
        sent = request.headers.getall("Authorization", [])
        if sent:
            kind, _, token = sent[0].partition(" ")
            if len(sent) > 1 or kind.lower() != "bearer" or not token.strip():
                raise Unauthenticated(_NOBODY)
            return token.strip()
        if kept := request.cookies.get(self.cookie):
            return kept
        if self._gate.has_key(request):
            return None
        raise Unauthenticated(_NOBODY)
