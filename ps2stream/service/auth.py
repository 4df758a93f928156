"""The guard of the service, which decides for every method and stream whether a call may pass.

Nothing is open but what `RULES` opens; a method without a rule needs every scope. A caller without
a credential is refused before a message is waited for, so that strangers hold no thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import (
    Cancelled,
    InvalidArgument,
    PermissionDenied,
    Ps2StreamError,
    Violation,
)
from ps2stream.security import AccessScope, PortSecurity
from ps2stream.service.calls import HeldBack, begin_message, complete
from ps2stream.service.half_open import HalfOpenCalls, PeerLimits, PeerShares
from ps2stream.service.identity import CallerIdentity, KnownIdentities
from ps2stream.service.lanes import CONNECTION_STREAMS, HOST_STREAMS, CallLane, CallLanes
from ps2stream.service.methods import Handler, MethodKind, ServedMethod, make_handler
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.service_loop import service_loop
from ps2stream.service.status import UnknownMethod

log = logging.getLogger("ps2stream.service")
REFRESH_S = 1.0
OPEN_CALLS = 16
OPEN_S = 5.0
"""The time that a stranger's open call has to send its message."""
_PUBSUB, _ADMIN = "/ps2stream.v1.PubSub/", "/ps2stream.v1.Admin/"


class AccessRule(NamedTuple):
    """The rule of a method: open to all, or else to every identity that has these scopes."""

    open: bool = False
    scopes: frozenset[AccessScope] = frozenset()


def _require_scope(scope: AccessScope) -> AccessRule:
    return AccessRule(scopes=frozenset({scope}))


_NO_RULE = AccessRule(scopes=frozenset(AccessScope))
"""The rule of a method that has none: it needs all scopes."""

RULES: dict[str, AccessRule] = {
    **dict.fromkeys(
        (_PUBSUB + m for m in ("Publish", "PublishStream")), _require_scope(AccessScope.PUBLISH)
    ),
    **dict.fromkeys(
        (
            _PUBSUB + m
            for m in (
                "InsertQuery", "InsertQueries", "DeleteQuery", "DeleteQueries", "GetQuery",
                "ListQueries", "Deliver", "ExplainMatch", "PriceQuery",
            )
        ),
        _require_scope(AccessScope.SUBSCRIBE),
    ),
    _PUBSUB + "ListDispatchers": AccessRule(),
    # Objects are shared, and nothing says who published one.
    _PUBSUB + "WithdrawObjects": _require_scope(AccessScope.WITHDRAW),
    # Objects are shared; of the matches, only those of the caller's tenant are sent.
    _ADMIN + "Watch": _require_scope(AccessScope.SUBSCRIBE),
    **dict.fromkeys(
        (
            _ADMIN + m
            for m in (
                "GetStatus", "SampleObjects", "ListAllQueries",
                "CreateToken", "ListTokens", "RevokeToken", "GetLoad", "Rebalance",
                "ApplyPlan", "UnitePlans", "AbortMigration", "GetMigrations", "GetPlan",
                "ScaleWorkers", "ScaleMergers", "ScaleDispatchers",
            )
        ),
        _require_scope(AccessScope.ADMIN),
    ),
    # Load balancers ask without a credential, and learn no more than that a server is up.
    f"/{health.SERVICE_NAME}/Check": AccessRule(open=True),
    f"/{health.SERVICE_NAME}/List": AccessRule(),
    f"/{health.SERVICE_NAME}/Watch": AccessRule(),
    f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": AccessRule(),
}  # fmt: skip


class CallGuard(grpc.GenericRpcHandler):
    """The guard that authenticates and authorises every call, and ends streams whose token was
    revoked or has expired. `end` ends a stream with an error, or returns False where it cannot."""

    def __init__(
        self,
        security: PortSecurity,
        gateway: DispatcherGateway,
        end: Callable[[OpenCall, Ps2StreamError], bool],
        lanes: CallLanes,
    ) -> None:
        self.requires_identity = security.auth
        """True when calls need an identity."""
        self._identities = KnownIdentities(security, gateway)
        self._end = end
        self._lanes = lanes
        self._handlers: dict[str, Handler] = {}
        self._unknown = make_handler(self._refuse_unknown, lanes.refusals, False)
        self._half_open = HalfOpenCalls()
        self._strangers = HalfOpenCalls(OPEN_S, OPEN_CALLS)
        self._stream_shares = PeerShares(
            PeerLimits(CONNECTION_STREAMS, HOST_STREAMS), "peer_streams"
        )
        self._streams: dict[OpenCall, CallerIdentity] = {}
        self._stopped = threading.Event()
        if self.requires_identity:
            self._identities.refresh()
            if not self._identities:
                log.warning(
                    "nobody can call the service, for it knows no token and no certificate; "
                    "stop it and create the first one with `ps2stream token create --data-dir`, or "
                    "--database-url"
                )
            threading.Thread(
                target=self._keep_refreshing, daemon=True, name="ps2stream-auth"
            ).start()

    def stop(self) -> None:
        self._stopped.set()

    def serve(self, methods: Mapping[str, ServedMethod]) -> None:
        """Adds methods, by path."""
        for path, method in methods.items():
            serve = partial(self._serve_call, path, method)
            self._handlers[path] = make_handler(serve, self._lanes.refusals, method.is_unary)

    def generic_handlers(self) -> list[grpc.GenericRpcHandler]:
        """Returns the handlers of all methods for gRPC, and last the one of unknown methods."""
        services: dict[str, dict[str, Handler]] = {}
        for path, handler in self._handlers.items():
            _, service, name = path.split("/")
            services.setdefault(service, {})[name] = handler
        known = [grpc.method_handlers_generic_handler(*service) for service in services.items()]
        return [*known, self]

    def service(self, handler_call_details: Any) -> Handler:
        """Returns the handler of a call of an unknown method, for gRPC."""
        return self._unknown

    def registered(self, path: str) -> Handler:
        """Returns the handler of a method that is registered with gRPC."""
        return self._handlers[path]

    def refresh(self) -> None:
        """Reads the tokens again, and ends the streams whose token is no longer valid."""
        self._identities.refresh()
        service_loop().post(self._end_invalid_streams)

    def _end_invalid_streams(self) -> None:
        for call, caller in list(self._streams.items()):
            if not caller.token:
                continue
            try:
                self._identities.check(caller.token)
            except Ps2StreamError as error:
                if not self._end(call, error):
                    call.end(error)

    async def _serve_call(self, path: str, method: ServedMethod, call: OpenCall) -> bytes | None:
        rule = RULES.get(path, _NO_RULE)
        late: Exception = TimeoutError(
            f"no message arrived within {self._half_open.limit_s:g} s, the limit (half_open_s)"
        )
        if self.requires_identity and rule.open:
            caller = CallerIdentity()
            call.limit_first(self._strangers, Cancelled("no message arrived soon enough"))
        else:
            caller = self._identify_caller(path, rule, call)
            if method.kind is MethodKind.HASTY:
                late = Cancelled(str(late))
            if method.kind is not MethodKind.PATIENT:
                call.limit_first(self._half_open, late)
        if method.is_unary:
            return await self._serve_unary(self._lanes.of(path), method, caller, call)
        await self._serve_stream(method, caller, call)
        return None

    async def _serve_unary(
        self, lane: CallLane, method: ServedMethod, caller: CallerIdentity, call: OpenCall
    ) -> bytes:
        peer = call.peer()
        lane.check()
        lane.shares.enter(peer)
        try:
            return await self._find_answer(lane, method, caller, call)
        finally:
            lane.shares.leave(peer)

    async def _find_answer(
        self, lane: CallLane, method: ServedMethod, caller: CallerIdentity, call: OpenCall
    ) -> bytes:
        data = await call.read()
        if data is None:
            raise InvalidArgument([Violation("request", "expected one message, got none")])
        behaviour: Any = method.of(caller)
        if method.kind is MethodKind.QUICK:
            return bytes(behaviour(data, call))
        with lane.count_one():
            call.has_begun = True
            beginning = begin_message(lane.threads, behaviour, data, call)
            del data  # the answer may take long
            begun = await beginning
            if not isinstance(begun, HeldBack):
                return await complete(begun)
        return await complete(begun)

    async def _serve_stream(
        self, method: ServedMethod, caller: CallerIdentity, call: OpenCall
    ) -> None:
        peer = call.peer()
        self._stream_shares.enter(peer)
        call.has_begun = True
        try:
            self._streams[call] = caller
            behaviour: Any = method.of(caller)
            await behaviour(call)
        finally:
            self._streams.pop(call, None)
            self._stream_shares.leave(peer)

    async def _refuse_unknown(self, call: OpenCall) -> None:
        if self.requires_identity:
            self._identify_caller("", AccessRule(), call)
        raise UnknownMethod

    def _identify_caller(self, path: str, rule: AccessRule, call: OpenCall) -> CallerIdentity:
        if not self.requires_identity:
            return CallerIdentity()
        caller = self._identities.by_token(call.metadata())
        if caller is None:
            caller = self._identities.by_certificate(call.certificate())
        if not rule.scopes <= caller.scopes:
            raise PermissionDenied(f"{path} needs the scope {' and '.join(sorted(rule.scopes))}")
        return caller

    def _keep_refreshing(self) -> None:
        while not self._stopped.wait(REFRESH_S):
            try:
                self.refresh()
            except Exception:
                log.exception("the tokens could not be read")
