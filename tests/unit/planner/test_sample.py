"""The tables of a sample against counting one by one, from the definitions."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.posting import frequency_of
from ps2stream.planner.sample import FREQUENCY_BYTES, posts, take
from ps2stream.planner.statistics import TOP_TERM
from ps2stream.protocol.opaque import split_opaque
from ps2stream.space.grid import Grid
from ps2stream.space.region_rows import boxes_of
from ps2stream.space.regions import Rect
from tests import naive
from tests.support.attributes import opaque_column
from tests.support.samples import GRID, batch, sampled, some_sample, standing_naively


@pytest.mark.parametrize("seed", range(4))
def test_tables_are_what_counting_gives(seed: int) -> None:
    objects, rows = some_sample(seed)
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
        box = boxes_of(Rect(*region["rect"])) if region else np.array([[-180.0, -90, 180, 90]])
        _, cells = GRID.cover(np.array([0, box.size]), box.ravel())
        if cells[0] >> 28:
            coarse += not deleted
            continue
        terms = [TOP_TERM]
        if expression:
            tree = parse(expression, analyzer)
            terms = sorted(
                posting_set(tree, lambda t: min(counts[w] for w in t.strip('"').split()))
            )
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
    posted = {term for _, term in units if term.strip('"*') != term}  # phrases and prefixes
    sets = [
        {*analyzer.tokens(text), TOP_TERM} | {t for t in posted if naive.satisfied(t, text)}
        for text in texts
    ]
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
    objects, rows = some_sample(9, 3000)
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


def test_a_plan_grid_fits_the_median_box() -> None:
    objects, _ = some_sample(1)
    rows = [
        {"id": str(i), "expression": "river", "region": {"rect": [0, 0, side, side]}}
        for i, side in enumerate([0.1, 0.5, 0.5, 0.5, 30])
    ]
    assert sampled(objects, rows, None).stats.grid == Grid.for_queries(0.5, 0.5)
    assert sampled(objects, [], None).stats.grid == Grid()


def test_wrong_samples_are_refused() -> None:
    objects, rows = some_sample(1)
    with pytest.raises(InvalidArgument, match="no objects"):
        sampled(objects.slice(0, 0), rows)
    with pytest.raises(InvalidArgument, match=r"query 'x' expression: column 1: ~ is reserved"):
        sampled(objects, [{"id": "x", "expression": "~"}])


def messages_of(held: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """The attributes of objects as messages."""
    off, data = split_opaque(*opaque_column(held), len(held))[:2]
    return [data[a:b].tobytes() for a, b in itertools.pairwise(off)]


def test_attributes_are_counted_and_posted_under_as_words_are() -> None:
    rng = np.random.default_rng(4)
    held = [
        {"kind": str(rng.choice(["quake", "fire", "flood"], p=[0.1, 0.3, 0.6]))}
        | ({"mag": float(rng.integers(0, 4))} if rng.random() < 0.7 else {})
        | {"x": int(rng.integers(0, 11)), "y": int(rng.integers(0, 11))}
        for _ in range(300)
    ]
    texts = [str(rng.choice(["storm river", "river", "calm"])) for _ in range(300)]
    objects = posts(np.full(300, 1.0), np.full(300, 1.0), texts, attributes=messages_of(held))
    expressions = {
        'river AND kind = "quake"': 'kind = "quake"',
        'storm AND kind = "flood"': "storm",
        'kind = "quake" AND mag > 1': 'kind = "quake"',
        "mag >= 2": "mag COMPARED",
        "mag != 7": "mag COMPARED",
        "mag EXISTS": "mag EXISTS",
        'NOT kind = "quake"': TOP_TERM,
        "river AND mag = 9.5": "mag = 9.5",  # as the sample has no such object
        "calm AND depth = 3": "calm",  # of which it knows nothing
        "x = 3 AND y = 2 AND river": "(x = 3 AND y = 2)",
        'kind in ("quake", "fire")': 'kind = "fire"',
    }
    rows = [
        {"id": str(i), "expression": expression, "region": {"rect": [0.9, 0.9, 1.1, 1.1]}}
        for i, expression in enumerate(expressions)
    ]
    found = sampled(objects, rows)
    for name, value in {("kind", "quake"), ("kind", "fire"), ("mag", 2.0)}:
        many = sum(attributes.get(name) == value for attributes in held)
        written = f'"{value}"' if isinstance(value, str) else f"{value:.0f}"
        assert found.frequencies[f"{name} = {written}"] == many > 0
    present = sum("mag" in attributes for attributes in held)
    assert found.frequencies["mag EXISTS"] == present
    assert found.frequencies["kind EXISTS"] == 300
    units = dict(zip([found.stats.terms[t] for t in found.stats.term], found.stats.o, strict=True))
    assert set(units) == {*expressions.values(), 'kind = "quake"'}
    assert units["mag COMPARED"] == units["mag EXISTS"] == present
    assert units['kind = "quake"'] == sum(a["kind"] == "quake" for a in held)
    assert units["mag = 9.5"] == 0
    both = sum(a["x"] == 3 and a["y"] == 2 for a in held)
    assert units["(x = 3 AND y = 2)"] == both > 0
    mixed = take(
        lambda: pa.Table.from_batches([objects]).to_batches(max_chunksize=70),
        [batch(rows[::-1])], Analysis(0), GRID,
    )  # fmt: skip
    assert mixed.frequencies == found.frequencies
    assert mixed.stats.terms == found.stats.terms
    assert mixed.stats.o.tolist() == found.stats.o.tolist()


def test_frequencies_take_bounded_bytes_of_a_plan() -> None:
    """Values of which each object has another one would make a plan that no service takes; they are
    the rarest, which a query is posted under anyhow."""
    address = "https://example.org/\u00e9/" + "a" * 200
    values = [f"{address}{i}" for i in range(20_000)]
    place, messages = np.zeros(len(values)), messages_of([{"url": value} for value in values])
    objects = posts(place, place, ["rain"] * len(values), attributes=messages)
    kept = sampled(objects, []).frequencies
    assert kept["rain"] == kept["url EXISTS"] == len(values)
    size = len(json.dumps(kept, separators=(",", ":")))
    assert 0.99 * FREQUENCY_BYTES < size <= FREQUENCY_BYTES + 2
    known = Frequencies.of(kept, Analyzer(Analysis(0)))
    assert frequency_of(f'url = "{values[-1]}"', known) <= 1
