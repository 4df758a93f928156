"""The services that every gRPC server has: health, and reflection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from ps2stream.errors import NotFound
from ps2stream.limits import REQUEST_BYTES
from ps2stream.service.calls import StreamBehaviour, parse
from ps2stream.service.methods import MethodKind, ServedMethod, serve_unary
from ps2stream.service.open_calls import OpenCall

HEALTH = "grpc.health.v1.Health"
_SERVES = health_pb2.HealthCheckResponse.SERVING
_STOPS = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthCalls:
    """The service grpc.health.v1.Health for the services of these names. All of them serve until
    `stop`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names) | {""}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Reports to all who watch that nothing is served any more."""
        self._stopping.set()

    def methods(self) -> dict[str, ServedMethod]:
        """Returns the methods, by path."""
        return {
            f"/{HEALTH}/Check": serve_unary(self._check_health, MethodKind.QUICK),
            f"/{HEALTH}/List": serve_unary(self._list_health, MethodKind.QUICK),
            f"/{HEALTH}/Watch": ServedMethod(lambda _: self._watch_health, MethodKind.HASTY),
        }

    def _find_answer(self, name: str) -> health_pb2.HealthCheckResponse:
        status = _STOPS if self._stopping.is_set() else _SERVES
        return health_pb2.HealthCheckResponse(status=status if name in self._names else _UNKNOWN)

    def _check_health(self, data: bytes, _: OpenCall) -> bytes:
        request = parse(health_pb2.HealthCheckRequest, data, REQUEST_BYTES, "request_bytes")
        if request.service not in self._names:
            raise NotFound(f"there is no service {request.service!r}")
        return bytes(self._find_answer(request.service).SerializeToString())

    def _list_health(self, data: bytes, _: OpenCall) -> bytes:
        parse(health_pb2.HealthListRequest, data, REQUEST_BYTES, "request_bytes")
        statuses = {name: self._find_answer(name) for name in self._names}
        return bytes(health_pb2.HealthListResponse(statuses=statuses).SerializeToString())

    async def _watch_health(self, call: OpenCall) -> None:
        data = await call.read()
        if data is None:
            return
        request = parse(health_pb2.HealthCheckRequest, data, REQUEST_BYTES, "request_bytes")
        await call.write(self._find_answer(request.service).SerializeToString())
        if not self._stopping.is_set():
            await self._stopping.wait()
            await call.write(self._find_answer(request.service).SerializeToString())
        await asyncio.Future()  # until the client or the server ends the call


def reflection_methods(names: Iterable[str]) -> dict[str, ServedMethod]:
    """Returns the method of reflection for the services of these names, by path."""
    servicer = reflection.aio.ReflectionServicer([*names, reflection.SERVICE_NAME])

    async def answer_all(call: OpenCall) -> None:
        async for answer in servicer.ServerReflectionInfo(_read_requests(call), None):
            await call.write(answer.SerializeToString())

    path = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
    behaviour: StreamBehaviour = answer_all
    return {path: ServedMethod(lambda _: behaviour, MethodKind.HASTY)}


async def _read_requests(
    call: OpenCall,
) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    while (data := await call.read()) is not None:
        kind = reflection_pb2.ServerReflectionRequest
        yield parse(kind, data, REQUEST_BYTES, "request_bytes")
