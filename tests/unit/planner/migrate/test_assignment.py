"""Who becomes whom: against all permutations."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ps2stream.planner.migrate.assignment import assign


@pytest.mark.parametrize("workers", range(1, 7))
def test_no_permutation_keeps_more_bytes(workers: int) -> None:
    rng = np.random.default_rng(workers)
    for most in (2, 10, 10**12):
        for _ in range(20):
            kept = rng.integers(0, most, (workers, workers))
            kept[rng.random(kept.shape) < 0.3] = 0
            found = assign(kept)
            assert sorted(found.tolist()) == list(range(workers))
            roles = range(workers)
            best = max(sum(kept[w, r] for w, r in zip(p, roles, strict=True))
                       for p in permutations(roles))  # fmt: skip
            assert kept[found, roles].sum() == best


def test_a_renumbered_plan_is_found_out() -> None:
    rng = np.random.default_rng(1)
    to = rng.permutation(120)
    kept = rng.integers(0, 1000, (120, 120))
    kept[to, range(120)] += 10_000
    assert assign(kept).tolist() == to.tolist()


def test_where_nothing_stays_each_keeps_its_number() -> None:
    assert assign(np.zeros((5, 5), np.int64)).tolist() == list(range(5))
    assert assign(np.zeros((0, 0), np.int64)).tolist() == []


def test_a_matrix_that_is_not_square_is_refused() -> None:
    with pytest.raises(ValueError, match="square"):
        assign(np.zeros((2, 3), np.int64))
