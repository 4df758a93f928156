"""The queries that rank workers, against a naive count."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.shedding_kernels import count_live
from ps2stream.protocol.rows import UpdateKind
from ps2stream.routing.h1 import H1, HashedLeaf
from tests.support.routers import EAST, GRID, WEST
from tests.support.routing import Row, object_rows, query_rows


def test_live_queries_are_counted_where_the_object_is() -> None:
    rng = np.random.default_rng(3)
    gridt = Gridt(H1(2, np.zeros(1 << 9, np.uint32), [HashedLeaf((0, 1))]), GRID)
    boxes = (WEST, EAST, (-180.0, -90.0, 180.0, 90.0))
    drawn = [(int(rng.integers(1, 6)), int(rng.integers(3))) for _ in range(60)]
    rows = [
        Row((term,), (0,), (boxes[box],), UpdateKind.INSERT, i + 1, i + 1)
        for i, (term, box) in enumerate(drawn)
    ]
    gridt.insert(gridt.expand(query_rows(rows)))
    objects = object_rows([-20.0, 20.0, 100.0], [0.0] * 3, [(1, 2, 9), (1,), (3, 4, 5)])
    levels = gridt.levels
    cells = np.stack([GRID.cells(objects.lon, objects.lat, level) for level in levels])
    live = np.zeros(len(objects.term), np.int64)
    count_live(gridt._h2.arrays, cells, objects.term_off, objects.term, live)
    near = {0: {0, 2}, 1: {1, 2}, 2: {2}}  # the boxes that each object is in
    owner = np.repeat(np.arange(3), np.diff(objects.term_off)).tolist()
    expected = [
        sum(term == of and box in near[i] for of, box in drawn)
        for i, term in zip(owner, objects.term.tolist(), strict=True)
    ]
    assert live.tolist() == expected
