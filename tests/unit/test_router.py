"""The router machine: stamps, LSN order, watermarks, and what it tells whom."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ps2stream.batch import Frame, decode
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.errors import ResourceExhausted
from ps2stream.grid import Grid
from ps2stream.h1 import H1, HashedLeaf
from ps2stream.messages import (
    Address,
    Applied,
    AppliedAck,
    Completed,
    Delivery,
    LookupReply,
    MatchBatch,
    MergerQueries,
    Out,
    Payload,
    Reply,
    RoutedObjects,
    Send,
    SessionGrant,
    UpdateDecision,
    UpdateRequest,
    Visible,
    Watermark,
    WorkerUpdates,
)
from ps2stream.rows import Kind, ObjectRows, QueryRows, no_queries
from tests.unit.routing import Row, object_rows, query_rows

GRID = Grid(lon_bits=5, lat_bits=4)
WEST, EAST = (-20.0, 0.0, -20.0, 0.0), (20.0, 0.0, 20.0, 0.0)
BYTES = np.zeros(0, np.uint8)
NONE = np.zeros(1, np.int64)


def machine(index: int = 0, mergers: int = 2, max_in_flight: int = 8) -> RouterMachine:
    """Worker 0 owns the west, worker 1 the east, worker 2 nothing."""
    cells = (np.arange(1 << 9) % 32 >= 16).astype(np.uint32)
    h1 = H1(3, cells, [HashedLeaf((0,)), HashedLeaf((1,))])
    return RouterMachine(
        index=index,
        dispatchers=2,
        workers=3,
        mergers=mergers,
        h1=h1,
        grid=GRID,
        max_in_flight=max_in_flight,
    )


def applied(rows: list[Row], lsn_from: int, lsn_to: int, owner: int = 0) -> Applied:
    return Applied(lsn_from, lsn_to, owner, np.frombuffer(query_rows(rows).encode(), np.uint8))


def insert(lsn: int, term: int = 7, box: tuple[float, ...] = WEST, owner: int = 0) -> Applied:
    return applied([Row((term,), (0,), (box,), Kind.INSERT, lsn, lsn)], lsn, lsn, owner)  # type: ignore[arg-type]


def delete(lsn: int, handle: int, term: int = 7, box: tuple[float, ...] = WEST) -> Applied:
    return applied([Row((term,), (0,), (box,), Kind.DELETE, lsn, handle)], lsn, lsn)  # type: ignore[arg-type]


def posts(*terms: int, lon: float = -20.0) -> ObjectRows:
    return object_rows([lon] * len(terms), [0.0] * len(terms), [(t,) for t in terms])


def sent(out: list[Out], role: str, kind: type[Any]) -> list[tuple[int, Any]]:
    return [
        (o.to.index, o.frame)
        for o in out
        if isinstance(o, Send) and o.to.role == role and isinstance(o.frame, kind)
    ]


def done(merger: int, *batch: int) -> Completed:
    return Completed(merger, np.array(batch, np.int64))


def test_a_batch_goes_to_the_chosen_workers_and_to_all_mergers() -> None:
    router = machine()
    router.on(insert(1))
    router.on(insert(2, term=9, box=EAST))
    rows = object_rows([-20.0, 20.0, -20.0], [0.0] * 3, [(7,), (9, 11), (9,)])
    offset, lsn, out = router.publish(rows)
    assert (offset, lsn) == (0, 2)
    routed = sent(out, "worker", RoutedObjects)
    assert [(i, f.row.tolist(), f.expected, f.lsn, f.batch) for i, f in routed] == [
        (0, [0], 2, 2, 0),
        (1, [1], 2, 2, 0),
    ]
    assert routed[1][1].term.tolist() == [9, 11]
    payload = sent(out, "merger", Payload)
    assert [i for i, _ in payload] == [0, 1]
    assert payload[0][1].id.tobytes() == b"o0o1o2"
    assert len(out) == 4
    assert router.publish(rows)[0] == 3
    counters = router.counters
    assert (counters.objects, counters.discarded, counters.routed) == (6, 2, 4)
    assert (counters.batches, counters.in_flight, counters.units) == (2, 2, 2)


def test_a_batch_that_nobody_wants_is_complete_at_once() -> None:
    router = machine()
    assert router.publish(posts(7, 8)) == (0, 0, [])
    assert router.publish(posts()) == (2, 0, [])
    router.on(insert(1))
    assert router.publish(posts(8, 9)) == (2, 1, [])
    assert router.in_flight == 0
    assert router.counters.discarded == 4


def test_a_batch_is_complete_when_every_merger_says_so() -> None:
    router = machine(max_in_flight=2)
    router.on(insert(1))
    router.publish(posts(7))
    router.on(insert(2))
    router.publish(posts(7, 7))
    with pytest.raises(ResourceExhausted, match="max_in_flight"):
        router.publish(posts(7))
    assert (router.in_flight, router.watermark) == (2, 1)
    router.on(done(0, 0, 1))
    router.on(done(0, 0))
    assert router.in_flight == 2
    router.on(done(1, 1))
    assert (router.in_flight, router.watermark) == (1, 1)
    router.on(done(1, 0, 99))
    assert (router.in_flight, router.watermark, router.applied) == (0, 2, 2)
    assert router.publish(posts(7))[0] == 3


def test_updates_apply_in_lsn_order() -> None:
    router = machine()
    assert [type(o.frame) for o in router.on(insert(3))] == [AppliedAck]
    assert router.applied == 0
    assert sent(router.on(insert(2)), "sequencer", AppliedAck)[0][1].lsn == 0
    assert router.publish(posts(7))[2] == []
    out = router.on(insert(1))
    assert sent(out, "sequencer", AppliedAck)[0][1].lsn == 3
    first = [f.lsn_from for i, f in sent(out, "worker", WorkerUpdates) if i == 0]
    assert first == [1, 2, 3]
    assert router.counters.inserts == 3
    again = router.on(insert(2))
    assert [(o.frame.lsn) for o in again if isinstance(o.frame, AppliedAck)] == [3]
    assert len(again) == 1
    assert router.gridt.counts()[int(GRID.cells(np.array([-20.0]), np.array([0.0]), 0)[0]), 7] == (
        0,
        3,
    )


def test_the_owner_tells_every_worker_and_merger() -> None:
    rows = [
        Row((7, 8), (0, 1), (WEST,), Kind.INSERT, 4, 4),
        Row((9,), (0,), (EAST,), Kind.DELETE, 5, 2),
        Row((7,), (0,), ((-20.0, 0.0, 20.0, 0.0),), Kind.INSERT, 6, 6),
    ]
    router = machine()
    router.on(insert(1))
    router.on(insert(2, term=9, box=EAST))
    out = router.on(applied(rows, 3, 8))
    updates = sent(out, "worker", WorkerUpdates)
    assert [i for i, _ in updates] == [0, 1, 2]
    held = [QueryRows.decode(f.rows.data) for _, f in updates]
    assert [h.handle.tolist() for h in held] == [[4, 6], [2, 6], []]
    assert [h.kind.tolist() for h in held] == [[1, 1], [2, 1], []]
    assert [len(h.id) + len(h.source) for h in held] == [0, 0, 0]
    assert updates[0][1].tag_off.tolist()[:2] == [0, 2]
    assert updates[0][1].tag_term.tolist()[:2] == [7, 8]
    assert all((f.lsn_from, f.lsn_to, f.dispatcher) == (3, 8, 0) for _, f in updates)
    names = sent(out, "merger", MergerQueries)
    assert [i for i, _ in names] == [0, 1]
    assert names[0][1].handle.tolist() == [4, 2, 6]
    assert names[0][1].id.tobytes() == b"q4q2q6"
    assert sent(out, "sequencer", AppliedAck)[0][1].lsn == 8
    other = machine(index=1)
    assert [type(o.frame) for o in other.on(insert(1))] == [AppliedAck]
    quiet = applied([], 2, 5, owner=1)
    assert [len(f.tag_off) for _, f in sent(other.on(quiet), "worker", WorkerUpdates)] == [1] * 3


def test_a_deleted_query_leaves_h2_once_the_watermark_has_passed() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    router.publish(posts(7))
    router.on(delete(2, handle=1))
    assert len(router.gridt) == 1
    router.publish(posts(7))
    router.on(done(0, 0))
    assert (router.watermark, len(router.gridt)) == (2, 0)
    assert router.publish(posts(7))[2] == []
    assert (router.counters.deletes, router.counters.units) == (1, 0)


def test_a_query_inserted_and_deleted_in_one_ledger_batch() -> None:
    router = machine()
    rows = [
        Row((7,), (0,), (WEST,), Kind.DELETE, 2, 1),
        Row((7,), (0,), (WEST,), Kind.INSERT, 1, 1),
        Row((7,), (0,), (WEST,), Kind.INSERT, 3, 3),
    ]
    router.on(applied(rows, 1, 3))
    assert [c for _, c in router.gridt.counts().values()] == [1]


def decision(seq: int, *lsn: int) -> UpdateDecision:
    return UpdateDecision(seq, np.zeros(len(lsn), np.uint8), np.array(lsn, np.int64))


def test_a_decision_waits_until_it_is_visible() -> None:
    router = machine()
    assert router.on(decision(1, 4, 6)) == []
    assert router.on(decision(2, 5)) == []
    assert [o.frame.seq for o in router.on(decision(3, 0))] == [3]  # type: ignore[attr-defined]
    assert [o.frame.seq for o in router.on(decision(4))] == [4]  # type: ignore[attr-defined]
    assert [o.frame.seq for o in router.on(Visible(5))] == [2]  # type: ignore[attr-defined]
    assert router.on(Visible(4)) == []
    out = router.on(Visible(9))
    assert [type(o) for o in out] == [Reply]
    assert [o.frame.seq for o in router.on(decision(5, 9))] == [5]  # type: ignore[attr-defined]


def test_answers_are_passed_to_the_edge_and_requests_to_the_sequencer() -> None:
    router = machine(index=1)
    rows = np.frombuffer(no_queries().encode(), np.uint8)
    (out,) = router.update(UpdateRequest(0, 5, rows, NONE, BYTES, NONE, BYTES))
    assert isinstance(out, Send)
    assert out.to == Address("sequencer", 0)
    assert isinstance(out.frame, UpdateRequest)
    assert (out.frame.dispatcher, out.frame.seq) == (1, 5)
    answers: list[Frame] = [
        SessionGrant(1, 2),
        LookupReply(1, 0, 0, BYTES, NONE, BYTES),
        Delivery(1, 1, 0, BYTES),
    ]
    for frame in answers:
        assert router.on(frame) == [Reply(frame)]
    with pytest.raises(TypeError, match="MatchBatch"):
        router.on(MatchBatch(0, 0, 0, BYTES, BYTES, BYTES))  # type: ignore[arg-type]


def test_an_idle_dispatcher_tells_its_watermark_once() -> None:
    router = machine(index=1)
    assert router.tick() == []
    router.on(insert(1))
    out = router.tick()
    assert [o.to for o in out if isinstance(o, Send)] == [
        *(Address("worker", i) for i in range(3)),
        *(Address("merger", i) for i in range(2)),
    ]
    assert all(isinstance(o.frame, Watermark) and o.frame.watermark == 1 for o in out)
    assert router.tick() == []
    owner = machine()
    owner.on(insert(1))
    assert owner.tick() == []


def test_what_an_open_batch_held_back_is_told_when_it_is_complete() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    router.publish(posts(7))
    router.on(insert(2))
    assert router.watermark == 1
    router.on(done(0, 0))
    assert {f.watermark for _, f in sent(router.tick(), "worker", Watermark)} == {2}


def test_repeats_of_updates_are_not_kept() -> None:
    router = machine()
    for lsn in (1, 2, 3):
        router.on(insert(lsn))
    for lsn in (1, 3):
        router.on(insert(lsn))
    assert not router._early
    assert router.counters.inserts == 3


def test_visible_never_falls() -> None:
    router = machine()
    router.on(Visible(5))
    router.on(Visible(3))
    decision = UpdateDecision(1, np.zeros(1, np.uint8), np.array([4]))
    assert router.on(decision) == [Reply(decision)]


def test_a_plan_for_another_number_of_workers_is_refused() -> None:
    h1 = H1(3, np.zeros(1 << 9, np.uint32), [HashedLeaf((0,))])
    with pytest.raises(ValueError, match="3 workers, the service 2"):
        RouterMachine(0, 1, 2, 1, h1, GRID, 8)


def test_messages_survive_the_wire() -> None:
    router = machine()
    router.on(decode(insert(1).encode()))
    for out in router.publish(ObjectRows.decode(posts(7).encode()))[2]:
        assert decode(out.frame.encode()).encode() == out.frame.encode()


def test_watermarks_never_fall_and_never_pass_an_open_batch() -> None:
    rng = random.Random(3)
    router = machine(mergers=2)
    lsn, last = 0, 0
    waiting: list[tuple[int, int]] = []
    stamps: dict[int, int] = {}
    live: list[int] = []
    for _ in range(400):
        step = rng.random()
        if step < 0.3:
            lsn += 1
            router.on(insert(lsn))
            live.append(lsn)
        elif step < 0.5 and live:
            lsn += 1
            router.on(delete(lsn, live.pop(rng.randrange(len(live)))))
        elif step < 0.75 and router.in_flight < 8:
            batch, stamp, out = router.publish(posts(7))
            assert stamp == lsn
            assert bool(out) >= bool(live)
            if out:
                waiting += [(0, batch), (1, batch)]
                stamps[batch] = stamp
        elif waiting:
            merger, batch = waiting.pop(rng.randrange(len(waiting)))
            router.on(done(merger, batch))
            if not any(b == batch for _, b in waiting):
                del stamps[batch]
        assert router.watermark == min(stamps.values(), default=lsn)
        assert router.watermark >= last
        last = router.watermark
    while waiting:
        router.on(done(*waiting.pop()))
    counts = [n for _, n in router.gridt.counts().values()]
    assert counts == ([len(live)] if live else [])
