"""The guard of the service, which decides for every method and stream whether a call may pass.

Nothing is open but what `RULES` opens; a method without a rule needs every scope. A caller without
a credential is refused before a message is waited for, so that strangers hold no thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import PermissionDenied, Ps2StreamError, ResourceExhausted
from ps2stream.security import AccessScope, PortSecurity
from ps2stream.service.half_open import HalfOpenCalls, PeerLimits, PeerShares
from ps2stream.service.identity import CallerIdentity, KnownIdentities
from ps2stream.service.lanes import CONNECTION_STREAMS, HOST_STREAMS, CallLane, CallLanes
from ps2stream.service.status import abort
from ps2stream.service.timers import TaskTimers
from ps2stream.service.unary_calls import UnaryCalls

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
    # Objects are shared; of the matches, only those of the caller's tenant are sent.
    _ADMIN + "Watch": _require_scope(AccessScope.SUBSCRIBE),
    **dict.fromkeys(
        (
            _ADMIN + m
            for m in (
                "GetStatus", "SampleObjects", "ListAllQueries",
                "CreateToken", "ListTokens", "RevokeToken", "GetLoad", "Rebalance",
                "ApplyPlan", "UnitePlans", "AbortMigration", "GetMigrations", "GetPlan",
                "ScaleWorkers",
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


Behaviour = Callable[[Any, grpc.ServicerContext], Any]


class PerCaller:
    """A method whose behaviour depends on the caller. `lasting` means that a call goes on after its
    handler."""

    def __init__(
        self, of: Callable[[CallerIdentity], Callable[..., Any]], lasting: bool = False
    ) -> None:
        self.of = of
        self.lasting = lasting

    def __call__(self, *_: object) -> Any:
        raise PermissionDenied("the caller was not identified")  # the guard prevents this


class CallGuard:
    """The guard that authenticates and authorises every call, and ends streams whose token was
    revoked or has expired. `end` ends a stream with an error, or returns False where it cannot."""

    def __init__(
        self,
        security: PortSecurity,
        gateway: DispatcherGateway,
        end: Callable[[grpc.ServicerContext, Ps2StreamError], bool],
        lanes: CallLanes,
    ) -> None:
        self.requires_identity = security.auth
        """True when calls need an identity."""
        self._identities = KnownIdentities(security, gateway)
        self._end = end
        self._lanes = lanes
        self._half_open = HalfOpenCalls()
        self._stream_shares = PeerShares(
            PeerLimits(CONNECTION_STREAMS, HOST_STREAMS), "peer_streams"
        )
        self._timers = TaskTimers()
        self._unary = UnaryCalls(lanes, self._half_open, self._timers)
        self._waiting: dict[grpc.ServicerContext, None] = {}  # strangers' open calls
        self._streams: dict[grpc.ServicerContext, CallerIdentity] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        if self.requires_identity:
            self._identities.refresh()
            if not self._identities:
                log.warning(
                    "nobody can call the service, for it knows no token and no certificate; "
                    "create a token with `ps2stream token create`"
                )
            threading.Thread(
                target=self._keep_refreshing, daemon=True, name="ps2stream-auth"
            ).start()

    def stop(self) -> None:
        self._stopped.set()
        self._half_open.stop()
        self._timers.stop()

    def guard_unary(self, method: str, handler: Any) -> Any:
        """Returns the handler of all calls of a unary method. The caller's token is checked before
        a message is read."""

        def choose(context: grpc.ServicerContext) -> Behaviour:
            rule = RULES.get(method, _NO_RULE)
            caller = self._identify_caller(method, rule, context.invocation_metadata())
            return _guard_unary(self._make_admit(method, rule, caller), handler.unary_unary)

        lane = self._lanes.of(method, streaming=False)
        parse, write = handler.request_deserializer, handler.response_serializer
        called = self._unary.handler(lane, choose, parse, write)
        return grpc.stream_stream_rpc_method_handler(called)

    def choose_handler(self, handler: Any, details: Any) -> Any:
        """Returns the handler of one call of a method, None: of an unknown one; gRPC asks for it
        before it reads any message of the call."""
        method = details.method
        rule = RULES.get(method, _NO_RULE) if handler is not None else AccessRule()
        if self.requires_identity and rule.open:
            return self._serve_strangers(handler)
        try:
            caller = self._identify_caller(method, rule, details.invocation_metadata)
        except Exception as error:  # noqa: BLE001
            return self._make_refusal(error)
        admit = self._make_admit(method, rule, caller)
        if handler is None:
            return grpc.stream_stream_rpc_method_handler(self._guard_stream(admit, _refuse_unknown))
        inner = (
            handler.stream_stream
            or handler.unary_stream
            or handler.stream_unary
            or handler.unary_unary
        )
        lane = self._lanes.of(method, handler.response_streaming)
        try:
            lane.check()
        except Ps2StreamError as error:
            return self._make_refusal(error)
        parse, write = handler.request_deserializer, handler.response_serializer
        # All methods are streams to gRPC, which holds a thread while it waits for a unary message.
        if not (handler.request_streaming or handler.response_streaming):
            behaviour = _guard_unary(admit, inner)
            called = self._unary.handler(lane, lambda _: behaviour, parse, write)
            return grpc.stream_stream_rpc_method_handler(called)
        hasty = _is_lasting(inner) or not handler.request_streaming
        guarded = (self._guard_lasting if _is_lasting(inner) else self._guard_stream)(
            admit, inner, hasty, handler.request_streaming
        )
        _assign_lane(lane, guarded)
        return grpc.stream_stream_rpc_method_handler(guarded, parse, write)

    def refresh(self) -> None:
        """Reads the tokens again, and ends the streams whose token is no longer valid."""
        self._identities.refresh()
        with self._lock:
            held = list(self._streams.items())
        for context, caller in held:
            if not caller.token:
                continue
            try:
                self._identities.check(caller.token)
            except Ps2StreamError as error:
                if not self._end(context, error):
                    context.cancel()

    def _identify_caller(
        self, method: str, rule: AccessRule, metadata: Any
    ) -> CallerIdentity | None:
        """Returns the caller by its token; None if it has to have a certificate."""
        if not self.requires_identity:
            return CallerIdentity()
        caller = self._identities.by_token(metadata)
        if caller is not None:
            _check_scopes(method, rule, caller)
        return caller

    def _make_refusal(self, error: Exception) -> Any:
        """Returns a handler that ends the call at once. It is a stream's, which waits for no
        message."""

        def handle(_: Any, context: grpc.ServicerContext) -> Any:
            if isinstance(error, ResourceExhausted):
                self._lanes.hold_back()
            abort(context, error)

        _assign_lane(self._lanes.refusals, handle)
        return grpc.stream_stream_rpc_method_handler(handle)

    def _make_admit(
        self, method: str, rule: AccessRule, caller: CallerIdentity | None
    ) -> Callable[[grpc.ServicerContext], CallerIdentity]:
        def admit(context: grpc.ServicerContext) -> CallerIdentity:
            if caller is not None:
                return caller
            try:
                found = self._identities.by_certificate(context)
                _check_scopes(method, rule, found)
            except Exception as error:  # noqa: BLE001
                abort(context, error)
            return found

        return admit

    def _guard_stream(
        self,
        admit: Callable[[grpc.ServicerContext], CallerIdentity],
        inner: Behaviour | PerCaller,
        hasty: bool = False,
        many: bool = True,
    ) -> Behaviour:
        """Returns a stream's handler that admits the caller first. With `hasty` the first message
        must come soon. With `many` the behaviour takes an iterator of messages, else the one
        message."""

        def handle(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            self._count_stream(context)
            try:
                caller = admit(context)
                behaviour = inner.of(caller) if isinstance(inner, PerCaller) else inner
                with self._lock:
                    self._streams[context] = caller
                if hasty:
                    requests = self._await_first(requests, context)
                request = requests if many else next(requests, None)
                if request is not None:
                    yield from behaviour(request, context)
            finally:
                self._forget_stream(context)

        return handle

    def _guard_lasting(
        self,
        admit: Callable[[grpc.ServicerContext], CallerIdentity],
        inner: PerCaller,
        hasty: bool,
        many: bool,
    ) -> Callable[..., None]:
        def handle(requests: Any, context: grpc.ServicerContext, send: Any) -> None:
            self._count_stream(context)
            if not context.add_callback(partial(self._forget_stream, context)):
                self._forget_stream(context)
                return
            caller = admit(context)
            with self._lock:
                if context.is_active():  # otherwise _forget_stream has run already
                    self._streams[context] = caller
            inner.of(caller)(self._await_first(requests, context), context, send)

        handle.experimental_non_blocking = True  # type: ignore[attr-defined]
        return handle

    def _count_stream(self, context: grpc.ServicerContext) -> None:
        """Counts a stream of the peer. Aborts it where the peer has its share."""
        try:
            self._stream_shares.enter(context.peer())
        except ResourceExhausted as error:
            abort(context, error)

    def _await_first(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Yields the messages, of which the first must come soon."""
        self._half_open.add(context, context.cancel)
        try:
            first = next(requests, None)
        finally:
            self._half_open.drop(context)
        if first is not None:
            yield first
            yield from requests

    def _forget_stream(self, context: grpc.ServicerContext) -> None:
        self._stream_shares.leave(context.peer())
        with self._lock:
            self._streams.pop(context, None)

    def _serve_strangers(self, handler: Any) -> Any:
        """Returns an open unary method as a stream. Only a few calls wait for their message at a
        time, and not for long; beyond that the oldest is cancelled."""

        def handle(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            with self._lock:
                self._waiting[context] = None
                oldest = next(iter(self._waiting))
                if many := len(self._waiting) > OPEN_CALLS:
                    del self._waiting[oldest]
            if many:
                oldest.cancel()
            limit = threading.Timer(OPEN_S, context.cancel)
            limit.start()
            try:
                request = next(requests, None)
            except grpc.RpcError:
                return  # the caller has left, or was cancelled
            finally:
                limit.cancel()
                with self._lock:
                    self._waiting.pop(context, None)
            if request is not None:
                yield handler.unary_unary(request, context)

        return grpc.stream_stream_rpc_method_handler(
            handle, handler.request_deserializer, handler.response_serializer
        )

    def _keep_refreshing(self) -> None:
        while not self._stopped.wait(REFRESH_S):
            try:
                self.refresh()
            except Exception:
                log.exception("the tokens could not be read")


def _is_lasting(inner: object) -> bool:
    return isinstance(inner, PerCaller) and inner.lasting


def _check_scopes(method: str, rule: AccessRule, caller: CallerIdentity) -> None:
    if not rule.scopes <= caller.scopes:
        raise PermissionDenied(f"{method} needs the scope {' and '.join(sorted(rule.scopes))}")


def _guard_unary(
    admit: Callable[[grpc.ServicerContext], CallerIdentity], inner: Behaviour | PerCaller
) -> Behaviour:
    def handle(request: Any, context: grpc.ServicerContext) -> Any:
        caller = admit(context)
        behaviour = inner.of(caller) if isinstance(inner, PerCaller) else inner
        return behaviour(request, context)

    return handle


def _assign_lane(lane: CallLane, behaviour: Callable[..., Any]) -> None:
    """Sets the lane's threads at the behaviour, where gRPC looks for a method's threads."""
    behaviour.experimental_thread_pool = lane  # type: ignore[attr-defined]


def _refuse_unknown(_: Any, context: grpc.ServicerContext) -> Any:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")
