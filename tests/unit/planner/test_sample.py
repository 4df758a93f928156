"""planner/sample.py against counting one by one, from the definitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner import hits, updates
from ps2stream.planner.sample import PlannerSample, posts, take
from ps2stream.planner.statistics import TOP_TERM
from ps2stream.protocol.frame import strings_to_column
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Rect

WORDS = ["flood", "river", "😀", "don't", "Straße", "東京", "a", "b_2", "👩‍👩‍👧"]
GRID = Grid(5, 4, 16)


def some(seed: int, n: int = 400, queries: int = 60) -> tuple[Any, list[dict[str, Any]]]:
    """Objects, and updates with deletes, re-inserts, duplicates and huge regions."""
    rng = np.random.default_rng(seed)
    lon = np.round(rng.normal(0, 30, n).clip(-180, 180), 1)
    lat = np.round(rng.normal(0, 15, n).clip(-90, 90), 1)
    text = [" ".join(rng.choice(WORDS, rng.integers(0, 5))) for _ in range(n)]
    rows: list[dict[str, Any]] = []
    for i in range(queries):
        west, south = rng.uniform(-60, 40), rng.uniform(-40, 20)
        side = float(rng.choice([0.0, 3.0, 20.0, 120.0], p=[0.1, 0.5, 0.3, 0.1]))
        rect = [west, south, min(west + side, 180), min(south + side, 90)]
        words = rng.choice(WORDS, rng.integers(1, 4), replace=False)
        expression = (" OR " if rng.random() < 0.5 else " AND ").join(words)
        record = {"id": f"q{i % 45}", "expression": expression, "region": {"rect": rect}}
        if rng.random() < 0.15:
            record["expression"] = ""
        rows.append(record | {"op": "insert", "time": int(rng.integers(0, 50))})
        if rng.random() < 0.5:
            at = int(rng.integers(0, 60))
            rows.append({"id": f"q{rng.integers(0, 45)}", "op": "delete", "time": at})
    rows += [{"id": f"old{i}", "expression": "river", "region": None} for i in range(3)]
    return posts(lon, lat, text), rows


def batch(rows: list[dict[str, Any]]) -> Any:
    return updates.of_records((f"row {i}", row) for i, row in enumerate(rows))


def sampled(objects: Any, rows: list[dict[str, Any]], grid: Grid | None = GRID) -> PlannerSample:
    return take(lambda: [objects], [batch(rows)], Analysis(0), grid)


def standing_naively(rows: list[dict[str, Any]]) -> list[tuple[str, Any, int, int]]:
    """(expression, region, inserted, deleted) of each query that there ever was."""
    rank = {"live": 0, "insert": 1, "delete": 2}
    table = batch(rows).to_pylist()
    order = sorted(
        range(len(rows)),
        key=lambda i: tuple(table[i][name] for name in updates.ORDER),
    )
    found: list[tuple[str, Any, int, int]] = []
    live: dict[str, int] = {}
    for i in order:
        row = rows[i]
        op = row.get("op", "live")
        assert rank[op] == table[i]["op"]
        if op == "delete":
            if (at := live.pop(row["id"], None)) is not None:
                found[at] = (*found[at][:3], 1)
        elif row["id"] not in live:
            live[row["id"]] = len(found)
            found.append((row["expression"], row.get("region"), int(op == "insert"), 0))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_tables_are_what_counting_gives(seed: int) -> None:
    objects, rows = some(seed)
    found = sampled(objects, rows)
    analyzer = Analyzer(Analysis(0))
    texts = objects["text"].to_pylist()
    counts = Counter(t for text in texts for t in analyzer.tokens(text))
    assert found.frequencies == counts
    lon, lat = objects["lon"].to_numpy(), objects["lat"].to_numpy()
    cell = GRID.cells(lon, lat, 0).astype(int).tolist()
    queries = standing_naively(rows)
    assert (found.live, found.inserts, found.deletes) == (
        sum(not q[3] for q in queries), sum(q[2] for q in queries), sum(q[3] for q in queries)
    )  # fmt: skip
    units: dict[tuple[int, str], list[int]] = {}
    coarse = 0
    from ps2stream.language.expression import parse, posting_set

    for expression, region, inserted, deleted in queries:
        box = Rect(*region["rect"]).boxes() if region else np.array([[-180.0, -90, 180, 90]])
        _, cells = GRID.cover(np.array([0, box.size]), box.ravel())
        if cells[0] >> 28:
            coarse += not deleted
            continue
        terms = [TOP_TERM]
        if expression:
            tree = parse(expression, analyzer.tokens)
            terms = sorted(posting_set(tree, lambda t: counts[t]))
        for c in cells.tolist():
            for term in terms:
                unit = units.setdefault((c, term), [0, 0, 0])
                unit[0] += not deleted
                unit[1] += inserted
                unit[2] += deleted
    assert found.coarse == coarse > 0
    stats = found.stats
    numbers = stats.cell[stats.unit_cell()].tolist()
    keys = [(c, stats.terms[t]) for c, t in zip(numbers, stats.term.tolist(), strict=True)]
    assert keys == sorted(units)
    for column, name in enumerate(("q", "inserts", "deletes")):
        assert getattr(stats, name).tolist() == [units[key][column] for key in keys], name
    sets = [{*analyzer.tokens(text), TOP_TERM} for text in texts]
    hit = Counter((c, t) for c, words in zip(cell, sets, strict=True) for t in words)
    assert stats.o.tolist() == [hit[key] for key in keys]
    placed = Counter(cell)
    assert stats.objects.tolist() == [placed[c] for c in stats.cell.tolist()]
    # Fewer than SIGNATURES objects a cell: all of them that have a unit.
    rows_of = [
        tuple(sorted(stats.terms[stats.term[u]] for u in part))
        for part in np.split(stats.row_unit, stats.row_start[1:-1])
    ]
    expected = [
        tuple(sorted(t for t in words if (c, t) in units))
        for c, words in zip(cell, sets, strict=True)
    ]
    assert Counter(rows_of) == Counter(t for t in expected if t)


def test_order_of_rows_and_batches_does_not_matter() -> None:
    objects, rows = some(9, 3000)
    first = sampled(objects, rows)
    order = np.random.default_rng(1).permutation(len(objects))
    shuffled = pa.Table.from_batches([objects]).take(order)
    parts = shuffled.to_batches(max_chunksize=700)
    mixed = [rows[i] for i in np.random.default_rng(2).permutation(len(rows))]
    second = take(lambda: parts, [batch(mixed[:50]), batch(mixed[50:])], Analysis(0), GRID)
    assert first.frequencies == second.frequencies
    assert list(first.frequencies) == list(second.frequencies)
    for name in ("cell", "objects", "term", "o", "q", "row_off", "row_unit", "weight"):
        assert np.array_equal(getattr(first.stats, name), getattr(second.stats, name)), name


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


def test_a_plan_grid_fits_the_median_box() -> None:
    objects, _ = some(1)
    rows = [
        {"id": str(i), "expression": "river", "region": {"rect": [0, 0, side, side]}}
        for i, side in enumerate([0.1, 0.5, 0.5, 0.5, 30])
    ]
    assert sampled(objects, rows, None).stats.grid == Grid.for_queries(0.5, 0.5)
    assert sampled(objects, [], None).stats.grid == Grid()


def test_wrong_samples_are_refused() -> None:
    objects, rows = some(1)
    with pytest.raises(InvalidArgument, match="no objects"):
        sampled(objects.slice(0, 0), rows)
    with pytest.raises(InvalidArgument, match=r"query 'x' expression: column 1: \* is reserved"):
        sampled(objects, [{"id": "x", "expression": "*"}])
    for row, message in (
        ({"id": "x"}, "row 0: a query needs an expression or a region"),
        ({"expression": "a"}, "row 0 id: expected a string or an integer, got null"),
        ({"id": "x", "op": "drop"}, "row 0 op: expected insert, delete or live, got 'drop'"),
        ({"id": "x", "op": "delete"}, "row 0 time: expected the time of the delete, got null"),
        ({"id": "x", "expression": 5}, "row 0 expression: expected a string, got 5"),
        ({"id": "x", "region": "{"}, "row 0 region: expected JSON"),
        ({"id": "x", "region": {"rect": [0, 9, 1, 8]}}, "row 0 region.lat_min: 9.0 is above"),
        ({"id": "x", "lon_min": 1}, "row 0: expected numbers for lon_min, lat_min"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            batch([row])


def test_rect_columns_are_the_same_updates() -> None:
    rects = np.array([[0.0, 1, 2, 3], [170, -5, -170, 5]])
    n = np.zeros(2, np.int64)
    columns = updates.of_rects(["a", "b"], n, n + 7, ["x", "y"], rects)
    rows = [
        {"id": id, "time": 7, "expression": x, "region": {"rect": rect}}
        for id, x, rect in zip("ab", "xy", rects.tolist(), strict=True)
    ]
    assert columns == batch(rows)


def test_hashes_do_not_see_where_a_row_stands() -> None:
    off, _ = strings_to_column(["ab", "c"])
    term = np.array([5, 6, 7], np.uint64)
    lon, lat, time = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([0, 9])
    both = hits._hash_rows(lon, lat, time, off, term)
    last = hits._hash_rows(lon[1:], lat[1:], time[1:], np.array([0, 1]), term[2:])
    assert both[1] == last[0] != both[0]
