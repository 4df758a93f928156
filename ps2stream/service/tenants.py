"""The PubSub services of the tenants, one each: nothing of another tenant can be seen in it."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import Ps2StreamError
from ps2stream.security import PortSecurity
from ps2stream.service.admission import PublishRates
from ps2stream.service.calls import StreamBehaviour, UnaryBehaviour
from ps2stream.service.gate import PublishGate
from ps2stream.service.identity import CallerIdentity
from ps2stream.service.inbox import StreamInboxes
from ps2stream.service.lanes import MAX_BULK_STREAMS, MAX_STREAMS, CallerThread
from ps2stream.service.methods import MethodKind, ServedMethod
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.publishing import REASONS
from ps2stream.service.pubsub import SERVICE, PubSub
from ps2stream.service.slots import StreamSlots
from ps2stream.service.tenant_gateway import TenantGateway
from ps2stream.v1 import pubsub_pb2


class TenantServices:
    """The service ps2stream.v1.PubSub of all tenants. The messages of streams are handled on
    `threads`."""

    def __init__(
        self, gateway: DispatcherGateway, security: PortSecurity, threads: Executor
    ) -> None:
        self._security = security
        self._gateway = gateway
        self._streams = StreamSlots(MAX_STREAMS, "streams")
        self._held = StreamInboxes()
        self._gate = PublishGate(security.intake_bytes)
        gateway.tell_congestion(self._gate.set_congested)
        self._threads = threads
        self._puts: Executor = (
            CallerThread() if gateway.never_blocks else ThreadPoolExecutor(1, "ps2stream-puts")
        )
        self._bulk = StreamSlots(MAX_BULK_STREAMS, "bulk_streams")
        self._services: dict[str, PubSub] = {}
        self._lock = threading.Lock()

    def methods(self) -> dict[str, ServedMethod]:
        """Returns the methods, by path."""
        served = {}
        for method in pubsub_pb2.DESCRIPTOR.services_by_name["PubSub"].methods:
            kind = MethodKind.PATIENT if method.client_streaming else MethodKind.UNARY
            if method.name == "Deliver":
                kind = MethodKind.HASTY
            choose = partial(self._choose_behaviour, method.name)
            served[f"/{SERVICE}/{method.name}"] = ServedMethod(choose, kind)
        return served

    def refused(self) -> Counter[str]:
        """Returns the number of objects that were not accepted, by reason; see
        `publishing.REASONS`."""
        found: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        for service in self._list_services():
            found.update(service.publishing.refused)
        return found

    def cut(self) -> int:
        """Returns the number of times that a Deliver stream was cut because it took nothing."""
        return self._held.cuts

    def end(self, call: OpenCall, error: Ps2StreamError) -> bool:
        """Ends a Deliver stream with `error`; returns False when it is none."""
        return any(service.delivering.end(call, error) for service in self._list_services())

    def stop(self) -> None:
        """Ends all Deliver streams."""
        for service in self._list_services():
            service.delivering.stop()

    def _choose_behaviour(
        self, name: str, caller: CallerIdentity
    ) -> UnaryBehaviour | StreamBehaviour:
        service = self._get_service(caller.tenant)
        return service.calls.get(name) or service.streams[name]

    def _get_service(self, tenant: str) -> PubSub:
        with self._lock:
            if tenant not in self._services:
                self._services[tenant] = self._make_service(tenant)
            return self._services[tenant]

    def _make_service(self, tenant: str) -> PubSub:
        quota = self._security.quotas.of(tenant)

        def among() -> int:
            return max(self._security.dispatchers, self._gateway.sharers)

        rates = PublishRates(quota, among, self._gateway.clock_ms())
        slots = self._streams
        if quota.streams is not None:
            slots = StreamSlots(quota.streams, "the tenant's quota streams", slots, among)
        gateway = TenantGateway(self._gateway, tenant)
        return PubSub(
            gateway, slots, self._bulk, self._held, self._threads, self._puts, quota,
            self._gate, rates,
        )  # fmt: skip

    def _list_services(self) -> list[PubSub]:
        with self._lock:
            return list(self._services.values())
