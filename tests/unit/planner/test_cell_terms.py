"""Objects by hour and cell, and their words, against a count in plain Python."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.archive.columns import ArchivedBatch, make_table
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner import cell_terms
from ps2stream.planner.cell_terms import (
    CELL_TERMS,
    HOUR_MS,
    PLACED,
    CellTermCounter,
    count_cell_terms,
    place_objects,
)
from ps2stream.space.grid import Grid
from tests.support.archived import rows_of, some_posts

ANALYSIS = Analysis(salt=5)
WORDS = ["flood", "Flood", "river", "東京", "don't", "😀", "a\nb"]


def placed(seed: int, count: int) -> tuple[pa.Table, list[tuple[int, int, str]]]:
    """PLACED of some objects of two hours at few places, and hour, cell and text of each."""
    rng, grid = random.Random(seed), Grid(3, 2)
    posts = [
        post._replace(
            lon=rng.choice([0.0, 1.0, 90.0]), text=" ".join(rng.choices(WORDS, k=rng.randrange(4)))
        )
        for post in some_posts(rng, count)
    ]
    table = make_table([ArchivedBatch(7, 1, rows_of(posts))], 0, 0, 0)
    times = pa.array([rng.choice([5, HOUR_MS - 1, HOUR_MS, 3 * HOUR_MS]) for _ in posts])
    table = table.set_column(table.schema.get_field_index("archived"), "archived", times)
    found = pa.Table.from_batches(place_objects(grid, iter(table.to_batches())), PLACED)
    cells = grid.cells(
        np.array([p.lon for p in posts]), np.array([p.lat for p in posts]), 0
    ).tolist()
    hours = [t // HOUR_MS for t in times.to_pylist()]
    return found, list(zip(hours, cells, [p.text for p in posts], strict=True))


def test_objects_are_placed_and_their_words_counted() -> None:
    analyzer = Analyzer(ANALYSIS)
    for seed in range(4):
        table, rows = placed(seed, 40)
        assert table.select(["hour", "cell", "text"]).to_pylist() == [
            {"hour": hour, "cell": cell, "text": text} for hour, cell, text in rows
        ]
        want: Counter[tuple[int, int, str]] = Counter()
        for hour, cell, text in rows:
            want.update((hour, cell, term) for term in ["", *set(analyzer.tokens(text))])
        found: Counter[tuple[int, int, str]] = Counter()
        for part in count_cell_terms(Grid(3, 2), ANALYSIS, iter(table.to_batches(max_chunksize=7))):
            assert part.schema == CELL_TERMS
            for row in part.to_pylist():
                found[row["hour"], row["cell"], row["term"]] += row["objects"]
        assert found == want


def test_no_objects_have_no_words() -> None:
    table, _ = placed(1, 3)
    empty = table.slice(0, 0).combine_chunks()
    none = np.zeros(0, np.int64)
    assert not len(CellTermCounter(Analyzer(ANALYSIS)).count(empty, none, none))


def test_words_that_were_forgotten_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    texts = [" ".join(f"w{rng.randrange(60)}" for _ in range(5)) for _ in range(200)]
    zeros = np.zeros(20, np.int64)
    sums = []
    for most in (1 << 20, 0, 30):
        monkeypatch.setattr(cell_terms, "_MOST_WORDS", most)
        counter, found = CellTermCounter(Analyzer(ANALYSIS)), Counter[str]()
        for first in range(0, 200, 20):
            part = pa.table({"text": texts[first : first + 20]})
            for row in counter.count(part, zeros, zeros).to_pylist():
                found[row["term"]] += row["objects"]
        sums.append(found)
    want = Counter(term for text in texts for term in ["", *set(text.split())])
    assert sums == [want] * 3
