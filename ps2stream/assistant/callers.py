"""Who asks: a session of the service, the client that acts for its owner, and its matches.

On standard input there is one caller. Over HTTP each token is a caller of its own, which the
service itself is asked about with every request.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from ps2stream.assistant.inbox import MatchInbox
from ps2stream.client.async_client import AsyncClient
from ps2stream.errors import InvalidArgument, ResourceExhausted, Unauthenticated
from ps2stream.web.api.identities import LOCAL, derive_key, name_access, name_token

MATCHES = "ps2stream://matches"
"""The resource of the latest matches."""
SCOPE = "ps2stream.caller"
"""The member of a request's ASGI scope that holds its caller."""
MAX_CALLERS = 64
MAX_LISTENERS = 16
"""Streams of events of one caller."""
MAX_EVENTS = 64
MAX_REQUESTS = 32
"""Requests of one caller that are under way, streams of events too."""
IDLE_S = 900.0
"""After so long without a request the stream of a caller's matches is closed."""
NOBODY = "send a token of the service in the Authorization header (Bearer ...)"


class AssistantCaller:
    """The owner of `session`, for whom `client` acts; `secret` is what the cursors' key is derived
    from."""

    def __init__(self, client: AsyncClient, session: str, secret: str) -> None:
        self.client = client
        self.session = session
        self.key = derive_key(secret)
        self.changing = asyncio.Lock()
        """Held by whoever counts subscriptions and adds one."""
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(
            self._bus, max_subscriptions=MAX_LISTENERS, max_buffered_events=MAX_EVENTS
        )
        """Serves subscriptions/listen of the protocol of 2026."""
        self.inbox = MatchInbox(session, self._open_stream, self._tell_listeners, self.listen.close)
        self._watchers: OrderedDict[str, ServerSession] = OrderedDict()

    def watch(self, connection: str, session: ServerSession) -> None:
        """Tells a connection of the protocol of 2025 of new matches; the oldest ones are dropped
        when there are too many."""
        self._watchers[connection] = session
        while len(self._watchers) > MAX_LISTENERS:
            self._watchers.popitem(last=False)

    def unwatch(self, connection: str) -> None:
        """Tells a connection no more of new matches."""
        self._watchers.pop(connection, None)

    async def close(self) -> None:
        """Ends the streams of events and of matches."""
        self.listen.close()
        await self.inbox.close()

    def _open_stream(self) -> Any:
        return self.client.subscribe(self.session)

    async def _tell_listeners(self) -> None:
        await self._bus.publish(ResourceUpdated(uri=MATCHES))
        for session in tuple(self._watchers.values()):
            await session.send_resource_updated(MATCHES)


class KnownCaller:
    """A caller with a client of its own: its requests under way, and since when it has none."""

    def __init__(self, caller: AssistantCaller) -> None:
        self.caller = caller
        self.uses = 0
        self.idle_since = 0.0


class CallerTable:
    """The callers over HTTP, with a client each of the service at `target`. `access` are the
    parameters of a client, without a credential of its own; callers without a token are let in with
    `open_to_all`. `session` begins the names of their sessions; `clock` is in seconds."""

    def __init__(
        self,
        target: str,
        access: Mapping[str, Any],
        session: str,
        open_to_all: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        own = ("token", "tls_cert", "tls_key")
        self._access = {name: value for name, value in access.items() if name not in own}
        self._session = session
        self._open = open_to_all
        self._clock = clock
        self._known: OrderedDict[str, KnownCaller] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    @asynccontextmanager
    async def hold(self, token: str | None) -> AsyncIterator[tuple[str, AssistantCaller]]:
        """Yields the name of a token's caller and the caller, for one request. Raises
        Unauthenticated and PermissionDenied as the service does, and ResourceExhausted when there
        are too many callers, or requests of one."""
        if token is None and not self._open:
            raise Unauthenticated(NOBODY)
        name = LOCAL if token is None else name_token(token)
        is_new = name not in self._known
        while (known := self._known.get(name)) is None:
            await self._admit(name, token)
        if known.uses >= MAX_REQUESTS:
            problem = f"{MAX_REQUESTS} requests are under way, the limit of one caller (requests)"
            raise ResourceExhausted(problem, 1000)
        known.uses += 1  # from here on nobody drops it
        self._known.move_to_end(name)
        try:
            if not is_new:
                await check_access(known.caller)
            yield name, known.caller
        finally:
            known.uses -= 1
            known.idle_since = self._clock()

    async def close_idle(self) -> None:
        """Closes the callers that have had no request for IDLE_S."""
        old = self._clock() - IDLE_S
        for name, known in tuple(self._known.items()):
            if not known.uses and known.idle_since < old:
                await self._drop(name)

    async def close(self) -> None:
        """Closes all callers."""
        for name in tuple(self._known):
            await self._drop(name)

    async def _admit(self, name: str, token: str | None) -> None:
        """Makes the caller of a token, once the service has let it in, unless another request has
        made it meanwhile."""
        client = self._make_client(token)
        session = self._session if token is None else f"{self._session}-{name}"
        caller = AssistantCaller(client, session, token or LOCAL)
        try:
            await check_access(caller)
            await self._make_room()
        except BaseException:
            await client.close()
            raise
        if name in self._known:
            await client.close()
        else:
            self._known[name] = KnownCaller(caller)
            self._known[name].idle_since = self._clock()

    async def _make_room(self) -> None:
        """Drops the caller that has been idle longest if there is no room for one more."""
        if len(self._known) < MAX_CALLERS:
            return
        idle = next((name for name, known in self._known.items() if not known.uses), None)
        if idle is None:
            problem = f"{MAX_CALLERS} callers have requests under way, the limit (callers)"
            raise ResourceExhausted(problem, 1000)
        await self._drop(idle)

    async def _drop(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            await known.caller.close()
            await known.caller.client.close()

    def _make_client(self, token: str | None) -> AsyncClient:
        more = {} if token is None else {"token": token}
        try:
            return AsyncClient(self._target, **self._access | more)
        except InvalidArgument as error:
            raise Unauthenticated(str(error)) from None


def build_own_caller(
    client: AsyncClient, access: Mapping[str, Any], session: str
) -> AssistantCaller:
    """Returns the one caller of a server on standard input."""
    return AssistantCaller(client, session, str(access.get("token") or name_access(access)))


def find_caller(
    context: ServerRequestContext[Any, Any], own: AssistantCaller | None
) -> AssistantCaller:
    """Returns the caller of a request: `own`, or over HTTP the one that the gate has let in."""
    if own is not None:
        return own
    assert context.request is not None
    caller = context.request.scope[SCOPE]
    assert isinstance(caller, AssistantCaller)
    return caller


async def check_access(caller: AssistantCaller) -> None:
    """Asks the service whether the caller may see queries, now. Raises what it answers."""
    await caller.client.list_page(caller.session, page_size=1)
