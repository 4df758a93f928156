"""What a text split of a cell saves: shares by counting, the test by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.adjust.text import PartShares, cell_index, saving, shares
from ps2stream.routing.costs import Costs
from tests.support.adjustments import GRID
from tests.support.statistics_of import words


def test_shares_are_what_counting_says() -> None:
    rng = np.random.default_rng(4)
    stats = words(GRID, rng, [3, 9, 77], 300)
    for index in range(stats.cells):
        units = range(int(stats.unit_off[index]), int(stats.unit_off[index + 1]))
        part = (rng.permutation(len(units)) % 3 - 1).astype(np.int32)
        of = {u: int(part[u - units.start]) for u in units}
        rows = range(int(stats.row_off[index]), int(stats.row_off[index + 1]))
        met = [{of[u] for u in stats.row_unit[slice(*stats.row_start[r : r + 2])]} for r in rows]
        seen = [sum(k in s for s in met) for k in (0, 1)]
        q = [sum(float(stats.q[u]) for u in units if of[u] == k) for k in (0, 1)]
        found = shares(stats, index, part)
        if not all(seen) or not all(q):
            assert found is None
            continue
        assert found is not None
        either = sum(bool(s & {0, 1}) for s in met)
        assert found.objects.tolist() == [n / either for n in seen]
        assert found.queries == pytest.approx([n / sum(q) for n in q])
        assert found.checks.sum() == pytest.approx(1.0)
    assert shares(stats, 0, np.zeros(len(part), np.int32)[: int(stats.unit_off[1])]) is None
    assert [cell_index(stats, c) for c in (3, 9, 10, 127)] == [0, 1, None, None]


def test_the_test_of_a_split_is_as_specified() -> None:
    share = PartShares(np.array([0.8, 0.5]), np.array([0.25, 0.75]), *[np.array([0.5, 0.5])] * 2)
    # 100 objects, 40 queries: 80 * 10 + 50 * 30 against 4000, and 30 copies more.
    assert saving(100.0, 40.0, share, Costs(c1=2.0, c2=7.0)) == pytest.approx(2 * 1700 - 7 * 30)
