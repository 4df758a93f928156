"""Units by number, counts of objects, and the signatures that stand for all."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner import hits, statistics
from ps2stream.planner.hits import ObjectSignatures, UnitHits, UnitNumbers
from ps2stream.planner.sample import posts, take
from ps2stream.planner.statistics import SIGNATURES, TOP_TERM
from ps2stream.protocol.frame import I64, strings_to_column
from ps2stream.routing.plan import hash_units
from tests.support.samples import GRID, WORDS, batch, sampled, some_sample


def numbered(cell: I64, term: list[str]) -> UnitNumbers:
    terms = sorted(set(term))
    return UnitNumbers(cell, np.array([terms.index(t) for t in term], np.int32), terms, ANALYZER)


def test_signatures_are_bounded_and_chosen_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hits, statistics):
        monkeypatch.setattr(module, "SIGNATURES", 16)
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


ANALYZER = Analyzer(Analysis(0))


def test_units_are_found_by_cell_and_term() -> None:
    cell, term = np.array([3, 3, 9, 1 << 40]), ["flood", "", "flood", "river"]
    units = numbered(cell, term)
    assert len(units) == 4
    hashes = hash_units(ANALYZER, ["flood", TOP_TERM, "river", "storm"])
    wanted = [(c, h) for c in cell.tolist() for h in hashes.tolist()]
    found = units.find(
        np.array([c for c, _ in wanted]), np.array([h for _, h in wanted], np.uint64)
    )
    names = ["flood", TOP_TERM, "river", "storm"] * 4
    listed = {(c, t): i for i, (c, t) in enumerate(zip(cell.tolist(), term, strict=True))}
    assert found.tolist() == [
        listed.get((c, t), -1) for (c, _), t in zip(wanted, names, strict=True)
    ]
    none = numbered(np.zeros(0, np.int64), [])
    assert none.find(np.array([3]), hashes[:1]).tolist() == [-1]


@pytest.mark.parametrize("size", [13, 400])
def test_hits_are_counted_object_by_object(size: int) -> None:
    objects, _ = some_sample(6)
    lon, lat = objects["lon"].to_numpy(), objects["lat"].to_numpy()
    cells = GRID.cells(lon, lat, 0).tolist()
    listed = [(c, t) for c in sorted(set(cells))[::2] for t in ("flood", "river", TOP_TERM)]
    hits = UnitHits(
        numbered(np.array([c for c, _ in listed]), [t for _, t in listed]),
        ANALYZER, GRID,
    )  # fmt: skip
    for part in pa.Table.from_batches([objects]).to_batches(max_chunksize=size):
        hits.add(part)
    sets = [{*ANALYZER.tokens(text), TOP_TERM} for text in objects["text"].to_pylist()]
    held = [
        sorted(n for n, (c, t) in enumerate(listed) if c == cell and t in words)
        for cell, words in zip(cells, sets, strict=True)
    ]
    assert hits.units.tolist() == [sum(n in units for units in held) for n in range(len(listed))]
    counts = Counter(cells)
    assert hits.cells.tolist() == [counts[c] for c in range(len(hits.cells))]
    signatures = hits.signatures()
    parts = np.split(signatures.unit, signatures.unit_off[1:-1])
    assert Counter(tuple(sorted(part.tolist())) for part in parts) == Counter(
        tuple(units) for units in held if units
    )


def test_the_smallest_hashes_of_each_cell_are_kept() -> None:
    rng = np.random.default_rng(1)
    cell = rng.integers(0, 3, 2000)
    hash = rng.permutation(2000)
    kept = ObjectSignatures(cell, hash, np.arange(2001), np.arange(2000)).smallest()
    for c in range(3):
        mine = np.sort(hash[cell == c])[:SIGNATURES]
        assert kept.hash[kept.cell == c].tolist() == mine.tolist()
    assert hash[kept.unit].tolist() == kept.hash.tolist()
