"""When a dispatcher reports that objects wait while hardly any are completed."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher import throughput
from ps2stream.dispatcher.throughput import ThroughputMonitor
from ps2stream.language.analyzer import Analysis
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.observability.metrics import samples
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import Frame, strings_to_column
from ps2stream.protocol.messages.objects import MatchBatch, ReleasesKept, RoutedObjects
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Rect
from ps2stream.store.memory import MemoryStore

TICKS = throughput.STALL_TICKS + throughput.WAIT_TICKS


def reports(of: ThroughputMonitor, ticks: int, done: int, age: int | None = None) -> list[int]:
    """The ticks in which it reports, while `done` objects are completed in each; an age of None:
    as of one batch that was opened before the first."""
    total = of._totals[-1]
    found = []
    for n in range(1, ticks + 1):
        total += done
        if of.tick(total, n if age is None else age):
            found.append(n)
    return found


def test_work_that_waits_while_nothing_is_completed_is_reported_every_minute() -> None:
    of = ThroughputMonitor()
    first = throughput.STALL_TICKS + throughput.WAIT_TICKS - 1
    assert reports(of, 1500, 0) == [first, first + 601, first + 1202]
    assert (of.stalled, of.stalls) == (True, 1)
    assert reports(of, 1, 0, age=0) == []
    assert (of.stalled, of.stalls) == (False, 1)


def test_a_steady_stream_and_an_idle_dispatcher_are_no_stall() -> None:
    of = ThroughputMonitor()
    assert reports(of, 2000, 200, age=5) == []  # slow answers, yet 2,000 objects a second
    assert reports(of, 2000, 0, age=0) == []  # idle
    assert reports(of, 2000, 1, age=1) == []  # one publisher that waits for each answer
    assert of.stalls == 0


def test_a_fall_to_a_twentieth_is_a_stall_although_objects_are_completed() -> None:
    of = ThroughputMonitor()
    reports(of, 100, 11_000, age=3)
    assert reports(of, 100, 600, age=5) == []  # 6,000 a second after 110,000
    assert len(reports(of, 100, 200, age=5)) == 1  # 2,000 a second
    reports(of, 20, 11_000, age=3)
    assert not of.stalled


def test_one_batch_that_nobody_answers_is_reported_beside_others_that_complete() -> None:
    assert reports(ThroughputMonitor(), 300, 5_000) == [throughput.HUNG_TICKS]


def test_flapping_is_reported_once_a_minute() -> None:
    of, found = ThroughputMonitor(), 0
    for _ in range(10):
        found += len(reports(of, 40, 0))
        reports(of, 10, 5_000, age=0)
    assert (found, of.stalls) == (1, 10)


@pytest.mark.parametrize("kind", [MatchBatch, ReleasesKept])
def test_a_withheld_answer_is_told_with_who_waits_for_whom(
    kind: type[Frame], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = Topology(built_in_plan(Analysis(salt=0), Grid(), 2), mergers=2)
    runtime = LocalRuntime(topology, MemoryStore())
    [edge] = runtime.edges
    withheld: list[Frame] = []
    sent: list[int] = []
    router: Any = edge.machine.router
    accept = router.publish
    take = {name: getattr(router, name) for name in ("on", "take_answer")}

    def note(rows: ObjectRows, *rest: object) -> tuple[int, int, list[Send]]:
        offset, lsn, sends = accept(rows, *rest)
        sent.extend(send.to.index for send in sends if isinstance(send.frame, RoutedObjects))
        return offset, lsn, sends

    def withhold(name: str, frame: Frame, *rest: object) -> object:
        if isinstance(frame, kind):
            withheld.append(frame)
            return []
        return take[name](frame, *rest)

    compiled = compile_column(*strings_to_column(["storm"]), edge.analyzer, edge.frequencies)
    everywhere = [Rect(-180.0, -90.0, 180.0, 90.0)]
    edge.update(build_rows(strings_to_column(["q"]), compiled, everywhere), ["s"], [""])
    for name in take:
        monkeypatch.setattr(router, name, functools.partial(withhold, name))
    monkeypatch.setattr(router, "publish", note)
    at, text = np.zeros(1), strings_to_column(["a storm"])
    terms = edge.analyzer.analyse(*text)
    edge.publish(
        ObjectRows(*strings_to_column(["o"]), np.zeros(1, np.int64), at, at, *text, *terms)
    )
    [worker] = sent
    for _ in range(TICKS):
        assert caplog.records == []
        assert edge.status()["throughput_stalled"] == 0
        runtime.tick()
        if caplog.records:
            break
    [record] = caplog.records
    said = record.getMessage()
    [missing] = {frame.merger for frame in withheld if isinstance(frame, ReleasesKept)} or {-1}
    reason = {
        MatchBatch: f"no answer from worker-{worker}",
        ReleasesKept: f"matches are not durable at merger-{missing}",
    }[kind]
    assert f"the batch at offset 0 has been open for 31 ticks: {reason}" in said
    assert (said.count("worker-"), said.count("merger-")) == (missing < 0, missing >= 0)
    under_way = 0 if missing < 0 else 1  # what only a silent worker holds up takes no room
    assert f"batches under way: {under_way}, publications in the intake: 0" in said
    told = {s.metric.name: s.value for s in samples("dispatcher", 0, edge.status())}
    assert told["ps2stream_throughput_stalled"] == told["ps2stream_throughput_stalls_total"] == 1
    monkeypatch.undo()
    put: Any = edge._put
    for frame in withheld:
        put(frame)
    runtime.tick()
    told = {s.metric.name: s.value for s in samples("dispatcher", 0, edge.status())}
    assert (told["ps2stream_throughput_stalled"], edge.status()["in_flight"]) == (0, 0)
