"""The ledger as a merger follows it: names come, are fetched, and go."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.merger.forgotten import ForgottenNames
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.updates import MergerUpdates
from ps2stream.protocol.follower import PATIENCE
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.objects import WatermarkNotice
from ps2stream.protocol.messages.updates import (
    LedgerBatch,
    LedgerFetch,
    LedgerTip,
    MergerQueries,
)
from ps2stream.protocol.rows import UpdateKind, no_queries
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from tests.support.memory_log import MemoryLog
from tests.support.merging import (
    Rig,
    attach,
    inserts,
    named,
    release,
    rig,
    three_batches,
)


def test_it_fetches_what_it_lacks() -> None:
    r = three_batches()
    r.restart()
    r.others.clear()
    r.tick(3)
    assert not r.others
    r.send(LedgerTip(2, 2))
    assert [(f.role, f.index, f.after) for f in fetches(r)] == [(2, 0, 0)]
    r.send(inserts(1, [1]))
    r.tick(PATIENCE)
    assert len(fetches(r)) == 1  # it has moved, and a notice may come
    r.tick()
    assert [f.after for f in fetches(r)] == [0, 1]
    r.send(inserts(1, [1, 2]))
    r.tick(5)
    assert r.machine.applied == 2
    assert len(fetches(r)) == 2


def test_what_a_notice_says_to_be_missing_is_fetched_soon() -> None:
    r = rig()
    r.send(inserts(1, [1]), WatermarkNotice(0, 0, 0, after=3, lsn=5))
    r.tick(2)
    assert [f.after for f in fetches(r)] == [1]


def test_a_tip_alone_is_fetched_after_a_while_unless_it_concerns_others() -> None:
    r = rig()
    r.send(inserts(1, [1]), LedgerTip(5, 5))
    r.tick(PATIENCE)
    assert fetches(r) == []
    r.tick()
    assert [f.after for f in fetches(r)] == [1]
    r.others.clear()
    r.send(WatermarkNotice(0, 0, 0, after=1, lsn=5))
    r.tick(2 * PATIENCE)
    assert fetches(r) == []


def test_a_state_takes_the_place_of_all_names() -> None:
    r = three_batches()
    r.send(named(3, [(UpdateKind.DELETE, 2, 2, "q2"), (UpdateKind.INSERT, 4, 1, "new")]))
    rows = no_queries().replace(
        **{f: np.array([0, 0]) for f in ("form", "post", "shape")},
        kind=np.array([1, 1], np.uint8),
        lsn=np.array([1, 6]),
        handle=np.array([1, 6]),
        session=np.array([1, 2]),
        **dict(zip(("id_off", "id"), strings_to_column(["q1", "q6"]), strict=True)),
        **{f + "_off": np.zeros(3, np.int64) for f in ("term", "prog", "box", "geom", "source")},
    )
    parts = [np.frombuffer(rows.take(np.array([i])).encode(), np.uint8) for i in range(2)]
    r.send(LedgerBatch(1, 3, -1, 9, 6, parts[0]))
    assert (r.machine.applied, r.machine.names) == (0, 1)
    r.send(release(12, 4, 3, [(0, 1, 1)]), attach(1, epoch=2))
    assert (r.clients[1].repeats, len(r.clients[1].pairs)) == (0, 6)  # half a state is none
    r.send(LedgerBatch(4, 6, -1, 9, 6, parts[1]))
    assert (r.machine.applied, r.machine.names) == (6, 2)
    assert (r.clients[1].repeats, len(r.clients[1].pairs)) == (6, 7)


def test_pairs_of_a_query_and_of_what_replaced_it_have_its_name() -> None:
    r = rig()
    rows = [(UpdateKind.INSERT, 1, 1, "q"), (UpdateKind.DELETE, 1, 1, "q")]
    frame = named(1, [*rows, (UpdateKind.INSERT, 2, 1, "q")])
    assert isinstance(frame, MergerQueries)
    frame = dataclasses.replace(frame, lsn_to=2, lsn=np.array([1, 2, 2]))
    r.send(frame, release(0, 2, 2, [(0, 1, 1), (1, 2, 1)]), attach(1))
    assert r.machine.names == 2
    assert [p[0] for p in r.clients[1].pairs.values()] == ["q", "q"]


def fetches(r: Rig) -> list[LedgerFetch]:
    return [frame for frame in r.others if isinstance(frame, LedgerFetch)]


def test_names_are_kept_until_every_watermark_has_passed() -> None:
    r = rig(dispatchers=2)
    r.send(inserts(1, [1, 1, 1]))
    r.send(
        named(4, [(UpdateKind.DELETE, 2, 1, "q2"), (UpdateKind.DELETE, 1, 1, "q1")], watermark=5)
    )
    assert r.machine.names == 3
    # An object from before the deletes, by the dispatcher that lags behind.
    r.send(release(0, 4, 3, [(0, 1, 1), (1, 2, 1)], dispatcher=1, watermark=3))
    r.send(WatermarkNotice(1, 4))
    r.tick(10)
    assert r.machine.names == 2
    r.send(WatermarkNotice(1, 9))
    r.tick(10)
    assert r.machine.names == 1
    # Those of pairs that are kept are in the log.
    r.send(attach(1))
    assert [p[0] for p in r.clients[1].pairs.values()] == ["q1", "q2"]


def test_a_merger_keeps_only_its_own_sessions() -> None:
    r = rig(index=1, mergers=3)
    r.send(inserts(1, [1, 2, 3, 4, 5]))
    assert r.machine.names == 2
    r.send(attach(4), release(0, 4, 5, [(0, 4, 4)]))
    assert r.clients[4].pairs == {1: ("q4", "o0", 0, 0)}


def test_a_name_goes_though_the_watermark_rose_before_its_delete_was_known() -> None:
    r = rig(dispatchers=2)
    r.send(inserts(1, [1]), WatermarkNotice(0, 2), WatermarkNotice(1, 2))
    r.send(named(2, [(UpdateKind.DELETE, 1, 1, "q1")], watermark=1))
    r.tick(10)
    assert r.machine.names == 0


def test_what_the_ledger_has_beyond_is_fetched() -> None:
    """A tip tells of an LSN that has not come: after a while it is asked for, once at a time."""
    maps = SessionMaps(SessionMap.first(1))
    forgotten = ForgottenNames(MatchJournal(MemoryLog()))
    updates = MergerUpdates(0, maps.needed_by(0), maps, forgotten)
    assert not updates.on(LedgerTip(7, 7))
    found = updates.take_requests()
    for _ in range(100):
        found += updates.tick()
    assert {type(send.frame) for send in found} == {LedgerFetch}
    assert updates.applied == 0
