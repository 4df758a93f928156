"""What a posting of the radix GI2 says of its query, and room that grows while rows are stored."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ps2stream.protocol.rows import ExpressionForm
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.posting_kernels import TREE_WORDS
from tests.support.crowds import GRID as CROWD_GRID
from tests.support.crowds import draw_crowd
from tests.support.postings import GRID, Query, check, columns, objects, random_query, touched

MODES = (layout.FREE, layout.ALL, layout.ANY, layout.GENERAL)


def modes_of(form: ExpressionForm, terms: list[int], post: int) -> dict[int, tuple[int, int]]:
    """By term: what is left to check, and how many fingerprints there are for it."""
    box = (1.0, 1.0, 2.0, 2.0)
    query = Query(1, form, terms, post, [box], rect=box)
    if form == ExpressionForm.PROGRAM:
        query.prog = [0, 1, -1]
    posted = [t for i, t in enumerate(terms) if post >> i & 1]
    query.tags = {(c, t) for c in touched(query) for t in posted}
    index = RadixGI2(GRID)
    index.insert(*columns([query]))
    out: dict[int, tuple[int, int]] = {}
    arrays = index._arrays
    entries = layout.ENTRIES
    pairs = arrays.directory[:, :entries].ravel(), arrays.directory[:, entries:].ravel()
    for term, word in np.stack(pairs, 1).tolist():
        if ref := word & 0xFFFFFFFF:
            posting = int(arrays.n32[2 * (ref + 1) + 1])
            prints = int(arrays.n16[4 * (ref + 1) + 4])
            assert posting & layout.SLOT_MASK == 0
            out[term] = posting >> layout.SLOT_BITS, bool(prints & 255) + bool(prints >> 8)
    return out


def test_a_posting_says_what_is_left_to_check() -> None:
    free, every, some, general = MODES
    form = ExpressionForm
    assert modes_of(form.ALL, [5], 1) == {5: (free, 0)}
    assert modes_of(form.ALL, [5, 9], 2) == {9: (every, 1)}
    assert modes_of(form.ALL, [5, 9, 11, 12], 4) == {11: (every, 2)}
    # Only the smallest posting term of a conjunction emits.
    assert modes_of(form.ALL, [5, 9], 3) == {5: (every, 1)}
    assert modes_of(form.ANY, [5, 9], 3) == {5: (free, 0), 9: (some, 1)}
    assert modes_of(form.ANY, [5, 9, 11, 12], 15) == {
        5: (free, 0), 9: (some, 1), 11: (some, 2), 12: (general, 0),
    }  # fmt: skip
    assert modes_of(form.PROGRAM, [5, 9], 1) == {5: (every, 1)}


def test_all_arrays_grow_while_rows_are_stored() -> None:
    """Each query has a term of its own, so that the directory grows; some have many terms, so
    that the pool and the nodes do."""
    rng = np.random.default_rng(1)
    queries = [random_query(rng, handle) for handle in range(1, 400)]
    many = sorted({int(t) for t in rng.integers(0, 1 << 64, 64, np.uint64)})
    box = (-20.0, -20.0, 20.0, 20.0)
    for i, query in enumerate(queries):
        if i % 3 == 0:
            own = sorted({*many[: i % 64], i << 40})
            query = Query(query.handle, ExpressionForm.ANY, own, (1 << len(own)) - 1, [box])
            query.rect = box
            query.tags = {(c, t) for c in touched(query) for t in own}
            queries[i] = query
    index = RadixGI2(GRID)
    sizes: dict[str, set[int]] = defaultdict(set)
    for at in range(0, len(queries), 7):
        index.insert(*columns(queries[at : at + 7]))
        for name in ("directory", "nodes", "pool"):
            sizes[name].add(len(getattr(index._arrays, name)))
    assert all(len(of) > 1 for of in sizes.values())
    assert len(index._arrays.nodes) > 64 * TREE_WORDS
    lon, lat, off, term = objects(rng, 40)
    assert check(index, queries, 400, (lon, lat, off, term)) > 30
    every = np.unique(np.array([t for q in queries for t in q.terms], np.uint64))
    one = np.array([11.25]), np.array([11.25]), np.array([0, len(every)]), every
    assert check(index, queries, 400, one) > 130


def test_the_table_of_cells_grows_with_the_cells_that_have_queries() -> None:
    crowd = draw_crowd(np.random.default_rng(1), 2000, 15.0, 1.0)
    index = RadixGI2(CROWD_GRID)
    rows = crowd.rows(0, 2000)
    before = len(index._arrays.cells)
    index.insert(*rows)
    assert len(index._arrays.cells) > before
    (census,) = index.census()
    assert census is not None
    cell, count = np.unique(rows[2], return_counts=True)
    base = cell >> 28 == 0
    counted = dict(zip(census.cell.tolist(), census.queries.tolist(), strict=True))
    assert {c: counted[c] for c in cell[base].tolist()} == dict(
        zip(cell[base].tolist(), count[base].tolist(), strict=True)
    )
