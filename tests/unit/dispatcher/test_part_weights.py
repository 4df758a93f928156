"""The load of the parts of a plan, as far as one dispatcher knows."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ps2stream.dispatcher.part_weights import weigh_parts
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.routing.costs import PartWeights
from tests.support.routers import EAST, GRID, insert, machine
from tests.support.routing import object_rows

WEST_CELL, EAST_CELL = GRID.cells(np.array([-20.0, 20.0]), np.zeros(2), 0).tolist()


def summed(weights: PartWeights) -> dict[tuple[int, int], float]:
    found: Counter[tuple[int, int]] = Counter()
    for cell, worker, weight in zip(*(column.tolist() for column in weights), strict=True):
        found[cell, worker] += weight
    return dict(found)


def test_recent_objects_weigh_where_they_would_be_sent_now() -> None:
    router = machine()
    router.on(insert(1, term=7))
    router.on(insert(2, term=8, box=EAST))
    reservoir = ObjectReservoir(100)
    lon = [-20.0, -20.0, 20.0, 20.0]
    reservoir.add(object_rows(lon, [0.0] * 4, [(7,), (7, 8), (7,), (8,)]), 5)
    sample = reservoir.sample()
    weights = weigh_parts(router.gridt, sample._replace(weight=np.array([1.0, 2.0, 4.0, 8.0])))
    assert summed(weights) == {(WEST_CELL, 0): 3.0, (EAST_CELL, 1): 8.0}


def test_without_objects_the_live_queries_weigh() -> None:
    router = machine()
    router.on(insert(1))
    router.on(insert(2, box=EAST))
    router.on(insert(3, term=8, box=EAST))
    weights = weigh_parts(router.gridt, ObjectReservoir(100).sample())
    assert summed(weights) == {(WEST_CELL, 0): 1.0, (EAST_CELL, 1): 2.0}


def test_objects_that_nobody_wants_do_not_hide_the_queries() -> None:
    router = machine()
    router.on(insert(1))
    reservoir = ObjectReservoir(100)
    reservoir.add(object_rows([20.0], [0.0], [(7,)]), 5)
    assert summed(weigh_parts(router.gridt, reservoir.sample())) == {(WEST_CELL, 0): 1.0}
