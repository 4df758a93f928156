"""Copies that are shed worker by worker, against sets."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.multicast.bitsets import make_sets
from ps2stream.multicast.capping_kernels import SAMPLED, SHED, WHOLE, shed_copies
from ps2stream.protocol.frame import I64, U64


def members(row: U64) -> set[int]:
    return {64 * i + b for i, word in enumerate(row.tolist()) for b in range(64) if word >> b & 1}


def some_batch(rng: np.random.Generator, n: int, workers: int) -> tuple[I64, U64, I64]:
    size = rng.integers(0, 7, n)
    off = np.r_[0, np.cumsum(size)]
    by_term = make_sets(int(off[-1]), workers)
    for row in by_term:
        for worker in rng.choice(workers, rng.integers(0, 3), replace=False).tolist():
            row[worker >> 6] |= np.uint64(1) << np.uint64(worker & 63)
    return off, by_term, rng.integers(0, 9, int(off[-1]))


@pytest.mark.parametrize("by_queries", [False, True])
@pytest.mark.parametrize("workers", [3, 8, 70])
def test_the_best_workers_are_left_and_all_else_is_counted(workers: int, by_queries: bool) -> None:
    rng = np.random.default_rng(workers)
    for targets in (1.0, 2.0, 2.5, 7.0):
        n = 200
        off, by_term, live = some_batch(rng, n, workers)
        before = by_term.copy()
        state = rng.choice(np.array([WHOLE, SHED, SAMPLED], np.uint8), n)
        draw = rng.random(n)
        fan, copies = np.zeros(64, np.int64), np.zeros(workers, np.int64)
        cut, lost = make_sets(n, workers), np.zeros(len(live), np.uint8)
        # The first offset need not be 0: it is that of a part of a batch.
        found = shed_copies(
            by_term, live, off + 5, targets, by_queries, state, draw, fan, copies, cut, lost
        )
        shed, widths, missing = 0, np.zeros(64, np.int64), np.zeros(workers, np.int64)
        for i in range(n):
            spans = range(off[i], off[i + 1])
            score: dict[int, tuple[int, int]] = {}
            for t in spans:
                for worker in members(before[t]):
                    terms, queries = score.get(worker, (0, 0))
                    score[worker] = terms + 1, queries + int(live[t])
            if state[i] == WHOLE:
                widths[0] += len(score)
                expected: set[int] = set()
            else:
                widths[len(score)] += len(score) > 0
                most = int(targets) + (draw[i] < targets % 1)
                gone = members(cut[i])
                assert len(gone) == max(len(score) - most, 0)
                ranked = {w: (s[::-1] if by_queries else s) for w, s in score.items()}
                left = [ranked[w] for w in score if w not in gone]
                assert not gone or max(ranked[w] for w in gone) <= min(left)
                expected = gone
            assert members(cut[i]) == expected
            is_shed = state[i] == SHED and bool(expected)
            shed += is_shed
            for worker in expected if is_shed else ():
                missing[worker] += 1
            for t in spans:
                dropped = members(before[t]) & expected if is_shed else set()
                assert members(by_term[t]) == members(before[t]) - dropped
                assert lost[t] == bool(dropped)
        assert found == shed
        assert fan.tolist() == widths.tolist()
        assert copies.tolist() == missing.tolist()
        assert shed or targets > workers / 2
