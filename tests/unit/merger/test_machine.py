"""The merger machine: what completes a batch, what is numbered, held, sent and forgotten."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest

from ps2stream.merger import fanout
from ps2stream.merger.dedup import SILENT_TICKS
from ps2stream.merger.machine import SECOND
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.objects import BatchesCompleted, BatchesPartial, WatermarkNotice
from ps2stream.protocol.rows import UpdateKind
from tests.support.merging import (
    Rig,
    attach,
    inserts,
    matches,
    named,
    one_batch,
    payload,
    rig,
)


def test_a_batch_waits_for_payload_answers_and_names() -> None:
    r = rig()
    r.send(attach(5, fields=7))
    assert r.send(matches(0, [(0, 2, 5), (2, 1, 5)], worker=1)) == []
    assert r.send(payload(0, 3, lsn=2, expected=2)) == []
    assert r.send(matches(0, [(0, 1, 5)])) == []
    assert r.machine.pending == 1
    out = r.send(inserts(1, [5, 5]))
    assert [s.to for s in out] == [Address("dispatcher", 0)] * 2
    assert r.done == [(0, 0)]
    [batch] = r.clients[5].batches
    assert batch.session_seq == 1
    assert dict(zip(batch.new_handles, batch.new_query_ids, strict=True)) == {1: "q1", 2: "q2"}
    assert list(batch.pair_handles) == [1, 2, 1]
    assert list(batch.pair_objects) == [0, 0, 1]
    assert list(batch.object_ids) == ["o0", "o2"]
    assert list(batch.object_offsets) == [0, 2]
    assert list(batch.text) == ["té0", "té2"]
    assert list(batch.time_ms) == [0, 20]
    assert list(batch.lon) == [0, 0.25]
    assert list(batch.lat) == [0, 0.125]
    assert r.machine.pending == 0


@pytest.mark.parametrize("fields", range(8))
def test_columns_come_as_asked_for(fields: int) -> None:
    r = rig()
    r.send(inserts(1, [3]), attach(3, fields=fields), *one_batch(0, [(1, 1, 3)], 1))
    [batch] = r.clients[3].batches
    assert len(batch.text) == bool(fields & fanout.FIELD_TEXT)
    assert len(batch.lon) == len(batch.lat) == bool(fields & fanout.FIELD_POSITION)
    assert len(batch.time_ms) == bool(fields & fanout.FIELD_TIME)


def test_a_batch_that_goes_to_no_worker_is_complete_at_once() -> None:
    r = rig(dispatchers=2)
    r.send(payload(0, 3, 0, expected=0, dispatcher=1))
    assert r.done == [(1, 0)]


def test_several_batches_complete_in_one_message() -> None:
    r = rig()
    r.send(*(f for b in (0, 4, 8) for f in one_batch(b, [], 1)))
    out = r.send(inserts(1, [1]))
    [send] = out
    assert isinstance(send.frame, BatchesCompleted)
    assert send.frame.batch.tolist() == [0, 4, 8]


def test_names_are_kept_until_every_watermark_has_passed() -> None:
    r = rig(dispatchers=2)
    r.send(inserts(1, [1, 1, 1]))
    r.send(
        named(4, [(UpdateKind.DELETE, 2, 1, "q2"), (UpdateKind.DELETE, 1, 1, "q1")], watermark=5)
    )
    assert r.machine.names == 3
    # An object from before the deletes, by the dispatcher that lags behind.
    r.send(payload(0, 4, 3, dispatcher=1, watermark=3))
    r.send(matches(0, [(0, 1, 1), (1, 2, 1)], dispatcher=1))
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
    r.send(attach(4), *one_batch(0, [(0, 4, 4)], 5))
    assert r.clients[4].pairs == {1: ("q4", "o0", 0, 0)}


def test_a_done_batch_is_completed_again_and_delivered_once() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    for _ in range(2):
        for b in range(0, 400, 4):
            r.send(*one_batch(b, [(0, 1, 1)], 1))
    assert r.done == [(0, b) for b in range(0, 400, 4)] * 2
    assert len(r.clients[1].pairs) == 100
    assert r.machine.pending == 0
    assert len(r.machine._windows[0].done) == 1


def test_wrong_messages_are_refused() -> None:
    r = rig()
    with pytest.raises(TypeError, match="Completed"):
        r.send(BatchesCompleted(0, np.zeros(1, np.int64)))
    with pytest.raises(ValueError, match="row 9 of a batch of 4"):
        r.send(*one_batch(0, [(9, 1, 1)], 0))


def test_a_name_goes_though_the_watermark_rose_before_its_delete_was_known() -> None:
    r = rig(dispatchers=2)
    r.send(inserts(1, [1]), WatermarkNotice(0, 2), WatermarkNotice(1, 2))
    r.send(named(2, [(UpdateKind.DELETE, 1, 1, "q1")], watermark=1))
    r.tick(10)
    assert r.machine.names == 0


def silent(r: Rig, pairs: Sequence[tuple[int, int, int]], batch: int = 0) -> None:
    """Worker 0 answers, worker 1 is silent for long enough."""
    r.send(payload(batch, 4, 1, expected=2), matches(batch, pairs, worker=0))
    r.tick(SILENT_TICKS)


def partial(r: Rig) -> list[int]:
    return [b for f in r.others if isinstance(f, BatchesPartial) for b in f.batch.tolist()]


def test_a_silent_worker_holds_up_nobody_elses_matches() -> None:
    r = rig()
    r.send(inserts(1, [1, 1]), attach(1))
    silent(r, [(0, 1, 1)])
    assert partial(r) == [0]
    r.send(payload(4, 4, 1, expected=2), matches(4, [(2, 1, 1)], worker=0))
    assert partial(r) == [0, 4]
    assert [p[:2] for p in r.clients[1].pairs.values()] == [("q1", "o0"), ("q1", "o6")]
    assert r.done == []
    r.send(matches(0, [(0, 1, 1), (0, 2, 1)], worker=1))
    assert r.done == [(0, 0)]
    assert [p[:2] for p in r.clients[1].pairs.values()][2:] == [("q2", "o0")]
    r.send(payload(8, 4, 1, expected=2), matches(8, [(0, 1, 1)], worker=0))
    assert partial(r) == [0, 4], "it is heard again"
    r.tick(SILENT_TICKS)
    assert len(r.clients[1].pairs) == 3 + 1, "and once more silent"


def test_a_worker_that_answers_something_is_not_silent() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    for batch in range(0, 40, 4):
        r.send(payload(batch, 4, 1, expected=2), matches(batch, [(0, 1, 1)], worker=0))
    for batch in range(0, 16, 4):
        r.send(matches(batch, [], worker=1))
        r.tick()
    assert not r.others
    assert len(r.done) == len(r.clients[1].pairs) == 4


def test_a_worker_has_time_to_answer_however_long_it_had_nothing_to_say() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    r.tick(5 * SILENT_TICKS)
    r.send(payload(0, 4, 1, expected=2), matches(0, [(0, 1, 1)], worker=0))
    r.tick(SILENT_TICKS - 1)
    assert partial(r) == []
    r.tick()
    assert partial(r) == [0]


def test_what_was_told_in_part_is_not_told_again_after_a_restart() -> None:
    r = rig(retention_bytes=64, chapter_bytes=16)
    r.send(inserts(1, [1, 1]), attach(1))
    silent(r, [(0, 1, 1), (3, 2, 1)])
    r.tick(3 * SECOND)  # a chapter would be due
    r.restart()
    r.send(inserts(1, [1, 1]), attach(1, epoch=2, ack=2))
    # In halves, as a batch that may kill comes again, with another division of the work.
    r.send(payload(0, 2, 1, attempt=1), matches(0, [(0, 1, 1), (1, 2, 1)], attempt=1))
    r.send(payload(2, 2, 1, attempt=1), matches(2, [(1, 1, 1), (1, 2, 1)], attempt=1))
    assert [p[:2] for _, p in sorted(r.clients[1].pairs.items())] == [
        ("q1", "o0"), ("q2", "o3"), ("q2", "o1"), ("q1", "o3"),
    ]  # fmt: skip
    assert not r.machine._windows[0].in_part


def test_that_a_batch_is_held_up_is_said_again_when_it_comes_again() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    silent(r, [(0, 1, 1)])
    r.tick(5)
    assert partial(r) == [0]
    r.send(payload(0, 4, 1, expected=2))  # as where the first word of it got lost
    assert partial(r) == [0, 0]
    assert len(r.clients[1].pairs) == 1


def test_what_was_told_of_a_batch_that_is_given_up_is_forgotten() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    silent(r, [(0, 1, 1)])
    assert r.machine._windows[0].in_part
    r.send(dataclasses.replace(payload(4, 4, 1), oldest=4))  # a crash took the one before
    assert not r.machine._windows[0].in_part


@pytest.mark.parametrize("seed", range(5))
def test_pairs_told_in_part_are_told_once_however_batches_come_again(seed: int) -> None:
    rng = random.Random(seed)
    r = rig()
    r.send(inserts(1, [1] * 8), attach(1))
    r.send(payload(0, 1, 8, expected=2))
    r.tick(SILENT_TICKS)  # worker 1 is
    size = 6
    pairs = {(offset, rng.randint(1, 8)) for offset in range(1, 301) for _ in range(3)}

    def found(start: int, stop: int) -> list[tuple[int, int, int]]:
        return [(o - start, h, 1) for o, h in sorted(pairs) if start <= o < stop]

    starts = list(range(1, 301, size))
    for start in starts:
        mine = rng.sample(found(start, start + size), 5)
        r.send(payload(start, size, 8, expected=2), matches(start, mine))
    assert len(r.clients[1].pairs) == 5 * len(starts)
    rng.shuffle(starts)
    for start in starts:
        cut = start + rng.randint(1, size)
        for a, b in ((start, cut), (cut, start + size)):
            if a < b:
                r.send(payload(a, b - a, 8, attempt=1), matches(a, found(a, b), attempt=1))
    told = [(offset, int(name[1:])) for name, _, _, offset in r.clients[1].pairs.values()]
    assert len(told) == len(set(told))
    assert set(told) == pairs
    assert not r.machine._windows[0].in_part


def test_a_worker_that_died_is_silent_at_once() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    r.send(payload(0, 4, 1, expected=2), matches(0, [(0, 1, 1)], worker=0))
    r.take(r.machine.lost(Address("dispatcher", 1)))
    assert not r.clients[1].pairs
    r.take(r.machine.lost(Address("worker", 1)))
    assert len(r.clients[1].pairs) == 1
    r.tick(2 * SILENT_TICKS)
    r.send(payload(4, 4, 1, expected=2), matches(4, [(0, 1, 1)], worker=0))
    assert len(r.clients[1].pairs) == 2
    r.send(matches(0, [], worker=1))
    r.send(payload(8, 4, 1, expected=2), matches(8, [(0, 1, 1)], worker=0))
    assert len(r.clients[1].pairs) == 2, "it is heard again"
