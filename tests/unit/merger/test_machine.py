"""The merger machine: what completes a batch, and every pair once through losses and crashes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ps2stream.merger.dedup import SILENT_TICKS
from ps2stream.merger.machine import SECOND
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import BatchesCompleted, BatchesPartial
from ps2stream.protocol.messages.sessions import StreamDetach
from tests.support.merger_world import run
from tests.support.merging import (
    Rig,
    attach,
    inserts,
    matches,
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


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_each_pair_once_under_any_order(data: st.DataObject) -> None:
    """Messages delayed, reordered and repeated: the merged set is what the workers said."""
    draw = data.draw
    workers, dispatchers, sessions = 3, 2, 4
    owner = draw(st.lists(st.integers(0, sessions - 1), min_size=1, max_size=8))
    frames: list[Frame] = []
    lsn = 1
    while lsn <= len(owner):
        step = draw(st.integers(1, 3))
        frames.append(inserts(lsn, owner[lsn - 1 : lsn - 1 + step]))
        lsn += step
    want: set[tuple[str, str, int, int]] = set()
    batches: set[tuple[int, int]] = set()
    for dispatcher in range(dispatchers):
        batch = stamp = 0
        for _ in range(draw(st.integers(0, 3))):
            size = draw(st.integers(1, 4))
            stamp = draw(st.integers(stamp, len(owner)))
            expected = draw(st.integers(0, workers))
            frames.append(payload(batch, size, stamp, expected, dispatcher))
            batches.add((dispatcher, batch))
            for worker in draw(st.permutations(range(workers)))[:expected]:
                pair = st.tuples(st.integers(0, size - 1), st.integers(1, max(stamp, 1)))
                some = draw(st.lists(pair, max_size=8)) if stamp else []
                told = [(row, h, owner[h - 1]) for row, h in some]
                frames.append(matches(batch, told, worker, dispatcher))
                want |= {(f"q{h}", f"o{batch + r}", dispatcher, batch + r) for r, h, _ in told}
            batch += size
    frames += [
        attach(s, epoch, batches=draw(st.sampled_from([0, 1, 1000])))
        for s in range(sessions)
        for epoch in draw(st.lists(st.integers(1, 4), max_size=3))
    ]
    frames += [
        StreamDetach(s, draw(st.integers(1, 4))) for s in range(sessions) if draw(st.booleans())
    ]
    repeated = draw(st.lists(st.sampled_from(frames), max_size=10))
    order = draw(st.permutations(frames + repeated))
    r = rig(dispatchers=dispatchers)
    while order:
        cut = draw(st.integers(1, 4))
        r.send(*order[:cut])
        order = order[cut:]
    r.send(*(attach(s, epoch=9) for s in range(sessions)))
    got = [pair for client in r.clients.values() for pair in client.pairs.values()]
    assert len(got) == len(set(got))
    assert set(got) == want
    assert all(c.gapless() and not c.gaps for c in r.clients.values())
    for session, client in r.clients.items():
        assert {owner[int(q[1:]) - 1] for q, *_ in client.pairs.values()} <= {session}
    assert set(r.done) == batches
    assert r.machine.pending == 0


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a short run reaches."""
    monkeypatch.setattr("ps2stream.merger.backlog.BLOCK", 3)
    monkeypatch.setattr("ps2stream.merger.fanout.MAX_BYTES", 400)
    monkeypatch.setattr("ps2stream.merger.subscribers.TURN", 40_000)
    monkeypatch.setattr("ps2stream.merger.journal.CACHE_BYTES", 2_000)
    monkeypatch.setattr("ps2stream.merger.dedup.EARLY", 6)
    monkeypatch.setattr("ps2stream.merger.forgotten.MAX_RECORDS", 2)
    monkeypatch.setattr("ps2stream.merger.places.FOLD", 8)
    monkeypatch.setattr("ps2stream.merger.recovery.FOLD", 8)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(40))
def test_every_pair_once_by_number(seed: int) -> None:
    run(seed, 300)


@pytest.mark.usefixtures("small")
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(1_000, 2**32))
def test_every_pair_once_by_number_on_any_seed(seed: int) -> None:
    run(seed, 150)
