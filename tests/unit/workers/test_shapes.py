"""Circles and polygons in GI2: what lies in the box of a query need not lie in the query."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.rows import ExpressionForm
from ps2stream.space.polygons import PolygonCache
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import MatchColumns
from ps2stream.workers.shapes import keep_exact_matches
from tests.support.postings import GRID, Query, check, columns, touched

BOX = (-12.0, -12.0, 12.0, 12.0)
TERM = 5
CIRCLE = (0.0, 0.0, 900.0)
TRIANGLE = [(-12.0, -12.0), (12.0, -12.0), (0.0, 12.0)]


def query(handle: int, **shape: object) -> Query:
    found = Query(handle, ExpressionForm.ALL, [TERM], 1, [BOX], **shape)  # type: ignore[arg-type]
    found.tags = {(cell, TERM) for cell in touched(found)}
    return found


def within(shape: dict[str, object]) -> int:
    """The pairs with 400 objects in the box, of which each is checked by the definition."""
    rng, n = np.random.default_rng(7), 400
    index, one = GI2(GRID), query(1, **shape)
    index.insert(*columns([one]))
    lon, lat = rng.uniform(-12, 12, (2, n))
    objects = lon, lat, np.arange(n + 1), np.full(n, TERM, np.uint64)
    return check(index, [one], 1, objects)


@pytest.mark.parametrize("shape", [{"circle": CIRCLE}, {"ring": TRIANGLE}], ids=["circle", "ring"])
def test_of_the_objects_in_a_box_only_those_in_the_shape_match(shape: dict[str, object]) -> None:
    assert 0 < within(shape) < within({"rect": BOX}) == 400


def test_queries_of_all_shapes_are_told_apart_in_one_batch() -> None:
    rng, n = np.random.default_rng(8), 60
    queries = [query(1, circle=CIRCLE), query(2, rect=BOX), query(3, ring=TRIANGLE)]
    queries += [query(4, circle=(8.0, 8.0, 300.0)), query(5, ring=TRIANGLE)]
    index = GI2(GRID)
    index.insert(*columns(queries))
    lon, lat = rng.uniform(-14, 14, (2, n))
    assert check(index, queries, 5, (lon, lat, np.arange(n + 1), np.full(n, TERM, np.uint64))) > n


def test_pairs_of_queries_without_a_shape_are_kept() -> None:
    """None is looked up, so the pool may be empty."""
    found = MatchColumns(np.arange(3, dtype=np.uint32), np.arange(3) + 7, np.arange(3) + 9)
    pool, at = np.zeros(0, np.uint64), np.zeros(3)
    kept = keep_exact_matches(found, np.zeros(3, np.int64), pool, at, at, PolygonCache())
    assert kept.row.tolist() == found.row.tolist()
    assert kept.handle.tolist() == found.handle.tolist()
    assert kept.session.tolist() == found.session.tolist()
