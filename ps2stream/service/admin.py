"""The service ps2stream.v1.Admin."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import grpc

from ps2stream import __version__
from ps2stream.limits import REQUEST_BYTES
from ps2stream.service.calls import parse, wait
from ps2stream.service.gateway import Gateway
from ps2stream.service.status import unary
from ps2stream.v1 import admin_pb2

SERVICE = "ps2stream.v1.Admin"


class Admin:
    """`counters` adds the numbers that the service itself keeps."""

    def __init__(self, gateway: Gateway, counters: Callable[[], dict[str, float]]) -> None:
        self._gateway = gateway
        self._counters = counters

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server is given."""
        return grpc.method_handlers_generic_handler(
            SERVICE, {"GetStatus": grpc.unary_unary_rpc_method_handler(unary(self._status))}
        )

    def _status(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        parse(admin_pb2.GetStatusRequest, data, REQUEST_BYTES, "request_bytes")
        live = wait(self._gateway.lookup(None, 0, 0, 1), context).live
        known = dict(self._gateway.status())
        answer = admin_pb2.GetStatusResponse(
            version=__version__,
            plan_version=str(known.pop("plan_version", "")),
            dispatcher=int(known.pop("dispatcher", 0)),
            live_queries=live,
            streams=int(known.pop("streams", 0)),
            in_flight=int(known.pop("in_flight", 0)),
        )
        for name, value in {**known, **self._counters()}.items():
            if isinstance(value, Real):
                answer.counters[name] = float(value)
        return answer.SerializeToString()
