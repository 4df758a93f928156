"""Spans of one batch, made by several actors that tell each other nothing."""

from __future__ import annotations

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ps2stream.config import Settings
from ps2stream.merger import fanout
from ps2stream.observability.traces import ActorTraces, TraceSampling
from ps2stream.protocol.addresses import Address, Role
from ps2stream.protocol.wire import DeliveryColumns, deliver_batch

TRACING = TraceSampling(4, "http://127.0.0.1:1", b"seed")


def traces(
    role: Role, tracing: TraceSampling = TRACING
) -> tuple[ActorTraces, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return ActorTraces(tracing, Address(role, 0), exporter), exporter


def spans(found: tuple[ActorTraces, InMemorySpanExporter]) -> tuple[ReadableSpan, ...]:
    found[0].close()
    return found[1].get_finished_spans()


def test_actors_sample_the_same_batches_one_in_so_many() -> None:
    (one, _), (other, _) = traces("worker"), traces("merger")
    keys = [(d, 1000 * b) for d in range(4) for b in range(1000)]
    wanted = [key for key in keys if one.wanted(key)]
    assert wanted == [key for key in keys if other.wanted(key)]
    assert 800 < len(wanted) < 1200
    (another, _) = traces("worker", TRACING._replace(seed=b"other"))
    assert wanted != [key for key in keys if another.wanted(key)]
    (all_, _) = traces("worker", TRACING._replace(every=1))
    assert all(map(all_.wanted, keys))
    for made in (one, other, another, all_):
        made.close()


def test_the_parts_of_a_batch_hang_below_the_whole() -> None:
    key = (1, 4096)
    dispatcher, worker = traces("dispatcher"), traces("worker")
    worker[0].part("match", key, 20, 30, objects=5)
    dispatcher[0].part("publish", key, 10, 12)
    dispatcher[0].whole(key, 10, 50, objects=7)
    dispatcher[0].part("deliver", key, 55, 60)
    dispatcher[0].whole((1, 8192), 11, 51)
    (match,) = spans(worker)
    publish, whole, deliver, next_ = spans(dispatcher)
    assert match.resource.attributes["service.instance.id"] == "worker-0"
    assert (match.name, match.start_time, match.end_time) == ("match", 20, 30)
    assert match.attributes == {"objects": 5}
    assert (whole.name, whole.parent, whole.attributes) == ("batch", None, {"objects": 7})
    for part in (match, publish, deliver):
        assert part.parent is not None
        assert part.parent.span_id == whole.context.span_id
        assert part.context.trace_id == whole.context.trace_id
        assert part.context.span_id != whole.context.span_id
    assert next_.context.trace_id != whole.context.trace_id


def test_what_cannot_be_traced_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    made, _ = traces("worker")
    monkeypatch.setattr(made._tracer, "start_span", broken)
    with caplog.at_level("ERROR", logger="ps2stream.cluster"):
        made.part("match", (0, 1), 1, 2)
        made.part("match", (0, 2), 1, 2)
    assert caplog.text.count("spans are lost") == 1
    made.close()


def delivery(partition: int, offset: int) -> bytes:
    none, text = np.zeros(0, np.int64), (np.zeros(1, np.int64), np.zeros(0, np.uint8))
    one = np.array([offset], np.int64)
    ids = np.array([0, 1], np.int64), np.frombuffer(b"a", np.uint8)
    return deliver_batch(
        DeliveryColumns(
            1, none, text, np.array([3], np.int64), np.zeros(1, np.uint32), ids, one, partition
        )
    )


def test_a_delivery_is_known_by_the_offset_of_its_first_object() -> None:
    made, _ = traces("dispatcher")
    assert made.of_delivery(b"not looked at") is None
    made.open((1, 100), 10)
    assert made.of_delivery(delivery(1, 100)) == (1, 100)
    assert made.of_delivery(delivery(1, 109)) == (1, 100)
    assert made.of_delivery(delivery(1, 110)) is None
    assert made.of_delivery(delivery(0, 100)) is None
    assert made.of_delivery(deliver_batch(fanout.gap(1, 2))) is None
    made.whole((1, 100), 1, 2)
    assert made.of_delivery(delivery(1, 100)) is None
    made.close()


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"trace_endpoint": "localhost:4318"}, "http://HOST:PORT"),
        ({"trace_endpoint": "http://collector:4318"}, "must use https"),
        ({"trace_every": 1, "runtime": "local"}, "only the runtime ray"),
    ],
)
def test_settings_that_cannot_hold(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings.model_validate(values)
    assert Settings(trace_endpoint="https://collector:4318/").trace_endpoint.endswith("8")
