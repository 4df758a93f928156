"""The router machine: stamps, LSN order, watermarks, and what it tells whom."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.dispatcher import open_batches as batches
from ps2stream.dispatcher.object_log import column
from ps2stream.dispatcher.releases import EPOCH_BITS
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.protocol.addresses import Address, Out, Reply, Send
from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.log_records import ObjectRecord
from ps2stream.protocol.messages.objects import (
    MatchRelease,
    RoutedObjects,
    WatermarkNotice,
)
from ps2stream.protocol.messages.sessions import SessionGrant, StreamDelivery
from ps2stream.protocol.messages.updates import (
    AppliedReport,
    LedgerFetch,
    LedgerTip,
    LookupReply,
    MergerQueries,
    UpdateDecision,
    UpdateRequest,
    WorkerUpdates,
)
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import ObjectRows, QueryRows, UpdateKind, no_queries
from ps2stream.protocol.ticks import REPEAT_TICKS
from tests.support.routers import (
    EAST,
    GRID,
    WEST,
    answer,
    applied,
    close,
    delete,
    fed,
    insert,
    kept,
    machine,
    noticed,
    posts,
    row,
    sent,
)
from tests.support.routing import Row, object_rows

BYTES = np.zeros(0, np.uint8)
NONE = np.zeros(1, np.int64)


def test_a_batch_goes_to_the_chosen_workers_and_to_no_merger() -> None:
    router = machine()
    router.on(insert(1))
    router.on(insert(2, term=9, box=EAST))
    rows = object_rows([-20.0, 20.0, -20.0], [0.0] * 3, [(7,), (9, 11), (9,)])
    offset, lsn, out = router.publish(rows)
    assert (offset, lsn) == (0, 2)
    routed = sent(out, "worker", RoutedObjects)
    assert [(i, f.row.tolist(), f.lsn, f.batch) for i, f in routed] == [
        (0, [0], 2, 0),
        (1, [1], 2, 0),
    ]
    assert routed[1][1].term.tolist() == [9, 11]
    assert len(out) == 2
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


def test_a_batch_is_complete_when_all_that_workers_found_is_durable() -> None:
    router = machine(max_in_flight=2)
    router.on(insert(1))
    router.publish(posts(7))
    router.on(insert(2))
    router.publish(posts(7, 7))
    with pytest.raises(ResourceExhausted, match="max_in_flight"):
        router.publish(posts(7))
    assert (router.in_flight, router.watermark) == (2, 1)
    for batch in (0, 1):
        found = [(0, 1, 4), (0, 2, 5)]  # a session of each merger
        out = router.take_answer(answer(0, batch, *found), 0.0)
        assert [(to, f.batch) for to, f in sent(out, "merger", MatchRelease)] == [
            (0, batch),
            (1, batch),
        ]
    router.on(kept(0, 0, 2))
    router.on(kept(0, 0))
    assert (router.in_flight, router.take_closed()) == (2, [])
    router.on(kept(1, 3))
    assert (router.in_flight, router.watermark, router.take_closed()) == (1, 1, [1])
    router.on(kept(1, 1, 99))
    assert (router.in_flight, router.watermark, router.applied) == (0, 2, 2)
    assert (router.take_closed(), router.take_closed()) == ([0], [])
    assert router.publish(posts(7))[0] == 3


def test_a_batch_in_which_nothing_is_found_is_complete_when_the_last_worker_answers() -> None:
    router = machine(max_in_flight=1)
    router.on(insert(1))
    router.on(insert(2, box=EAST))
    router.publish(object_rows([-20.0, 20.0], [0.0] * 2, [(7,), (7,)]))
    assert close(router, 0, worker=1) == []
    assert router.in_flight == 1
    assert close(router, 0) == []
    assert (router.in_flight, router.take_closed()) == (0, [0])


def test_what_mergers_collapsed_is_counted_across_their_starts() -> None:
    router = machine()
    router.on(insert(1))
    totals = []
    for batch, (merger, collapsed) in enumerate([(0, 3), (1, 4), (0, 5), (0, 1), (1, 4)]):
        router.publish(posts(7))
        router.take_answer(answer(0, batch, (0, 1, merger)), 0.0)
        router.on(kept(merger, batch, collapsed=collapsed))
        totals.append(router.counters.collapsed)
    assert totals == [3, 7, 9, 10, 10]


def test_updates_apply_in_lsn_order() -> None:
    router = machine()
    assert [type(o.frame) for o in router.on(insert(3))] == [AppliedReport]
    assert router.applied == 0
    assert sent(router.on(insert(2)), "sequencer", AppliedReport)[0][1].lsn == 0
    assert router.publish(posts(7))[2] == []
    out = router.on(insert(1))
    assert sent(out, "sequencer", AppliedReport)[0][1].lsn == 3
    first = [f.lsn_from for i, f in sent(out, "worker", WorkerUpdates) if i == 0]
    assert first == [1, 2, 3]
    assert router.counters.inserts == 3
    again = router.on(insert(2))
    assert [(o.frame.lsn) for o in again if isinstance(o.frame, AppliedReport)] == [3]
    assert len(again) == 1
    assert router.gridt.counts()[int(GRID.cells(np.array([-20.0]), np.array([0.0]), 0)[0]), 7] == (
        0,
        3,
    )


def test_the_owner_tells_the_workers_and_mergers_that_an_update_concerns() -> None:
    rows = [
        Row((7, 8), (0, 1), (WEST,), UpdateKind.INSERT, 4, 4),
        Row((9,), (0,), (EAST,), UpdateKind.DELETE, 5, 2),
        Row((7,), (0,), ((-20.0, 0.0, 20.0, 0.0),), UpdateKind.INSERT, 6, 6),
    ]
    router = machine()
    router.on(insert(1))
    router.on(insert(2, term=9, box=EAST))
    out = router.on(applied(rows, 3, 8))
    updates = sent(out, "worker", WorkerUpdates)
    assert [i for i, _ in updates] == [0, 1]  # worker 2 owns nothing
    held = [QueryRows.decode(f.rows.data) for _, f in updates]
    assert [h.handle.tolist() for h in held] == [[4, 6], [2, 6]]
    assert [h.kind.tolist() for h in held] == [[1, 1], [2, 1]]
    assert [len(h.id) + len(h.source) for h in held] == [0, 0]
    assert updates[0][1].tag_off.tolist()[:2] == [0, 2]
    assert updates[0][1].tag_term.tolist()[:2] == [7, 8]
    spans = [(f.lsn_from, f.lsn_to, f.dispatcher) for _, f in updates]
    assert spans == [(2, 8, 0), (3, 8, 0)]  # the update 2 concerned worker 1 alone
    names = sent(out, "merger", MergerQueries)
    assert [(i, f.lsn_from, f.lsn_to) for i, f in names] == [(1, 3, 8)]  # all of session 1
    assert names[0][1].handle.tolist() == [4, 2, 6]
    assert names[0][1].id.tobytes() == b"q4q2q6"
    assert sent(out, "sequencer", AppliedReport)[0][1].lsn == 8
    other = machine(index=1)
    assert [type(o.frame) for o in other.on(insert(1))] == [AppliedReport]
    quiet = applied([], 2, 5, owner=1)
    assert [type(o.frame) for o in other.on(quiet)] == [AppliedReport]  # it concerns nobody


def test_a_deleted_query_leaves_h2_once_the_watermark_has_passed() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    router.publish(posts(7))
    router.on(delete(2, handle=1))
    assert len(router.gridt) == 1
    router.publish(posts(7))
    close(router, 0)
    assert (router.watermark, len(router.gridt)) == (2, 0)
    assert router.publish(posts(7))[2] == []
    assert (router.counters.deletes, router.counters.units) == (1, 0)


def test_a_replacement_is_told_to_the_owners_of_both_queries() -> None:
    router = machine()
    router.on(insert(1))
    rows = [
        Row((7,), (0,), (WEST,), UpdateKind.DELETE, 2, 1),
        Row((8,), (0,), (EAST,), UpdateKind.INSERT, 2, 2),
    ]
    out = router.on(applied(rows, 2, 2))
    updates = [(i, QueryRows.decode(f.rows.data)) for i, f in sent(out, "worker", WorkerUpdates)]
    assert [(i, held.kind.tolist(), held.lsn.tolist()) for i, held in updates] == [
        (0, [UpdateKind.DELETE], [2]), (1, [UpdateKind.INSERT], [2]),
    ]  # fmt: skip
    [(_, names)] = sent(out, "merger", MergerQueries)
    assert (names.lsn.tolist(), names.handle.tolist()) == ([2, 2], [1, 2])
    assert {i: f.after for i, f in noticed(router, "worker")} == {0: 2, 1: 2, 2: 0}
    # A batch that repeats it and goes on adds nothing of it.
    later = Row((7,), (0,), (WEST,), UpdateKind.INSERT, 3, 3)
    router.on(applied([*rows, later], 2, 3))
    assert (router.counters.inserts, router.counters.deletes) == (3, 1)
    counts = sorted(count for _, count in router.gridt.counts().values())
    assert counts == [1, 1]  # the old query has left, as no batch is open


def test_a_query_inserted_and_deleted_in_one_ledger_batch() -> None:
    router = machine()
    rows = [
        Row((7,), (0,), (WEST,), UpdateKind.DELETE, 2, 1),
        Row((7,), (0,), (WEST,), UpdateKind.INSERT, 1, 1),
        Row((7,), (0,), (WEST,), UpdateKind.INSERT, 3, 3),
    ]
    router.on(applied(rows, 1, 3))
    assert [c for _, c in router.gridt.counts().values()] == [1]


def decision(seq: int, *lsn: int) -> UpdateDecision:
    return UpdateDecision(seq, np.zeros(len(lsn), np.uint8), np.array(lsn, np.int64))


def ask(router: RouterMachine, *seqs: int) -> list[Out]:
    rows = np.frombuffer(no_queries().encode(), np.uint8)
    asks = [UpdateRequest(0, 0, seq, 0, rows, NONE, BYTES, NONE, BYTES) for seq in seqs]
    return [out for request in asks for out in router.update(request)]


def seqs(out: list[Out]) -> list[int]:
    return [o.frame.seq for o in out if isinstance(o, Reply)]  # type: ignore[attr-defined]


def test_a_decision_waits_until_it_is_visible() -> None:
    router = machine()
    ask(router, 1, 2, 3, 4, 5)
    assert router.on(decision(1, 4, 6)) == []
    assert router.on(decision(2, 5)) == []
    assert seqs(router.on(decision(3, 0))) == [3]
    assert seqs(router.on(decision(4))) == [4]
    assert seqs(router.on(LedgerTip(5, 5))) == [2]
    assert seqs(router.on(LedgerTip(5, 4))) == []
    assert seqs(router.on(LedgerTip(9, 9))) == [1]
    assert seqs(router.on(decision(5, 9))) == [5]
    assert router.on(decision(5, 9)) == []  # a repeat answers nobody


def test_requests_are_repeated_until_they_are_decided() -> None:
    router = machine(index=1)
    first = [out.frame for out in ask(router, 3, 5, 9)]
    assert [(f.dispatcher, f.seq, f.settled) for f in first] == [  # type: ignore[attr-defined]
        (1, 3, 3), (1, 5, 3), (1, 9, 3),
    ]  # fmt: skip
    router.on(decision(3, 1))
    again = [
        f for _ in range(REPEAT_TICKS) for _, f in sent(router.tick(), "sequencer", UpdateRequest)
    ]
    assert [f.seq for f in again] == [5, 9]
    out = router.joined(Address("sequencer", 0))
    assert [f.seq for _, f in sent(out, "sequencer", UpdateRequest)] == [5, 9]
    assert len(sent(out, "sequencer", AppliedReport)) == 1
    assert [out.frame.settled for out in ask(router, 12)] == [5]  # type: ignore[attr-defined]


def test_answers_are_passed_to_the_edge_and_requests_to_the_sequencer() -> None:
    router = machine(index=1)
    (out,) = ask(router, 5)
    assert isinstance(out, Send)
    assert out.to == Address("sequencer", 0)
    assert isinstance(out.frame, UpdateRequest)
    assert (out.frame.dispatcher, out.frame.seq) == (1, 5)
    answers: list[Frame] = [
        SessionGrant(1, 2, 3),
        LookupReply(1, 0, 0, BYTES, NONE, BYTES),
        StreamDelivery(1, 1, 1, 0, BYTES),
    ]
    for frame in answers:
        assert router.on(frame) == [Reply(frame)]
    with pytest.raises(TypeError, match="MatchBatch"):
        router.on(answer(0, 0))  # which comes with a time


def test_an_idle_dispatcher_tells_its_watermark_once() -> None:
    router = machine(index=1)
    assert router.tick() == []
    router.on(insert(1))
    out = [o for o in router.tick() if isinstance(o.frame, WatermarkNotice)]
    assert [o.to for o in out if isinstance(o, Send)] == [
        *(Address("worker", i) for i in range(3)),
        *(Address("merger", i) for i in range(2)),
    ]
    assert all(isinstance(o.frame, WatermarkNotice) and o.frame.watermark == 1 for o in out)
    assert router.tick() == []
    assert not any(noticed(router, "worker") for _ in range(3))


def test_what_an_open_batch_held_back_is_told_when_it_is_complete() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    router.publish(posts(7))
    router.on(insert(2))
    assert router.watermark == 1
    close(router, 0)
    assert {f.watermark for _, f in sent(router.tick(), "worker", WatermarkNotice)} == {2}


def test_repeats_of_updates_are_not_kept() -> None:
    router = machine()
    for lsn in (1, 2, 3):
        router.on(insert(lsn))
    for lsn in (1, 3):
        router.on(insert(lsn))
    assert not len(router._stream)
    assert router.counters.inserts == 3


def test_visible_never_falls() -> None:
    router = machine()
    ask(router, 1)
    router.on(LedgerTip(5, 5))
    router.on(LedgerTip(3, 3))
    assert seqs(router.on(decision(1, 4))) == [1]


def fetches(out: list[Out]) -> list[tuple[int, int]]:
    return [(f.after, f.state) for _, f in sent(out, "sequencer", LedgerFetch)]


def test_a_new_incarnation_takes_the_state_and_serves_when_it_has_caught_up() -> None:
    router = RouterMachine(0, 2, 1, machine().gridt.h1, GRID, 8, epoch=3, offset=70)
    with pytest.raises(Unavailable, match="catching up"):
        router.publish(posts(7))
    assert fetches(router.on(LedgerTip(9, 8))) == [(0, 0)]
    assert fetches(router.on(fed([row(2), row(3)], 1, 3, state=5, until=8))) == [(3, 5)]
    assert (router.applied, router.watermark, router.ready) == (0, 0, False)
    assert fetches(router.on(insert(9, owner=1))) == []  # waits: half a state is none
    out = router.on(fed([row(8, UpdateKind.DELETE, 3)], 4, 8, state=5, until=8))
    assert (router.applied, fetches(out), router.ready) == (9, [], True)
    assert sent(out, "worker", WorkerUpdates) == []  # what was fetched is handed on to nobody
    assert sum(n for _, n in router.gridt.counts().values()) == 2
    offset, lsn, _ = router.publish(posts(7))
    assert (offset, lsn) == (70, 9)


def test_another_state_begins_anew() -> None:
    router = RouterMachine(0, 2, 1, machine().gridt.h1, GRID, 8)
    router.on(LedgerTip(9, 0))
    router.on(fed([row(2), row(3)], 1, 3, state=5, until=8))
    out = router.on(fed([row(3)], 1, 4, state=6, until=9))
    assert fetches(out) == [(4, 6)]
    assert fetches(router.on(fed([row(5)], 4, 8, state=5, until=8))) == []
    router.on(fed([row(9)], 5, 9, state=6, until=9))
    assert (router.applied, sum(n for _, n in router.gridt.counts().values())) == (9, 2)


def test_what_was_open_is_sent_before_anything_new_and_holds_the_watermark() -> None:
    left = [ObjectRecord(b, lsn, column(posts(7))) for b, lsn in ((4, 1), (5, 1), (9, 2))]
    router = RouterMachine(0, 2, 1, machine().gridt.h1, GRID, 2, epoch=1, replay=left, offset=99)
    router.on(LedgerTip(3, 3))
    assert router.oldest == 4
    router.on(fed([row(1)], 1, 2, state=5, until=3))
    out = router.on(fed([row(3, UpdateKind.DELETE, 1)], 3, 3, state=5, until=3))
    routed = [f for _, f in sent(out, "worker", RoutedObjects)]
    attempt = 1 << batches.DEPTH_BITS
    assert [(f.batch, f.lsn, f.attempt, f.watermark) for f in routed] == [
        (4, 1, attempt, 1),
        (5, 1, attempt, 1),
    ]
    assert (router.watermark, router.oldest, len(router.gridt)) == (1, 4, 1)
    [(_, first)] = sent(
        router.take_answer(answer(0, 5, (0, 1, 1), mergers=1, attempt=attempt), 0.0),
        "merger",
        MatchRelease,
    )
    assert (first.batch, first.release, first.watermark, first.oldest) == (5, 1 << EPOCH_BITS, 1, 4)
    out = router.on(kept(0, first.release))
    assert [(f.batch, f.lsn) for _, f in sent(out, "worker", RoutedObjects)] == [(9, 2)]
    assert (router.watermark, router.oldest) == (1, 4)
    close(router, 4, attempt=attempt)
    assert (router.watermark, router.oldest) == (2, 9)
    close(router, 9, attempt=attempt)
    assert (router.watermark, router.oldest, len(router.gridt)) == (3, 99, 0)


def test_a_reserved_batch_is_under_way_and_is_routed_as_of_its_reservation() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    batch, lsn = router.reserve(posts(7, 7))
    router.on(insert(2))
    later, lsn_later, out = router.publish(posts(7))
    assert (batch, lsn, later, lsn_later) == (0, 1, 2, 2)
    assert {(f.batch, f.watermark) for _, f in sent(out, "worker", RoutedObjects)} == {(2, 1)}
    found = sent(
        router.take_answer(answer(0, 2, (0, 1, 0), mergers=1), 0.0), "merger", MatchRelease
    )
    assert [(f.batch, f.watermark, f.oldest) for _, f in found] == [(2, 1, 0)]
    router.on(kept(0, found[0][1].release))
    assert (router.in_flight, router.active, router.oldest, router.watermark) == (1, 1, 0, 1)
    out = list(router.route_reserved(batch))
    assert {(f.batch, f.lsn) for _, f in sent(out, "worker", RoutedObjects)} == {(0, 1)}
    assert (router.in_flight, router.oldest) == (1, 0)
    close(router, 0)
    assert (router.in_flight, router.oldest, router.watermark) == (0, 3, 2)


def test_messages_survive_the_wire() -> None:
    router = machine()
    router.on(decode(insert(1).encode()))
    routed = router.publish(ObjectRows.decode(posts(7).encode()))[2]
    released = router.take_answer(decode(answer(0, 0, (0, 1, 1)).encode()), 0.0)  # type: ignore[arg-type]
    assert len(routed) == len(released) == 1
    for out in [*routed, *released]:
        assert decode(out.frame.encode()).encode() == out.frame.encode()


def test_watermarks_never_fall_and_never_pass_an_open_batch() -> None:
    rng = random.Random(3)
    router = machine(mergers=2)
    lsn, last = 0, 0
    waiting: list[tuple[int, int]] = []  # batch, and the merger whose answer it lacks, or -1
    numbers: dict[tuple[int, int], int] = {}  # of their releases
    stamps: dict[int, int] = {}
    live: list[int] = []

    def settle(batch: int, merger: int) -> None:
        """A worker has found something for some mergers, or a merger has made it durable."""
        if merger < 0:
            found = [(0, 1, to) for to in rng.choice([(), (0,), (1,), (0, 1)])]
            for to, frame in sent(
                router.take_answer(answer(0, batch, *found), 0.0), "merger", MatchRelease
            ):
                waiting.append((batch, to))
                numbers[batch, to] = frame.release
        else:
            router.on(kept(merger, numbers[batch, merger]))
        if not any(each == batch for each, _ in waiting):
            del stamps[batch]

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
                waiting.append((batch, -1))
                stamps[batch] = stamp
        elif waiting:
            settle(*waiting.pop(rng.randrange(len(waiting))))
        assert router.watermark == min(stamps.values(), default=lsn)
        assert router.watermark >= last
        last = router.watermark
    while waiting:
        settle(*waiting.pop())
    counts = [n for _, n in router.gridt.counts().values()]
    assert counts == ([len(live)] if live else [])


def test_an_acknowledgement_is_repeated_until_it_shows() -> None:
    router = machine()
    router.on(insert(1))
    acks = [
        f.lsn
        for _ in range(2 * REPEAT_TICKS)
        for _, f in sent(router.tick(), "sequencer", AppliedReport)
    ]
    assert acks == [1, 1]
    router.on(LedgerTip(1, 1))
    assert not any(sent(router.tick(), "sequencer", AppliedReport) for _ in range(2 * REPEAT_TICKS))


def test_a_new_dispatcher_accepts_once_all_others_know_that_it_counts() -> None:
    grown = ProducerMap.first(2).changed(3, 5)
    old, new, later = (machine(index) for index in (1, 2, 3))
    for router in (old, new, later):
        router._first_producers = grown
    assert [router.ready for router in (old, new, later)] == [True, False, False]
    for visible, ready in ((4, False), (5, True)):
        for router in (old, new, later):
            router.on(LedgerTip(5, visible))
        assert [router.ready for router in (old, new, later)] == [True, ready, False]
