"""The batches under way: what mergers are sent, what is sent again, and what kills workers."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest

from ps2stream.dispatcher import open_batch
from ps2stream.dispatcher import open_batches as batches
from ps2stream.dispatcher.held_up import EARLY
from ps2stream.dispatcher.object_log import column
from ps2stream.dispatcher.open_batch import LEAST_BYTES, ROWS, TEXT_BYTES
from ps2stream.dispatcher.open_batches import LATE_S
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.dispatcher.silence import SILENT_TICKS
from ps2stream.errors import ResourceExhausted
from ps2stream.protocol.addresses import Address, Out, Reply
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.log_records import (
    ObjectRecord,
    QuarantineRecord,
    RetroRecord,
    SplitRecord,
)
from ps2stream.protocol.messages.objects import (
    MatchRelease,
    ReleasesKept,
    RoutedObjects,
    SessionTable,
    SuspectBegin,
    WatermarkNotice,
)
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerTip
from ps2stream.protocol.rows import ObjectRows
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from ps2stream.protocol.ticks import OVERTAKEN_TICKS, RESEND_TICKS
from tests.support.merging import inserts, rig
from tests.support.routers import (
    EAST,
    GRID,
    Pair,
    answer,
    applied,
    close,
    fed,
    insert,
    kept,
    machine,
    noticed,
    posts,
    resent,
    row,
    sent,
)
from tests.support.routing import object_rows


def both(*terms: int) -> ObjectRows:
    """For each term an object in the west, which goes to worker 0, and one in the east, which goes
    to worker 1."""
    places = [side for _ in terms for side in (-20.0, 20.0)]
    return object_rows(places, [0.0] * len(places), [(t,) for t in terms for _ in range(2)])


def two_workers(mergers: int = 2, max_in_flight: int = 8, batches: int = 1) -> RouterMachine:
    """A router with so many batches under way at both workers, each of two objects."""
    router = machine(mergers=mergers, max_in_flight=max_in_flight)
    router.on(insert(1))
    router.on(insert(2, box=EAST))
    for _ in range(batches):
        router.publish(both(7))
    return router


def released(out: Sequence[Out]) -> list[tuple[int, MatchRelease]]:
    """The merger and each release."""
    return sent(out, "merger", MatchRelease)


# --- what workers find reaches the mergers that have a match ----------------------------------


def test_mergers_are_sent_everything_when_the_last_worker_has_answered() -> None:
    router = two_workers()
    assert router.take_answer(answer(1, 0, (1, 2, 5), (1, 3, 4)), 10.0) == []
    out = router.take_answer(answer(0, 0, (0, 1, 5)), 10.001)
    assert len(out) == 2
    (zero, first), (one, second) = released(out)
    assert (zero, first.release, first.row.tolist(), first.handle.tolist()) == (0, 0, [1], [3])
    assert (one, second.release, second.row.tolist()) == (1, 1, [0, 1])
    assert sorted(second.handle.tolist()) == [1, 2]
    assert second.id.tobytes() == b"o0o1"
    for frame in (first, second):
        assert (frame.batch, frame.size, frame.whole, frame.lsn) == (0, 2, 1, 2)
        assert (frame.watermark, frame.oldest) == (2, 0)
    router.on(kept(0, 0))
    assert router.in_flight == 1
    router.on(kept(1, 1))
    assert router.in_flight == 0


def test_an_empty_answer_costs_no_message_to_a_merger() -> None:
    router = two_workers(batches=2)
    for worker in (0, 1):
        assert router.take_answer(answer(worker, 0), 0.0) == []
    assert router.release_late(9.0) == []
    assert (router.in_flight, router.take_closed()) == (1, [0])
    assert router.take_answer(answer(0, 2), 0.0) == []
    out = router.take_answer(answer(1, 2, (1, 2, 5)), 0.0)
    assert [to for to, _ in released(out)] == [1], "merger 0 has no match"
    assert len(out) == 1
    router.on(kept(1, 0))
    assert (router.in_flight, router.take_closed()) == (0, [2])


def test_what_a_slow_worker_delays_is_released_without_it_and_the_rest_later() -> None:
    router = two_workers(mergers=1)
    assert router.take_answer(answer(0, 0, (0, 1, 1), mergers=1), 10.0) == []
    assert router.release_late(10.0 + 0.9 * LATE_S) == []
    [(_, part)] = released(router.release_late(10.0 + 1.1 * LATE_S))
    assert (part.whole, part.release, part.row.tolist()) == (0, 0, [0])
    assert router.release_late(99.0) == []
    router.on(kept(0, 0))
    assert (router.in_flight, router.take_closed()) == (1, []), "a worker has not answered"
    [(_, rest)] = released(router.take_answer(answer(1, 0, (1, 2, 1), mergers=1), 99.0))
    assert (rest.whole, rest.release, rest.row.tolist()) == (0, 1, [1])
    router.on(kept(0, 1))
    assert (router.in_flight, router.take_closed()) == (0, [0])


def test_a_late_batch_with_nothing_found_waits_for_its_last_worker() -> None:
    router = two_workers(mergers=1)
    assert router.take_answer(answer(0, 0, mergers=1), 10.0) == []
    assert router.release_late(99.0) == []
    [(_, frame)] = released(router.take_answer(answer(1, 0, (1, 2, 1), mergers=1), 99.0))
    assert frame.whole == 1


def test_what_is_late_is_released_batch_by_batch_in_time() -> None:
    router = two_workers(mergers=1, batches=3)
    for batch, now in ((4, 10.0), (0, 10.25 * LATE_S + 10), (2, 20.0)):
        router.take_answer(answer(0, batch, (0, 1, 1), mergers=1), now)
    assert [f.batch for _, f in released(router.release_late(10.0 + LATE_S * 1.01))] == [4]
    router.take_answer(answer(1, 0, (1, 2, 1), mergers=1), 15.0)  # which is whole, and never late
    assert [f.batch for _, f in released(router.release_late(30.0))] == [2]


def test_an_answer_that_counts_for_nothing_changes_nothing() -> None:
    """Of an old attempt, of a worker that has answered or was not asked, of a closed batch."""
    router = RouterMachine(0, 2, 1, machine().gridt.h1, GRID, 8, epoch=2)
    router.on(LedgerTip(0, 0))
    router.on(insert(1))
    router.on(insert(2, box=EAST))
    router.publish(both(7))
    attempt = 2 << batches.DEPTH_BITS
    for worker, stale in ((0, attempt - 1), (1, 1 << batches.DEPTH_BITS), (0, 0)):
        found = answer(worker, 0, (worker, 9, 1), mergers=1, attempt=stale)
        assert router.take_answer(found, 0.0) == []
    for worker, handle in ((2, 9), (0, 1), (0, 9)):
        found = answer(worker, 0, (0, handle, 1), mergers=1, attempt=attempt)
        assert router.take_answer(found, 0.0) == []
    nothing = answer(1, 0, mergers=1, attempt=attempt)
    [(_, frame)] = released(router.take_answer(nothing, 0.0))
    assert (frame.handle.tolist(), frame.whole) == ([1], 1)
    assert router.take_answer(nothing, 0.0) == []
    router.on(kept(0, frame.release))
    assert router.take_closed() == [0]
    late = answer(1, 0, (1, 9, 1), mergers=1, attempt=attempt)
    assert router.take_answer(late, 0.0) == router.release_late(9.0) == []
    assert (router.in_flight, router.take_closed()) == (0, [])


def test_a_match_of_no_object_is_a_bug() -> None:
    router = two_workers()
    router.take_answer(answer(0, 0, (2, 1, 1)), 0.0)
    with pytest.raises(ValueError, match="row 2 of a batch of 2"):
        router.take_answer(answer(1, 0), 0.0)


@pytest.mark.parametrize("lost", [False, True])
def test_mergers_forget_what_came_in_parts_once_they_hear_that_it_is_complete(lost: bool) -> None:
    """From the next release, or else from a notice."""
    router, r = two_workers(mergers=1, batches=2), rig()
    r.send(inserts(1, [1, 1]))
    router.tick()

    def hand_over(out: Sequence[Out]) -> None:
        for send in r.send(*(frame for _, frame in sent(out, "merger", Frame))):
            if isinstance(send.frame, ReleasesKept):
                assert router.on(send.frame) == []

    def notices() -> list[WatermarkNotice]:
        return [frame for _, frame in noticed(router, "merger")]

    router.take_answer(answer(0, 0, (0, 1, 1), mergers=1), 0.0)
    hand_over(router.release_late(1.0))
    assert r.machine._windows[0].in_part
    assert notices() == [], "it is not complete"
    hand_over(router.take_answer(answer(1, 0, (1, 2, 1), mergers=1), 1.0))
    assert router.take_closed() == [0]
    assert r.machine._windows[0].in_part, "nobody has said that this was all"
    if lost:
        hand_over(router.take_answer(answer(0, 2, (0, 1, 1), mergers=1), 1.0))
        hand_over(router.take_answer(answer(1, 2, mergers=1), 1.0))
    else:
        [notice] = notices()
        assert notice.oldest == 2
        assert r.send(notice) == []
    assert not r.machine._windows[0].in_part


def test_each_merger_hears_once_that_what_came_in_parts_is_complete() -> None:
    router = two_workers()
    noticed(router, "merger")
    router.take_answer(answer(0, 0, (0, 1, 1)), 0.0)
    router.release_late(1.0)
    close(router, 0, worker=1)
    router.on(kept(1, 0))
    assert router.take_closed() == [0]
    told = [(to, f.oldest) for to, f in noticed(router, "merger")]
    assert told == [(0, 2), (1, 2)]
    assert noticed(router, "merger") == []


# --- what is sent again -----------------------------------------------------------------------


def test_a_batch_is_sent_again_when_a_worker_is_replaced() -> None:
    router = machine()
    router.on(insert(1))
    _, _, first = router.publish(posts(7))
    assert router.joined(Address("worker", 1)) == []  # had no part of it
    assert router.joined(Address("worker", 0)) == first
    assert router.joined(Address("dispatcher", 1)) == []
    router.take_answer(answer(0, 0, (0, 1, 1)), 0.0)
    assert router.joined(Address("worker", 0)) == [], "it has answered"


def test_a_new_merger_gets_exactly_the_releases_that_are_not_kept() -> None:
    router = two_workers(batches=3)
    out: list[Out] = []
    for batch in (4, 0, 2):
        router.take_answer(answer(1, batch, (1, 2, 5)), 0.0)
        out += router.take_answer(answer(0, batch, (0, 1, 4)), 0.0)
    assert [f.release for _, f in released(out)] == [*range(6)]
    assert router.joined(Address("merger", 0)) == out[0::2]
    router.on(kept(0, 2))
    router.on(kept(1, 2, 5))  # 2 is not its own
    assert router.joined(Address("merger", 0)) == [out[0], out[4]]
    assert router.joined(Address("merger", 1)) == [out[1], out[3]]
    assert router.take_closed() == []
    router.on(kept(0, 0, 4))
    router.on(kept(1, 1, 3))
    assert router.take_closed() == [2, 4, 0]
    assert router.joined(Address("merger", 0)) == router.joined(Address("merger", 1)) == []


def test_a_share_that_is_not_answered_is_sent_again_at_growing_intervals() -> None:
    router = two_workers()
    router.take_answer(answer(0, 0), 0.0)
    again = {t: s for t in range(1, 200) if (s := sent(router.tick(), "worker", RoutedObjects))}
    assert [*again] == [RESEND_TICKS * k for k in (1, 2, 4)]
    assert {worker for sends in again.values() for worker, _ in sends} == {1}


def test_releases_that_are_not_kept_are_sent_again_at_growing_intervals() -> None:
    router = two_workers()
    router.take_answer(answer(0, 0), 0.0)
    out = router.take_answer(answer(1, 0, (1, 2, 5)), 0.0)
    again = {t: s for t in range(1, 200) if (s := router.tick()) and released(s)}
    assert [*again] == [RESEND_TICKS * k for k in (1, 2, 4)]
    assert all(released(sends) == released(out) for sends in again.values())
    assert not any(sent(sends, "worker", RoutedObjects) for sends in again.values())


def test_a_release_that_was_overtaken_is_sent_again_sooner() -> None:
    router = two_workers(batches=3)
    for batch in (0, 2, 4):
        router.take_answer(answer(0, batch), 0.0)
        router.take_answer(answer(1, batch, (1, 2, 5)), 0.0)
    router.on(kept(1, 1))
    again = {t: s for t in range(1, RESEND_TICKS) if (s := released(router.tick()))}
    assert {t: [f.release for _, f in s] for t, s in again.items()} == {OVERTAKEN_TICKS: [0]}


# --- what kills workers -----------------------------------------------------------------------


def test_a_batch_that_kills_is_divided_until_one_object_is_quarantined() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    router.publish(posts(7, 7, 7))
    worker = Address("worker", 0)
    for _ in range(open_batch.DEATHS - 1):
        assert [(f.batch, f.suspect) for f in resent(router)] == [(0, 0)]
    assert [(f.batch, f.suspect) for f in resent(router)] == [(0, 1)]
    assert [f.batch for f in resent(router)] == [0]  # it had not begun: it was another
    router.on(SuspectBegin(0, 0, 0))
    out = router.joined(worker)
    assert out[0] == Reply(out[0].frame)
    assert isinstance(out[0].frame, SplitRecord)
    assert out[0].frame.at == 1
    # The first part has the offset of the whole, whose late answers must not count for it.
    routed = [f for _, f in sent(out, "worker", RoutedObjects)]
    assert [(f.batch, f.attempt, f.suspect) for f in routed] == [(0, 1, 1), (1, 1, 1)]
    assert router.take_answer(answer(0, 0, (0, 1, 1), mergers=1), 0.0) == []
    close(router, 1, attempt=1)  # the second part is sound
    for _ in range(open_batch.DEATHS - 1):
        router.on(SuspectBegin(0, 0, 1))
        assert [f.batch for f in resent(router)] == [0]
    router.on(SuspectBegin(0, 0, 1))
    out = router.joined(worker)
    assert [type(o.frame) for o in out] == [QuarantineRecord]
    assert (router.in_flight, router.counters.quarantined) == (0, 1)


def test_what_was_not_under_way_when_a_worker_died_is_not_blamed() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    for _ in range(2):
        router.publish(posts(7, 7))
    for _ in range(open_batch.DEATHS):
        resent(router)
    router.on(SuspectBegin(0, 0, 0))
    router.on(SuspectBegin(0, -1, 0))  # it survived the first one
    assert [f.batch for f in resent(router)] == [0, 2]
    router.on(SuspectBegin(0, 2, 0))
    out = router.joined(Address("worker", 0))
    assert [f.batch for _, f in sent(out, "worker", RoutedObjects)] == [0, 2, 3]
    assert [f.at for o in out if isinstance(f := o.frame, SplitRecord)] == [3]


def test_what_was_released_of_a_batch_that_is_halved_reaches_its_merger() -> None:
    router = two_workers(mergers=1)
    router.take_answer(answer(1, 0, (1, 2, 1), mergers=1), 0.0)
    out = router.release_late(1.0)
    for _ in range(open_batch.DEATHS):
        resent(router)
    router.on(SuspectBegin(0, 0, 0))
    halves = [(to, f.batch) for to, f in sent(router.joined(Address("worker", 0)), "worker", Frame)]
    assert halves == [(0, 0), (1, 1)]
    assert router.joined(Address("merger", 0)) == out
    router.on(kept(0, 0))
    assert (router.joined(Address("merger", 0)), router.in_flight) == ([], 2)
    [(_, again)] = released(router.take_answer(answer(1, 1, (0, 2, 1), mergers=1, attempt=1), 2.0))
    assert (again.batch, again.size, again.whole) == (1, 1, 1)


# --- what silent workers hold up --------------------------------------------------------------


def test_a_worker_that_died_is_silent_at_once_and_heard_again_when_it_answers() -> None:
    router = two_workers(batches=2)
    assert router.lost(Address("merger", 0)) == router.lost(Address("dispatcher", 1)) == []
    router.lost(Address("worker", 2))  # nobody waits for it
    assert (router.active, router.in_flight) == (2, 2)
    router.lost(Address("worker", 1))
    assert router.active == 2, "worker 0 has not answered either"
    router.take_answer(answer(0, 0), 0.0)
    router.take_answer(answer(0, 2, (0, 1, 1)), 0.0)
    router.tick()
    assert router.active == 1, "of the other one matches wait to be released"
    router.take_answer(answer(1, 0), 0.0)
    router.publish(both(7))
    router.take_answer(answer(0, 4), 0.0)
    router.tick()
    assert (router.active, router.in_flight) == (2, 2), "worker 1 is heard again"


def test_a_worker_that_owes_an_answer_for_long_is_silent() -> None:
    router = two_workers()
    router.take_answer(answer(0, 0, (0, 1, 1)), 0.0)
    router.release_late(1.0)
    for _ in range(SILENT_TICKS + 1):
        router.tick()
    assert router.active == 1, "a merger has not kept what was found"
    router.on(kept(1, 0))
    router.tick()
    assert (router.active, router.in_flight) == (0, 0)


def test_a_worker_has_time_to_answer_however_long_it_had_nothing_to_say() -> None:
    router = two_workers(batches=0)
    for _ in range(5 * SILENT_TICKS):
        router.tick()
    router.publish(both(7))
    for _ in range(SILENT_TICKS):
        router.tick()
        assert router.active == 1
    router.tick()
    assert router.active == 0


def test_a_dead_worker_lets_others_replay() -> None:
    """What it holds up takes little room, which batches of the replay take at once."""
    left = [ObjectRecord(b, 1, column(posts(7))) for b in (4, 5)]
    router = RouterMachine(0, 2, 1, machine().gridt.h1, GRID, 1, epoch=1, replay=left, offset=99)
    router.on(LedgerTip(1, 1))
    router.on(fed([row(1)], 1, 1, state=5, until=1))
    assert router.in_flight == 1
    out = router.lost(Address("worker", 0))
    assert [f.batch for _, f in sent(out, "worker", RoutedObjects)] == [5]


# --- sessions that move between mergers ------------------------------------------------------


def changed(maps: SessionMaps, lsn: int, state: int = 0) -> LedgerBatch:
    """A ledger batch with these tables, alone or in a state with one query."""
    batch = fed([row(1)], 1, lsn, state, lsn) if state else applied([], lsn, lsn)
    return dataclasses.replace(batch, sessions=maps.record())


def moved(lsn: int) -> SessionMaps:
    """All sessions go from two mergers to one, from this LSN on."""
    before = SessionMap.first(2)
    return SessionMaps(before.spread(1, lsn), before)


def test_pairs_go_to_the_merger_that_the_lsn_of_their_batch_gives() -> None:
    router = two_workers()
    router.on(changed(moved(3), 3))
    batch, lsn, _ = router.publish(both(7))
    assert (batch, lsn) == (2, 3)
    for first, mergers in ((0, [1]), (2, [0])):
        router.take_answer(answer(0, first), 0.0)
        out = router.take_answer(answer(1, first, (0, 1, 5)), 0.0)
        assert [to for to, _ in released(out)] == mergers


def test_answers_of_a_worker_with_an_earlier_table_are_ordered_anew_and_it_is_told() -> None:
    router = two_workers(mergers=1)
    before = SessionMap.first(1)
    router.on(changed(SessionMaps(before.spread(2, 3), before), 3))
    router.publish(both(7))
    router.take_answer(answer(0, 2, (0, 1, 1), (0, 2, 2), (1, 3, 4), mergers=1), 0.0)
    out = router.take_answer(answer(1, 2, mergers=1), 0.0)
    now = before.spread(2, 3)
    found = {to: sorted(f.session.tolist()) for to, f in released(out)}
    mergers = {now.merger_of(s) for s in (1, 2, 4)}
    assert found == {m: [s for s in (1, 2, 4) if now.merger_of(s) == m] for m in mergers}
    tables = sent(router.tick(), "worker", SessionTable)
    assert [(to, f.lsn) for to, f in tables] == [(0, 3), (1, 3)]
    assert sent(router.tick(), "worker", SessionTable) == []


def test_what_was_complete_before_sessions_moved_is_not_replayed_to_their_new_merger() -> None:
    """The log of a dispatcher may not say yet what was complete when it died, and the merger that
    has the sessions now has not seen those pairs."""
    left = [ObjectRecord(b, lsn, column(posts(7))) for b, lsn in ((4, 1), (5, 2), (6, 3))]
    router = RouterMachine(0, 2, 2, machine().gridt.h1, GRID, 8, epoch=1, replay=left, offset=99)
    router.on(LedgerTip(4, 4))
    out = router.on(changed(moved(3).finished(), 4, state=5))
    assert [f.batch for _, f in sent(out, "worker", RoutedObjects)] == [6]
    one = np.array([1])
    found = RetroRecord(0, 70, 2, column(posts(7)), one, one.astype(np.uint32) - 1, one, one, one)
    assert router.release_found(found, posts(7)) == []
    assert router.take_closed() == [70]


def test_what_is_replayed_while_sessions_move_is_closed_when_they_have() -> None:
    left = [ObjectRecord(b, lsn, column(posts(7))) for b, lsn in ((4, 1), (5, 3))]
    router = RouterMachine(0, 2, 2, machine().gridt.h1, GRID, 8, epoch=1, replay=left, offset=99)
    router.on(LedgerTip(4, 4))
    router.on(changed(moved(3), 4, state=5))
    attempt = 1 << batches.DEPTH_BITS
    for batch in (4, 5):
        router.take_answer(answer(0, batch, (0, 1, 5), attempt=attempt), 0.0)
    assert (router.in_flight, router.oldest) == (2, 4)
    router.on(changed(moved(3).finished(), 5))
    assert (router.in_flight, router.oldest, router.take_closed()) == (1, 5, [4])
    again = released(router.joined(Address("merger", 1)) + router.joined(Address("merger", 0)))
    assert [(to, f.batch) for to, f in again] == [(0, 5)]


def test_what_silent_workers_keep_open_counts_by_its_size() -> None:
    router = machine()
    router.on(insert(1))
    router.publish(posts(7))
    assert (router.active, router.in_flight) == (1, 1)
    router.lost(Address("worker", 0))
    for _ in range(2):
        assert (router.active, router.in_flight) == (0, 0)
        router.publish(posts(7))
    router.publish(object_rows([-20.0] * ROWS, [0.0] * ROWS, [(7,)] * ROWS))
    assert (router.active, router.in_flight) == (0, 1)
    assert router.oldest == 0
    close(router, 0, 1, 2, 3)
    assert (router.active, router.in_flight, router.oldest) == (0, 0, 3 + ROWS)


def test_many_small_batches_that_are_held_up_fill_the_room_too() -> None:
    router = machine(mergers=1, max_in_flight=2)
    router.on(insert(1))
    most = 2 * TEXT_BYTES // LEAST_BYTES
    for _ in range(most):
        router.publish(posts(7))
        router.lost(Address("worker", 0))
    with pytest.raises(ResourceExhausted):
        router.publish(posts(7))
    close(router, most // 2)
    router.publish(posts(7))


def test_what_a_silent_worker_shares_with_others_holds_up_nobody_from_their_answer_on() -> None:
    """Small publications wait for active batches, so that they join."""
    router = two_workers(batches=0)
    router.lost(Address("worker", 0))
    first, _, _ = router.publish(both(7, 7))
    assert router.active == 1
    router.take_answer(answer(1, first), 0.0)  # without a match
    assert router.active == 0
    second, _, _ = router.publish(both(7, 7))
    router.take_answer(answer(1, second, (0, 1, 0)), 0.0)
    [(merger, frame)] = released(router.release_late(1.0))
    assert router.active == 1, "the merger has it not yet"
    router.on(kept(merger, frame.release))
    assert router.active == 0


def test_small_batches_for_a_silent_worker_join_again_after_some() -> None:
    router = machine(max_in_flight=10_000)
    router.on(insert(1))
    router.lost(Address("worker", 0))
    for _ in range(2):
        for _ in range(EARLY):
            router.publish(posts(7))
            assert router.active == 0
        router.publish(posts(7))
        assert router.active == 1
        router.tick()
        assert router.active == 0


@dataclasses.dataclass
class NaiveBatch:
    """What is known of an open batch by hand; released: (merger, number)."""

    lsn: int
    owing: set[int]
    found: list[Pair] = dataclasses.field(default_factory=list)
    since: float = 0.0
    released: set[tuple[int, int]] = dataclasses.field(default_factory=set)
    held_up: bool = False


@pytest.mark.parametrize("seed", range(5))
def test_open_batches_are_counted_as_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    router = two_workers(max_in_flight=10_000, batches=0)
    open_: dict[int, NaiveBatch] = {}
    silent: set[int] = set()
    closed: list[int] = []
    lsn, now, numbers = 2, 0.0, 0

    def note_released(batch: int, out: Sequence[Out]) -> None:
        """Each merger that has a match among what was found, once."""
        nonlocal numbers
        known = open_[batch]
        mergers = sorted({session % 2 for _, _, session in known.found})
        frames = [(to, f) for to, f in released(out) if f.batch == batch]
        assert [(to, f.release) for to, f in frames] == [
            (to, numbers + i) for i, to in enumerate(mergers)
        ]
        for to, frame in frames:
            pairs = zip(frame.pair_row, frame.handle, frame.session, strict=True)
            assert sorted(pairs) == sorted(p for p in known.found if p[2] % 2 == to)
        known.released |= {(to, f.release) for to, f in frames}
        numbers += len(frames)
        known.found = []

    def close_if_complete(batch: int) -> None:
        known = open_[batch]
        if not (known.owing or known.found or known.released):
            del open_[batch]
            closed.append(batch)

    def find_held_up() -> None:
        for known in open_.values():
            if known.owing and known.owing <= silent and not known.found and not known.released:
                known.held_up = True

    for _ in range(2_000):
        now += rng.choice([0.1, 0.4]) * LATE_S
        match rng.choice(["publish", "insert", "lost", "answer", "answer", "late", "keep", "keep"]):
            case "publish":
                rows = rng.choice([posts(7), posts(7, 7, lon=20.0), both(7, 7)])
                offset, _, routed = router.publish(rows)
                workers = {to for to, _ in sent(routed, "worker", RoutedObjects)}
                open_[offset] = NaiveBatch(lsn, workers)
            case "insert":
                lsn += 1
                router.on(insert(lsn))
            case "lost":
                worker = rng.choice([0, 1])
                silent.add(worker)
                router.lost(Address("worker", worker))
            case "answer" if open_:
                batch, worker = rng.choice(list(open_)), rng.choice([0, 1])
                known = open_[batch]
                some = rng.choice([0, 0, 1, 3])
                pairs = [(0, rng.randint(1, 9), rng.randint(0, 9)) for _ in range(some)]
                out = router.take_answer(answer(worker, batch, *pairs), now)
                silent.discard(worker)
                if worker in known.owing:
                    known.owing.discard(worker)
                    known.since = known.since if known.found else now
                    known.found += pairs
                    if not known.owing:
                        note_released(batch, out)
                    close_if_complete(batch)
                else:
                    assert out == []
            case "late":
                out = router.release_late(now)
                late = [b for b, k in open_.items() if k.found and k.since <= now - LATE_S]
                assert {f.batch for _, f in released(out)} == {*late}
                for batch in dict.fromkeys(f.batch for _, f in released(out)):
                    note_released(batch, out)
            case "keep":
                waiting = [(b, *r) for b, known in open_.items() for r in known.released]
                if waiting:
                    batch, merger, number = rng.choice(waiting)
                    router.on(kept(merger, number))
                    open_[batch].released.discard((merger, number))
                    close_if_complete(batch)
        find_held_up()
        assert router.take_closed() == closed
        closed.clear()
        assert router.oldest == min(open_, default=router.offset)
        assert router.watermark == min((known.lsn for known in open_.values()), default=lsn)
        held = sum(known.held_up for known in open_.values())
        assert router.active == len(open_) - held
        assert router.in_flight == router.active + held * LEAST_BYTES // TEXT_BYTES
    assert len(open_) < 500
