"""Who calls, and whether they may: the one gate that every method and stream passes.

Nothing is open but what `RULES` opens; a method without a rule asks for every scope.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from ps2stream import tokens
from ps2stream.errors import PermissionDenied, Ps2StreamError, Unauthenticated, Unavailable
from ps2stream.security import Scope, Security
from ps2stream.service.gateway import Gateway
from ps2stream.service.status import abort
from ps2stream.tokens import Table

log = logging.getLogger("ps2stream.service")
REFRESH_S = 1.0
STALE_S = 60.0
"""A dispatcher that has not heard of the tokens for so long cannot know what was revoked."""
_PUBSUB, _ADMIN = "/ps2stream.v1.PubSub/", "/ps2stream.v1.Admin/"


class Rule(NamedTuple):
    """Open to all; else to every identity that has these scopes."""

    open: bool = False
    scopes: frozenset[Scope] = frozenset()


def _needs(scope: Scope) -> Rule:
    return Rule(scopes=frozenset({scope}))


_NOBODY = Rule(scopes=frozenset(Scope))
"""A method that was given no rule: only for who may do all."""

RULES: dict[str, Rule] = {
    **dict.fromkeys((_PUBSUB + m for m in ("Publish", "PublishStream")), _needs(Scope.PUBLISH)),
    **dict.fromkeys(
        (
            _PUBSUB + m
            for m in (
                "InsertQuery", "InsertQueries", "DeleteQuery", "DeleteQueries", "GetQuery",
                "ListQueries", "Deliver",
            )
        ),
        _needs(Scope.SUBSCRIBE),
    ),
    **dict.fromkeys(
        (
            _ADMIN + m
            for m in ("GetStatus", "SampleObjects", "CreateToken", "ListTokens", "RevokeToken")
        ),
        _needs(Scope.ADMIN),
    ),
    # Load balancers ask without a credential, and learn no more than that a server is up.
    f"/{health.SERVICE_NAME}/Check": Rule(open=True),
    f"/{health.SERVICE_NAME}/List": Rule(),
    f"/{health.SERVICE_NAME}/Watch": Rule(),
    f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": Rule(),
}  # fmt: skip


class Caller(NamedTuple):
    """An identity. token "": a client certificate, or nobody asked."""

    tenant: str = ""
    scopes: frozenset[Scope] = frozenset(Scope)
    token: str = ""


Behaviour = Callable[[Any, grpc.ServicerContext], Any]


class PerCaller:
    """A method whose behaviour depends on who calls."""

    def __init__(self, of: Callable[[Caller], Behaviour]) -> None:
        self.of = of

    def __call__(self, *_: object) -> Any:
        raise PermissionDenied("nobody has asked who calls")  # never without the guard


class Guard(grpc.ServerInterceptor):
    """Authenticates and authorises every call, and ends streams whose token was revoked or
    has expired. `end` ends a stream with an error; False where it cannot."""

    def __init__(
        self,
        security: Security,
        gateway: Gateway,
        end: Callable[[grpc.ServicerContext, Ps2StreamError], bool],
    ) -> None:
        self._security = security
        self._gateway = gateway
        self._end = end
        self._table = Table()
        self._read_ms = 0
        self._streams: dict[grpc.ServicerContext, Caller] = {}
        self._lock = threading.Lock()
        self._asking = threading.Lock()  # so that no older answer comes after a newer one
        self._stopped = threading.Event()
        if security.auth:
            self._refresh()
            if not (self._table or security.identities):
                log.warning("nobody can call: there is no token, and no certificate is known")
            threading.Thread(target=self._watch, daemon=True, name="ps2stream-auth").start()

    @property
    def asks(self) -> bool:
        """Whether calls need an identity."""
        return self._security.auth

    def stop(self) -> None:
        self._stopped.set()

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """gRPC asks for the handler of each call."""
        handler = continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            guarded = self._streaming(method, Rule(), _unknown)
            return grpc.stream_stream_rpc_method_handler(guarded)
        rule = RULES.get(method, _NOBODY)
        inner = (
            handler.stream_stream
            or handler.unary_stream
            or handler.stream_unary
            or handler.unary_unary
        )
        guarded = (self._streaming if handler.response_streaming else self._unary)(
            method, rule, inner
        )
        make = getattr(
            grpc,
            f"{'stream' if handler.request_streaming else 'unary'}_"
            f"{'stream' if handler.response_streaming else 'unary'}_rpc_method_handler",
        )
        return make(guarded, handler.request_deserializer, handler.response_serializer)

    def refresh(self) -> None:
        """Take the tokens as they now are; what is no longer valid ends."""
        self._refresh()
        with self._lock:
            held = list(self._streams.items())
        for context, caller in held:
            if not caller.token:
                continue
            try:
                self._check(caller.token)
            except Ps2StreamError as error:
                if not self._end(context, error):
                    context.cancel()

    # --- who -------------------------------------------------------------------------

    def _identify(self, context: grpc.ServicerContext) -> Caller:
        sent = [v for k, v in context.invocation_metadata() if k == "authorization"]
        if not sent:
            return self._certified(context)
        kind, _, text = str(sent[0]).partition(" ")
        found = self._table.bearer(text.strip()) if kind.lower() == "bearer" else None
        if len(sent) > 1 or found is None:
            raise Unauthenticated("the token is not known")
        self._check(found.id)
        return Caller(found.tenant, found.scopes, found.id)

    def _check(self, id: str) -> None:
        now = self._gateway.clock_ms()
        found = self._table.get(id)
        if found is None:
            raise Unauthenticated("the token has been revoked")
        if found.expired(now):
            raise Unauthenticated("the token has expired")
        if now - self._read_ms > 1000 * STALE_S:
            raise Unavailable(f"whether tokens hold could not be asked for {STALE_S:g} s")

    def _certified(self, context: grpc.ServicerContext) -> Caller:
        shown: Mapping[str, Sequence[bytes]] = context.auth_context()  # type: ignore[assignment]
        alternative = [v.decode() for v in shown.get("x509_subject_alternative_name", ())]
        names = [name for name in alternative if name.startswith("spiffe://")]
        if not names:
            common = (v.decode("utf-8", "replace") for v in shown.get("x509_common_name", ()))
            names = [name for name in common if not name.startswith("spiffe://")]
        if self._security.tls_client_ca is not None and len(names) == 1:
            identity = self._security.identities.get(names[0])
            if identity is not None:
                return Caller(identity.tenant, identity.scopes)
        raise Unauthenticated("send a token (authorization: Bearer ...) or a known certificate")

    # --- calls -----------------------------------------------------------------------

    def _unary(self, method: str, rule: Rule, inner: Behaviour | PerCaller) -> Behaviour:
        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            caller = self._admitted(method, rule, context)
            behaviour = inner.of(caller) if isinstance(inner, PerCaller) else inner
            return behaviour(request, context)

        return handle

    def _streaming(self, method: str, rule: Rule, inner: Behaviour | PerCaller) -> Behaviour:
        def handle(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            caller = self._admitted(method, rule, context)
            behaviour = inner.of(caller) if isinstance(inner, PerCaller) else inner
            with self._lock:
                self._streams[context] = caller
            try:
                yield from behaviour(request, context)
            finally:
                with self._lock:
                    del self._streams[context]

        return handle

    def _admitted(self, method: str, rule: Rule, context: grpc.ServicerContext) -> Caller:
        if not self._security.auth or rule.open:
            return Caller()
        try:
            caller = self._identify(context)
            if not rule.scopes <= caller.scopes:
                raise PermissionDenied(f"{method} needs the scope {' and '.join(rule.scopes)}")
        except Exception as error:  # noqa: BLE001
            abort(context, error)
        return caller

    # --- tokens ----------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopped.wait(REFRESH_S):
            try:
                self.refresh()
            except Exception:
                log.exception("the tokens could not be read")

    def _refresh(self) -> None:
        with self._asking:
            asked = self._gateway.clock_ms()
            try:
                reply = self._gateway.tokens().result(REFRESH_S)
            except TimeoutError:
                return  # asked again soon; STALE_S bounds how often
            self._table = Table(tokens.decode(reply.tokens.tobytes()))
            self._read_ms = asked


def _unknown(_: Any, context: grpc.ServicerContext) -> Any:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")
