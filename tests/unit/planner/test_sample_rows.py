"""The sample row by row against its tables of counts, and against its texts and expressions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner import sample_rows
from ps2stream.planner.sample import take
from ps2stream.planner.sample_rows import check_number
from ps2stream.planner.updates import of_records
from ps2stream.protocol.frame import row_of, take_ragged
from tests.support.samples import GRID, batch, some_sample


@pytest.mark.parametrize("seed", range(3))
def test_rows_add_up_to_the_tables(seed: int) -> None:
    """By cell and term: objects with it, and live, inserted and deleted postings."""
    objects, updates = some_sample(seed)
    given = [batch(updates)]
    stats = take(lambda: [objects], given, Analysis(salt=1), GRID, rows=True).stats
    rows = stats.rows
    assert rows is not None
    span = len(stats.terms)
    unit = stats.cell[stats.unit_cell()] * span + stats.term
    found = rows.cell[row_of(rows.hit_off)] * span + rows.hit
    assert [int((found == u).sum()) for u in unit] == stats.o.tolist()
    assert np.isin(found, unit).all()
    for mine, counted in (
        (rows.live, stats.q), (rows.inserts, stats.inserts), (rows.deletes, stats.deletes)
    ):  # fmt: skip
        total = dict.fromkeys(unit.tolist(), 0.0)
        for i, weight in enumerate(mine.tolist()):
            for cell in rows.in_cell[rows.in_off[i] : rows.in_off[i + 1]].tolist():
                for term in rows.post[rows.post_off[i] : rows.post_off[i + 1]].tolist():
                    total[cell * span + term] += weight
        assert [*total.values()] == counted.tolist()


def test_all_terms_of_texts_and_expressions_are_kept() -> None:
    analysis = Analysis(salt=1)
    objects, _ = some_sample(0)
    records = [
        ("a", {"id": "a", "expression": "flood AND river", "region": {"rect": [0, 0, 9, 9]}}),
        ("b", {"id": "b", "expression": "", "region": {"rect": [0, 0, 9, 9]}}),
    ]
    stats = take(lambda: [objects], [of_records(records)], analysis, GRID, rows=True).stats
    rows, analyzer = stats.rows, Analyzer(analysis)
    assert rows is not None
    words = [{*analyzer.tokens(text)} for text in objects.column("text").to_pylist()]
    assert np.diff(rows.off).tolist() == [len(held) for held in words]
    shared = take_ragged(rows.word_off, rows.word, np.array([int(np.diff(rows.word_off).argmax())]))
    assert len(shared[1]) == 2
    assert sorted(np.diff(rows.word_off).tolist()) == [0, 2]  # no word, and both words
    have = {word: sum(word in held for held in words) for word in ("flood", "river")}
    assert sorted(int((rows.term == t).sum()) for t in shared[1]) == sorted(have.values())
    assert np.diff(rows.post_off).tolist() == [1, 1]


def test_without_queries_no_object_meets_anything() -> None:
    objects, _ = some_sample(0)
    stats = take(lambda: [objects], [of_records([])], Analysis(salt=1), GRID, rows=True).stats
    assert stats.rows is not None
    assert len(stats.rows.cell) == len(objects)
    assert len(stats.rows.hit) == len(stats.rows.word) == len(stats.rows.live) == 0


def test_more_rows_than_are_kept_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_rows, "MAX_ROWS", 50)
    check_number("queries", 50)
    want = "hybrid-paper plans from rows, at most 50 objects, got 400: give a smaller sample"
    objects, updates = some_sample(0)
    with pytest.raises(PlanError, match=re.escape(want)):
        take(lambda: [objects], [batch(updates)], Analysis(salt=1), GRID, rows=True)
    assert take(lambda: [objects], [batch(updates)], Analysis(salt=1), GRID).stats.rows is None
