"""Units by number, counts of objects, and the signatures that stand for all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.language.analyzer import Analysis
from ps2stream.planner import hits
from ps2stream.planner.sample import posts, take
from ps2stream.protocol.frame import strings_to_column
from tests.support.samples import GRID, WORDS, batch, sampled


def test_signatures_are_bounded_and_chosen_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hits, "SIGNATURES", 16)
    monkeypatch.setattr(hits.UnitHits, "KEEP", 100)
    n = 2000
    lon = np.linspace(1.0, 2.0, n)
    text = [WORDS[i % 2] for i in range(n)]
    rows = [{"id": "a", "expression": "flood OR river", "region": {"rect": [0, 0, 3, 3]}}]
    one = posts(lon, np.full(n, 1.0), text)
    order = np.random.default_rng(3).permutation(n)
    table = pa.Table.from_batches([one]).take(order)
    found = [
        sampled(one, rows),
        take(lambda: table.to_batches(90), [batch(rows)], Analysis(0), GRID),
    ]
    for sample in found:
        assert np.diff(sample.stats.row_off).max() == 16
        assert sample.stats.weight.max() == n / 16
    assert np.array_equal(found[0].stats.row_unit, found[1].stats.row_unit)


def test_hashes_do_not_see_where_a_row_stands() -> None:
    off, _ = strings_to_column(["ab", "c"])
    term = np.array([5, 6, 7], np.uint64)
    lon, lat, time = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([0, 9])
    both = hits._hash_rows(lon, lat, time, off, term)
    last = hits._hash_rows(lon[1:], lat[1:], time[1:], np.array([0, 1]), term[2:])
    assert both[1] == last[0] != both[0]
