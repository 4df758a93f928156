"""Load shedding of a dispatcher: its level, its sample, its notices."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.dispatcher import shedding
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.dispatcher.shedding import LoadShedding, measure_loads
from ps2stream.multicast.capping import SheddingRank
from ps2stream.multicast.shedding_levels import HIGHEST_LEVEL, targets_at
from ps2stream.protocol.frame import Array
from ps2stream.protocol.messages.objects import MatchRelease, RoutedObjects
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.h1 import H1, HashedLeaf
from tests.support.routers import GRID, answer, close, insert, sent
from tests.support.routing import object_rows

WORKERS = 4
TERMS = np.sort(np.arange(1, 13, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def full_router(level: int, shed: SheddingRank | None = "subscription") -> RouterMachine:
    """A router of one cell whose terms have four owners, each term with a query, at a level."""
    owner = np.arange(len(TERMS), dtype=np.uint16) % WORKERS
    leaf = HashedLeaf(tuple(range(WORKERS)), TERMS, owner.astype(np.uint16))
    h1 = H1(WORKERS, np.zeros(1 << 9, np.uint32), [leaf])
    router = RouterMachine(0, 2, 2, h1, GRID, max_in_flight=99, shed=shed)
    router.on(LedgerTip(0, 0))
    for lsn, term in enumerate(TERMS.tolist(), 1):
        router.on(insert(lsn, term))
    for _ in range(level):
        router.shedding.step(1.0, 1_000)
    assert router.shedding.level == level
    return router


def some_objects(n: int, seed: int = 0) -> ObjectRows:
    rng = np.random.default_rng(seed)
    terms = [
        tuple(np.sort(rng.choice(TERMS, rng.integers(1, 8), replace=False)).tolist())
        for _ in range(n)
    ]
    return object_rows([-20.0] * n, [0.0] * n, terms)


def copies_of(
    router: RouterMachine, rows: ObjectRows, may_shed: Array | None = None
) -> set[tuple[int, int]]:
    """Each (worker, row) that is sent."""
    _, _, out = router.publish(rows, may_shed)
    found = sent(out, "worker", RoutedObjects)
    return {(worker, row) for worker, frame in found for row in frame.row.tolist()}


def test_only_what_may_be_shed_loses_copies_and_only_some_of_them() -> None:
    n = 300
    rows, may_shed = some_objects(n), np.arange(n) % 3 > 0
    whole = copies_of(full_router(0), rows)
    router = full_router(HIGHEST_LEVEL)
    left = copies_of(router, rows, may_shed)
    assert left < whole
    width = Counter(row for _, row in whole)
    sample = router.shedding._samples[0]
    for row in range(n):
        own = {w for w, r in left if r == row}
        if may_shed[row] and row not in sample.row:
            assert len(own) == 1
        else:
            assert len(own) == width[row]
    lost = whole - left
    by_worker = Counter(w for w, _ in lost)
    assert router.shedding.copies.tolist() == [by_worker[w] for w in range(WORKERS)]
    assert router.shedding.objects == len({row for _, row in lost})
    counters = router.shedding.counters
    assert counters["shed_copies"] == len(lost)
    assert counters["shed_copies_worker_1"] == by_worker[1]


def test_nothing_is_shed_without_a_setting_or_at_level_0() -> None:
    router = full_router(0, None)
    assert set(router.shedding.counters.values()) == {0}
    assert not router.shedding.is_on


def test_loads_are_measured_as_the_copies_at_each_level() -> None:
    rng = np.random.default_rng(1)
    width = rng.integers(1, 30, 500)
    fan = np.bincount(width, minlength=64)
    fan[0] = 77
    for level, load in enumerate(measure_loads(fan)):
        most = targets_at(level)
        expected = 77 + sum(min(w, most) for w in width.tolist())
        assert load == pytest.approx(expected)


def test_the_sample_estimates_what_each_session_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shedding, "SAMPLED_PART", 0.5)
    router = full_router(HIGHEST_LEVEL)
    rows = some_objects(400)
    left = copies_of(router, rows, np.ones(400, np.bool_))
    state = router.shedding._samples[0]
    cut = {
        row: int(bits)
        for row, bits in zip(state.row.tolist(), state.cut[:, 0].tolist(), strict=True)
    }
    matches, lost = Counter[int](), Counter[int]()
    for worker in range(WORKERS):
        mine = sorted(row for w, row in left if w == worker)
        pairs = [(row, 1 + row % len(TERMS), worker % 3) for row in mine]
        for row, _, session in pairs:
            if row in cut:
                matches[session] += 1
                lost[session] += cut[row] >> worker & 1
        frame = answer(worker, 0, *pairs)
        router.take_answer(frame, 0.0)
        router.take_answer(frame, 0.0)  # a repeat counts no more
    shed = router.shedding.take_notice(3_000, router.offset, 0)
    assert shed.shed[:2].tolist() == [1_000, 3_000]
    assert shed.shed[2:4].tolist() == [0, 400]
    assert shed.shed[4] == router.shedding.objects
    assert shed.shed[5] == matches.total()
    assert shed.shed_session.tolist() == [-1, 0, 1, 2]
    share = lost.total() / matches.total()
    expected = [share, *((lost[s] + share) / (matches[s] + 1) for s in range(3))]
    assert shed.shed_share == pytest.approx(expected)
    assert 0 < share < 1


def test_notices_come_every_few_steps_and_at_the_end() -> None:
    router = full_router(2)
    state = router.shedding
    objects, may_shed = some_objects(50), np.ones(50, np.bool_)
    dues = []
    for _ in range(2 * shedding.NOTICE_STEPS):
        state._level.level = HIGHEST_LEVEL
        router.publish(objects, may_shed)
        state.step(1.0, 2_000)
        dues.append(state.has_notice)
        if state.has_notice:
            state.take_notice(2_000, router.offset, router.offset)
    assert [i for i, due in enumerate(dues) if due] == [4, 9]
    router.publish(objects, may_shed)
    state._level.level = 0
    state._samples.clear()
    assert state.has_notice
    state.take_notice(1, router.offset, router.offset)  # a clock that was set back
    assert not state.has_notice


def test_a_notice_goes_to_every_merger_as_a_batch_of_its_own() -> None:
    router = full_router(HIGHEST_LEVEL)
    copies_of(router, some_objects(60), np.ones(60, np.bool_))
    for worker in range(WORKERS):
        close(router, 0, worker=worker)
    router.take_closed()
    out = sent(router.announce_shedding(5_000), "merger", MatchRelease)
    assert [merger for merger, _ in out] == [0, 1]
    for _, release in out:
        assert (release.batch, release.end, release.whole) == (60, 61, 1)
        assert not len(release.pair_row)
        assert release.shed[1] == 5_000
        again = MatchRelease.decode(release.encode())
        assert again.shed_share.tolist() == release.shed_share.tolist()
    assert router.offset == 61
    assert router.oldest == 60


def test_lost_terms_are_named_by_recent_texts() -> None:
    router = full_router(HIGHEST_LEVEL)
    rows = some_objects(200)
    copies_of(router, rows, np.ones(200, np.bool_))
    found = router.shedding.lost_terms
    assert found.objects.tolist() == sorted(found.objects.tolist(), reverse=True)
    assert len(found.term) == shedding.LISTED_TERMS
    assert set(found.term.tolist()) <= set(TERMS.tolist())


def test_more_workers_are_counted_from_their_coming_on() -> None:
    state = LoadShedding("consensus", 2)
    state.copies += 1
    state.resize(4)
    state.resize(3)
    assert state.copies.tolist() == [1, 1, 0, 0]
    assert len(state.prepare(some_objects(3), np.ones(3, np.bool_)).copies) == 4
