"""Counts of what is shed, and the estimate of the sample against what is really lost."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.multicast import shedding_losses
from ps2stream.multicast.bitsets import list_members
from ps2stream.multicast.capping import ChosenWorkers, cap_multicast
from ps2stream.multicast.shedding_losses import SheddingTally, find_lost
from ps2stream.protocol.frame import U64

WORKERS = 6


def some_objects(rng: np.random.Generator, n: int) -> tuple[ChosenWorkers, U64]:
    size = rng.integers(0, 6, n)
    owner = rng.integers(0, WORKERS, 40).astype(np.uint64)
    term = np.concatenate([rng.choice(40, s, replace=False) for s in size]).astype(np.uint64)
    chosen = (np.uint64(1) << owner[term.astype(np.int64)])[:, None]
    live = 1 + term.astype(np.int64) % 7
    return ChosenWorkers(np.r_[0, np.cumsum(size)], chosen, live, WORKERS), term


def test_objects_workers_and_terms_are_counted_over_batches() -> None:
    rng = np.random.default_rng(1)
    tally = SheddingTally(WORKERS)
    terms: Counter[int] = Counter()
    copies: Counter[int] = Counter()
    objects_cut = 0
    for _ in range(3):
        objects, term = some_objects(rng, 100)
        capped = cap_multicast(objects, 2.0, "subscription", rng.random(100) < 0.8, rng.random(100))
        tally.add_objects(objects, capped, term)
        terms.update(term[capped.kept == 0].tolist())
        for row in (objects.join() & ~capped.bits)[:, 0].tolist():
            copies.update(w for w in range(WORKERS) if row >> w & 1)
            objects_cut += row != 0
    notice = tally.take(1000, 2000)
    assert notice is not None
    assert (notice.begin, notice.end, notice.objects) == (1000, 2000, objects_cut)
    assert notice.copies.tolist() == [copies[w] for w in range(WORKERS)]
    found = zip(notice.term.tolist(), notice.term_objects.tolist(), strict=True)
    assert dict(found) == dict(terms)
    assert notice.term_objects.tolist() == sorted(terms.values(), reverse=True)
    assert notice.other_objects == 0
    assert tally.take(2000, 3000) is None


def test_terms_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shedding_losses, "MOST_TERMS", 5)
    rng = np.random.default_rng(2)
    tally = SheddingTally(WORKERS)
    lost = 0
    for _ in range(4):
        objects, term = some_objects(rng, 200)
        capped = cap_multicast(objects, 1.0, "consensus", np.ones(200, np.bool_), rng.random(200))
        tally.add_objects(objects, capped, term)
        lost += int((capped.kept == 0).sum())
    notice = tally.take(0, 1)
    assert notice is not None
    assert len(notice.term) == 5
    assert notice.term_objects.sum() + notice.other_objects == lost


def test_the_sample_estimates_what_is_lost() -> None:
    """Each query has one posting term: capping loses it exactly if its worker is cut."""
    rng = np.random.default_rng(3)
    n = 40_000
    objects, _ = some_objects(rng, n)
    all_capped = cap_multicast(objects, 1.5, "consensus", np.ones(n, np.bool_), rng.random(n))
    row, worker = list_members(objects.join())
    session = rng.choice(20, len(row)).astype(np.uint64)
    # Session 7 has queries on worker 0 alone.
    session[worker == 0] = np.where(rng.random((worker == 0).sum()) < 0.5, 7, 8)
    lost = find_lost(all_capped.bits, row, worker)
    really = float(lost.mean())
    sampled = (rng.random(n) < 0.05)[row]
    tally = SheddingTally(WORKERS)
    capped = cap_multicast(objects, 1.5, "consensus", np.ones(n, np.bool_), rng.random(n))
    tally.add_objects(objects, capped, np.zeros(len(objects.live), np.uint64))
    for part in np.array_split(np.flatnonzero(sampled), 5):
        tally.add_sampled(session[part], lost[part])
    notice = tally.take(0, 1)
    assert notice is not None
    assert notice.sampled == int(sampled.sum())
    assert notice.share == pytest.approx(really, abs=0.03)
    assert 0.1 < really < 0.9
    of_seven = float(lost[session == 7].mean())
    shares = notice.shares_of(np.array([7, 99], np.uint64))
    assert shares[0] == pytest.approx(of_seven, abs=0.1)
    assert shares[1] == pytest.approx(notice.share)


def test_without_a_sample_the_share_is_nothing() -> None:
    tally = SheddingTally(WORKERS)
    objects, term = some_objects(np.random.default_rng(4), 50)
    capped = cap_multicast(objects, 1.0, "consensus", np.ones(50, np.bool_), np.zeros(50))
    tally.add_objects(objects, capped, term)
    notice = tally.take(0, 1)
    assert notice is not None
    assert notice.share == 0.0
    assert notice.shares_of(np.array([3], np.uint64)).tolist() == [0.0]
