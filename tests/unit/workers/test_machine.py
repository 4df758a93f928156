"""The worker machine: order of updates, objects that wait, answers, watermarks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.follower import PATIENCE
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    ReleasesKept,
    StaleRoute,
    SuspectBegin,
    WatermarkNotice,
)
from ps2stream.protocol.messages.updates import LedgerTip, WorkerUpdates
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.space.grid import Grid
from ps2stream.workers.machine import WorkerMachine
from tests.support.working import (
    DEL,
    GRID,
    INS,
    ROUTE,
    TERM,
    asked,
    fetched,
    handles,
    objects,
    rows,
    tagger,
    updates,
    worker,
)


@pytest.mark.parametrize(("mergers", "count"), [(1, [7]), (2, [3, 4]), (3, [2, 3, 2])])
def test_the_dispatcher_is_answered_once_with_the_pairs_by_merger(
    mergers: int, count: list[int]
) -> None:
    machine = worker(3, 2, mergers)
    machine.on(updates(*((INS, query, query) for query in range(1, 8))))
    [(to, frame)] = machine.on(objects(7, batch=70, row=9, attempt=6, dispatcher=1))
    assert to == Address("dispatcher", 1)
    assert isinstance(frame, MatchBatch)
    assert (frame.worker, frame.batch, frame.attempt) == (3, 70, 6)
    assert frame.count.tolist() == count
    assert frame.row.tolist() == [9] * 7
    assert frame.session.tolist() == frame.handle.tolist()  # as rows() has it
    assert sorted(frame.handle.tolist()) == [*range(1, 8)]
    of = (frame.session % mergers).tolist()
    assert of == sorted(of)
    assert [of.count(merger) for merger in range(mergers)] == count


def test_what_nobody_asked_for_is_answered_too() -> None:
    machine = worker(mergers=2)
    [(_, frame)] = machine.on(objects(0))
    assert isinstance(frame, MatchBatch)
    assert (frame.count.tolist(), len(frame.row)) == ([0, 0], 0)


def test_an_answer_tells_how_long_it_took_and_what_still_waits() -> None:
    times, busy = iter([100, 130, 200, 290]), iter([5, 12, 12, 30])
    machine = WorkerMachine(
        0, 1, 1, tagger(), ROUTE, clock_us=lambda: next(times), cpu_us=lambda: next(busy)
    )
    [(_, first)] = machine.on(objects(0, batch=1))
    for batch in (2, 3):
        assert machine.on(objects(9, batch)) == []  # the updates to it have not come
    [(_, second)] = machine.on(objects(0, batch=4))
    assert isinstance(first, MatchBatch)
    assert isinstance(second, MatchBatch)
    told = [(f.took_us, f.cpu_us, f.backlog) for f in (first, second)]
    assert told == [(30, 7, 0), (90, 18, 2)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_updates_apply_in_order_however_they_come(order: tuple[int, ...]) -> None:
    frames = [
        updates((INS, 1, 1), (INS, 2, 2)),
        updates((DEL, 3, 1)),
        updates(span=(4, 6)),
        updates((INS, 7, 7), (DEL, 8, 2)),
    ]
    machine, out = worker(), []
    for batch, lsn in enumerate((2, 3, 6, 7, 8)):
        assert machine.on(objects(lsn, batch)) == []
    assert machine.held == 5
    for i in order:
        out += machine.on(frames[i])
        machine.on(frames[i])  # a repeat is nothing
    assert machine.applied == 8
    assert machine.held == 0
    found = {s.frame.batch: s.frame.handle.tolist() for s in out}  # type: ignore[attr-defined]
    assert {b: sorted(h) for b, h in found.items()} == {
        0: [1, 2],
        1: [2],
        2: [2],
        3: [2, 7],
        4: [7],
    }


def test_an_object_meets_exactly_one_of_a_query_and_what_replaces_it() -> None:
    """By updates, by the log, and by a state that holds the insert before the delete."""
    first, second = ((INS, 1, 1), (DEL, 2, 1), (INS, 2, 2)), ((DEL, 3, 2), (INS, 3, 3))
    state = (INS, 1, 1), (INS, 2, 2), (DEL, 2, 1), (INS, 3, 3), (DEL, 3, 2)
    for frames in (
        [updates(*first), updates(*second)],
        [updates(*second), updates(*first)],
        [updates(*first), updates(*first, *second)],
        [fetched(*first, span=(1, 2)), fetched(*second, span=(3, 3))],
        [fetched(*state, span=(1, 3), state=1, until=3)],
    ):
        machine, out = worker(), []
        for lsn in (1, 2, 3):
            assert machine.on(objects(lsn, batch=lsn, watermark=1)) == []
        for frame in frames:
            out += machine.on(frame)
        found = {
            s.frame.batch: s.frame.handle.tolist() for s in out if isinstance(s.frame, MatchBatch)
        }
        assert found == {1: [1], 2: [2], 3: [3]}
        assert handles(machine.on(objects(1, batch=4, watermark=1))) == [1]
        assert handles(machine.on(objects(3, batch=5, watermark=3))) == [3]


def test_a_batch_that_repeats_part_of_another_adds_only_what_is_new() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1), (DEL, 2, 1), (INS, 3, 3)))
    machine.on(objects(3, watermark=3))
    machine.on(updates((INS, 1, 1), (DEL, 2, 1), (INS, 3, 3), (INS, 4, 4)))
    assert handles(machine.on(objects(4))) == [3, 4]


def test_objects_of_an_older_lsn_see_what_was_live_then() -> None:
    machine = worker(dispatchers=2)
    machine.on(updates((INS, 1, 1), (INS, 2, 2), (DEL, 3, 1), (DEL, 4, 2)))
    assert [handles(machine.on(objects(lsn))) for lsn in range(5)] == [[], [1], [1, 2], [2], []]


def test_of_attempts_that_wait_the_last_is_answered() -> None:
    machine = worker()
    for attempt in (1, 2, 2, 3):
        machine.on(objects(1, attempt=attempt))
    machine.on(objects(1, dispatcher=0, batch=1))
    assert machine.held == 2
    out = machine.on(updates((INS, 1, 1)))
    answers = [(s.frame.batch, s.frame.attempt) for s in out if isinstance(s.frame, MatchBatch)]
    assert answers == [(0, 3), (1, 1)]


def test_another_route_is_refused_and_nothing_is_matched() -> None:
    machine = worker(2)
    machine.on(updates((INS, 1, 1)))
    # A plan may come with the updates to the objects' LSN.
    assert machine.on(objects(2, batch=71, attempt=4, route=ROUTE + 1)) == []
    refused = [
        (70, machine.on(objects(1, batch=70, attempt=4, route=ROUTE + 1))),
        (71, machine.on(updates((INS, 2, 2)))),
    ]
    for batch, (send,) in refused:
        assert send.to == Address("dispatcher", 0)
        assert isinstance(send.frame, StaleRoute)
        stale = send.frame
        assert (stale.worker, stale.batch, stale.attempt, stale.route) == (2, batch, 4, ROUTE)
    assert machine.held == 0


def test_what_was_missing_for_a_tick_is_fetched_until_all_is_there() -> None:
    machine = worker()
    assert asked(machine.on(LedgerTip(4, 0))) == [(0, 0)]  # at once, and then once a tick
    assert machine.on(objects(4)) == []  # of which the last concerns it
    assert [machine.on(LedgerTip(4, 0)), machine.tick()] == [[], []]
    assert asked(machine.tick()) == [(0, 0)]
    assert asked(machine.on(fetched((INS, 1, 1), span=(1, 2)))) == [(2, 0)]
    assert machine.tick() == []  # there was progress
    assert machine.on(fetched((INS, 1, 1), span=(1, 2))) == []  # a repeat asks nothing
    assert asked(machine.tick()) == [(2, 0)]
    assert handles(machine.on(fetched((INS, 3, 3), (INS, 4, 4), span=(3, 4)))) == [1, 3, 4]
    assert [machine.tick(), machine.tick()] == [[], []]
    assert handles(machine.on(objects(4))) == [1, 3, 4]


@pytest.mark.parametrize(
    "frame",
    [objects(2), updates((INS, 2, 2)), WatermarkNotice(0, 0, 0, after=2, lsn=2)],
    ids=["objects", "gap", "notice"],
)
def test_whoever_speaks_of_a_higher_lsn_that_concerns_it_makes_it_fetch(frame: Frame) -> None:
    machine = worker()
    assert machine.on(frame) == []
    assert machine.tick() == []
    assert asked(machine.tick()) == [(0, 0)]
    machine.on(fetched((INS, 1, 1), (INS, 2, 2), span=(1, 2)))
    assert handles(machine.on(objects(2))) == [1, 2]


def test_objects_are_matched_once_what_they_need_is_applied() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1)))
    assert handles(machine.on(objects(9, needs=1))) == [1], "nothing of 2..9 concerns it"
    assert machine.on(objects(9, batch=1, needs=3)) == []
    assert machine.on(updates((INS, 2, 2))) == []
    assert handles(machine.on(updates((INS, 3, 3)))) == [1, 2, 3]
    assert handles(machine.on(objects(9, batch=2, needs=0))) == [1, 2, 3]
    assert (machine.held, machine.applied) == (0, 3)


def test_a_notice_lets_it_pass_over_what_does_not_concern_it() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1)))
    assert machine.on(updates((INS, 8, 8), span=(6, 8))) == []  # 2..5 is missing, it seems
    assert machine.on(objects(8, batch=4)) == []
    assert machine.on(WatermarkNotice(0, 0, 0, after=2, lsn=5)) == []  # 2 has not come
    assert machine.applied == 1
    assert handles(machine.on(WatermarkNotice(0, 0, 0, after=1, lsn=5))) == [1, 8]
    assert machine.applied == 8
    assert machine.on(WatermarkNotice(0, 0, 0, after=8, lsn=7)) == []  # an old one
    assert machine.on(WatermarkNotice(0, 0, 0, after=8, lsn=12)) == []
    assert machine.applied == 12
    assert handles(machine.on(updates((INS, 13, 13), span=(9, 13)))) == []
    assert handles(machine.on(objects(13, batch=5))) == [1, 8, 13]


def test_a_notice_changes_nothing_amid_a_state() -> None:
    machine = worker()
    machine.on(fetched((INS, 1, 1), span=(1, 2), state=4, until=6))
    assert machine.on(WatermarkNotice(0, 0, 0, after=2, lsn=9)) == []
    machine.on(fetched((INS, 5, 5), span=(3, 6), state=4, until=6))
    assert machine.applied == 6
    assert handles(machine.on(objects(6))) == [1, 5]


def test_what_only_the_sequencer_has_spoken_of_is_fetched_after_a_while() -> None:
    """A notice may say soon that it does not concern this worker."""
    machine = worker()
    machine.on(updates((INS, 1, 1)))
    assert machine.on(LedgerTip(4, 4)) == []
    machine.tick()
    asks = [asked(machine.tick()) for _ in range(PATIENCE + 1)]
    assert asks == [[]] * (PATIENCE - 1) + [[(1, 0)]] * 2
    assert machine.on(WatermarkNotice(0, 0, 0, after=1, lsn=4)) == []
    assert [asked(machine.tick()) for _ in range(PATIENCE + 1)] == [[]] * (PATIENCE + 1)
    machine.on(LedgerTip(5, 5))
    machine.on(WatermarkNotice(0, 0, 0, after=5, lsn=5))
    assert [asked(machine.tick()) for _ in range(2)] == [[], [(4, 0)]]


def test_only_chosen_terms_are_looked_up() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1)))
    assert handles(machine.on(objects(1, chosen=np.array([1], np.uint8)))) == [1]
    assert handles(machine.on(objects(1, batch=1, chosen=np.array([0xFE], np.uint8)))) == []


def test_fetched_rows_are_divided_as_the_plan_divides_them() -> None:
    both = tagger(2)
    postings, found = [], []
    for index in range(2):
        machine = WorkerMachine(index, 1, 1, both, ROUTE)
        machine.on(fetched((INS, 1, 1), (INS, 2, 2), (DEL, 3, 1), span=(1, 3)))
        postings.append(machine.stats().postings)
        found += handles(machine.on(objects(2))) + handles(machine.on(objects(3)))
    assert sum(postings) == 2 * len(GRID.cover(*_box())[1])  # each unit has one owner
    assert sorted(found) == [1, 2, 2]


def _box() -> tuple[Any, Any]:
    query = rows((INS, 1, 1))
    return query.box_off, query.box


def test_a_state_is_taken_whole_and_then_the_log() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1), (INS, 2, 2)))
    # 1 died at 4 and is forgotten everywhere; 3 died at 5 and is not.
    first = fetched((INS, 2, 2), (INS, 3, 3), span=(1, 3), state=9, until=6)
    assert asked(machine.on(first)) == [(3, 9)]
    assert machine.on(first) == []
    assert machine.on(updates((DEL, 4, 1), (INS, 5, 5))) == []  # half a state: it waits
    assert machine.on(objects(3)) == []
    assert machine.on(updates((INS, 7, 7))) == []
    assert machine.on(fetched((INS, 6, 6), span=(4, 6), state=8, until=6)) == []  # another
    out = machine.on(fetched((DEL, 5, 3), (INS, 6, 6), span=(4, 6), state=9, until=6))
    assert handles(out) == [2, 3]
    assert machine.applied == 7
    assert handles(machine.on(objects(7))) == [2, 6, 7]
    machine.on(updates((DEL, 8, 1)))  # never heard of
    assert handles(machine.on(objects(8))) == [2, 6, 7]


def test_a_part_of_a_state_that_is_not_the_next_is_passed_over() -> None:
    machine = worker()
    machine.on(fetched((INS, 1, 1), span=(1, 1), state=9, until=4))
    assert machine.on(fetched((INS, 3, 3), span=(3, 4), state=9, until=4)) == []
    assert machine.applied == 1
    machine.tick()
    assert asked(machine.tick()) == [(1, 9)]


def test_a_new_state_begins_anew() -> None:
    machine = worker()
    machine.on(fetched((INS, 1, 1), (INS, 2, 2), span=(1, 2), state=9, until=4))
    machine.on(objects(1))
    assert asked(machine.on(fetched((INS, 2, 2), span=(1, 2), state=10, until=4))) == [(2, 10)]
    assert handles(machine.on(fetched(span=(3, 4), state=10, until=4))) == []
    assert handles(machine.on(objects(4))) == [2]


def test_postings_go_only_when_all_dispatchers_have_passed_the_delete() -> None:
    machine = worker(dispatchers=2)
    machine.on(updates((INS, 1, 1), (DEL, 2, 1)))
    machine.on(updates(span=(3, 3), dispatcher=0, watermark=3))
    assert machine.watermark == 0
    assert handles(machine.on(objects(1, dispatcher=1, watermark=1))) == [1]
    assert machine.stats().tombstones == 1
    machine.on(objects(3, dispatcher=1, watermark=3))
    machine.on(updates(span=(4, 4), dispatcher=0, watermark=1))  # a late one lowers nothing
    assert machine.watermark == 3
    assert machine.stats()[:3] == (0, 0, 0)


def test_a_delete_that_every_watermark_had_passed_goes_at_once() -> None:
    machine = worker(dispatchers=2)
    machine.on(updates((INS, 1, 1)))
    for dispatcher in (0, 1):
        machine.on(WatermarkNotice(dispatcher, 2))
    machine.on(updates((DEL, 2, 1)))
    assert machine.stats()[:3] == (0, 0, 0)


def test_many_tombstones_force_a_sweep() -> None:
    lists = 1 << 17
    grid = Grid(9, 8, max_cells=lists)  # a posting in every cell
    machine = WorkerMachine(0, 1, 1, tagger(grid=grid), ROUTE)
    query = rows((INS, 1, 1))
    off, cell = grid.cover(query.box_off, query.box)
    packed = np.frombuffer(query.encode(), np.uint8)
    term = np.full(lists, TERM, np.uint64)
    machine.on(WorkerUpdates(1, 1, 0, 0, packed, off, cell, term))
    assert machine.stats().postings == lists
    machine.on(updates((DEL, 2, 1), watermark=2))
    for lsn in range(3, 20):
        machine.on(updates(span=(lsn, lsn)))
    assert machine.stats()[:3] == (0, 0, 0)


def test_ticks_remove_what_was_deleted_when_no_more_updates_come() -> None:
    machine = worker()
    machine.on(updates(*((INS, n, n) for n in range(1, 6_001))))
    machine.on(updates(*((DEL, 6_000 + n, n) for n in range(1, 6_000))))
    machine.tick()
    assert machine.stats().tombstones == 5_999  # an object of LSN 6,000 may arrive
    machine.on(WatermarkNotice(0, 12_000))
    assert machine.stats().tombstones == 5_999
    for _ in range(100):
        machine.tick()
    assert machine.stats()[:2] == (1, 0)
    assert handles(machine.on(objects(11_999))) == [6_000]


def test_a_replaced_peer_changes_nothing() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1)))
    assert machine.joined(Address("dispatcher", 0)) == []
    assert handles(machine.on(objects(1))) == [1]


def begun(out: list[Send]) -> list[tuple[int, int, int]]:
    """Dispatcher, batch and attempt of each Begin."""
    return [
        (s.to.index, s.frame.batch, s.frame.attempt)
        for s in out
        if isinstance(s.frame, SuspectBegin)
    ]


def test_suspects_are_announced_and_looked_at_one_by_one() -> None:
    machine = worker(dispatchers=2)
    machine.on(updates((INS, 1, 1)))
    assert machine.on(objects(1, batch=5, attempt=3, suspect=1)) == []
    assert machine.on(objects(1, batch=5, attempt=4, suspect=1)) == []
    assert machine.on(objects(1, batch=7, dispatcher=1, suspect=1)) == []
    assert handles(machine.on(objects(1, batch=8))) == [1]  # nothing is under way yet
    out = machine.tick()
    assert (begun(out), handles(out)) == ([(0, 5, 4)], [])
    assert machine.on(objects(1, batch=9)) == []  # what it died of must be known
    assert machine.held == 3
    out = machine.tick()
    assert (begun(out), handles(out)) == ([(0, -1, 0)], [1])
    out = machine.tick()  # the answer has left before anything else begins
    assert (begun(out), handles(out)) == ([], [1])
    assert begun(machine.tick()) == [(1, 7, 1)]
    out = machine.tick()
    assert (begun(out), handles(out)) == ([(1, -1, 0)], [1])
    assert (machine.tick(), machine.held) == ([], 0)


def test_suspects_wait_for_their_updates_unannounced() -> None:
    machine = worker()
    machine.on(objects(2, suspect=1))
    assert begun(machine.tick()) == []
    machine.on(updates((INS, 1, 1), (INS, 2, 2)))
    assert begun(machine.tick()) == [(0, 0, 1)]
    assert handles(machine.tick()) == [1, 2]


def test_a_suspect_that_a_state_overtakes_waits_for_it() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1)))
    machine.on(objects(1, suspect=1))
    assert begun(machine.tick()) == [(0, 0, 1)]
    machine.on(fetched((INS, 1, 1), span=(1, 1), state=4, until=2))
    assert handles(machine.tick()) == []
    machine.on(fetched(span=(2, 2), state=4, until=2))
    out = [*machine.tick(), *machine.tick()]
    assert (begun(out), handles(out)) == ([(0, 0, 1), (0, -1, 0)], [1])


def test_other_frames_are_refused() -> None:
    with pytest.raises(TypeError, match="Kept"):
        worker().on(ReleasesKept(0, np.zeros(0, np.int64)))


def test_one_that_has_left_holds_the_watermark_no_more() -> None:
    machine = worker(dispatchers=2)
    shrunk = ProducerMap.first(2).changed(1, 4)
    machine.on(WatermarkNotice(0, 9, dispatchers=shrunk.mark))
    machine.on(WatermarkNotice(1, 5, dispatchers=shrunk.mark))
    assert machine.watermark == 5
    machine.on(WatermarkNotice(0, 9, dispatchers=shrunk.finished().mark))
    assert machine.watermark == 9
    machine.on(WatermarkNotice(1, 5, dispatchers=shrunk.mark))  # said before
    assert machine.watermark == 9
    grown = shrunk.finished().changed(2, 11)
    machine.on(WatermarkNotice(0, 20, dispatchers=grown.mark))
    assert machine.watermark == 9, "there is a second one again"
    machine.on(WatermarkNotice(0, 20, dispatchers=shrunk.finished().mark))
    assert machine.watermark == 9, "an old number does not count"
    machine.on(WatermarkNotice(1, 15, dispatchers=grown.mark))
    assert machine.watermark == 15
