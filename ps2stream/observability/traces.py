"""Traces of sampled batches, sent to an OpenTelemetry collector.

Every actor derives from a batch's offset whether it is sampled, and which trace it belongs to:
both are a hash, so that messages carry nothing for it. Actors with the same `seed` derive the
same. The dispatcher makes the span of the whole batch, the others make children of it.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ps2stream.extras import name_missing_extra
from ps2stream.protocol.addresses import Address
from ps2stream.v1 import delivery_pb2

if TYPE_CHECKING:
    from ps2stream.config import Settings

log = logging.getLogger("ps2stream.cluster")
Key = tuple[int, int]
"""A dispatcher and the offset of its batch."""


class TraceSampling(NamedTuple):
    """The sampling: one batch in `every` (0: none) is traced to the collector at `endpoint`."""

    every: int = 0
    endpoint: str = ""
    seed: bytes = b""


NO_TRACES = TraceSampling()
EXPORT_S = 2.0
"""How long a collector may take; spans that it does not take by then are lost."""


class ActorTraces:
    """The traces of one actor. `exporter` replaces that of the endpoint."""

    def __init__(self, tracing: TraceSampling, actor: Address, exporter: Any = None) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter(f"{tracing.endpoint}/v1/traces", timeout=EXPORT_S)
        self._api = trace
        self._tracing = tracing
        self._ids = _SpanIds(RandomIdGenerator())
        name = f"{actor.role}-{actor.index}"
        resource = Resource({"service.name": "ps2stream", "service.instance.id": name})
        self._provider = TracerProvider(ALWAYS_ON, resource, id_generator=cast(Any, self._ids))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("ps2stream")
        self._failed = False
        self._open: dict[Key, int] = {}  # open batches of this dispatcher: number of objects

    def wanted(self, key: Key) -> bool:
        """Returns whether this batch is sampled."""
        return int.from_bytes(self._hash_key(key)[24:], "big") % self._tracing.every == 0

    def open(self, key: Key, objects: int) -> None:
        """Notes that this dispatcher has sent a sampled batch."""
        self._open[key] = objects

    def of_delivery(self, data: bytes) -> Key | None:
        """Returns the sampled batch of this dispatcher that an encoded delivery is of, if any."""
        if not self._open:
            return None
        batch = delivery_pb2.DeliverResponse.FromString(data).batch
        if not batch.object_offsets:
            return None
        at, offset = batch.partition, batch.object_offsets[0]
        found = (k for k, n in self._open.items() if k[0] == at and k[1] <= offset < k[1] + n)
        return next(found, None)

    def whole(self, key: Key, begun: int, ended: int, **attributes: int) -> None:
        """Records the span of a batch that is complete, Unix nanoseconds."""
        self._open.pop(key, None)
        self._ids.set_next(self._derive_ids(key))
        self._record_span("batch", None, begun, ended, attributes)

    def part(self, name: str, key: Key, begun: int, ended: int, **attributes: int) -> None:
        """Records the span of a stage of the batch, Unix nanoseconds."""
        api = self._api
        trace, span = self._derive_ids(key)
        flags = api.TraceFlags(api.TraceFlags.SAMPLED)
        parent = api.NonRecordingSpan(
            api.SpanContext(trace, span, is_remote=True, trace_flags=flags)
        )
        self._record_span(name, api.set_span_in_context(parent), begun, ended, attributes)

    def close(self) -> None:
        """Sends the spans that are left."""
        self._provider.shutdown()

    def _record_span(
        self, name: str, parent: Any, begun: int, ended: int, attributes: dict[str, int]
    ) -> None:
        try:
            span = self._tracer.start_span(name, parent, start_time=begun, attributes=attributes)
            span.end(ended)
        except Exception:
            if not self._failed:
                log.exception("spans are lost")
            self._failed = True

    def _derive_ids(self, key: Key) -> tuple[int, int]:
        digest = self._hash_key(key)
        return int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")

    def _hash_key(self, key: Key) -> bytes:
        data = b"%d.%d" % key
        return hashlib.blake2b(data, digest_size=32, key=self._tracing.seed).digest()


class _SpanIds:
    """An id generator: random ids, except for the next span where its ids are set."""

    def __init__(self, others: Any) -> None:
        self._others = others
        self._next = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others, name)

    def set_next(self, ids: tuple[int, int] | None) -> None:
        """Sets the ids of the next span of this thread; None: random ones."""
        self._next.ids = ids

    def generate_trace_id(self) -> int:
        ids = getattr(self._next, "ids", None)
        return int(self._others.generate_trace_id() if ids is None else ids[0])

    def generate_span_id(self) -> int:
        ids = getattr(self._next, "ids", None)
        self.set_next(None)
        return int(self._others.generate_span_id() if ids is None else ids[1])


def tracing_of(settings: Settings) -> TraceSampling:
    """Returns the tracing that the settings ask for, with a new seed. Raises FailedPrecondition
    when OpenTelemetry is not installed."""
    if not settings.trace_every:
        return NO_TRACES
    with name_missing_extra("trace_every"):
        import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: F401
    return TraceSampling(settings.trace_every, settings.trace_endpoint, secrets.token_bytes(16))


def unix_ns(monotonic: float) -> int:
    """Converts a time of the monotonic clock to Unix ns, by the wall clock as it is now."""
    return time.time_ns() - round((time.monotonic() - monotonic) * 1e9)


def record_stage(
    traces: ActorTraces, stage: str, key: Key, begun: float, ended: float | None, objects: int
) -> None:
    """Records the span of a stage, or of the whole batch, between two times of the monotonic clock;
    None: now."""
    until = time.time_ns() if ended is None else unix_ns(ended)
    if stage == "batch":
        traces.whole(key, unix_ns(begun), until, objects=objects)
    else:
        traces.part(stage, key, unix_ns(begun), until)
