"""The service ps2stream.v1.Admin."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from numbers import Real

import numpy as np
import pyarrow as pa

from ps2stream import __version__
from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.limits import REQUEST_BYTES
from ps2stream.observability.census import ServiceCensus, find_problems
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.opaque import split_opaque
from ps2stream.service.auth import CallGuard
from ps2stream.service.calls import UnaryBehaviour, parse, wait
from ps2stream.service.listing import page
from ps2stream.service.load_calls import LoadCalls
from ps2stream.service.methods import MethodKind, ServedMethod, serve_unary
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.plan_calls import PlanCalls
from ps2stream.service.service_loop import service_loop
from ps2stream.service.token_calls import TokenCalls
from ps2stream.service.watch_calls import WatchCalls
from ps2stream.v1 import admin_pb2

SERVICE = "ps2stream.v1.Admin"
SAMPLE_ROWS = 4096
"""The number of objects in one message of SampleObjects."""


class AdminService:
    """The handlers of the service ps2stream.v1.Admin. Streams call the gateway on
    `threads`. `counters` returns the numbers that the service itself keeps, by name."""

    def __init__(
        self,
        gateway: DispatcherGateway,
        guard: CallGuard,
        threads: Executor,
        counters: Callable[[], dict[str, float]],
    ) -> None:
        self._gateway = gateway
        self._tokens = TokenCalls(gateway, guard)
        self._loads = LoadCalls(gateway)
        self._plans = PlanCalls(gateway)
        self._watches = WatchCalls(gateway, threads)
        self._threads = threads
        self._counters = counters

    def stop(self) -> None:
        """Ends the streams of those who watch."""
        self._watches.stop()

    def methods(self) -> dict[str, ServedMethod]:
        """Returns the methods, by path."""
        calls: dict[str, UnaryBehaviour] = {
            "GetStatus": self._get_status,
            "ListAllQueries": self._list_all_queries,
            **self._tokens.calls,
            **self._loads.calls,
            **self._plans.calls,
        }
        served = {name: serve_unary(call) for name, call in calls.items()}
        served["SampleObjects"] = ServedMethod(lambda _: self._sample_objects, MethodKind.HASTY)
        served["Watch"] = ServedMethod(self._watches.serve_caller, MethodKind.HASTY)
        return {f"/{SERVICE}/{name}": method for name, method in served.items()}

    async def _sample_objects(self, call: OpenCall) -> None:
        data = await call.read()
        if data is None:
            return
        parse(admin_pb2.SampleObjectsRequest, data, REQUEST_BYTES, "request_bytes")
        loop = service_loop()
        answers = self._encode_sample_parts()
        while (answer := await loop.run_on(self._threads, next, answers, None)) is not None:
            await call.write(answer)

    def _encode_sample_parts(self) -> Iterator[bytes]:
        found = self._gateway.sample()
        for first in range(0, len(found.lon), SAMPLE_ROWS):
            rows = np.arange(first, min(first + SAMPLE_ROWS, len(found.lon)))
            answer = admin_pb2.SampleObjectsResponse(
                arrow=_encode_sample(found.take(rows)), since_ms=found.since
            )
            yield answer.SerializeToString()

    def _list_all_queries(self, data: bytes, call: OpenCall) -> bytes:
        request = parse(admin_pb2.ListAllQueriesRequest, data, REQUEST_BYTES, "request_bytes")
        answer = admin_pb2.ListAllQueriesResponse()
        return page(
            self._gateway, 0, request.page_size, request.page_token, answer, call
        ).SerializeToString()

    def _get_status(self, data: bytes, call: OpenCall) -> bytes:
        parse(admin_pb2.GetStatusRequest, data, REQUEST_BYTES, "request_bytes")
        live = wait(self._gateway.lookup(None, 0, 0, 1), call).live
        known = dict(self._gateway.status())
        census: ServiceCensus | None = known.pop("census", None)
        answer = admin_pb2.GetStatusResponse(
            version=__version__,
            plan_version=str(known.pop("plan_version", "")),
            dispatcher=int(known.pop("dispatcher", 0)),
            live_queries=live,
            streams=int(known.pop("streams", 0)),
            in_flight=int(known.pop("in_flight", 0)),
            endpoints=known.pop("endpoints", ()),
            census=None if census is None else _census_to_proto(census),
            problems=find_problems(census, self._gateway.clock_ms()),
        )
        for name, value in {**known, **self._counters()}.items():
            if isinstance(value, Real):
                answer.counters[name] = float(value)
        return answer.SerializeToString()


def _census_to_proto(census: ServiceCensus) -> admin_pb2.Census:
    actors = [admin_pb2.ActorStatus(**dataclasses.asdict(actor)) for actor in census.actors]
    archive, values = census.archive, census._asdict()
    del values["caveat"], values["log_problems"]  # which the problems name
    return admin_pb2.Census(
        **values
        | {
            "actors": actors,
            "archive": None if archive is None else admin_pb2.ArchiveStatus(**archive._asdict()),
        }
    )


def _encode_sample(sample: ObjectSample) -> bytes:
    attributes = split_opaque(sample.opaque_off, sample.opaque, len(sample.lon))
    columns = {
        "id": _wrap_strings(sample.id_off, sample.id),
        "time": pa.array(sample.time),
        "lon": pa.array(sample.lon),
        "lat": pa.array(sample.lat),
        "text": _wrap_strings(sample.text_off, sample.text),
        "weight": pa.array(sample.weight),
        "accepted": pa.array(sample.accepted),
        "attributes": _wrap_strings(*attributes[:2]).view(pa.large_binary()),
    }
    return to_ipc(pa.RecordBatch.from_pydict(columns))


def _wrap_strings(off: I64, data: U8) -> pa.Array:
    return pa.LargeStringArray.from_buffers(len(off) - 1, pa.py_buffer(off), pa.py_buffer(data))
