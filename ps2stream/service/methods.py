"""The methods of the service, as the guard serves them, and how their calls end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

import grpc
import grpc.aio

from ps2stream.errors import Cancelled
from ps2stream.service.calls import StreamBehaviour, UnaryBehaviour
from ps2stream.service.identity import CallerIdentity
from ps2stream.service.lanes import RefusalPacer
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.status import find_status

Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
Behaviour: TypeAlias = UnaryBehaviour | StreamBehaviour


class MethodKind(Enum):
    """What the calls of a method are like: UNARY has one message and one answer. Of the streams,
    the first message of a HASTY one has to come soon. A QUICK one is a unary one that is answered
    without a thread."""

    UNARY = auto()
    QUICK = auto()
    HASTY = auto()
    PATIENT = auto()


class ServedMethod(NamedTuple):
    """A method of the service: `of` returns its behaviour for a caller, a StreamBehaviour for a
    stream, and otherwise a UnaryBehaviour."""

    of: Callable[[CallerIdentity], Behaviour]
    kind: MethodKind = MethodKind.UNARY

    @property
    def is_unary(self) -> bool:
        """True when a call has one message and one answer."""
        return self.kind in (MethodKind.UNARY, MethodKind.QUICK)


def serve_unary(behaviour: UnaryBehaviour, kind: MethodKind = MethodKind.UNARY) -> ServedMethod:
    """Returns a unary method that is the same for all callers."""
    return ServedMethod(lambda _: behaviour, kind)


def make_handler(
    serve: Callable[[OpenCall], Awaitable[bytes | None]], refusals: RefusalPacer, is_unary: bool
) -> Handler:
    """Returns gRPC's handler of a method whose calls `serve` serves; of a unary one it returns the
    answer. What it raises is what a call ends with, after a pause if the service is too full to
    begin it.

    For gRPC, all clients send streams: otherwise it waits for a message before it asks, for as long
    as the client likes.
    """

    async def handle(_: object, context: Any) -> bytes | None:
        call = OpenCall(context)
        del context  # what refuses a call has frames, which are to hold nothing of it
        try:
            answer, status = await _serve_call(serve, call)
            if status is not None:
                is_full = status.code is grpc.StatusCode.RESOURCE_EXHAUSTED and not call.has_begun
                if is_full and not await refusals.hold_back():
                    status = find_status(Cancelled(""))
                await call.refuse(status)
            return answer
        finally:
            call.close()

    if is_unary:
        return grpc.stream_unary_rpc_method_handler(handle)
    return grpc.stream_stream_rpc_method_handler(handle)


async def _serve_call(
    serve: Callable[[OpenCall], Awaitable[bytes | None]], call: OpenCall
) -> tuple[bytes | None, grpc.Status | None]:
    """Returns the answer of a call, and the status of the error that ends it. The error is gone
    then, and with it the message that its frames hold."""
    try:
        return await serve(call), None
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        if call.is_broken:
            raise  # the client has left, so nobody would get the status
        return None, find_status(error)
